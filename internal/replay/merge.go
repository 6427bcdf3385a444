package replay

import (
	"fmt"
	"io"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/timespan"
)

// merge merges several logs into one order.
type merge struct {
	logs   []*Log
	loaded func(*Record) error
	warn   func(string)
	last   int64 // when the line read last was decided
	late   uint64
}

// next reads the next line. Its texts are valid until the next call. The error is io.EOF
// after the last.
func (m *merge) next(to *Record) error {
	for {
		var first *Log
		for _, l := range m.logs {
			if err := l.fill(m.loaded, m.warn); err != nil {
				return err
			}
			if l.window.len() > 0 && (first == nil || l.window.first().compare(first.window.first()) < 0) {
				first = l
			}
		}
		if first == nil {
			return io.EOF
		}
		h := first.window.pop()
		if h.At < m.last {
			m.tooLate(first, &h)
		}
		m.last = h.At
		to.Log, to.Number, to.inForce = first.name, h.number, h.inForce
		err := first.format.read(h.text, to)
		if err == nil {
			return nil
		}
		if err := first.skip(h.number, err, !h.isTorn, m.warn); err != nil {
			return err
		}
	}
}

// tooLate warns of a line that should have been decided before others that already were.
func (m *merge) tooLate(l *Log, h *held) {
	if m.late++; m.late > maxWarnings {
		return
	}
	by := timespan.Format(time.Duration(m.last-h.At) * time.Microsecond)
	m.warn(fmt.Sprintf("%s:%d: found a line %s older than one %s lines before it; allowed: a log nearly in order of time, or a longer --window. Limits count it late",
		l.name, h.number, by, grouped(l.window.max)))
}

// unread returns how many lines could not be read.
func (m *merge) unread() (n uint64) {
	for _, l := range m.logs {
		n += l.unread
	}
	return n
}
