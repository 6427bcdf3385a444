package sink_test

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/decisionlog"
	"github.com/ratelimitd/ratelimitd/internal/decisionlog/sink"
	"github.com/ratelimitd/ratelimitd/internal/racetest"
)

// Standard output and the daemon's log are often one pipe. Once nobody reads it, neither
// may hold up a request.
func TestALogThatNobodyReadsHoldsUpNobody(t *testing.T) {
	t.Parallel()
	pipe, w := io.Pipe()
	r := open(t, filepath.Join(t.TempDir(), "d.jsonl"), func(o *sink.Options) { o.Log = slog.New(slog.NewTextHandler(w, nil)) })
	added := make(chan struct{})
	go func() {
		defer close(added)
		for range 3 {
			r.add(strings.Repeat("x", r.Buffer)) // which never fits
		}
	}()
	asynctest.Eventually(t, "lines that are dropped", func() bool {
		select {
		case <-added:
			return true
		default:
			return false
		}
	})
	pipe.Close() // else the end waits for it a while
	r.Close()
	r.wantCounts(0, 3, 0)
}

// onDisk returns how many bytes the files of a folder have.
func onDisk(t *testing.T, dir string) (bytes int64) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Error(err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if err == nil {
			bytes += info.Size()
		} else if !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
	}
	return bytes
}

// Lines come faster than they are compressed.
func TestCompressionThatIsBehindFillsNoDisk(t *testing.T) {
	t.Parallel()
	const size, keep = 1 << 20, 4
	dir := t.TempDir()
	r := open(t, filepath.Join(dir, "d.jsonl"), func(o *sink.Options) { o.MaxSize, o.Keep, o.Compress, o.Buffer = size, keep, true, 16<<20 })
	random := rand.New(rand.NewPCG(1, 2))
	var some []string
	for range 500 {
		var line strings.Builder
		for range 100 {
			fmt.Fprintf(&line, "%x", random.Uint64())
		}
		some = append(some, line.String())
	}
	added := make(chan struct{})
	var all sync.WaitGroup
	most := int64(0)
	all.Go(func() {
		for {
			select {
			case <-added:
				return
			default:
				most = max(most, onDisk(t, dir))
			}
		}
	})
	for i := range racetest.Fewer(60_000) {
		r.add(some[i%len(some)])
	}
	close(added)
	all.Wait()
	r.Close()
	if allowed := int64(size * (keep + 2)); most > allowed || most < size {
		t.Errorf("%d bytes on disk, at most %d may be", most, allowed)
	}
}

// The limits are longer than a file should be.
func TestLongLimitsDoNotMakeAFileOfEachLine(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := open(t, filepath.Join(dir, "d.jsonl"), func(o *sink.Options) { o.MaxSize, o.Keep = 1000, 1000 })
	r.Announce("first", []decisionlog.File{{Name: "a.yaml", Text: strings.Repeat("#", 10_000)}})
	line := strings.Repeat("x", 99)
	for range 400 { // four times as much as the limits
		r.add(line)
	}
	r.Close()
	r.wantCounts(400, 0, 0)
	if n := len(gather(t, r.path)); n != 4 {
		t.Errorf("there are %d files", n)
	}
}
