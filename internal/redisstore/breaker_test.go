package redisstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/redisconn"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

// impatient gives up soon, but not so soon that an answer of Redis comes too late on a
// busy machine.
func impatient(o *testOptions) { o.Timeout = time.Second }

func (r *rig) breakerIsOpen() bool { return r.metric("redis_breaker_open") == 1 }

// openBreaker lets takes fail until the breaker is open.
func (r *rig) openBreaker() {
	r.t.Helper()
	asynctest.Eventually(r.t, "the breaker opens", func() bool {
		r.take(context.Background(), hit(daily(r.t, 1000), "breaking", 1))
		return r.breakerIsOpen()
	})
}

func (r *rig) waitForRedis() {
	r.t.Helper()
	h := hit(daily(r.t, 1000), "back", 1)
	asynctest.Eventually(r.t, "Redis decides", func() bool { return r.take(context.Background(), h).decided() })
}

// While the breaker is open no caller waits, and only probes ask, until one of them is
// answered.
func TestBreakerOpensAndCloses(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]struct {
		begin func(*rig)
		end   func(*rig)
	}{
		"held replies": {func(r *rig) { r.proxy.Hold("evalsha") }, func(r *rig) { r.proxy.Heal(r.t) }},
		"lost packets": {func(r *rig) { r.proxy.Drop() }, func(r *rig) { r.proxy.Heal(r.t) }},
		"refused":      {func(r *rig) { r.proxy.Refuse() }, func(r *rig) { r.proxy.Heal(r.t) }},
		"stopped":      {func(r *rig) { r.server.Pause() }, func(r *rig) { r.server.Resume() }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, impatient)
			h := hit(daily(t, 1_000_000), "a", 1)
			fault.begin(r)
			r.openBreaker()
			before := r.metric("degraded_answers_total", "breaker_open")
			calls := r.metric("redis_calls_total")
			const asked = 1000
			for range asked {
				if o := r.take(context.Background(), h); !o.degraded() {
					t.Fatalf("with the breaker open: %+v", o)
				}
			}
			if n := r.metric("degraded_answers_total", "breaker_open") - before; n != asked {
				t.Errorf("%v of %d answers were given because of the breaker", n, asked)
			}
			if n := r.metric("redis_calls_total") - calls; n != 0 {
				t.Errorf("%v calls were made for callers", n)
			}
			fault.end(r)
			asynctest.Eventually(t, "the breaker closes", func() bool { return !r.breakerIsOpen() })
			r.waitForRedis()
		})
	}
}

// When the breaker opens, the requests in the queue wait no longer. They are not sent
// either, since the node would charge them once it goes on.
func TestTheQueueIsNotSentOnceTheBreakerIsOpen(t *testing.T) {
	t.Parallel()
	r := newRig(t, unchanged)
	h := hit(daily(t, 1000), "a", 1)
	r.proxy.Hold("evalsha")
	first := r.beginHeld(h)
	r.proxy.Refuse()
	if o := <-first; !o.degraded() {
		t.Errorf("a take without a reply: %+v", o)
	}
	r.proxy.Heal(t)
	asynctest.Eventually(t, "no reply is held", func() bool { return r.proxy.Held() == 0 })
	r.proxy.Hold("evalsha")
	second := r.beginHeld(h)
	var queued []<-chan outcome
	for range 3 {
		queued = append(queued, r.begin(context.Background(), h))
	}
	r.waitForQueue(3)
	calls := r.metric("redis_calls_total")
	r.proxy.Refuse()
	for _, done := range append(queued, second) {
		if o := <-done; !o.degraded() {
			t.Errorf("a take without a reply: %+v", o)
		}
	}
	if n := r.metric("degraded_answers_total", "breaker_open"); n != 3 {
		t.Errorf("%v of 3 answers were given because of the breaker", n)
	}
	if n := r.metric("redis_calls_total") - calls; n != 1 {
		t.Errorf("%v calls were made, want the one that was away", n)
	}
}

