package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/bucket/buckettest"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

// recordedLimits has every algorithm, with so many requests a period.
func recordedLimits(requests int) string {
	var s strings.Builder
	s.WriteString("domain: d\ndescriptors:\n")
	for _, a := range buckettest.Rates() {
		fmt.Fprintf(&s, "  - {key: %s, rate_limit: {algorithm: %s, requests: %d, period: 700ms}}\n", a, a, requests)
	}
	fmt.Fprintf(&s, `  - key: both
    rate_limits:
      - {name: short, requests: %d, period: 300ms}
      - {name: long, algorithm: sliding_window, requests: %d, period: 5s}
      - {name: trial, algorithm: gcra, requests: 5, period: 1s, shadow_mode: true}
  - {key: used, rate_limit: {algorithm: fixed_window, requests: %d, period: 1s, postpaid: true}}
  - {key: some, rate_limit: {requests: 3, period: 1s, enforce: 40%%}}
  - key: flight
    rate_limit: {name: rate, requests: %d, period: 700ms}
    descriptors:
      - {key: id, rate_limit: {algorithm: concurrency, requests: %d, hold: 100ms}}
`, requests, 5*requests, requests, requests, requests/4)
	return s.String()
}

// recordedRequest makes a request by chance: one to so many descriptors, costs, peeks
// and refunds.
func recordedRequest(r *rand.Rand, maxDescriptors int) *rlsv3.RateLimitRequest {
	keys := []string{"both", "used", "some", "none"}
	for _, a := range buckettest.Rates() {
		keys = append(keys, a.String())
	}
	request := &rlsv3.RateLimitRequest{Domain: "d"}
	for range 1 + r.IntN(maxDescriptors) {
		if r.IntN(6) == 0 {
			request.Descriptors = append(request.Descriptors, recordedHolder(r))
			continue
		}
		d := &ratelimitv3.RateLimitDescriptor{Entries: []*ratelimitv3.RateLimitDescriptor_Entry{{Key: keys[r.IntN(len(keys))], Value: fmt.Sprint(r.IntN(8))}}}
		switch r.IntN(8) {
		case 0:
			d.HitsAddend = wrapperspb.UInt64(0)
		case 1:
			d.HitsAddend, d.IsNegativeHits = wrapperspb.UInt64(uint64(1+r.IntN(3))), true
		case 2, 3:
			d.HitsAddend = wrapperspb.UInt64(uint64(1 + r.IntN(5)))
		}
		recordedOwn(r, d)
		request.Descriptors = append(request.Descriptors, d)
	}
	return request
}

// recordedHolder has one of a few holders take a slot, look, or release.
func recordedHolder(r *rand.Rand) *ratelimitv3.RateLimitDescriptor {
	d := &ratelimitv3.RateLimitDescriptor{Entries: []*ratelimitv3.RateLimitDescriptor_Entry{
		{Key: "flight", Value: fmt.Sprint(r.IntN(3))}, {Key: "id", Value: fmt.Sprint(r.IntN(20))},
	}}
	switch r.IntN(8) {
	case 0:
		d.HitsAddend = wrapperspb.UInt64(0)
	case 1, 2, 3:
		d.IsNegativeHits = true
	}
	return d
}

// recordedOwn gives a descriptor of Envoy's API numbers of its own by chance.
func recordedOwn(r *rand.Rand, d *ratelimitv3.RateLimitDescriptor) {
	if r.IntN(8) == 0 {
		d.Limit = &ratelimitv3.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: uint32(r.IntN(30)), Unit: typev3.RateLimitUnit_SECOND}
	}
}

// recordedTake is recordedRequest for the API that gives back. Its own numbers share the
// state of a rule's limit where they have its period.
func recordedTake(r *rand.Rand, maxDescriptors int) *ratelimitv1.TakeRequest {
	take := &ratelimitv1.TakeRequest{Domain: "d"}
	for _, from := range recordedRequest(r, maxDescriptors).Descriptors {
		d := &ratelimitv1.Descriptor{}
		for _, e := range from.Entries {
			d.Entries = append(d.Entries, &ratelimitv1.Entry{Key: e.Key, Value: e.Value})
		}
		if from.HitsAddend != nil {
			d.Cost = proto.Uint64(from.HitsAddend.Value)
		}
		if r.IntN(2) == 0 && len(d.Entries) == 1 {
			period := []time.Duration{300 * time.Millisecond, 700 * time.Millisecond, time.Second}[r.IntN(3)]
			d.Numbers = &ratelimitv1.Numbers{Requests: uint64(1 + r.IntN(40)), Period: durationpb.New(period)}
		}
		take.Descriptors = append(take.Descriptors, d)
	}
	return take
}

