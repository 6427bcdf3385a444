package replay

import (
	"fmt"

	"github.com/ratelimitd/ratelimitd/internal/decisionlog"
)

// Format reads the lines of a log. One belongs to one log.
type Format interface {
	// begin looks at the first line that is not blank. used is set if that is no
	// request. Its error ends the replay.
	begin(line []byte) (used bool, err error)
	// moment returns what orders a line, and what it is about.
	moment(line []byte) (at int64, seq uint32, kind decisionlog.Kind, err error)
	// read reads a line into what has another's memory. Its texts may share the line's.
	read(line []byte, to *Record) error
}

// Decisions returns the format of the daemon's log of decisions.
func Decisions() Format { return new(decisions) }

type decisions struct{ line decisionlog.Line }

func (d *decisions) begin(line []byte) (bool, error) {
	if err := d.line.ReadJSON(line); err != nil {
		return false, fmt.Errorf("%w; for an access log give --map FILE", err)
	}
	return false, nil
}

func (d *decisions) moment(line []byte) (at int64, seq uint32, kind decisionlog.Kind, err error) {
	if at, seq, kind, ok := decisionlog.Moment(line); ok {
		return at, seq, kind, nil
	}
	err = d.line.ReadJSON(line)
	return d.line.At, d.line.Seq, d.line.Kind, err
}

func (d *decisions) read(line []byte, to *Record) error {
	to.Recorded = true
	return to.ReadJSON(line)
}