// A node that is back and has no memory left is asked: it refuses what writes,
// and decides what does not.
func TestBreakerClosesForANodeThatRefuses(t *testing.T) {
	t.Parallel()
	r := newRig(t, impatient)
	full := hit(daily(t, 1), "full", 1)
	take(t, r.direct, full)
	r.proxy.Hold("evalsha")
	r.openBreaker()
	if err := r.redis.ConfigSet(context.Background(), "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	r.proxy.Heal(t)
	asynctest.Eventually(t, "the node denies", func() bool {
		o := r.take(context.Background(), full)
		return o.decided() && !o.decisions[0].Allowed()
	})
}

// A node that answers that it decides nothing counts as one that does not answer,
// but leaves no outcome unknown.
func TestBreakerOpensForAReplica(t *testing.T) {
	t.Parallel()
	r := newRig(t, unchanged)
	ctx := context.Background()
	if err := r.redis.ReplicaOf(ctx, "127.0.0.1", "1").Err(); err != nil {
		t.Fatal(err)
	}
	r.openBreaker()
	if n := r.metric("redis_unknown_outcomes_total"); n != 0 {
		t.Errorf("%v outcomes are unknown where the node said that it did nothing", n)
	}
	if err := r.redis.ReplicaOf(ctx, "NO", "ONE").Err(); err != nil {
		t.Fatal(err)
	}
	r.waitForRedis()
}

// A call that found no connection did not run.
func TestCallsWithoutAConnectionAreNotUnknown(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	server.Kill()
	o := options(redisconn.Single, server.Addr())
	metrics := prometheus.NewRegistry()
	o.Metrics = metrics
	s := open(t, o)
	if err := s.Take(context.Background(), []bucket.Hit{hit(daily(t, 1), "a", 1)}, make([]bucket.Decision, 1)); err == nil {
		t.Error("a server that is away has decided")
	}
	if n := metric(t, metrics, "redis_unknown_outcomes_total"); n != 0 {
		t.Errorf("%v outcomes are unknown", n)
	}
}

// Callers that give up early say nothing about the node. The first one sends by itself,
// and stays until the reply.
func TestImpatientCallersDoNotOpenTheBreaker(t *testing.T) {
	t.Parallel()
	for name, size := range map[string]int{"batches": 1000, "each alone": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, func(o *testOptions) { o.Batch.Size = size })
			h := hit(daily(t, 1000), "a", 1)
			r.proxy.Hold("evalsha")
			first := r.beginHeld(h)
			for i := range 10 {
				ctx, cancel := context.WithCancel(context.Background())
				done := r.begin(ctx, h)
				if size == 1 {
					asynctest.Eventually(t, "the reply is held", func() bool { return r.proxy.Held() == i+2 })
				}
				cancel()
				if o := <-done; o.err == nil {
					t.Fatalf("a caller that left got %+v", o)
				}
			}
			r.proxy.Heal(t)
			if o := <-first; !o.decided() {
				t.Errorf("the first got %+v", o)
			}
			if r.breakerIsOpen() {
				t.Error("callers that left have opened the breaker")
			}
			if o := r.take(context.Background(), h); !o.decided() {
				t.Errorf("after them: %+v", o)
			}
		})
	}
}

// A caller that sends by itself and leaves is charged, and gets the reply.
func TestCallerThatSendsAndLeavesGetsTheReply(t *testing.T) {
	t.Parallel()
	r := newRig(t, unchanged)
	h := hit(daily(t, 10), "a", 1)
	r.proxy.Hold("evalsha")
	ctx, leave := context.WithCancel(context.Background())
	done := r.begin(ctx, h)
	asynctest.Eventually(t, "the reply is held", func() bool { return r.proxy.Held() == 1 })
	leave()
	r.proxy.Heal(t)
	if o := <-done; !o.decided() || o.decisions[0].Remaining != 9 {
		t.Errorf("it got %+v", o)
	}
	if n := r.metric("redis_unknown_outcomes_total"); n != 0 {
		t.Errorf("%v outcomes are unknown, want none", n)
	}
}
