package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

// recordedLimits has every algorithm, with so many requests a period.
func recordedLimits(requests int) string {
	var s strings.Builder
	s.WriteString("domain: d\ndescriptors:\n")
	for _, a := range bucket.Algorithms() {
		fmt.Fprintf(&s, "  - {key: %s, rate_limit: {algorithm: %s, requests: %d, period: 700ms}}\n", a, a, requests)
	}
	fmt.Fprintf(&s, `  - key: both
    rate_limits:
      - {name: short, requests: %d, period: 300ms}
      - {name: long, algorithm: sliding_window, requests: %d, period: 5s}
      - {name: trial, algorithm: gcra, requests: 5, period: 1s, shadow_mode: true}
  - {key: used, rate_limit: {algorithm: fixed_window, requests: %d, period: 1s, postpaid: true}}
  - {key: some, rate_limit: {requests: 3, period: 1s, enforce: 40%%}}
`, requests, 5*requests, requests)
	return s.String()
}

// recordedRequest makes a request by chance: one to so many descriptors, costs, peeks
// and refunds.
func recordedRequest(r *rand.Rand, most int) *rlsv3.RateLimitRequest {
	keys := []string{"both", "used", "some", "none"}
	for _, a := range bucket.Algorithms() {
		keys = append(keys, a.String())
	}
	request := &rlsv3.RateLimitRequest{Domain: "d"}
	for range 1 + r.IntN(most) {
		d := &ratelimitv3.RateLimitDescriptor{Entries: []*ratelimitv3.RateLimitDescriptor_Entry{{Key: keys[r.IntN(len(keys))], Value: fmt.Sprint(r.IntN(8))}}}
		switch r.IntN(8) {
		case 0:
			d.HitsAddend = wrapperspb.UInt64(0)
		case 1:
			d.HitsAddend, d.IsNegativeHits = wrapperspb.UInt64(uint64(1+r.IntN(3))), true
		case 2, 3:
			d.HitsAddend = wrapperspb.UInt64(uint64(1 + r.IntN(5)))
		}
		request.Descriptors = append(request.Descriptors, d)
	}
	return request
}

// What a daemon decided under load is decided again, byte for byte, from its log.
func TestRecordedRunIsReplayed(t *testing.T) {
	t.Parallel()
	for _, store := range []struct {
		name        string
		flags       func() []string
		requests    int64
		descriptors int // of a request, at most
	}{
		{"memory", func() []string {
			return []string{"--limits-quota-mode", "--limits-unmatched", "deny", "--limits-lenient"}
		}, 100_000, 3},
		{"redis", func() []string { return redisFlags("single", redistest.Single(t)) }, 100_000, 3},
		// The limits of one descriptor are on one node. Parts of a request on several
		// nodes are decided each at a moment of its own, and a replay decides them at once.
		{"cluster", func() []string { return redisFlags("cluster", redistest.Cluster(t)...) }, 30_000, 1},
	} {
		t.Run(store.name, func(t *testing.T) {
			t.Parallel()
			// On a busy machine Redis may not answer in time. Such a run is not whole.
			for tries := 3; !replaysRecorded(t, store.flags(), store.requests, store.descriptors); tries-- {
				if tries == 1 {
					t.Fatal("Redis was away in each run")
				}
			}
		})
	}
}

// replaysRecorded records a run of a daemon and replays it. It reports false if the
// store was away for some of it.
func replaysRecorded(t *testing.T, flags []string, requests int64, descriptors int) bool {
	t.Helper()
	const callers = 16
	limits, path := t.TempDir(), filepath.Join(t.TempDir(), "decisions.jsonl")
	write(t, limits, "limits.yaml", recordedLimits(20))
	d := start(t, append(flags, "--limits-path", limits, "--api-refunds", "--redis-timeout", "10s", "--decisions-path", path,
		"--decisions-per-subject", "0", "--decisions-bytes-per-second", "0", "--decisions-buffer", fmt.Sprint(256<<20))...)
	var sent atomic.Int64
	var all errgroup.Group
	for i := range callers {
		all.Go(func() error {
			r := rand.New(rand.NewPCG(uint64(i), 1))
			for {
				n := sent.Add(1)
				if n > requests {
					return nil
				}
				if n == requests/2 {
					write(t, limits, "limits.yaml", recordedLimits(35))
				}
				if _, err := d.client.ShouldRateLimit(context.Background(), recordedRequest(r, descriptors)); err != nil {
					return err
				}
			}
		})
	}
	if err := all.Wait(); err != nil {
		t.Fatal(err)
	}
	if n := d.total("ratelimitd_limits_reloads_total", `result="success"`); n != 2 {
		t.Fatalf("%v loads of limits", n)
	}
	if code := d.stop(syscall.SIGTERM); code != 0 {
		t.Fatalf("it exits with %d", code)
	}
	out, stderr, code := command(t, "replay", "--json", path)
	var report struct {
		Degraded    int64
		DeniedAfter int64 `json:"denied_after"`
		Comparison  struct{ Equal, Different, Remembered int64 }
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatalf("%v: %s", err, stderr)
	}
	if report.Degraded > 0 {
		return false
	}
	if code != 0 {
		text, _, _ := command(t, "replay", path)
		t.Fatalf("exit code %d: %s\n%.5000s", code, stderr, text)
	}
	if c := report.Comparison; c.Equal+c.Remembered != requests || c.Equal < requests/2 || c.Different != 0 || report.DeniedAfter < requests/100 || report.DeniedAfter > requests*9/10 {
		t.Errorf("%+v", report)
	}
	return true
}