// recordedCaller asks a daemon by chance, over all its ways.
type recordedCaller struct {
	*rand.Rand
	envoy rlsv3.RateLimitServiceClient
	api   ratelimitv1.RateLimitServiceClient
	// descriptors is the most of a request.
	descriptors int
	// taken may be given back.
	taken []*ratelimitv1.GiveBackRequest
}

// ask makes one request, and may give back what another took.
func (c *recordedCaller) ask(ctx context.Context) error {
	switch c.IntN(6) {
	case 0:
		take := recordedTake(c.Rand, c.descriptors)
		response, err := c.api.Take(ctx, take)
		if err != nil {
			return err
		}
		c.took(take, response)
	case 1:
		take := recordedTake(c.Rand, c.descriptors)
		many, err := c.api.TakeMany(ctx, &ratelimitv1.TakeManyRequest{Takes: []*ratelimitv1.TakeRequest{take}})
		if err != nil {
			return err
		}
		c.took(take, many.Results[0].GetResponse())
	default:
		if _, err := c.envoy.ShouldRateLimit(ctx, recordedRequest(c.Rand, c.descriptors)); err != nil {
			return err
		}
	}
	return c.giveBack(ctx)
}

// took keeps a take for a give-back.
func (c *recordedCaller) took(take *ratelimitv1.TakeRequest, response *ratelimitv1.TakeResponse) {
	back := &ratelimitv1.GiveBackRequest{Take: take}
	for _, l := range response.GetLimits() {
		back.TakenAt, back.TakenBy = append(back.TakenAt, l.TakenAt), append(back.TakenBy, l.TakenBy)
	}
	c.taken = append(c.taken, back)
}

// giveBack gives back one of the takes by chance, unless its limits have changed.
func (c *recordedCaller) giveBack(ctx context.Context) error {
	if len(c.taken) == 0 || c.IntN(4) > 0 {
		return nil
	}
	i := c.IntN(len(c.taken))
	back := c.taken[i]
	c.taken = slices.Delete(c.taken, i, i+1)
	if _, err := c.api.GiveBack(ctx, back); err != nil && status.Code(err) != codes.FailedPrecondition {
		return err
	}
	return nil
}

// What a daemon decided under load is decided again, byte for byte, from its log: also
// by numbers that requests bring, and where takes are given back.
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
		}, 12_000, 3},
		{"redis", func() []string { return redisFlags("single", redistest.Single(t)) }, 12_000, 3},
		// The limits of one descriptor are on one node. Parts of a request on several
		// nodes are decided each at a moment of its own, and a replay decides them at once.
		{"cluster", func() []string { return redisFlags("cluster", redistest.Cluster(t)...) }, 6_000, 1},
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
	conn, err := grpc.NewClient(d.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	api := ratelimitv1.NewRateLimitServiceClient(conn)
	var sent, last atomic.Int64
	last.Store(math.MaxInt64)
	var all errgroup.Group
	for i := range callers {
		all.Go(func() error {
			caller := recordedCaller{Rand: rand.New(rand.NewPCG(uint64(i), 1)), envoy: d.client, api: api, descriptors: descriptors}
			for {
				n := sent.Add(1)
				if n > last.Load() {
					return nil
				}
				if n == requests/2 {
					// The others ask on, by the old limits and by the new ones.
					write(t, limits, "limits.yaml", recordedLimits(35))
					asynctest.Eventually(t, "the changed limits are loaded", func() bool {
						return d.total("ratelimitd_limits_reloads_total", `result="success"`) == 2
					})
					last.Store(sent.Load() + requests/2)
				}
				if err := caller.ask(context.Background()); err != nil {
					return err
				}
			}
		})
	}
	if err := all.Wait(); err != nil {
		t.Fatal(err)
	}
	requests = last.Load()
	if code := d.stop(syscall.SIGTERM); code != 0 {
		t.Fatalf("it exits with %d", code)
	}
	out, stderr, code := command(t, "replay", "--json", path)
	var report struct {
		GiveBacks   int64 `json:"give_backs"`
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
	// The slower a machine, the more has refilled when it asks again.
	const few = 10
	if c := report.Comparison; c.Equal+c.Remembered != requests || c.Equal < requests/2 || c.Different != 0 || report.DeniedAfter < few || report.DeniedAfter > requests*9/10 || report.GiveBacks < requests/20 {
		t.Errorf("%+v", report)
	}
	return true
}
