package redisstore_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/bucket/memstore"
	"github.com/ratelimitd/ratelimitd/internal/fallback"
	"github.com/ratelimitd/ratelimitd/internal/redisconn"
	"github.com/ratelimitd/ratelimitd/internal/redisstore"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

// rig is a store that reaches a server of its own through a proxy, with a
// fallback that allows, and a second store with the same keys that reaches it
// past the proxy.
type rig struct {
	t       testing.TB
	server  *redistest.Server
	proxy   *redistest.Proxy
	metrics *prometheus.Registry
	store   *redisstore.Store
	direct  *redisstore.Store
	redis   *redis.Client // of the server
}

// newRig returns a rig; change may alter the options of its store. Redis has decided
// once, so there is a connection.
func newRig(t testing.TB, change func(*testOptions)) *rig {
	t.Helper()
	r := &rig{t: t, server: redistest.Start(t), metrics: prometheus.NewRegistry()}
	r.proxy = redistest.StartProxy(t, r.server.Addr())
	r.redis = redistest.Client(t, r.server.Addr())
	o := options(redisconn.Single, r.server.Addr())
	r.direct = open(t, o)
	o.Addresses = []string{r.proxy.Addr()}
	o.Metrics = r.metrics
	o.Fallback = fallback.New(fallback.Options{
		Mode:     bucket.FailAllow,
		Local:    memstore.New(memstore.Options{MaxKeys: 1e6}),
		Replicas: func() int { return 1 },
		Metrics:  r.metrics,
	})
	t.Cleanup(func() { o.Fallback.Close() })
	change(&o)
	r.store = open(t, o)
	t.Cleanup(func() { r.proxy.Heal(t) }) // closing waits for what is in flight
	r.waitForRedis()                      // a slow machine may not connect in time at once
	return r
}

// daily is a limit of n a day that begins with the first request.
func daily(t testing.TB, n int64) *bucket.Limit {
	return newLimit(t, bucket.Spec{Algorithm: bucket.SlidingWindow, Requests: n, Period: 24 * time.Hour})
}

// outcome is the result of a take.
type outcome struct {
	decisions []bucket.Decision
	err       error
}

func (o outcome) degraded() bool { return o.err == nil && o.decisions[0].Degraded }

// decided reports whether Redis did.
func (o outcome) decided() bool { return o.err == nil && !o.decisions[0].Degraded }

func (r *rig) take(ctx context.Context, hits ...bucket.Hit) outcome {
	d := make([]bucket.Decision, len(hits))
	err := r.store.Take(ctx, hits, d)
	return outcome{d, err}
}

// begin takes in the background.
func (r *rig) begin(ctx context.Context, hits ...bucket.Hit) <-chan outcome {
	done := make(chan outcome, 1)
	go func() { done <- r.take(ctx, hits...) }()
	return done
}

// beginHeld takes in the background until the reply of Redis is there and held.
func (r *rig) beginHeld(hits ...bucket.Hit) <-chan outcome {
	r.t.Helper()
	held := r.proxy.Held()
	done := r.begin(context.Background(), hits...)
	asynctest.Eventually(r.t, "the reply is held", func() bool { return r.proxy.Held() == held+1 })
	return done
}

// waitForQueue waits until n requests wait for a batch.
func (r *rig) waitForQueue(n int) {
	r.t.Helper()
	asynctest.Eventually(r.t, "the queue has the expected length", func() bool { return r.metric("redis_queue_length") == float64(n) })
}

// taken returns what was taken from a daily limit.
func (r *rig) taken(h bucket.Hit) int64 {
	r.t.Helper()
	h.Cost = 0
	return h.Limit.Requests - take(r.t, r.direct, h)[0].Remaining
}

func (r *rig) metric(name string, labels ...string) float64 {
	r.t.Helper()
	return metric(r.t, r.metrics, name, labels...)
}

// metric returns the sum of a metric's series that have the label values; a histogram
// counts its observations.
func metric(t testing.TB, metrics *prometheus.Registry, name string, labels ...string) float64 {
	t.Helper()
	families, err := metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "ratelimitd_"+name {
			continue
		}
		sum := 0.0
		for _, m := range f.GetMetric() {
			text := m.String()
			has := true
			for _, value := range labels {
				has = has && strings.Contains(text, `"`+value+`"`)
			}
			if has {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
		return sum
	}
	t.Fatalf("there is no metric ratelimitd_%s", name)
	return 0
}

// calls returns how often the server ran a script.
func (r *rig) calls() int {
	r.t.Helper()
	info, err := r.redis.InfoMap(context.Background(), "commandstats").Result()
	if err != nil {
		r.t.Fatal(err)
	}
	n := 0
	_, _ = fmt.Sscanf(info["Commandstats"]["cmdstat_evalsha"], "calls=%d", &n)
	return n
}

// heldCommand stops a worker of a store that is about to write a command: a test's
// Options.Clock, which it asks then, calls wait.
type heldCommand struct {
	reached  chan struct{} // is closed when the worker waits
	release  func()
	released chan struct{}
}

// newHeldCommand returns a held command that the end of the test releases, if the
// test does not.
func newHeldCommand(t testing.TB) *heldCommand {
	h := &heldCommand{reached: make(chan struct{}), released: make(chan struct{})}
	h.release = sync.OnceFunc(func() { close(h.released) })
	t.Cleanup(h.release)
	return h
}

func (h *heldCommand) wait() {
	close(h.reached)
	<-h.released
}
