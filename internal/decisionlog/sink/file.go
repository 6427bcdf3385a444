package sink

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/decisionlog"
)

// Stdout is the path of standard output.
const Stdout = "-"

// Options of a File.
type Options struct {
	// Path is a file, a FIFO, a device, or Stdout.
	Path string
	// MaxSize is after how many bytes a file is rotated; 0 means never. It is
	// exceeded only by a line that is longer. While a full file cannot be rotated, lines
	// fail.
	MaxSize int64
	// Keep is how many rotated files are kept, at least 1, and Compress whether with
	// gzip.
	Keep     int
	Compress bool
	// Buffer is how many bytes may wait to be written.
	Buffer int
	// Settings are those of lines about limits; nil leaves them out.
	Settings *decisionlog.Settings
	Counts   Counts
	Log      *slog.Logger
}

// File writes lines to a file. One goroutine writes; the methods may be called
// concurrently.
type File struct {
	Options
	queue  *queue
	output *output
	reopen atomic.Bool
	end    chan struct{} // closed by Close
	ended  chan struct{} // closed when all is written
	losses *losses
}

// limits are limits in force, for the first line of a file.
type limits struct {
	fingerprint string
	files       []decisionlog.File
}

const (
	// flushEvery is how long a line waits at most to be written, where the disk
	// takes it: half of the second that is promised.
	flushEvery = 500 * time.Millisecond
	// closeWithin is how long the end of the daemon waits for the disk.
	closeWithin = 2 * time.Second
	// failureLogEvery is how often it is logged that lines are lost.
	failureLogEvery = time.Minute
)

// Open opens a file and begins to write. It fails if the file cannot be written now;
// later on that is counted and tried again.
func Open(o Options) (*File, error) {
	f := &File{Options: o, queue: newQueue(o.Buffer), end: make(chan struct{}), ended: make(chan struct{})}
	f.output = newOutput(o)
	if err := f.output.open(); err != nil {
		return nil, err
	}
	f.losses = newLosses(o.Log, "decisions: lines are lost; requests are answered all the same", "path", o.Path)
	go f.run()
	return f, nil
}

// Write adds a line, which ends with a newline. It does not wait, and does not keep
// the line.
func (f *File) Write(line []byte, _ int64, _ bucket.SpanRef) {
	if !f.queue.add(line, nil) {
		f.Counts.Dropped.Inc()
		f.losses.tell("there is no room for more lines that wait to be written")
	}
}

// Announce has limits be in force for the lines that are added from now on. Every
// file begins with those in force.
func (f *File) Announce(fingerprint string, files []decisionlog.File) {
	f.queue.mark(&limits{fingerprint, files})
	f.queue.rouse()
}

// Reopen has the file be opened again by its path: somebody else has moved it.
func (f *File) Reopen() {
	f.reopen.Store(true)
	f.queue.rouse()
}

// Close writes what waits, for as long as closeWithin, and drops what is left then. What
// is being written at that moment counts as dropped too: nobody knows.
func (f *File) Close() {
	f.queue.close()
	close(f.end)
	late := time.NewTimer(closeWithin)
	defer late.Stop()
	select {
	case <-f.ended:
	case <-late.C:
		f.Counts.Dropped.Add(float64(f.queue.abandon()))
		f.losses.tell("the end of the daemon does not wait for them to be written")
	}
	f.losses.close()
}

// run writes until the end.
func (f *File) run() {
	defer close(f.ended)
	tick := time.NewTicker(flushEvery)
	defer tick.Stop()
	for {
		select {
		case <-f.queue.wake:
		case <-tick.C:
		case <-f.end:
			f.flush()
			f.output.close()
			return
		}
		if f.reopen.Swap(false) {
			f.output.shut()
		}
		f.flush()
	}
}

// flush writes what waits.
func (f *File) flush() {
	b := f.queue.take()
	start := 0
	for _, m := range b.marks {
		f.write(b.text[start:m.offset])
		start = m.offset
		if err := f.output.announce(m.limits); err != nil {
			f.losses.tell(err.Error())
		}
	}
	f.write(b.text[start:])
	f.queue.done(b)
}

var newline = []byte{'\n'}

// write writes whole lines, and counts what became of them.
func (f *File) write(text []byte) {
	if len(text) == 0 {
		return
	}
	n, err := f.output.write(text)
	written, failed := bytes.Count(text[:n], newline), bytes.Count(text[n:], newline)
	if f.queue.settle(written + failed) {
		f.Counts.Written.Add(float64(written))
		f.Counts.Failed.Add(float64(failed))
	}
	if err != nil {
		f.losses.tell(err.Error())
	}
}

// notWritable explains why a path cannot be written.
func notWritable(path string, err error) error {
	if info, statErr := os.Stat(path); statErr == nil && info.IsDir() {
		return fmt.Errorf("decisions.path: found %s, which is a folder; allowed: a file, or - for standard output", path)
	}
	return fmt.Errorf("decisions.path: %w", err)
}
