package redisstore_test

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/bucket/buckettest"
	"github.com/ratelimitd/ratelimitd/internal/bucket/soaktest"
	"github.com/ratelimitd/ratelimitd/internal/redisconn"
	"github.com/ratelimitd/ratelimitd/internal/redisstore"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

// stepped is a store on a server whose clock steps.
type stepped struct {
	t       *testing.T
	clock   *redistest.Clock
	addr    string
	options testOptions
	metrics *prometheus.Registry
	store   *redisstore.Store
}

func newStepped(t *testing.T) *stepped {
	t.Helper()
	server, clock := redistest.StartWithClock(t)
	s := &stepped{t: t, clock: clock, addr: server.Addr(), metrics: prometheus.NewRegistry()}
	s.options = options(redisconn.Single, s.addr)
	s.options.Metrics = s.metrics
	s.store = open(t, s.options)
	return s
}

func (s *stepped) mended() float64 { return metric(s.t, s.metrics, "redis_mended_states_total") }

// wantExpiries fails the test unless there are n keys, which expire within maxTTL.
func (s *stepped) wantExpiries(n int, maxTTL time.Duration) {
	s.t.Helper()
	c := redistest.Client(s.t, s.addr)
	keys := redistest.Keys(s.t, c, s.options.Prefix)
	if len(keys) > n {
		s.t.Errorf("keys %v, want at most %d", keys, n)
	}
	for key, end := range keys {
		if left := end.Sub(redistest.Now(s.t, c)); end.IsZero() || left > maxTTL+50*time.Millisecond {
			s.t.Errorf("%s lives for %s, want at most %s", key, left, maxTTL)
		}
	}
}

// steps are the offsets between which a clock steps back.
var steps = []struct{ from, to time.Duration }{
	{time.Minute, 0}, {25 * time.Hour, 0}, {400 * 24 * time.Hour, 0}, {0, -10 * time.Minute},
}

// minutely is a full hit on a limit of its own.
func minutely(t *testing.T, a bucket.Algorithm, user string) bucket.Hit {
	t.Helper()
	return hit(newLimit(t, bucket.Spec{Algorithm: a, Requests: 10, Period: time.Minute}), a.String()+" "+user, 10)
}

// A limit that is full when the clock steps back stays full from then on for no longer
// than its period, and its key lives no longer either. The first use of the limit
// mends that, whatever it is.
func TestFullLimitRecoversWhenTheClockStepsBack(t *testing.T) {
	t.Parallel()
	calls := map[string]func(s *redisstore.Store, h bucket.Hit, d []bucket.Decision) error{
		"Take": func(s *redisstore.Store, h bucket.Hit, d []bucket.Decision) error {
			return s.Take(context.Background(), []bucket.Hit{h}, d)
		},
		"Take of nothing": func(s *redisstore.Store, h bucket.Hit, d []bucket.Decision) error {
			h.Cost = 0
			return s.Take(context.Background(), []bucket.Hit{h}, d)
		},
		"Check": func(s *redisstore.Store, h bucket.Hit, d []bucket.Decision) error {
			return s.Check(context.Background(), []bucket.Hit{h}, d)
		},
		"GiveBack": func(s *redisstore.Store, h bucket.Hit, d []bucket.Decision) error {
			// It gives back nothing of what was taken ahead of the clock.
			if err := s.GiveBack(context.Background(), []bucket.Hit{h}, d); err != nil {
				return err
			}
			return s.Check(context.Background(), []bucket.Hit{h}, d)
		},
	}
	states := len(buckettest.Rates()) * len(calls)
	for _, step := range steps {
		t.Run(fmt.Sprint(step.from, " to ", step.to), func(t *testing.T) {
			t.Parallel()
			s := newStepped(t)
			s.clock.Set(step.from)
			full := map[string][]bucket.Decision{}
			for _, a := range buckettest.Rates() {
				for name := range calls {
					h := minutely(t, a, name)
					full[string(h.Key)] = take(t, s.store, h)
				}
			}
			if n := s.mended(); n != 0 {
				t.Errorf("%v states were mended before the step", n)
			}
			s.clock.Set(step.to)
			for _, a := range buckettest.Rates() {
				for name, call := range calls {
					h := minutely(t, a, name)
					got := full[string(h.Key)]
					if err := call(s.store, h, got); err != nil {
						t.Fatal(err)
					}
					if d := got[0]; d.Allowed() || d.RetryAfter > h.Limit.Period || d.ResetAfter > h.Limit.Period {
						t.Errorf("%s, a %s after the step: %+v", a, name, d)
					}
				}
			}
			if n := s.mended(); n != float64(states) {
				t.Errorf("%v states were mended, want %d", n, states)
			}
			s.wantExpiries(states, time.Minute)
			for _, a := range buckettest.Rates() {
				for name := range calls {
					take(t, s.store, minutely(t, a, name))
				}
			}
			if n := s.mended(); n != float64(states) {
				t.Errorf("%v states were mended, want each of %d once", n, states)
			}
		})
	}
}

