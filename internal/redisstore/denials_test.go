package redisstore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/bucket/buckettest"
	"github.com/ratelimitd/ratelimitd/internal/bucket/soaktest"
	"github.com/ratelimitd/ratelimitd/internal/redisconn"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

// Random requests over few keys are allowed with a memory of denials as without, and no
// denial says to wait for too long.
func TestDenialsAreAsWithoutMemory(t *testing.T) {
	t.Parallel()
	for seed := range soaktest.Long(uint64(3), 12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(seed, 7))
			s := newSideBySide(t, []time.Duration{time.Millisecond, 200 * time.Millisecond, time.Second}[r.IntN(3)])
			var limits []*bucket.Limit
			for _, a := range buckettest.Rates() {
				for _, name := range []string{"", "second"} {
					l := newLimit(t, bucket.Spec{
						Name: name, Algorithm: a, Requests: r.Int64N(6), Period: time.Duration(1+r.IntN(3000)) * time.Millisecond,
						Postpaid: []bucket.Postpaid{bucket.PostpaidNever, bucket.PostpaidNever, bucket.PostpaidAlways, bucket.PostpaidAuto}[r.IntN(4)],
					})
					limits = append(limits, l, l.Reported())
				}
			}
			var takes []taken
			for range soaktest.Long(200, 400) {
				s.pass(time.Duration(r.Int64N(1 + int64(300*time.Millisecond)/(1+r.Int64N(50)))))
				if n := len(takes); n > 0 && r.IntN(10) == 0 {
					s.giveBack(takes[r.IntN(n)])
					continue
				}
				hits := randomHits(r, limits)
				for range 1 + r.IntN(3) {
					a, b := s.both(hits...)
					if bucket.GroupAllowed(hits, a) {
						takes = append(takes, taken{hits, a, b})
					}
				}
			}
			if s.known() == 0 {
				t.Error("nothing was answered from memory")
			}
		})
	}
}

func randomHits(r *rand.Rand, limits []*bucket.Limit) (hits []bucket.Hit) {
	keys := make(map[string]bool)
	for range 1 + max(0, r.IntN(6)-3) {
		h := hit(limits[r.IntN(len(limits))], []string{"a", "b"}[r.IntN(2)], []int64{1, 1, 1, 1, 1, 0, 2, 3, 9, -1}[r.IntN(10)])
		if !keys[string(h.Key)] {
			keys[string(h.Key)] = true
			h.Role = []bucket.Role{0, 0, 0, 0, 0, 0, bucket.Aside, bucket.Quota(len(hits)/2 + 1)}[r.IntN(8)]
			hits = append(hits, h)
		}
	}
	return hits
}

// A denial holds while others take, and for equal requests alone: their retry time would not
// be that of another cost.
func TestDenialsHoldWhileOthersTake(t *testing.T) {
	t.Parallel()
	for _, a := range buckettest.Rates() {
		t.Run(a.String(), func(t *testing.T) {
			s := newSideBySide(t, time.Second)
			l := newLimit(t, bucket.Spec{Algorithm: a, Requests: 100, Period: time.Hour})
			other := hit(newLimit(t, bucket.Spec{Algorithm: a, Requests: 100, Period: 2 * time.Hour}), "other", 1)
			s.both(hit(l, "a", 51))
			for i, c := range []struct {
				hits  []bucket.Hit
				known bool
			}{
				{hits: []bucket.Hit{hit(l, "a", 50)}},
				{hits: []bucket.Hit{hit(l, "a", 50)}, known: true},
				{hits: []bucket.Hit{hit(l, "a", 51)}},
				{hits: []bucket.Hit{hit(l, "a", 50), other}},
				{hits: []bucket.Hit{hit(l, "a", 49)}}, // is allowed
				{hits: []bucket.Hit{hit(l, "a", 50), other}, known: true},
				{hits: []bucket.Hit{hit(l, "a", 0)}},
				{hits: []bucket.Hit{hit(l, "a", 0)}, known: true},
			} {
				before := s.known()
				s.both(c.hits...)
				if known := s.known() > before; known != c.known {
					t.Errorf("request %d is known to be denied: %v, want %v", i, known, c.known)
				}
			}
		})
	}
}

