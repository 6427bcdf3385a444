package trace

import (
	"fmt"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/rules"
	"github.com/ratelimitd/ratelimitd/internal/config/rules/words"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
)

// Search is how the entries of a descriptor lead to its rule, or where they leave the tree.
type Search struct {
	Entries []bucket.Entry
	// Rule is what Domain.Match returns.
	Rule *rules.Rule
	// Depth is how many entries match, and Reached is the descriptor of the file to which they
	// lead, or nil for none.
	Depth   int
	Reached *Place
	// Miss is why Rule is nil, and Near is the descriptor of the file that may have been
	// meant, if one is near.
	Miss Miss
	Near *Place
	// IsBeginning is set if what is TooShort begins descriptors that have rules.
	IsBeginning bool
}

// Place is where a descriptor of a limits file is.
type Place struct {
	// Path is the way to it as in Rule.Path: "user=alice / route".
	Path string
	File string
	Line int // 0 if it does not come from a file
}

// Miss is why a descriptor has no rule.
type Miss uint8

// Misses.
const (
	NotMissed Miss = iota
	// MissedKey: no descriptor below what was reached has the key of the next entry.
	MissedKey
	// MissedValue: none matches the value. Perhaps none has the key, if there were too many to
	// compare.
	MissedValue
	// TooShort: the entries end above the limits of the file.
	TooShort
	// TooLong: the entries go on where the file has nothing below. Near is then Reached, if that
	// has a limit.
	TooLong
)

// MaxLooks is how many descriptors of a file may be compared to find near ones for one
// request, which takes milliseconds.
const MaxLooks = 500_000

// Of searches for a descriptor as Domain.Match does. To find what is near it compares at most
// looks descriptors of the file; where that is too few, Near is nil.
func Of(d *rules.Domain, entries []bucket.Entry, looks int) *Search {
	s, n := &Search{Entries: entries}, d.Root()
	for s.Depth < len(entries) {
		next := n.Next(&entries[s.Depth])
		if next == nil {
			break
		}
		n = next
		s.Depth++
	}
	if s.Depth > 0 {
		s.Reached = placeOf(d, n)
	}
	switch {
	case s.Depth == len(entries) && s.Depth > 0 && n.Rule() != nil:
		s.Rule = n.Rule()
	case s.Depth == len(entries):
		s.Miss = TooShort
		if s.IsBeginning = s.Depth > 0 && d.LeadsToRule(n); s.IsBeginning {
			s.Near = nearBelow(d, n, looks)
		}
	case s.Depth > 0 && !n.HasBelow():
		s.Miss = TooLong
		if n.Rule() != nil {
			s.Near = s.Reached
		}
	default:
		s.Miss, s.Near = nearEntry(d, n, entries[s.Depth], looks)
	}
	return s
}

func placeOf(d *rules.Domain, n *rules.Node) *Place {
	file, line := d.PositionOf(n)
	return &Place{Path: rules.PathText(n.Entries()), File: file, Line: line}
}

// String returns path, file and line.
func (p *Place) String() string {
	return fmt.Sprintf("%s (%s)", yamlfile.Shorten(p.Path), yamlfile.FileLine(p.File, p.Line))
}

// Why says in a sentence why there is no rule, and what may have been meant.
func (s *Search) Why() string {
	where, near := "here", ""
	if s.Reached != nil {
		where = "below " + s.Reached.String()
	}
	if s.Near != nil {
		near = fmt.Sprintf("; did you mean %s?", s.Near)
	}
	left := s.Entries[s.Depth:]
	switch {
	case s.Miss == MissedKey:
		return fmt.Sprintf("no descriptor %s has the key %s%s", where, yamlfile.Printable(yamlfile.Shorten(left[0].Key)), near)
	case s.Miss == MissedValue:
		return fmt.Sprintf("no descriptor %s matches %s%s", where, words.Entries(left[:1]), near)
	case s.Miss == TooShort && s.Near != nil:
		return fmt.Sprintf("%s is only the beginning of a rule, such as %s", words.Entries(s.Entries), s.Near)
	case s.Miss == TooShort:
		return words.Entries(s.Entries) + " leads to no limit"
	case s.Miss == TooLong && s.Near != nil:
		return fmt.Sprintf("%s has a limit, but the descriptor goes on with %s, and a rule is only for descriptors of its own length", s.Near, words.Entries(left[:1]))
	case s.Miss == TooLong:
		return fmt.Sprintf("no descriptor %s goes on with %s", where, words.Entries(left[:1]))
	}
	return ""
}
