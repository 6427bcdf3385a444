package redisstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/buckettest"
)

// monthly is a limit of n a calendar month.
func monthly(t testing.TB, name string, n int64) *bucket.Limit {
	return newLimit(t, bucket.Spec{Name: name, Algorithm: bucket.FixedWindow, Requests: n, Calendar: bucket.Calendar{Unit: bucket.CalendarMonth, Zone: time.UTC}})
}

// The first command to a node whose clock is another may come with the wrong windows. Then
// the daemon knows the clock.
func TestWindowsFollowTheClockOfTheNode(t *testing.T) {
	t.Parallel()
	for _, offset := range []time.Duration{0, -30 * time.Second, 40 * 24 * time.Hour, -40 * 24 * time.Hour} {
		t.Run(offset.String(), func(t *testing.T) {
			t.Parallel()
			s := newStepped(t)
			s.clock.Set(offset)
			l := monthly(t, "", 100)
			for i := range int64(10) {
				d := take(t, s.store, hit(l, "a", 1))[0]
				if !d.Allowed() || d.Remaining != 99-i || d.Degraded {
					t.Errorf("take %d: %+v", i, d)
				}
				if end := time.UnixMicro(l.ResetAt(&d)).UTC(); end.Day() != 1 || end.Sub(time.Now().Add(offset)) > 32*24*time.Hour {
					t.Errorf("take %d: the window ends at %s", i, end)
				}
			}
			if n := metric(t, s.metrics, "redis_unknown_outcomes_total"); n != 0 {
				t.Errorf("%v outcomes were unknown", n)
			}
			s.wantExpiries(1, 31*24*time.Hour)
		})
	}
}

// On a cluster each piece of a request is asked again by itself, and a denial is free.
func TestWindowsAreAskedForAgainAcrossTags(t *testing.T) {
	t.Parallel()
	r := newAcrossRig(t, bucket.FailError, func(o *testOptions) {
		clock := o.Clock
		o.OwnClock = func() int64 { return clock() - 400*86400e6 }
	})
	month, few, plain := monthly(t, "", 100), monthly(t, "few", 1), dailyWindow(t, 100, nil)
	for i := range 2 {
		o := r.take(hit(month, r.users[0], 1), hit(few, r.users[1], 1), hit(plain, r.users[2], 1))
		if o.err != nil || bucket.Allowed(o.decisions) != (i == 0) {
			t.Fatalf("take %d: %+v", i, o)
		}
	}
	for _, h := range []bucket.Hit{hit(month, r.users[0], 1), hit(plain, r.users[2], 1)} {
		if n := r.left(h); n != 99 {
			t.Errorf("%s: %d of 100 remain", h.Key, n)
		}
	}
	decisions := make([]bucket.Decision, 2)
	hits := []bucket.Hit{hit(month, r.users[0], 40), hit(month, r.users[3], 1)}
	if err := r.store.Take(context.Background(), hits, decisions); err != nil {
		t.Fatal(err)
	}
	if err := r.store.GiveBack(context.Background(), hits, decisions); err != nil {
		t.Fatal(err)
	}
	if n := r.left(hits[0]); n != 99 {
		t.Errorf("after a give-back %d of 100 remain, want 99", n)
	}
}

// Windows of which a daemon knows nothing else are at most as old as its clock: requests of
// several callers are each charged once.
func TestWindowsAreAskedForAgainOnceEach(t *testing.T) {
	t.Parallel()
	o := options("single", single(t)...)
	haveWrongClock(&o)
	s := open(t, o)
	l := monthly(t, "", 100)
	const callers = 20
	done := make(chan int64, callers)
	for range callers {
		go func() {
			admitted := int64(0)
			for range 10 {
				d := make([]bucket.Decision, 1)
				if s.Take(context.Background(), []bucket.Hit{hit(l, "a", 1)}, d) == nil && d[0].Allowed() {
					admitted++
				}
			}
			done <- admitted
		}()
	}
	sum := int64(0)
	for range callers {
		sum += <-done
	}
	if sum != 100 {
		t.Errorf("%d were admitted, want 100", sum)
	}
	if d := buckettest.Check(t, s, hit(l, "a", 1))[0]; d.Remaining != 0 {
		t.Errorf("%d remain", d.Remaining)
	}
}