// New numbers of a limit are decided by Redis, whatever it denied by the old ones.
func TestDenialsEndWithNewNumbers(t *testing.T) {
	t.Parallel()
	s := newSideBySide(t, time.Second)
	spec := bucket.Spec{Algorithm: bucket.FixedWindow, Requests: 1, Period: time.Hour}
	old := hit(newLimit(t, spec), "a", 1)
	for range 3 {
		take(t, s.remembers, old)
	}
	if s.known() != 1 {
		t.Fatal("the denial is not remembered")
	}
	spec.Requests = 2
	if d := take(t, s.remembers, hit(newLimit(t, spec), "a", 1))[0]; !d.Allowed() || d.Remaining != 0 {
		t.Errorf("by the new numbers: %+v", d)
	}
}

// A refund whose outcome is unknown may have been made.
func TestDenialsEndWithUnknownRefunds(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(o *testOptions) {
		impatient(o)
		o.DenialMemory = time.Second
	})
	l := newLimit(t, bucket.Spec{Algorithm: bucket.GCRA, Requests: 100, Period: time.Hour})
	r.take(context.Background(), hit(l, "a", 51))
	for range 2 {
		r.take(context.Background(), hit(l, "a", 50))
	}
	if n := r.metric("redis_known_denials_total"); n != 1 {
		t.Fatalf("%v were answered from memory, want 1", n)
	}
	r.proxy.Hold("evalsha")
	r.take(context.Background(), hit(l, "a", -49))
	r.proxy.Heal(t)
	asynctest.Eventually(t, "Redis decides", func() bool { return r.take(context.Background(), hit(l, "b", 1)).decided() })
	if o := r.take(context.Background(), hit(l, "a", 50)); !bucket.Allowed(o.decisions) {
		t.Errorf("after 49 were given back: %+v", o.decisions[0])
	}
}

// A denial is not remembered if something was given back, or the state was deleted, while
// its reply was on the way.
func TestReturnsOvertakeDenials(t *testing.T) {
	t.Parallel()
	for name, overtake := range map[string]func(r *rig, h bucket.Hit, taken []bucket.Decision) error{
		"give-back": func(r *rig, h bucket.Hit, taken []bucket.Decision) error {
			return r.store.GiveBack(context.Background(), []bucket.Hit{h}, taken)
		},
		"refund": func(r *rig, h bucket.Hit, _ []bucket.Decision) error {
			h.Cost = -1
			return r.take(context.Background(), h).err
		},
		"reset": func(r *rig, h bucket.Hit, _ []bucket.Decision) error {
			key := r.store.Locate(&h).Key
			err := r.redis.Del(context.Background(), key).Err()
			r.store.Forget([]string{key})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()
			r := newRig(t, func(o *testOptions) {
				slowly(o)
				o.DenialMemory, o.Batch.InFlight = time.Second, 2
				o.Clock = func() int64 { return now } // so that no denial ends by itself
			})
			h, other := hit(daily(t, 1), "a", 1), hit(daily(t, 9), "other", 1)
			taken := r.take(context.Background(), h)
			r.proxy.Hold("|user=other#")
			denied := r.beginHeld(h, other)
			if err := overtake(r, h, taken.decisions); err != nil {
				t.Fatal(err)
			}
			r.proxy.Heal(t)
			if o := <-denied; !o.decided() || bucket.Allowed(o.decisions) {
				t.Fatalf("the take got %+v", o)
			}
			if o := r.take(context.Background(), h, other); !bucket.Allowed(o.decisions) {
				t.Errorf("after it: %+v", o.decisions)
			}
		})
	}
}

// What is given back by way of another store shows when the memory ends. A denial also
// ends when its limit has room again, if that is sooner.
func TestDenialsEndByThemselves(t *testing.T) {
	t.Parallel()
	const memory = 300 * time.Millisecond
	for _, a := range buckettest.Rates() {
		t.Run(a.String(), func(t *testing.T) {
			s := newSideBySide(t, memory)
			h := hit(newLimit(t, bucket.Spec{Algorithm: a, Requests: 1, Period: time.Hour}), "long", 1)
			take(t, s.remembers, h)
			take(t, s.remembers, h)
			take(t, s.other, hit(h.Limit, "long", -1))
			s.pass(memory - time.Microsecond)
			if d := take(t, s.remembers, h)[0]; d.Allowed() || s.known() != 1 {
				t.Errorf("%s: before the memory ends: %+v", a, d)
			}
			s.pass(time.Microsecond)
			if d := take(t, s.remembers, h)[0]; !d.Allowed() {
				t.Errorf("%s: after the memory ended: %+v", a, d)
			}

			h = hit(newLimit(t, bucket.Spec{Algorithm: a, Requests: 1, Period: 100 * time.Millisecond}), "short", 1)
			s.both(h)
			denied, _ := s.both(h)
			s.pass(denied[0].RetryAfter - time.Microsecond)
			if a, _ := s.both(h); a[0].Allowed() || a[0].RetryAfter != time.Microsecond {
				t.Errorf("a microsecond before there is room: %+v", a[0])
			}
			s.pass(time.Microsecond)
			if d, _ := s.both(h); !d[0].Allowed() {
				t.Errorf("%s: after the time to retry: %+v", a, d[0])
			}
		})
	}
}

