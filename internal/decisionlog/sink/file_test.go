package sink_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/decisionlog"
	"github.com/ratelimitd/ratelimitd/internal/decisionlog/sink"
	"github.com/ratelimitd/ratelimitd/internal/filetest"
)

// rig is a file that is written to.
type rig struct {
	*sink.File
	t    *testing.T
	path string
	log  *asynctest.Buffer
}

func options(path string, log *asynctest.Buffer) sink.Options {
	return sink.Options{
		Path: path, Keep: 1000, Buffer: 1 << 20, Log: slog.New(slog.NewTextHandler(log, nil)),
		Counts: sink.NewCounts(sink.NewLines(prometheus.NewRegistry(), "lines", "Lines.")),
	}
}

func open(t *testing.T, path string, change func(*sink.Options)) *rig {
	t.Helper()
	r := &rig{t: t, path: path, log: new(asynctest.Buffer)}
	o := options(path, r.log)
	if change != nil {
		change(&o)
	}
	var err error
	if r.File, err = sink.Open(o); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *rig) add(lines ...string) {
	for _, l := range lines {
		r.Write([]byte(l+"\n"), 0, bucket.SpanRef{})
	}
}

// wantCounts waits until so many lines were written, dropped and failed.
func (r *rig) wantCounts(written, dropped, failed float64) {
	r.t.Helper()
	asynctest.Eventually(r.t, "counts", func() bool {
		return testutil.ToFloat64(r.Counts.Written) >= written && testutil.ToFloat64(r.Counts.Failed) >= failed
	})
	got := [3]float64{testutil.ToFloat64(r.Counts.Written), testutil.ToFloat64(r.Counts.Dropped), testutil.ToFloat64(r.Counts.Failed)}
	if want := [3]float64{written, dropped, failed}; got != want {
		r.t.Errorf("%v lines written, dropped and failed, want %v", got, want)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestLinesAreFlushedWithoutAnEnd(t *testing.T) {
	t.Parallel()
	r := open(t, filepath.Join(t.TempDir(), "d.jsonl"), nil)
	defer r.Close()
	r.add("one", "two")
	asynctest.Eventually(t, "lines in the file", func() bool { return read(t, r.path) == "one\ntwo\n" })
	r.wantCounts(2, 0, 0)
	if info, err := os.Stat(r.path); err != nil || info.Mode().Perm()&0o007 != 0 {
		t.Errorf("everybody can read it: %v, %v", info.Mode(), err)
	}
}

func TestLinesThatWaitAreWrittenAtTheEnd(t *testing.T) {
	t.Parallel()
	r := open(t, filepath.Join(t.TempDir(), "d.jsonl"), nil)
	var want strings.Builder
	for i := range 1000 {
		r.add(fmt.Sprint(i))
		fmt.Fprintln(&want, i)
	}
	r.Close()
	r.add("late")
	r.wantCounts(1000, 1, 0)
	if got := read(t, r.path); got != want.String() {
		t.Errorf("%d bytes, want %d", len(got), want.Len())
	}
}

// A file says how many decisions it lacks: those that were left out before, and those
// for which there was no room.
func TestTheFileSaysWhatItLacks(t *testing.T) {
	t.Parallel()
	leftOut := new(atomic.Int64)
	r := open(t, filepath.Join(t.TempDir(), "d.jsonl"), func(o *sink.Options) { o.LeftOut = leftOut })
	leftOut.Add(3)
	asynctest.Eventually(t, "a line about them", func() bool { return strings.HasSuffix(read(t, r.path), `,"lost":3}`+"\n") })
	r.add(strings.Repeat("x", 1<<20))
	leftOut.Add(1)
	r.add("one")
	r.Close()
	r.wantCounts(1, 1, 0)
	got := strings.Split(read(t, r.path), "\n")
	if len(got) != 4 || got[1] != "one" || !strings.HasPrefix(got[2], `{"v":1,"kind":"lost","time":"`) || !strings.HasSuffix(got[2], `,"lost":2}`) {
		t.Errorf("%q", got)
	}
}

func TestALineThatWasTornBeforeIsEnded(t *testing.T) {
	t.Parallel()
	r := open(t, filetest.Write(t, t.TempDir(), "d.jsonl", "{\"v\":1}\n{\"v"), nil)
	r.add("one")
	r.Close()
	if got := read(t, r.path); got != "{\"v\":1}\n{\"v\none\n" {
		t.Errorf("%q", got)
	}
}

func TestEachFileBeginsWithTheLimits(t *testing.T) {
	t.Parallel()
	r := open(t, filepath.Join(t.TempDir(), "d.jsonl"), func(o *sink.Options) { o.MaxSize = 400 })
	r.Announce("first", []decisionlog.File{{Name: "a.yaml", Text: "domain: a\n"}})
	r.add("one")
	r.Announce("second", nil)
	for range 80 {
		r.add("0123456789")
	}
	r.Close()
	r.wantCounts(81, 0, 0)
	first := gather(t, r.path)
	if got := strings.Split(first[0], "\n"); !strings.Contains(got[0], `"kind":"limits"`) || !strings.Contains(got[0], `"limits":"first"`) ||
		!strings.HasSuffix(got[0], `"files":[{"name":"a.yaml","text":"domain: a\n"}]}`) || got[1] != "one" || !strings.Contains(got[2], `"limits":"second"`) {
		t.Errorf("the first file is %q", got)
	}
	for _, text := range first[1:] {
		if !strings.HasPrefix(text, `{"v":1,"kind":"limits"`) || !strings.Contains(text, `"limits":"second"`) {
			t.Errorf("a file begins with %.80q", text)
		}
	}
}

// gather returns the texts of a file and of those that were rotated, the oldest first.
func gather(t *testing.T, path string) (texts []string) {
	t.Helper()
	names, err := filepath.Glob(strings.TrimSuffix(path, ".jsonl") + "-*")
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	for _, name := range names {
		text := read(t, name)
		if strings.HasSuffix(name, ".gz") {
			z, err := gzip.NewReader(strings.NewReader(text))
			if err != nil {
				t.Fatal(err)
			}
			all, err := io.ReadAll(z)
			if err != nil {
				t.Fatal(err)
			}
			text = string(all)
		}
		texts = append(texts, text)
	}
	return append(texts, read(t, path))
}

func TestFilesAreRotatedZippedAndRemoved(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	other := filetest.Write(t, dir, "d-other.jsonl", "not ours")
	r := open(t, filepath.Join(dir, "d.jsonl"), func(o *sink.Options) { o.MaxSize, o.Keep, o.Compress = 1000, 4, true })
	line := strings.Repeat("x", 99)
	for range 100 {
		r.add(line)
	}
	r.wantCounts(100, 0, 0)
	rotated := func() []string {
		names, err := filepath.Glob(filepath.Join(dir, "d-2*"))
		if err != nil {
			t.Fatal(err)
		}
		return names
	}
	asynctest.Eventually(t, "four zipped files", func() bool {
		names := rotated()
		return len(names) == 4 && !slices.ContainsFunc(names, func(name string) bool { return !strings.HasSuffix(name, ".jsonl.gz") })
	})
	r.Close()
	for _, text := range gather(t, r.path)[:4] {
		if text != strings.Repeat(line+"\n", 10) && text != "not ours" {
			t.Errorf("a file has %d bytes", len(text))
		}
	}
	if read(t, other) != "not ours" {
		t.Error("a file of somebody else has changed")
	}
}

func TestALineLongerThanAFile(t *testing.T) {
	t.Parallel()
	r := open(t, filepath.Join(t.TempDir(), "d.jsonl"), func(o *sink.Options) { o.MaxSize = 100 })
	long := strings.Repeat("y", 500)
	r.add("one", long, "two", long)
	r.Close()
	r.wantCounts(4, 0, 0)
	if got, want := gather(t, r.path), []string{"one\n", long + "\n", "two\n", long + "\n"}; !slices.Equal(got, want) {
		t.Errorf("%.200q", got)
	}
}

// logrotate moves the file, and somebody may remove it.
func TestAFileThatIsMovedRemovedOrCutOffIsBegunAgain(t *testing.T) {
	t.Parallel()
	for name, away := range map[string]func(path string) error{
		"moved":   func(path string) error { return os.Rename(path, path+".1") },
		"removed": os.Remove,
		"cut off": func(path string) error { return os.Truncate(path, 0) },
	} {
		for _, told := range []bool{false, true} {
			t.Run(fmt.Sprint(name, told), func(t *testing.T) {
				t.Parallel()
				r := open(t, filepath.Join(t.TempDir(), "d.jsonl"), nil)
				defer r.Close()
				r.Announce("00112233445566aa", nil)
				r.add("one")
				r.wantCounts(1, 0, 0)
				if err := away(r.path); err != nil {
					t.Fatal(err)
				}
				if told {
					r.Reopen()
					r.add("two")
				}
				asynctest.Eventually(t, "lines in the new file", func() bool {
					if !told {
						r.add("two") // those until it looks go to the old one
					}
					text, err := os.ReadFile(r.path)
					// Lines until it looks may come first in a file that was cut off.
					lines := strings.Split(string(text), "\n")
					limits := slices.IndexFunc(lines, func(line string) bool { return strings.HasPrefix(line, `{"v":1,"kind":"limits"`) })
					return err == nil && (limits == 0 || limits > 0 && name == "cut off") && slices.Contains(lines[limits:], "two")
				})
			})
		}
	}
}

func TestPathsThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for path, want := range map[string]string{
		dir:                             "found " + dir + ", which is a folder; allowed: a file, or - for standard output",
		filepath.Join(dir, "none", "d"): "decisions.path: open",
	} {
		if _, err := sink.Open(options(path, new(asynctest.Buffer))); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
}

func TestAFullDisk(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip(err)
	}
	r := open(t, "/dev/full", nil)
	r.add("one", "two")
	r.wantCounts(0, 0, 2)
	r.Close()
	if n := r.log.Count("no space left on device"); n != 1 {
		t.Errorf("%d lines of log:\n%s", n, r.log)
	}
}

// The folder of the file goes away and comes back.
func TestWhatFailsIsTriedAgain(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "logs")
	r := open(t, filetest.Write(t, dir, "d.jsonl", ""), nil)
	defer r.Close()
	r.add("one")
	r.wantCounts(1, 0, 0)
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	r.Reopen()
	r.add("two")
	r.wantCounts(1, 0, 1)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	asynctest.Eventually(t, "lines", func() bool {
		r.add("three")
		text, err := os.ReadFile(r.path)
		return err == nil && strings.Contains(string(text), "three\n") && !strings.Contains(string(text), "two\n")
	})
}

