package sink_test

import (
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/decisionlog/sink"
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

// The file cannot be rotated: what is on disk stays within its bound, what finds no room
// is counted and told, and it goes on once it can. Its name is the reason, since a folder
// that may not be changed is none for root.
func TestAFileThatCannotBeRotatedDoesNotGrow(t *testing.T) {
	t.Parallel()
	const size = 1000
	// With a moment in it the name is too long.
	path := filepath.Join(t.TempDir(), strings.Repeat("d", 240)+".jsonl")
	r := open(t, path, func(o *sink.Options) { o.MaxSize = size })
	line := strings.Repeat("x", 99)
	for range 50 {
		r.add(line)
	}
	r.wantCounts(10, 0, 40)
	if n := len(read(t, path)); n != size {
		t.Errorf("the file has %d bytes", n)
	}
	asynctest.Eventually(t, "the log says so", func() bool { return r.log.Count("cannot be rotated") == 1 })
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	asynctest.Eventually(t, "lines", func() bool {
		r.add(line)
		return strings.Contains(read(t, path), line+"\n")
	})
	r.Close()
}