// The reply with a denial takes some time. The denial ends no later than Redis ends
// it, and no retry time is too short.
func TestDenialsCountFromTheirReply(t *testing.T) {
	t.Parallel()
	const onTheWay = 10 * time.Millisecond // to Redis, and back again
	for _, a := range buckettest.Rates() {
		t.Run(a.String(), func(t *testing.T) {
			var clock, step atomic.Int64
			clock.Store(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro())
			o := options(redisconn.Single, redistest.Single(t))
			o.Clock = func() int64 { return clock.Add(step.Load()) }
			o.DenialMemory, o.Metrics = time.Second, prometheus.NewRegistry()
			known := func() float64 { return metric(t, o.Metrics.(*prometheus.Registry), "redis_known_denials_total") }
			s := open(t, o)
			h := hit(newLimit(t, bucket.Spec{Algorithm: a, Requests: 1, Period: 200 * time.Millisecond}), "a", 1)
			take(t, s, h)
			step.Store(onTheWay.Microseconds())
			asked := clock.Load() + step.Load()
			denied := take(t, s, h)[0]
			step.Store(0)
			ends := asked + (onTheWay + denied.RetryAfter).Microseconds()

			if d := take(t, s, h)[0]; known() != 1 || clock.Load()+d.RetryAfter.Microseconds() < ends {
				t.Errorf("%s: %d us before its end a denial says to wait %s", a, ends-clock.Load(), d.RetryAfter)
			}
			clock.Store(ends)
			if d := take(t, s, h)[0]; !d.Allowed() {
				t.Errorf("%s: at the end of a denial: %+v", a, d)
			}
		})
	}
}

// A denial by a pause is repeated from memory, by what is left of it, although what was
// counted has expired.
func TestDenialsByAPause(t *testing.T) {
	t.Parallel()
	s := newSideBySide(t, time.Second)
	h := hit(newLimit(t, bucket.Spec{Algorithm: bucket.FixedWindow, Requests: 1, Period: 10 * time.Millisecond, BlockFor: time.Second}), "a", 1)
	s.both(h)
	if d, _ := s.both(h); !d[0].PauseBegan || d[0].Paused != time.Second {
		t.Fatalf("the first denial: %+v", d[0])
	}
	for range 3 {
		s.pass(333 * time.Millisecond)
		d, without := s.both(h)
		if d[0].PauseBegan || d[0].Paused != without[0].Paused || d[0].ResetAfter != without[0].ResetAfter {
			t.Errorf("from memory: %+v, without a memory %+v", d[0], without[0])
		}
	}
	if n := s.known(); n != 3 {
		t.Errorf("%v of 3 were answered from memory", n)
	}
	s.pass(time.Millisecond)
	if d, _ := s.both(h); !d[0].Allowed() {
		t.Errorf("after the pause: %+v", d[0])
	}
}

// Under concurrency no request is admitted beyond the limit, and none is
// denied by memory once a give-back is done.
func TestDenialsEndWithConcurrentGiveBacks(t *testing.T) {
	t.Parallel()
	s := newSideBySide(t, time.Second)
	h := hit(newLimit(t, bucket.Spec{Algorithm: bucket.GCRA, Requests: 4, Period: time.Hour}), "a", 1)
	var holders atomic.Int64
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			d := make([]bucket.Decision, 1)
			for range soaktest.Long(30, 100) {
				if err := s.remembers.Take(context.Background(), []bucket.Hit{h}, d); err != nil {
					t.Error(err)
					return
				}
				if !d[0].Allowed() {
					continue
				}
				if n := holders.Add(1); n > 4 {
					t.Errorf("%d hold what 4 may", n)
				}
				holders.Add(-1)
				if err := s.remembers.GiveBack(context.Background(), []bucket.Hit{h}, d); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	for range 4 {
		if d := take(t, s.remembers, h)[0]; !d.Allowed() {
			t.Errorf("after all was given back: %+v", d)
		}
	}
}
