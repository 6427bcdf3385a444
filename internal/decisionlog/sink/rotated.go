package sink

import (
	"compress/gzip"
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// rotated are the files that were rotated: decisions-20261123T000000.000001.jsonl beside
// decisions.jsonl. The writer removes excess ones, so that there are never too many, and
// one goroutine compresses them, so that nothing else waits for that.
//
// lumberjack (v2.2) is not used: it removes old files some time after it began a new one,
// so that there are more than keep; two rotations within a millisecond give one file; it
// does not notice that somebody else moved the file, and has no place for the line about
// limits that begins each.
type rotated struct {
	path     string
	keep     int
	compress bool
	log      *slog.Logger

	came    chan struct{}
	ctx     context.Context // ends what is being compressed
	end     context.CancelFunc
	tidying sync.WaitGroup
	// mu is held while files are counted, and while one replaces another.
	mu sync.Mutex
}

func newRotated(o Options) *rotated {
	r := &rotated{path: o.Path, keep: o.Keep, compress: o.Compress, log: o.Log, came: make(chan struct{}, 1)}
	r.ctx, r.end = context.WithCancel(context.Background())
	if o.Path == Stdout || o.MaxSize == 0 {
		return r
	}
	r.came <- struct{}{} // some may be left of an earlier daemon
	r.tidying.Go(func() {
		for {
			select {
			case <-r.came:
				r.tidy()
			case <-r.ctx.Done():
				return
			}
		}
	})
	return r
}

func (r *rotated) close() {
	r.end()
	r.tidying.Wait()
}

const (
	stamp    = "20060102T150405.000000"
	unready  = ".part" // of a file that is being compressed
	gzipped  = ".gz"
	stampGap = time.Microsecond
)

// add moves the file away. It fails if there are too many others that cannot be counted
// or removed.
func (r *rotated) add() error {
	name, err := r.free(time.Now().UTC())
	if err != nil {
		return err
	}
	if _, _, err := r.prune(r.keep - 1); err != nil {
		return err
	}
	if err := os.Rename(r.path, name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	select {
	case r.came <- struct{}{}:
	default:
	}
	return nil
}

// free returns the first name from a moment on that no file has.
func (r *rotated) free(at time.Time) (string, error) {
	for ; ; at = at.Add(stampGap) {
		name, isTaken := r.name(at), false
		for _, one := range [...]string{name, name + gzipped} {
			if _, err := os.Lstat(one); err == nil {
				isTaken = true
			} else if !errors.Is(err, fs.ErrNotExist) {
				return "", err // such as a name that is too long
			}
		}
		if !isTaken {
			return name, nil
		}
	}
}

func (r *rotated) name(at time.Time) string {
	ext := filepath.Ext(r.path)
	return strings.TrimSuffix(r.path, ext) + "-" + at.Format(stamp) + ext
}

// list returns the names of the rotated files, the newest first, and those left over from
// an earlier daemon that was ended while it compressed.
func (r *rotated) list() (names, left []string, err error) { return listRotated(r.path) }

// Rotated returns the names of the files that were rotated from a path, the oldest first,
// with one name for a file that is being compressed. It returns none for standard output.
func Rotated(path string) ([]string, error) {
	if path == Stdout {
		return nil, nil
	}
	names, _, err := listRotated(path)
	slices.Reverse(names)
	return slices.CompactFunc(names, func(a, b string) bool { return Stamp(a) == Stamp(b) }), err
}

// Stamp returns a rotated file's name as it was before it was compressed. Those of one path
// are in the order of their rotation.
func Stamp(name string) string { return strings.TrimSuffix(name, gzipped) }

// RotatedAt returns when a file of Rotated was rotated, by the clock of its daemon.
func RotatedAt(name string) (time.Time, bool) {
	name = filepath.Base(Stamp(name))
	// Without an extension, the microseconds of the stamp look like one.
	for _, text := range []string{strings.TrimSuffix(name, filepath.Ext(name)), name} {
		if len(text) >= len(stamp) {
			if at, err := time.Parse(stamp, text[len(text)-len(stamp):]); err == nil {
				return at, true
			}
		}
	}
	return time.Time{}, false
}

func listRotated(path string) (names, left []string, err error) {
	ext := filepath.Ext(path)
	prefix := strings.TrimSuffix(filepath.Base(path), ext) + "-"
	entries, err := os.ReadDir(filepath.Dir(path))
	for _, e := range entries {
		at, ok := strings.CutPrefix(e.Name(), prefix)
		at, isLeft := strings.CutSuffix(at, gzipped+unready)
		at = strings.TrimSuffix(strings.TrimSuffix(at, gzipped), ext)
		if _, err := time.Parse(stamp, at); !ok || err != nil || !e.Type().IsRegular() {
			continue
		}
		name := filepath.Join(filepath.Dir(path), e.Name())
		if isLeft {
			left = append(left, name)
		} else {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	slices.Reverse(names)
	return names, left, err
}

// prune removes all but the newest files, and returns those and what list returns as
// left. One that cannot be removed stays in place of a newer one. The error says that
// more are left, or that they cannot be counted.
func (r *rotated) prune(keep int) (names, left []string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	names, left, err = r.list()
	if err != nil {
		return nil, left, err
	}
	for i := len(names) - 1; i >= 0 && len(names) > keep; i-- {
		if removing := os.Remove(names[i]); removing != nil {
			err = removing // one of them says enough
			continue
		}
		names = slices.Delete(names, i, i+1)
	}
	if len(names) > keep {
		return names, left, err
	}
	return names, left, nil
}

// tidy removes excess and left-over files, and compresses those that are not compressed
// yet.
func (r *rotated) tidy() {
	names, left, err := r.prune(r.keep)
	for _, name := range left {
		err = errors.Join(err, os.Remove(name))
	}
	for _, name := range names {
		if r.compress && !strings.HasSuffix(name, gzipped) && r.ctx.Err() == nil {
			err = errors.Join(err, r.zip(name))
		}
	}
	if err != nil && r.ctx.Err() == nil {
		r.warn(err)
	}
}

func (r *rotated) warn(err error) {
	r.log.Warn("decisions: rotated files", "path", r.path, "error", err)
}

// zip replaces a file by a compressed one, unless it is removed meanwhile.
func (r *rotated) zip(name string) (err error) {
	part := name + gzipped + unready
	defer func() {
		if err != nil {
			os.Remove(part)
		}
	}()
	from, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := os.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o640)
	if err != nil {
		return err
	}
	defer to.Close()
	zipped, err := gzip.NewWriterLevel(to, gzip.BestSpeed)
	if err != nil {
		return err
	}
	if _, err = io.Copy(zipped, readerUntil{r.ctx, from}); err != nil {
		return err
	}
	if err = errors.Join(zipped.Close(), to.Close()); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, err = os.Lstat(name); errors.Is(err, fs.ErrNotExist) {
		return os.Remove(part)
	}
	if err = os.Rename(part, name+gzipped); err != nil {
		return err
	}
	return os.Remove(name)
}

// readerUntil reads until a context ends.
type readerUntil struct {
	ctx context.Context
	io.Reader
}

func (r readerUntil) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.Reader.Read(p)
}

// Finished returns names without those of files that hold only a part of another one
// among them: a pattern such as decisions*.jsonl* finds both. It warns of each.
func Finished(names []string, warn func(string)) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		whole, isPart := strings.CutSuffix(name, gzipped+unready)
		if isPart = isPart && slices.Contains(names, whole); isPart {
			warn(name + " is passed over: " + whole + " is being compressed to it")
		}
		return isPart
	})
}
