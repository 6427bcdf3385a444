package pipe_test

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/bucket/buckettest"
	"github.com/ratelimitd/ratelimitd/internal/redisconn"
	"github.com/ratelimitd/ratelimitd/internal/redisstore/pipe"
	"github.com/ratelimitd/ratelimitd/internal/redisstore/script"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

func TestMain(m *testing.M) { os.Exit(redistest.Run(m)) }

// rig is a pipe to a server behind a proxy.
type rig struct {
	t     *testing.T
	pipe  *pipe.Pipe
	proxy *redistest.Proxy
	limit *bucket.Limit // of 9 a day
	late  chan *pipe.Request
	seed  maphash.Seed
	run   uint64 // begins its keys, which no other run has
	close func()
}

// newRig returns a rig whose server has answered once.
func newRig(t *testing.T, timeout time.Duration, bounds pipe.Bounds, metrics prometheus.Registerer) *rig {
	t.Helper()
	r := &rig{t: t, late: make(chan *pipe.Request, 1), seed: maphash.MakeSeed(), run: rand.Uint64()}
	r.limit = buckettest.NewLimit(t, bucket.Spec{Algorithm: bucket.SlidingWindow, Requests: 9, Period: 24 * time.Hour})
	r.proxy = redistest.StartProxy(t, redistest.Single(t))
	conn, err := redisconn.New(redisconn.Options{
		Mode: redisconn.Single, Addresses: []string{r.proxy.Addr()}, Timeout: timeout, Script: script.Source,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	r.pipe = pipe.New(conn, pipe.Options{
		Tags:         script.NewTags(1),
		Batch:        bounds,
		MaxClockSkew: bucket.DefaultMaxClockSkew,
		Probe:        func(int) *pipe.Request { return r.request("probe") },
		OnLate:       func(late *pipe.Request) { r.late <- late },
		Metrics:      metrics,
		Log:          slog.New(slog.DiscardHandler),
		OwnClock:     func() int64 { return time.Now().UnixMicro() },
	})
	r.close = sync.OnceFunc(r.pipe.Close)
	t.Cleanup(r.close)
	t.Cleanup(func() { r.proxy.Heal(t) }) // closing waits for what is away
	asynctest.Eventually(t, "Redis answers", func() bool { return r.pipe.Ask(t.Context(), r.request("first")) == nil })
	return r
}

// request returns a take of 1 from the limit, by a key.
func (r *rig) request(key string) *pipe.Request {
	q := pipe.NewRequest()
	q.Mode = script.Take
	q.Hits = []bucket.Hit{buckettest.Hit(r.limit, fmt.Sprint(r.run, " ", key), 1)}
	q.Hashes = []uint64{maphash.Bytes(r.seed, q.Hits[0].Key)}
	q.Decisions = make([]bucket.Decision, 1)
	return q
}

// send sends a request whose caller does not lead.
func (r *rig) send(ctx context.Context, q *pipe.Request) {
	r.pipe.Send(ctx, time.Now().Add(time.Minute), q, false)
}

// sendHeld sends a request, until its reply is held.
func (r *rig) sendHeld(ctx context.Context, q *pipe.Request) {
	r.t.Helper()
	held := r.proxy.Held()
	r.send(ctx, q)
	asynctest.Eventually(r.t, "the reply is held", func() bool { return r.proxy.Held() == held+1 })
}

func (r *rig) want(q *pipe.Request, state pipe.State, cause error) {
	r.t.Helper()
	r.pipe.Wait(q, time.Now())
	if q.State() != state || !errors.Is(q.Cause, cause) {
		r.t.Errorf("the request is in the state %d because of %v, want %d because of %v", q.State(), q.Cause, state, cause)
	}
}

var oneAway = pipe.Bounds{Size: 1000, InFlight: 1, Queue: 2}

// A request is decided, refused, or left by its caller, before it was sent or after.
func TestRequestHasOneState(t *testing.T) {
	t.Parallel()
	metrics := prometheus.NewRegistry()
	r := newRig(t, time.Minute, oneAway, metrics)
	r.proxy.Hold("evalsha")
	ctx, leave := context.WithCancel(context.Background())
	away, stays := r.request("away"), r.request("stays")
	r.sendHeld(ctx, away)
	waits := r.request("waits")
	r.send(ctx, waits)
	r.send(context.Background(), stays)
	refused := r.request("refused")
	r.send(context.Background(), refused)
	r.want(refused, pipe.Failed, pipe.ErrQueueFull)
	leave()
	r.want(waits, pipe.Left, context.Canceled)
	r.want(away, pipe.Abandoned, context.Canceled)
	if !away.IsLate() || waits.IsLate() || !waits.IsGone() || refused.IsGone() {
		t.Error("those of callers who left are confused with others")
	}
	r.proxy.Heal(t)
	r.want(stays, pipe.Decided, nil)
	if d := stays.Decisions[0]; d.Remaining != 8 {
		t.Errorf("the one that was decided got %+v", d)
	}
	asynctest.Eventually(t, "the batch is back", func() bool { return away.State() == pipe.Returned })

	// What was never sent was not charged.
	for key, remaining := range map[string]int64{"waits": 8, "refused": 8, "away": 7} {
		q := r.request(key)
		r.send(context.Background(), q)
		if r.want(q, pipe.Decided, nil); q.Decisions[0].Remaining != remaining {
			t.Errorf("%s: %d remain, want %d", key, q.Decisions[0].Remaining, remaining)
		}
	}
	const unknown = "ratelimitd_redis_unknown_outcomes_total" // that of the one that was away
	families, err := metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == unknown && f.GetMetric()[0].GetCounter().GetValue() != 1 {
			t.Errorf("of unknown outcomes the metrics say %s", f)
		}
	}
}

// A late request that is dropped comes back once: to its caller if its batch is back by
// then, else to OnLate.
func TestDroppedRequestComesBackOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, time.Minute, oneAway, nil)
	for name, isBackFirst := range map[string]bool{"the batch is first": true, "the caller is first": false} {
		t.Run(name, func(t *testing.T) {
			r.proxy.Hold("evalsha")
			ctx, leave := context.WithCancel(context.Background())
			q := r.request(name)
			r.sendHeld(ctx, q)
			leave()
			r.want(q, pipe.Abandoned, context.Canceled)
			if isBackFirst {
				r.proxy.Heal(t)
				asynctest.Eventually(t, "the batch is back", func() bool { return q.State() == pipe.Returned })
			}
			if isBack := q.Drop(); isBack != isBackFirst {
				t.Errorf("the batch is back: %v", isBack)
			}
			r.proxy.Heal(t)
			if !isBackFirst {
				if late := <-r.late; late != q || late.Err != nil || late.Decisions[0].Remaining != 8 {
					t.Errorf("another request is late: %+v", late)
				}
			}
			after := r.request(name)
			r.send(context.Background(), after)
			r.want(after, pipe.Decided, nil)
			if len(r.late) > 0 {
				t.Error("a request is late that is none")
			}
		})
	}
}

// What comes after Close is refused.
func TestClosedPipeRefuses(t *testing.T) {
	t.Parallel()
	r := newRig(t, time.Minute, oneAway, nil)
	r.close()
	q := r.request("after")
	r.send(context.Background(), q)
	r.pipe.Wait(q, time.Now())
	if q.State() != pipe.Failed || q.Cause == nil {
		t.Errorf("it is in the state %d because of %v", q.State(), q.Cause)
	}
}
