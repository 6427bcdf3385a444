package ask

import (
	"fmt"
	"io"

	"github.com/ratelimitd/ratelimitd/internal/spelling"
)

// branch is a line of a printed tree, with the lines below it.
type branch struct {
	text  string
	below []branch
}

// add adds a line below, and returns it.
func (b *branch) add(format string, args ...any) *branch {
	b.below = append(b.below, branch{text: fmt.Sprintf(format, args...)})
	return &b.below[len(b.below)-1]
}

// write writes the lines below b, each after indent.
func (b *branch) write(w io.Writer, indent string) error {
	for i := range b.below {
		fork, further := "├─ ", "│  "
		if i == len(b.below)-1 {
			fork, further = "└─ ", "   "
		}
		if _, err := fmt.Fprintln(w, indent+fork+spelling.Visible(b.below[i].text)); err != nil {
			return err
		}
		if err := b.below[i].write(w, indent+further); err != nil {
			return err
		}
	}
	return nil
}
