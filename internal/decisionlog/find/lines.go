package find

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

const (
	// maxLine is the longest line that is looked at, in bytes: one of 10,000 descriptors is
	// shorter. Lines about limits, which hold whole files, may be longer and are skipped.
	maxLine = 16 << 20
	// keptLine is how many bytes of memory are kept from one line to the next.
	keptLine = 1 << 20
	// headOfLine is how much of a line that is too long is looked at.
	headOfLine = 64
)

// lines reads lines, each in bounded memory. A line that has no end yet is kept, and goes
// on when there is more to read.
type lines struct {
	from   *bufio.Reader
	number int64
	part   []byte // of a line
	isLong bool   // part is the head of a line that is too long
	isDone bool   // part is a line that was returned
}

func newLines(from io.Reader) *lines { return &lines{from: bufio.NewReaderSize(from, 1<<16)} }

// line is one that was read. Its memory is valid until the next one is read.
type line struct {
	text   []byte // without its newline; only the head if it is too long
	isLong bool
}

// next returns the next line. Its error is that of the reader; io.EOF if there is no whole
// line now.
func (l *lines) next() (line, error) {
	if l.isDone {
		l.part, l.isLong, l.isDone = l.part[:0], false, false
		if cap(l.part) > keptLine {
			l.part = nil
		}
	}
	for {
		more, err := l.from.ReadSlice('\n')
		if err == nil && len(l.part) == 0 {
			l.number++
			return line{text: bytes.TrimRight(more, "\r\n")}, nil
		}
		l.add(more)
		if err == nil {
			return l.last(), nil
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line{}, err
		}
	}
}

func (l *lines) add(more []byte) {
	switch {
	case l.isLong:
	case len(l.part)+len(more) > maxLine:
		l.part, l.isLong = bytes.Clone(l.part[:min(len(l.part), headOfLine)]), true
	default:
		l.part = append(l.part, more...)
	}
}

// last returns what there is of a line, which may have no end.
func (l *lines) last() line {
	l.number++
	l.isDone = true
	return line{bytes.TrimRight(l.part, "\r\n"), l.isLong}
}

// hasPart reports whether a line has begun that has no end.
func (l *lines) hasPart() bool { return !l.isDone && len(l.part) > 0 }
