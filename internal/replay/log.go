package replay

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/ratelimitd/ratelimitd/internal/decisionlog"
)

// Record is a line of a log.
type Record struct {
	decisionlog.Line
	// Log is the log's name, and Number the line's, from 1 on.
	Log    string
	Number int64
	// Recorded is set if the line says what was decided.
	Recorded bool
	// inForce are the settings of the daemon that wrote it, or nil if the log does not
	// say. They are in an earlier line about limits in the same log.
	inForce *decisionlog.Settings
}

// Where identifies the line in errors.
func (r *Record) Where() string { return fmt.Sprintf("%s:%d", r.Log, r.Number) }

// Log is a log that is read line by line. Its lines are held in a window, in which they
// are sorted.
type Log struct {
	name   string
	format Format
	from   io.ReadCloser
	lines  *bufio.Reader
	window window
	// number is the number of the last line read.
	number int64
	long   []byte // a line longer than the reader's buffer
	ended  bool
	began  bool
	// inForce are the settings of the last line about limits, or nil.
	inForce *decisionlog.Settings
	// first is the first line, if Settings has read it.
	first *firstLine
	// unread counts lines that could not be read, and lost decisions that the log says it
	// lacks.
	unread, lost uint64
	// bounds are those by which decisions were left out first, if any were in force.
	bounds *decisionlog.Bounds
}

// Bounds of a log.
const (
	// maxLine is the longest line in bytes: one of the kind limits contains all files.
	maxLine = 64 << 20
	// maxUnread is how many lines of a log may be unreadable.
	maxUnread = 1000
)

// Open opens a log; "-" is the input. Compression by gzip or zstd is detected from the
// content.
func Open(name string, input io.Reader, f Format, windowLines int) (*Log, error) {
	if name == "-" {
		return NewLog("standard input", io.NopCloser(input), f, windowLines)
	}
	file, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("log: %w", err)
	}
	if info, err := file.Stat(); err == nil && info.IsDir() {
		file.Close()
		return nil, fmt.Errorf("found the folder %s; allowed: a file, or - for standard input", name)
	}
	return NewLog(name, file, f, windowLines)
}

// NewLog reads a log from a reader, which it then closes.
func NewLog(name string, from io.ReadCloser, f Format, windowLines int) (*Log, error) {
	l := &Log{name: name, format: f, from: from, window: window{max: max(1, windowLines)}}
	plain := bufio.NewReaderSize(from, 1<<20)
	unpacked, err := decisionlog.Unpack(plain)
	if err != nil {
		from.Close()
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	l.lines = bufio.NewReaderSize(unpacked, 1<<20)
	return l, nil
}

// Close ends the use of a log.
func (l *Log) Close() error { return l.from.Close() }

// lineError is an error of a line.
func (l *Log) lineError(err error) error { return fmt.Errorf("%s:%d: %w", l.name, l.number, err) }

// firstLine is a line that was read ahead.
type firstLine struct {
	text  []byte
	whole bool
	err   error
}

// Settings returns what the first line says about the daemon's settings, or nil if it
// says nothing. It must be called before Run.
func (l *Log) Settings() *decisionlog.Settings {
	text, whole, err := l.line()
	l.number = 0
	l.first = &firstLine{text: bytes.Clone(text), whole: whole, err: err}
	var line decisionlog.Line
	if _, is := l.format.(*decisions); !is || err != nil || line.ReadJSON(l.first.text) != nil {
		return nil // Run reports it
	}
	return line.Settings
}

// line returns the next line without its end, and whether it had one. The memory is valid
// until the next call.
func (l *Log) line() (text []byte, whole bool, err error) {
	if f := l.first; f != nil {
		l.first = nil
		l.number++
		return f.text, f.whole, f.err
	}
	l.number++
	text, err = l.lines.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		l.long = append(l.long[:0], text...)
		for errors.Is(err, bufio.ErrBufferFull) {
			if len(l.long) > maxLine {
				return nil, false, l.lineError(fmt.Errorf("found a line of more than %s bytes; allowed: at most as many", grouped(maxLine)))
			}
			text, err = l.lines.ReadSlice('\n')
			l.long = append(l.long, text...)
		}
		text = l.long
	}
	switch {
	case err == nil:
		return bytes.TrimSuffix(text[:len(text)-1], []byte("\r")), true, nil
	case !errors.Is(err, io.EOF):
		if errors.Is(err, io.ErrUnexpectedEOF) {
			err = errors.New("found compressed data that ends too early; allowed: all of the file")
		}
		return nil, false, l.lineError(err)
	case len(text) == 0:
		return nil, false, io.EOF
	}
	return text, false, nil
}

// fill reads lines into the window until it is full or the log ends. It calls
// loaded with limits at once, since decisions may precede them in the log.
func (l *Log) fill(loaded func(*Record) error, warn func(string)) error {
	for !l.ended && !l.window.isFull() {
		text, whole, err := l.line()
		if err == io.EOF {
			l.ended = true
			return nil
		} else if err != nil {
			return err
		}
		if err := l.take(text, whole, loaded); err != nil {
			if !isUnreadable(err) {
				return err
			}
			if err := l.skip(l.number, err, whole, warn); err != nil {
				return err
			}
		}
	}
	return nil
}

// unreadable is the error of a line that is skipped.
type unreadable struct{ error }

func isUnreadable(err error) bool {
	var u unreadable
	return errors.As(err, &u)
}

// take puts a line into the window.
func (l *Log) take(text []byte, whole bool, loaded func(*Record) error) error {
	if len(bytes.TrimSpace(text)) == 0 {
		return nil
	}
	if !l.began {
		used, err := l.format.begin(text)
		if err != nil {
			return l.lineError(err)
		}
		if l.began = true; used {
			return nil
		}
	}
	h, err := l.format.head(text)
	if err != nil {
		return unreadable{err}
	}
	if h.Kind == decisionlog.Loaded || h.Kind == decisionlog.Lost {
		r := Record{Log: l.name, Number: l.number}
		if err := l.format.read(text, &r); err != nil {
			return unreadable{err}
		}
		if h.Kind == decisionlog.Lost {
			l.lost += uint64(r.Lost)
			return nil
		}
		if l.inForce = r.Settings; l.bounds == nil && r.Settings != nil {
			l.bounds = r.Settings.Bounds
		}
		return loaded(&r)
	}
	l.window.push(held{Head: h, number: l.number, isTorn: !whole, inForce: l.inForce}, text)
	return nil
}

// skip skips a line that cannot be read. One without an end was being written when a
// daemon was killed.
func (l *Log) skip(number int64, why error, whole bool, warn func(string)) error {
	why = fmt.Errorf("%s:%d: %w", l.name, number, why)
	if l.unread++; l.unread > maxUnread {
		return fmt.Errorf("%w; this is line %s that cannot be read", why, grouped(l.unread))
	}
	switch {
	case !whole:
		warn(fmt.Sprintf("%v; the last line is passed over: it was not written to its end", why))
	case l.unread <= maxWarnings:
		warn(fmt.Sprintf("%v; the line is passed over", why))
	}
	return nil
}

// maxWarnings bounds the warnings of each kind.
const maxWarnings = 10
