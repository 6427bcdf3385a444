package yamlfile

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Error is one mistake in a file.
type Error struct {
	// File is named as reached from the path that was loaded.
	File string
	// Line and Column count from 1; 0 means the whole file.
	Line, Column int
	// Path leads to the place within the file: descriptors[2].rate_limit.period
	Path string
	// Found says what is there, and Allowed what may be there.
	Found, Allowed string
}

// Error returns "file:line:column: path: found this; allowed: that".
func (e Error) Error() string { return place(e.File, e.Line, e.Column, e.Path) + e.Text() }

// Text returns "found this; allowed: that".
func (e Error) Text() string {
	text := "found " + e.Found
	if e.Allowed != "" {
		text += "; allowed: " + e.Allowed
	}
	return text
}

// Errors are all errors of all files, by file and line.
type Errors []Error

// Error returns the errors, one per line.
func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i := range e {
		lines[i] = e[i].Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap lets errors.As find an Error.
func (e Errors) Unwrap() []error {
	errs := make([]error, len(e))
	for i := range e {
		errs[i] = e[i]
	}
	return errs
}

// Sort sorts by file, line and column.
func (e Errors) Sort() {
	slices.SortStableFunc(e, func(a, b Error) int {
		return cmp.Or(strings.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
}

// Warning is about something in a valid file that can hardly be intended.
type Warning struct {
	File         string
	Line, Column int
	Path, Text   string
}

// String returns "file:line:column: path: text".
func (w Warning) String() string {
	return place(w.File, w.Line, w.Column, w.Path) + w.Text
}

// SortWarnings sorts by file, line and column.
func SortWarnings(w []Warning) {
	slices.SortStableFunc(w, func(a, b Warning) int {
		return cmp.Or(strings.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
}

// place returns "file:line:column: path: ", without the unknown parts.
func place(file string, line, column int, path string) string {
	var s strings.Builder
	if file != "" {
		s.WriteString(file)
		if line > 0 {
			fmt.Fprintf(&s, ":%d:%d", line, column)
		}
		s.WriteString(": ")
	}
	if path != "" {
		s.WriteString(path + ": ")
	}
	return s.String()
}
