package find

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/decisionlog"
	"github.com/ratelimitd/ratelimitd/internal/decisionlog/sink"
)

// Stats count what a Finder has read.
type Stats struct {
	// Lines are those of decisions that could be read, and Found those that were looked for.
	Lines, Found uint64
	// About are lines about the subject, whatever else is asked.
	About uint64
	// Unread are lines and files that could not be read, and FirstUnread says what is
	// wrong with the first.
	Unread      uint64
	FirstUnread error
	// Hashed are descriptors of another subject with hashed values.
	Hashed uint64
	// Elsewhere is a descriptor that has the subject's entries, but does not begin with
	// them.
	Elsewhere []bucket.Entry
}

// Found is a line that was looked for. It is valid until the call that gets it returns.
type Found struct {
	*decisionlog.Line
	// Text is the line as it is, without its newline.
	Text []byte
	// Chosen are the indexes of the descriptors that were looked for.
	Chosen []int
}

// Finder looks for lines. It is used by one goroutine.
type Finder struct {
	Stats
	match  *matcher
	tell   func(Found) error
	pause  func() error
	poll   time.Duration
	ctx    context.Context
	line   decisionlog.Line
	reader decisionlog.Reader
}

// Options of a Finder.
type Options struct {
	Query
	// Tell gets each line that is found. Its error ends the search.
	Tell func(Found) error
	// Pause, if set, is called when there is nothing more to read for now.
	Pause func() error
	// Poll is how often a followed file is looked at; 0 is DefaultPoll.
	Poll time.Duration
}

// DefaultPoll is how often a followed file is looked at.
const DefaultPoll = 250 * time.Millisecond

// New returns a Finder, whose searches end with ctx.
func New(ctx context.Context, o Options) *Finder {
	f := &Finder{match: newMatcher(o.Query), tell: o.Tell, pause: o.Pause, poll: o.Poll, ctx: ctx}
	if f.poll <= 0 {
		f.poll = DefaultPoll
	}
	if f.pause == nil {
		f.pause = func() error { return nil }
	}
	return f
}

// Read looks through a log, which may be compressed; name is for messages.
func (f *Finder) Read(name string, from io.Reader) error {
	unpacked, err := decisionlog.Unpack(bufio.NewReaderSize(from, 1<<16))
	if err != nil {
		f.unread(fmt.Errorf("%s: %w", name, err))
		return nil
	}
	l := newLines(unpacked)
	if err := f.lines(name, l); err != nil {
		return err
	}
	return f.torn(name, l)
}

// File looks through one file.
func (f *Finder) File(name string) error {
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	return f.Read(name, file)
}

// Files looks through the file of a path and those that were rotated from it, the oldest
// first.
func (f *Finder) Files(path string) error {
	_, file, err := f.catchUp(path, "")
	if err != nil {
		return err
	}
	defer file.Close()
	return f.Read(path, file)
}

// catchUp looks through the files that were rotated from a path after the one with a stamp,
// and opens the path. None is rotated between the two.
func (f *Finder) catchUp(path, after string) (newest string, file *os.File, err error) {
	for {
		names, err := rotatedAfter(path, after)
		if err != nil {
			return after, nil, err
		}
		for _, name := range names {
			if err := f.rotated(name); err != nil {
				return after, nil, err
			}
			after = sink.Stamp(name)
		}
		file, err := os.Open(path)
		if err != nil {
			return after, nil, err
		}
		if names, err = rotatedAfter(path, after); err != nil || len(names) == 0 {
			return after, file, err
		}
		file.Close()
	}
}

// rotatedAfter returns the files that were rotated from a path after the one with a stamp.
func rotatedAfter(path, after string) ([]string, error) {
	names, err := sink.Rotated(path)
	if err != nil {
		return nil, err
	}
	for len(names) > 0 && sink.Stamp(names[0]) <= after {
		names = names[1:]
	}
	return names, nil
}

// clocksApart is how far the clock that names files may be off the one in lines.
const clocksApart = time.Hour

// rotated looks through a rotated file, which may be compressed or removed meanwhile, unless
// it was rotated before what is looked for.
func (f *Finder) rotated(name string) error {
	if at, ok := sink.RotatedAt(name); ok && f.match.Since != 0 && at.Add(clocksApart).UnixMicro() < f.match.Since {
		return nil
	}
	err := f.File(name)
	if errors.Is(err, os.ErrNotExist) {
		err = f.File(sink.Stamp(name) + ".gz")
	}
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrPermission) {
		f.unread(err)
		return nil
	}
	return err
}

// lines looks through the lines that can be read now.
func (f *Finder) lines(name string, l *lines) error {
	for {
		line, err := l.next()
		switch {
		case errors.Is(err, io.EOF):
			return f.pause()
		case err != nil:
			if errors.Is(err, io.ErrUnexpectedEOF) {
				err = errors.New("the compressed data ends too early")
			}
			f.unread(fmt.Errorf("%s:%d: %w", name, l.number+1, err))
			return f.pause()
		}
		if err := f.look(name, l.number, line); err != nil {
			return err
		}
		if err := f.ctx.Err(); err != nil {
			return err
		}
	}
}

// torn looks at a line that has no end. The daemon may be writing it, so it is not
// reported if it cannot be read.
func (f *Finder) torn(name string, l *lines) error {
	if !l.hasPart() {
		return nil
	}
	line := l.last()
	if f.reader.Read(&f.line, line.text) != nil {
		return nil
	}
	return f.look(name, l.number, line)
}

var aboutLimits = []byte(`"kind":"limits"`)

func (f *Finder) look(name string, number int64, read line) error {
	isLimits := bytes.Contains(read.text[:min(len(read.text), headOfLine)], aboutLimits)
	switch {
	case isLimits || len(bytes.TrimSpace(read.text)) == 0:
		return nil
	case read.isLong:
		f.unread(fmt.Errorf("%s:%d: found a line of more than %d bytes", name, number, maxLine))
		return nil
	}
	if err := f.reader.Read(&f.line, read.text); err != nil {
		f.unread(fmt.Errorf("%s:%d: %w", name, number, err))
		return nil
	}
	if f.line.Kind == decisionlog.Loaded {
		return nil
	}
	f.Lines++
	chosen, ok := f.match.match(&f.line, &f.Stats)
	if !ok {
		return nil
	}
	f.Found++
	return f.tell(Found{Line: &f.line, Text: read.text, Chosen: chosen})
}

func (f *Finder) unread(err error) {
	if f.Unread++; f.FirstUnread == nil {
		f.FirstUnread = err
	}
}