// A clock that jumps ahead is time that passed: states that expire are lost, and each
// limit admits its requests once more.
func TestClockThatJumpsAheadIsTimeThatPassed(t *testing.T) {
	t.Parallel()
	for _, jump := range []time.Duration{10 * time.Minute, 25 * time.Hour} {
		t.Run(jump.String(), func(t *testing.T) {
			t.Parallel()
			s := newStepped(t)
			for _, a := range buckettest.Rates() {
				take(t, s.store, minutely(t, a, "a"))
			}
			s.clock.Set(jump)
			for _, a := range buckettest.Rates() {
				h := minutely(t, a, "a")
				if d := take(t, s.store, h)[0]; !d.Allowed() || d.Remaining != 0 {
					t.Errorf("%s: after the jump %+v", a, d)
				}
				if d := take(t, s.store, h)[0]; d.Allowed() || d.RetryAfter > time.Minute {
					t.Errorf("%s: after the jump, once more %+v", a, d)
				}
			}
			s.wantExpiries(len(buckettest.Rates()), time.Minute)
			if n := s.mended(); n != 0 {
				t.Errorf("%v states were mended", n)
			}
		})
	}
}

// A clock that goes back within the skew is waited for.
func TestMaxClockSkewBoundsWhatIsMended(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		skew, back time.Duration // 0 is the default
		mended     bool
	}{
		{0, 10 * time.Second, false}, {0, 10*time.Second + time.Microsecond, true},
		{time.Second, time.Second, false}, {time.Second, 1001 * time.Millisecond, true},
		{time.Hour, time.Hour, false}, {time.Hour, time.Hour + time.Second, true},
	} {
		t.Run(fmt.Sprint(tc.skew, " ", tc.back), func(t *testing.T) {
			clock, metrics := asynctest.NewClock(), prometheus.NewRegistry()
			o := options(redisconn.Single, redistest.Single(t))
			o.Clock, o.Metrics, o.MaxClockSkew = clock.Micros, metrics, tc.skew
			s := open(t, o)
			for _, a := range buckettest.Rates() {
				l := newLimit(t, bucket.Spec{Algorithm: a, Requests: 3, Period: 7 * time.Second})
				before := take(t, s, hit(l, "a", 3))[0]
				clock.Move(-tc.back)
				d := take(t, s, hit(l, "a", 1))[0]
				if want := before.At - tc.back.Microseconds(); tc.mended && d.At != want || !tc.mended && d.At != before.At {
					t.Errorf("%s: taken at %d and, %s earlier, at %d", a, before.At, tc.back, d.At)
				}
				clock.Move(tc.back)
			}
			if got := metric(t, metrics, "redis_mended_states_total"); (got > 0) != tc.mended || tc.mended && got != 6 {
				t.Errorf("%v states were mended", got)
			}
		})
	}
}

