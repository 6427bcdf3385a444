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
	// MaxSize is the size in bytes at which a file is rotated; 0 means never. Only long
	// lines and long limits exceed it. While a full file cannot be rotated, lines fail.
	MaxSize int64
	// Keep is how many rotated files are kept, at least 1, and Compress is whether they
	// are compressed, by gzip. Both are done soon after a rotation.
	Keep     int
	Compress bool
	// Buffer is how many bytes may wait to be written.
	Buffer int
	// Settings are those of lines about limits; nil leaves them out.
	Settings *decisionlog.Settings
	// LeftOut counts decisions that have no line by the settings. The file says how many,
	// together with the lines that it lost itself; nil means that there are none.
	LeftOut *atomic.Int64
	Counts  Counts
	Log     *slog.Logger
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
	// lost is how many lines were dropped or failed, and said how many of these, and of
	// those left out, the file says; said and saidAt belong to the goroutine that writes.
	lost   atomic.Int64
	said   int64
	saidAt time.Time
}

// limits are limits in force, for the first line of a file.
type limits struct {
	fingerprint string
	files       []decisionlog.File
}

const (
	// flushEvery is how long a line waits at most to be written, if the disk keeps up:
	// half of the second that is promised.
	flushEvery = 500 * time.Millisecond
	// closeWithin is how long a daemon that ends waits for the disk.
	closeWithin = 2 * time.Second
	// failureLogEvery is how often it is logged that lines are lost.
	failureLogEvery = time.Minute
	// sayLostEvery is how often the file says how many decisions it lacks.
	sayLostEvery = time.Second
)

// Open opens a file and starts to write. It fails if the file cannot be written now;
// later failures are counted and retried.
func Open(o Options) (*File, error) {
	f := &File{Options: o, queue: newQueue(o.Buffer), end: make(chan struct{}), ended: make(chan struct{})}
	if f.LeftOut == nil {
		f.LeftOut = new(atomic.Int64)
	}
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
		f.lost.Add(1)
		f.Counts.Dropped.Inc()
		f.losses.report("there is no room for more lines that wait to be written")
	}
}

// Announce puts limits in force for the lines that are added from now on. Every file
// begins with those in force.
func (f *File) Announce(fingerprint string, files []decisionlog.File) {
	f.queue.mark(&limits{fingerprint, files})
	f.queue.rouse()
}

// Reopen makes the writer open the path again, because the file was moved.
func (f *File) Reopen() {
	f.reopen.Store(true)
	f.queue.rouse()
}

// Close writes what waits, for at most closeWithin, and drops what is left then. What is
// being written at that moment counts as dropped too, since its result is unknown.
func (f *File) Close() {
	f.queue.close()
	close(f.end)
	late := time.NewTimer(closeWithin)
	defer late.Stop()
	select {
	case <-f.ended:
	case <-late.C:
		f.Counts.Dropped.Add(float64(f.queue.abandon()))
		f.losses.report("the end of the daemon does not wait for them to be written")
	}
	f.losses.close()
}

// run writes until the end.
func (f *File) run() {
	defer close(f.ended)
	f.queue.serve(f.end, func() {
		if f.reopen.Swap(false) {
			f.output.shut()
		}
		f.flush()
		if time.Since(f.saidAt) >= sayLostEvery {
			f.sayLost()
		}
	})
	f.sayLost()
	f.output.shut()
}

// flush writes what waits.
func (f *File) flush() {
	b := f.queue.take()
	start := 0
	for _, m := range b.marks {
		f.write(b.text[start:m.offset])
		start = m.offset
		if err := f.output.announce(m.limits); err != nil {
			f.losses.report(err.Error())
		}
	}
	f.write(b.text[start:])
	f.queue.done(b)
}

var newline = []byte{'\n'}

// write writes whole lines, and counts the results.
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
	f.lost.Add(int64(failed))
	if err != nil {
		f.losses.report(err.Error())
	}
}

// sayLost writes how many decisions the log lacks that no line says yet. What cannot be
// written now is said later.
func (f *File) sayLost() {
	lost := f.LeftOut.Load() + f.lost.Load()
	if lost == f.said {
		return
	}
	line := decisionlog.Line{Kind: decisionlog.Lost, At: time.Now().UnixMicro(), Lost: lost - f.said}
	if _, err := f.output.write(append(line.AppendJSON(nil), '\n')); err != nil {
		f.losses.report(err.Error())
		return
	}
	f.said, f.saidAt = lost, time.Now()
}

// notWritable explains why a path cannot be written.
func notWritable(path string, err error) error {
	if info, statErr := os.Stat(path); statErr == nil && info.IsDir() {
		return fmt.Errorf("decisions.path: found %s, which is a folder; allowed: a file, or - for standard output", path)
	}
	return fmt.Errorf("decisions.path: %w", err)
}
