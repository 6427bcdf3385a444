package yamlfile

import (
	"fmt"

	"go.yaml.in/yaml/v3"
)

// Reader walks the values of one file and gathers what is wrong with them.
type Reader struct {
	File string
	// levels are the levels of the file. A key that is unknown in one of them may belong
	// in another.
	levels []*Level
	// Lenient turns what envoyproxy/ratelimit accepts into warnings.
	Lenient bool
	// Made is set if a program made the text: its lines mean nothing.
	Made     bool
	Errs     Errors
	Warnings []Warning

	// reported holds what was already reported: a mistake behind an anchor is one mistake,
	// however many aliases lead to it.
	reported map[finding]bool
	// left is how many more nodes may be visited, counting through aliases. It stops
	// files whose aliases multiply.
	left int
}

type finding struct {
	line, column int
	text         string
}

// maxAliasVisits is how many nodes may be visited beyond those of the file.
const maxAliasVisits = 1_000_000

// NewReader returns a Reader for a file of the given size in bytes, whose mappings have
// these levels.
func NewReader(file string, size int, levels ...*Level) *Reader {
	return &Reader{File: file, levels: levels, reported: make(map[finding]bool), left: size + maxAliasVisits}
}

// Bad reports what was found at v.
func (w *Reader) Bad(v Value, found, allowed string) { w.BadAt(v.Position(), found, allowed) }

// BadAt reports what was found at a place.
func (w *Reader) BadAt(at Position, found, allowed string) {
	if !w.first(at, found) {
		return
	}
	w.Errs = append(w.Errs, Error{File: w.File, Line: at.Line, Column: at.Column, Path: at.Path.String(), Found: found, Allowed: allowed})
}

// Lax reports something found at v that envoyproxy/ratelimit accepts: like Bad or, if
// lenient, as a warning that says how it is read. It returns whether it is accepted.
func (w *Reader) Lax(v Value, found, allowed, made string) bool {
	if !w.Lenient {
		w.Bad(v, found, allowed)
		return false
	}
	w.Warn(v, "found %s; %s", found, made)
	return true
}

// Warn warns about what is at v.
func (w *Reader) Warn(v Value, format string, args ...any) {
	w.WarnAt(v.Position(), format, args...)
}

// WarnAt warns about what is at a place.
func (w *Reader) WarnAt(at Position, format string, args ...any) {
	if text := fmt.Sprintf(format, args...); w.first(at, text) {
		w.Warnings = append(w.Warnings, Warning{File: w.File, Line: at.Line, Column: at.Column, Path: at.Path.String(), Text: text})
	}
}

// first reports whether this was not reported before.
func (w *Reader) first(at Position, text string) bool {
	if w.Made {
		return true
	}
	f := finding{line: at.Line, column: at.Column, text: text}
	if w.reported[f] {
		return false
	}
	w.reported[f] = true
	return true
}

// nothing is what Follow returns once too many nodes were visited.
var nothing = &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null"}

// Follow returns the node of v or, if that is an alias, the node that the alias stands
// for.
func (w *Reader) Follow(v Value) *yaml.Node {
	if w.left < 0 {
		return nothing
	}
	if w.left--; w.left < 0 {
		w.Bad(v, "aliases that multiply to more than a million nodes", "fewer")
		return nothing
	}
	n := v.Node
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}

// Spent reports whether too many nodes were visited. Anything read after that means
// nothing.
func (w *Reader) Spent() bool { return w.left < 0 }
