package replay

import (
	"fmt"

	"github.com/ratelimitd/ratelimitd/internal/decisionlog"
)

// Format reads the lines of a log. Each is for one log.
type Format interface {
	// begin looks at the first line that is not blank. used is set if it is not a
	// request. Its error ends the replay.
	begin(line []byte) (used bool, err error)
	// head returns what orders a line, and what it is about.
	head(line []byte) (decisionlog.Head, error)
	// read reads a line into a Record, whose memory is reused. Its texts are valid until
	// the next call.
	read(line []byte, to *Record) error
}

// Decisions returns the format of the daemon's decision log.
func Decisions() Format { return new(decisions) }

type decisions struct {
	reader decisionlog.Reader
	line   decisionlog.Line
}

func (d *decisions) begin(line []byte) (bool, error) {
	if err := d.line.ReadJSON(line); err != nil {
		return false, fmt.Errorf("%w; for an access log give --map FILE, for a table --csv", err)
	}
	return false, nil
}

func (d *decisions) head(line []byte) (decisionlog.Head, error) { return d.reader.Head(line) }

func (d *decisions) read(line []byte, to *Record) error {
	to.Recorded = true
	return d.reader.Read(&to.Line, line)
}