// Nobody reads a FIFO: lines wait, and then are dropped, but nobody waits for them.
// Who comes to read gets whole lines.
func TestAFIFOThatNobodyReads(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	const buffer = 1 << 20
	r := open(t, path, func(o *sink.Options) { o.Buffer = buffer })
	line := strings.Repeat("z", 1023)
	const lines = 4 * buffer / 1024
	for range lines {
		r.add(line)
	}
	dropped := testutil.ToFloat64(r.Counts.Dropped)
	if dropped < lines/2 {
		t.Errorf("%v of %d were dropped: more wait than there is room for", dropped, lines)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	var mu sync.Mutex
	go func() {
		b := make([]byte, 64<<10)
		for {
			n, err := f.Read(b)
			mu.Lock()
			got.Write(b[:n])
			mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	asynctest.Eventually(t, "all that was not dropped", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return strings.Count(got.String(), line+"\n") == lines-int(testutil.ToFloat64(r.Counts.Dropped))
	})
	r.Close()
	f.Close()
	mu.Lock()
	defer mu.Unlock()
	if rest := strings.ReplaceAll(got.String(), line+"\n", ""); rest != said(rest) {
		t.Errorf("lines are torn: %.200q", rest)
	}
	r.wantCounts(lines-dropped, dropped, 0)
}

// said returns the lines of a text that say how many decisions it lacks.
func said(text string) string {
	var found strings.Builder
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, `{"v":1,"kind":"lost"`) {
			found.WriteString(line)
		}
	}
	return found.String()
}

// Whoever adds lines never waits, and what waits stays within its bound.
func TestManyAddAtTheSameTime(t *testing.T) {
	t.Parallel()
	r := open(t, filepath.Join(t.TempDir(), "d.jsonl"), nil)
	const adders, each = 16, 2000
	var all sync.WaitGroup
	for i := range adders {
		all.Go(func() {
			for j := range each {
				r.add(fmt.Sprintf("%d-%d", i, j))
			}
		})
	}
	all.Wait()
	r.Close()
	last := make(map[string]int)
	n := 0
	for line := range strings.Lines(read(t, r.path)) {
		if said(line) != "" {
			continue
		}
		var j int
		who, number, _ := strings.Cut(strings.TrimSpace(line), "-")
		if _, err := fmt.Sscan(number, &j); err != nil {
			t.Fatalf("%q", line)
		}
		if before, known := last[who]; known && j <= before {
			t.Fatalf("%s: %d after %d", who, j, before)
		}
		last[who] = j
		n++
	}
	dropped := testutil.ToFloat64(r.Counts.Dropped)
	if n+int(dropped) != adders*each {
		t.Errorf("%d lines and %v dropped, want %d together", n, dropped, adders*each)
	}
	r.wantCounts(float64(n), dropped, 0)
}
