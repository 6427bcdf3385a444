package record_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/protobuf/proto"

	"github.com/ratelimitd/ratelimitd/internal/bucket/heaptest"
	"github.com/ratelimitd/ratelimitd/internal/decisionlog/sink"
	"github.com/ratelimitd/ratelimitd/internal/server"
	"github.com/ratelimitd/ratelimitd/internal/server/record"
	"github.com/ratelimitd/ratelimitd/internal/server/servertest"
)

// largest returns a request with as much text as is allowed, of bytes that take six
// each in JSON. No two have a subject in common.
func largest(t *testing.T, n int) []byte {
	t.Helper()
	const descriptors, entries = 100, 8
	value := strings.Repeat("\x01", 65536/(descriptors*entries)-12)
	var texts []string
	for i := range descriptors {
		parts := make([]string, entries)
		for j := range parts {
			parts[j] = fmt.Sprintf("k%d=%d%s", j, n*descriptors+i, value)
		}
		texts = append(texts, strings.Join(parts, ","))
	}
	in, err := proto.Marshal(servertest.Request("api", 1, texts...))
	if err != nil {
		t.Fatal(err)
	}
	return in
}

// Callers send the largest requests as fast as they can, each of other subjects, in
// one second of the daemon's clock.
func TestAnAttackFillsNeitherDiskNorMemory(t *testing.T) {
	const perSecond, maxSize, keep, buffer = 1 << 20, 2 << 20, 2, 1 << 20
	for _, c := range []struct {
		name           string
		bytesPerSecond int
		maxOnDisk      int64
	}{
		{"bytes a second", perSecond, perSecond},
		{"no bound but that of the files", 0, (keep + 2) * maxSize}, // one is open, one may be about to be removed
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "d.jsonl")
			counts := sink.NewCounts(sink.NewLines(prometheus.NewRegistry(), "lines", "Lines."))
			f, err := sink.Open(sink.Options{Path: path, MaxSize: maxSize, Keep: keep, Buffer: buffer, Counts: counts, Log: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			clock, thinned := servertest.NewClock(), prometheus.NewCounter(prometheus.CounterOpts{Name: "thinned"})
			rpc := servertest.NewRPC(t, "domain: api\n", func(o *server.Options) { o.Now = clock.Time }, servertest.Recording(f, func(o *record.Options) {
				o.PerSubject, o.BytesPerSecond, o.Thinned = 10, c.bytesPerSecond, thinned
			}))
			var attack [][]byte
			for i := range 16 {
				attack = append(attack, largest(t, i))
			}
			before := heaptest.InUse()
			const callers, each = 4, 100
			var all sync.WaitGroup
			for i := range callers {
				all.Go(func() {
					for j := range each {
						if _, err := rpc.AnswerBytes(context.Background(), attack[(i*each+j)%len(attack)]); err != nil {
							t.Error(err)
							return
						}
					}
				})
			}
			all.Wait()
			held := int64(heaptest.InUse()) - int64(before)
			f.Close()
			onDisk := int64(0)
			names, err := filepath.Glob(filepath.Join(filepath.Dir(path), "*"))
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range names {
				if info, err := os.Stat(name); err == nil {
					onDisk += info.Size()
				}
			}
			lines := testutil.ToFloat64(counts.Written) + testutil.ToFloat64(counts.Dropped) + testutil.ToFloat64(counts.Failed) + testutil.ToFloat64(thinned)
			if lines != callers*each {
				t.Errorf("%v lines are counted, want %d", lines, callers*each)
			}
			if onDisk > c.maxOnDisk || onDisk == 0 {
				t.Errorf("%d bytes on disk, at most %d may be", onDisk, c.maxOnDisk)
			}
			// The lines that wait, those that are being made, and what the server keeps.
			if maxHeld := int64(buffer + 2<<20); held > maxHeld {
				t.Errorf("%d bytes are held, at most %d may be", held, maxHeld)
			}
			t.Logf("%d bytes on disk, %d held; %v written, %v dropped, %v thinned", onDisk, held,
				testutil.ToFloat64(counts.Written), testutil.ToFloat64(counts.Dropped), testutil.ToFloat64(thinned))
		})
	}
}

// Requests that read the clock before the turn of a second come after others that read
// it then: neither bound begins anew with each of them.
func TestBoundsOfTheLogHoldAtTheTurnOfASecond(t *testing.T) {
	t.Parallel()
	const perSubject, perSecond, requests = 5, 4000, 400
	for name, change := range map[string]func(*record.Options){
		"lines of a subject": func(o *record.Options) { o.PerSubject = perSubject },
		"bytes":              func(o *record.Options) { o.BytesPerSecond = perSecond },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got recorded
			clock := servertest.NewClock()
			before := servertest.Midnight.Add(11*time.Second - time.Microsecond).UnixMicro()
			rpc := servertest.NewRPC(t, recordLimits, func(o *server.Options) { o.Now = clock.Time }, servertest.Recording(&got, change))
			ask := func(at int64) {
				clock.Set(at)
				if _, err := rpc.ShouldRateLimit(t.Context(), servertest.Request("api", 1, "free=1")); err != nil {
					t.Fatal(err)
				}
			}
			for range requests / 2 {
				ask(before)
				ask(before + 1)
			}
			lines := got.take()
			bytes := len(strings.Join(lines, ""))
			if len(lines) == 0 || name == "bytes" && bytes > 2*perSecond || name != "bytes" && len(lines) > 2*perSubject {
				t.Errorf("%d lines of %d bytes in two seconds", len(lines), bytes)
			}
			// A clock that is set back does not end the log.
			ask(servertest.Midnight.UnixMicro())
			if n := len(got.take()); n != 1 {
				t.Errorf("%d lines after the clock was set back", n)
			}
		})
	}
}