// A denied request over several hash tags of a cluster is only checked. That is enough
// to mend its states.
func TestDenialAcrossTagsMends(t *testing.T) {
	t.Parallel()
	clock, metrics := asynctest.NewClock(), prometheus.NewRegistry()
	o := options(redisconn.Cluster, redistest.Cluster(t)...)
	o.Clock, o.Metrics = clock.Micros, metrics
	s := open(t, o)
	var hits []bucket.Hit
	for _, a := range buckettest.Rates() {
		l := newLimit(t, bucket.Spec{Algorithm: a, Requests: 3, Period: time.Minute})
		hits = append(hits, hit(l, a.String(), 3))
	}
	clock.Move(24 * time.Hour)
	take(t, s, hits...)
	clock.Move(-24 * time.Hour)
	for i := range hits {
		hits[i].Cost = 1
	}
	for range 3 {
		for i, d := range take(t, s, hits...) {
			if d.Allowed() || d.RetryAfter > time.Minute {
				t.Errorf("%s: %+v", hits[i].Key, d)
			}
		}
		if got := metric(t, metrics, "redis_mended_states_total"); got != float64(len(hits)) {
			t.Errorf("%v states were mended, want %d", got, len(hits))
		}
	}
	clock.Move(time.Minute)
	if d := take(t, s, hits...); !bucket.Allowed(d) {
		t.Errorf("a minute later: %+v", d)
	}
}

// The store mends and counts the same states as the oracle.
func TestMendedStatesAreCounted(t *testing.T) {
	t.Parallel()
	clock, metrics := asynctest.NewClock(), prometheus.NewRegistry()
	o := options(redisconn.Single, redistest.Single(t))
	o.Clock, o.Metrics = clock.Micros, metrics
	s := open(t, o)
	traces := soaktest.Long(60, 300)
	want := 0
	for i := range uint64(traces) {
		tr := buckettest.RandomTrace(buckettest.Chance(1<<32+i, 20), buckettest.Options{Domain: fmt.Sprint("counted", i), Algorithms: bucket.Algorithms()})
		if err := tr.Run(s, clock.Set); err != nil {
			t.Fatal(err)
		}
		for _, n := range tr.Mended {
			want += n
		}
		if got := metric(t, metrics, "redis_mended_states_total"); got != float64(want) {
			t.Fatalf("after trace %d %v states were mended, want %d\n%s", i, got, want, tr)
		}
	}
	if want < traces/3 {
		t.Errorf("only %d states were mended: the test looks at too little", want)
	}
}

// How far each node's clock is from this machine's is a metric, and is logged if it is
// far.
func TestClockOffsetIsShownAndLogged(t *testing.T) {
	t.Parallel()
	server, clock := redistest.StartWithClock(t)
	metrics, text := prometheus.NewRegistry(), new(asynctest.Buffer)
	o := options(redisconn.Single, server.Addr())
	o.Metrics, o.Log = metrics, slog.New(slog.NewTextHandler(text, nil))
	s := open(t, o)
	h := hit(newLimit(t, bucket.Spec{Algorithm: bucket.GCRA, Requests: 10, Period: time.Second}), "a", 1)
	if hasMetric(t, metrics, "ratelimitd_redis_clock_offset_seconds") {
		t.Error("there is an offset before the first answer")
	}
	for _, ahead := range []time.Duration{0, 25 * time.Hour, -10 * time.Minute, 0} {
		clock.Set(ahead)
		asynctest.Eventually(t, "the offset is seen", func() bool {
			take(t, s, h)
			return math.Abs(metric(t, metrics, "redis_clock_offset_seconds", "redis")-ahead.Seconds()) < 0.5
		})
	}
	const wrong, right = "the node's clock is not this machine's", "the node's clock is this machine's again"
	asynctest.Eventually(t, "the log says that it is well again", func() bool {
		take(t, s, h)
		return strings.Count(text.String(), right) == 1
	})
	if n := strings.Count(text.String(), wrong); n != 1 || !strings.Contains(text.String(), `ahead="1d 1h"`) && !strings.Contains(text.String(), `ahead="1d 2h"`) {
		t.Errorf("the log says %d times that the clock is wrong:\n%s", n, text)
	}

	// A clock that a test injects is not the node's.
	o.Clock, o.Metrics = asynctest.NewClock().Micros, prometheus.NewRegistry()
	injected := o.Metrics.(*prometheus.Registry)
	take(t, open(t, o), h)
	if hasMetric(t, injected, "ratelimitd_redis_clock_offset_seconds") {
		t.Error("there is an offset of an injected clock")
	}
}

func hasMetric(t *testing.T, metrics *prometheus.Registry, name string) bool {
	t.Helper()
	families, err := metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return true
		}
	}
	return false
}
