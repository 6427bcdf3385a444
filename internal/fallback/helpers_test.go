package fallback_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/memstore"
	"github.com/ratelimitd/ratelimitd/internal/fallback"
)

var errDown = errors.New("the store is down")

// fixture is a Fallback on a memstore, one of replicas daemons, whose clock
// stands still unless a test moves it.
type fixture struct {
	*fallback.Fallback
	clock    atomic.Int64 // microseconds
	replicas atomic.Int64
	metrics  *prometheus.Registry
}

func newFixture(tb testing.TB, mode bucket.FailureMode, replicas int64) *fixture {
	f := &fixture{metrics: prometheus.NewRegistry()}
	f.clock.Store(1_800_000_000_000_000) // a full hour
	f.replicas.Store(replicas)
	f.Fallback = fallback.New(fallback.Options{
		Mode:     mode,
		Local:    memstore.New(memstore.Options{MaxKeys: 1e6, Clock: f.clock.Load}),
		Replicas: func() int { return int(f.replicas.Load()) },
		Metrics:  f.metrics,
	})
	tb.Cleanup(func() {
		if err := f.Close(); err != nil {
			tb.Error(err)
		}
	})
	return f
}

func (f *fixture) pass(d time.Duration) { f.clock.Add(d.Microseconds()) }

func (f *fixture) take(tb testing.TB, hits ...bucket.Hit) []bucket.Decision {
	tb.Helper()
	d := make([]bucket.Decision, len(hits))
	if err := f.Take(context.Background(), hits, d, errDown); err != nil {
		tb.Fatalf("Take: %v", err)
	}
	wantDegraded(tb, d)
	return d
}

func (f *fixture) check(tb testing.TB, hits ...bucket.Hit) []bucket.Decision {
	tb.Helper()
	d := make([]bucket.Decision, len(hits))
	if err := f.Check(context.Background(), hits, d, errDown); err != nil {
		tb.Fatalf("Check: %v", err)
	}
	wantDegraded(tb, d)
	return d
}

func (f *fixture) giveBack(tb testing.TB, hits []bucket.Hit, d []bucket.Decision) {
	tb.Helper()
	if err := f.GiveBack(context.Background(), hits, d); err != nil {
		tb.Fatalf("GiveBack: %v", err)
	}
}

// left is what remains to a limit.
func (f *fixture) left(tb testing.TB, h bucket.Hit) int64 {
	tb.Helper()
	h.Cost = 0
	return f.check(tb, h)[0].Remaining
}

func wantDegraded(tb testing.TB, decisions []bucket.Decision) {
	tb.Helper()
	for i, d := range decisions {
		if !d.Degraded {
			tb.Errorf("decision %d is not marked as degraded: %+v", i, d)
		}
	}
}

// spec is requests a minute in fixed windows, with a mode.
func spec(mode bucket.FailureMode, requests int64) bucket.Spec {
	return bucket.Spec{Algorithm: bucket.FixedWindow, Requests: requests, Period: time.Minute, OnStoreFailure: mode}
}

func postpaid(s bucket.Spec) bucket.Spec { s.Postpaid = bucket.PostpaidAlways; return s }

func hit(tb testing.TB, s bucket.Spec, key string, cost int64) bucket.Hit {
	tb.Helper()
	l, err := bucket.NewLimit(s)
	if err != nil {
		tb.Fatal(err)
	}
	return bucket.Hit{Limit: l, Key: []byte(key), Place: []byte(key), Cost: cost}
}

func cost(h bucket.Hit, cost int64) bucket.Hit { h.Cost = cost; return h }

func role(h bucket.Hit, r bucket.Role) bucket.Hit { h.Role = r; return h }
