package ask

import (
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/ratelimitd/ratelimitd/internal/cli/terminal"
	"github.com/ratelimitd/ratelimitd/internal/spelling"
)

// branch is a line of a printed tree, with the lines below it.
type branch struct {
	text string
	// isWhole keeps it on one line: it contains something to paste.
	isWhole bool
	below   []branch
}

// add adds a line below, and returns it.
func (b *branch) add(format string, args ...any) *branch {
	b.below = append(b.below, branch{text: fmt.Sprintf(format, args...)})
	return &b.below[len(b.below)-1]
}

// addWhole adds a line that is never wrapped, such as a key with blanks.
func (b *branch) addWhole(format string, args ...any) *branch {
	added := b.add(format, args...)
	added.isWhole = true
	return added
}

// write writes the lines below b, each after indent. Lines wider than width are wrapped,
// unless it is 0.
func (b *branch) write(w io.Writer, indent string, width int) error {
	for i := range b.below {
		fork, further := "├─ ", "│  "
		if i == len(b.below)-1 {
			fork, further = "└─ ", "   "
		}
		if err := b.below[i].writeText(w, indent+fork, indent+further, width); err != nil {
			return err
		}
		if err := b.below[i].write(w, indent+further, width); err != nil {
			return err
		}
	}
	return nil
}

// writeText writes a line, with what does not fit after further and, if lines are below
// it, the stem of their tree.
func (b *branch) writeText(w io.Writer, first, further string, width int) error {
	stem := "  "
	if len(b.below) > 0 {
		stem = "│ "
	}
	room := 0
	if width > 0 && !b.isWhole {
		room = max(terminal.MinColumns/2, width-utf8.RuneCountInString(further+stem))
	}
	for i, line := range terminal.Wrapped(spelling.Visible(b.text), room) {
		if i > 0 {
			first = further + stem
		}
		if _, err := fmt.Fprintln(w, first+line); err != nil {
			return err
		}
	}
	return nil
}
