package redisstore_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/redisconn"
	"github.com/ratelimitd/ratelimitd/internal/redisstore"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

// sideBySide is two stores on the same clock, with keys of their own. One of them
// remembers denials.
type sideBySide struct {
	t          testing.TB
	clock      atomic.Int64 // microseconds
	metrics    *prometheus.Registry
	remembers  *redisstore.Store
	asksAlways *redisstore.Store
	other      *redisstore.Store // with the keys of remembers, elsewhere
}

// newSideBySide returns stores of which one remembers denials for as long as memory.
// Functions may change its options.
func newSideBySide(t testing.TB, memory time.Duration, change ...func(*testOptions)) *sideBySide {
	t.Helper()
	s := &sideBySide{t: t, metrics: prometheus.NewRegistry()}
	s.clock.Store(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro())
	o := options(redisconn.Single, redistest.Single(t))
	o.Clock = s.clock.Load
	s.other = open(t, o)
	remembers := o
	remembers.DenialMemory, remembers.Metrics = memory, s.metrics
	for _, f := range change {
		f(&remembers)
	}
	s.remembers = open(t, remembers)
	o = options(redisconn.Single, redistest.Single(t))
	o.Clock = s.clock.Load
	s.asksAlways = open(t, o)
	return s
}

func (s *sideBySide) pass(d time.Duration) { s.clock.Add(d.Microseconds()) }

// known returns how many requests were answered from memory.
func (s *sideBySide) known() float64 {
	return metric(s.t, s.metrics, "redis_known_denials_total")
}

// both takes from both stores, and fails the test if one allows what the other denies, if
// a denied hit that is remembered waits for longer, or if other decisions differ.
func (s *sideBySide) both(hits ...bucket.Hit) (a, b []bucket.Decision) {
	s.t.Helper()
	a, b = take(s.t, s.remembers, hits...), take(s.t, s.asksAlways, hits...)
	if bucket.GroupAllowed(hits, a) != bucket.GroupAllowed(hits, b) {
		s.t.Fatalf("%v: with a memory %+v, without %+v", describe(hits), a, b)
	}
	for i := range hits {
		x, y := a[i], b[i]
		if x.RememberedAt == 0 {
			x.At, x.Seq, y.At, y.Seq = 0, 0, 0, 0
			if x != y {
				s.t.Fatalf("%v: hit %d with a memory %+v, without %+v", describe(hits), i, x, y)
			}
		} else if isNever := y.RetryAfter == bucket.Never; !x.Allowed() && (y.Allowed() || isNever != (x.RetryAfter == bucket.Never) || !isNever && x.RetryAfter > y.RetryAfter) {
			s.t.Fatalf("%v: hit %d is known to be denied: %+v, without a memory %+v", describe(hits), i, x, y)
		}
	}
	return a, b
}

func describe(hits []bucket.Hit) (text []string) {
	for _, h := range hits {
		text = append(text, fmt.Sprintf("%s %d in %s, cost %d", h.Key, h.Limit.Requests, h.Limit.Period, h.Cost))
	}
	return text
}

// taken is a take that can be given back.
type taken struct {
	hits []bucket.Hit
	a, b []bucket.Decision
}

func (s *sideBySide) giveBack(t taken) {
	s.t.Helper()
	if err := s.remembers.GiveBack(context.Background(), t.hits, t.a); err != nil {
		s.t.Fatal(err)
	}
	if err := s.asksAlways.GiveBack(context.Background(), t.hits, t.b); err != nil {
		s.t.Fatal(err)
	}
}
