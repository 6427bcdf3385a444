package redisstore_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/redisconn"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

func concurrency(t testing.TB, requests int64, hold time.Duration) *bucket.Limit {
	return newLimit(t, bucket.Spec{Algorithm: bucket.Concurrency, Requests: requests, Period: hold})
}

func by(l *bucket.Limit, user, holder string, cost int64) bucket.Hit {
	h := hit(l, user, cost)
	h.Holder = holder
	return h
}

// onlyKey returns the one key of a store.
func onlyKey(t *testing.T, c *redis.Client, o testOptions) (key string, end time.Time) {
	t.Helper()
	keys := redistest.Keys(t, c, o.Prefix)
	if len(keys) != 1 {
		t.Fatalf("the keys are %v", keys)
	}
	for key, end = range keys {
	}
	return key, end
}

// A released slot counts at once, whoever was denied before, and whatever else denied
// with it.
func TestDenialsOfHoldersAreNotRemembered(t *testing.T) {
	t.Parallel()
	s := newSideBySide(t, time.Second)
	l := concurrency(t, 1, time.Minute)
	none := hit(newLimit(t, bucket.Spec{Algorithm: bucket.GCRA, Period: time.Hour}), "none", 1) // of 0
	s.both(by(l, "a", "one", 1))
	for range 3 {
		s.both(by(l, "a", "two", 1))
		s.both(by(l, "a", "", 0)) // a look
		s.both(by(l, "a", "two", 1), none)
		s.both(by(l, "b", "two", 1), none)
	}
	take(t, s.other, by(l, "a", "one", -1))
	take(t, s.asksAlways, by(l, "a", "one", -1))
	if a, _ := s.both(by(l, "a", "two", 1)); !a[0].Allowed() {
		t.Errorf("once the slot is free, %+v", a)
	}
	if n := s.known(); n != 0 {
		t.Errorf("%v were answered from memory", n)
	}
}

// A key lives for a hold more than its last hold, and is gone with the last holder.
func TestKeyOfHoldersExpires(t *testing.T) {
	t.Parallel()
	addr := redistest.Single(t)
	c := redistest.Client(t, addr)
	o := options(redisconn.Single, addr)
	began := redistest.Now(t, c)
	s := open(t, o)
	minute, hour := concurrency(t, 10, time.Minute), concurrency(t, 10, time.Hour)
	for _, step := range []struct {
		name string
		hit  bucket.Hit
		hold time.Duration // that ends last
		more time.Duration // for which those who lapse are remembered
	}{
		{"a take", by(minute, "a", "one", 1), time.Minute, time.Minute},
		{"a longer hold", by(hour, "a", "two", 1), time.Hour, time.Hour},
		{"a look", by(minute, "a", "", 0), time.Hour, time.Hour},
		{"a renewal", by(minute, "a", "one", 1), time.Hour, time.Minute},
		{"a shorter hold", by(minute, "a", "two", 1), time.Minute, time.Minute},
		{"a take of two", by(minute, "a", "two", 2), time.Minute, time.Minute},
		{"a release", by(minute, "a", "one", -1), time.Minute, time.Minute},
	} {
		d := take(t, s, step.hit)[0]
		if d.ResetAfter > step.hold {
			t.Errorf("after %s all is free after %s, want at most %s", step.name, d.ResetAfter, step.hold)
		}
		_, end := onlyKey(t, c, o)
		wantEnd(t, c, step.name, end, began, step.hold+step.more)
	}
	take(t, s, by(minute, "a", "two", -1))
	if keys := redistest.Keys(t, c, o.Prefix); len(keys) != 0 {
		t.Errorf("without holders there are keys: %v", keys)
	}
}

// Those who lapsed a hold ago are removed a few a take, and a mended state keeps all who
// hold.
func TestLapsedHoldersAreRemovedInSteps(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	addr := redistest.Single(t)
	c := redistest.Client(t, addr)
	o := options(redisconn.Single, addr)
	clock := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	o.Clock = func() int64 { return clock.UnixMicro() }
	s := open(t, o)
	l := concurrency(t, 200, time.Minute)
	for i := range 100 {
		take(t, s, by(l, "a", fmt.Sprint("early", i), 1))
	}
	clock = clock.Add(90 * time.Second)
	for i := range 100 {
		take(t, s, by(l, "a", fmt.Sprint("late", i), 1))
	}
	key, _ := onlyKey(t, c, o)
	if n := c.ZCard(ctx, key).Val(); n != 201 {
		t.Errorf("half a hold after 100 of 200 have lapsed the set has %d, want 201", n)
	}
	clock = clock.Add(30*time.Second + time.Millisecond)
	for i := range 10 {
		if d := take(t, s, by(l, "a", "late0", 1))[0]; d.Remaining != 100 || !d.Allowed() {
			t.Errorf("with 100 of 200 lapsed, %+v", d)
		}
		want := int64(1 + 100 + max(0, 100-16*(i+1)))
		if n := c.ZCard(ctx, key).Val(); n != want {
			t.Errorf("after take %d the set has %d, want %d", i+1, n, want)
		}
	}
	clock = clock.Add(-time.Hour)
	if d := take(t, s, by(l, "a", "", 0))[0]; d.Remaining != 100 || d.ResetAfter != time.Minute-time.Microsecond {
		t.Errorf("after the clock was set back by an hour, %+v", d)
	}
	clock = clock.Add(time.Minute)
	if d := take(t, s, by(l, "a", "", 0))[0]; d.Remaining != 200 {
		t.Errorf("a minute later, %+v", d)
	}
}

// If the key of a concurrency does not have a set of holders, only its own request
// fails; the same bytes are not the state of any other limit.
func TestUnreadableHoldersFailTheirRequestAlone(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	addr := redistest.Single(t)
	c := redistest.Client(t, addr)
	o := options(redisconn.Single, addr)
	s := open(t, o)
	l := concurrency(t, 5, time.Minute)
	take(t, s, by(l, "a", "one", 1))
	key, _ := onlyKey(t, c, o)
	const top = 1 << 52 // the moment of the last write is above
	last := c.ZScore(ctx, key, "").Val()
	set := func(score float64, member string) func() error {
		return func() error { return c.ZAdd(ctx, key, redis.Z{Score: score, Member: member}).Err() }
	}
	for name, spoil := range map[string]func() error{
		"a string":             func() error { return c.Set(ctx, key, "x", time.Minute).Err() },
		"a list":               func() error { return c.RPush(ctx, key, "x").Err() },
		"a set without moment": set(5, "x"),
		"a moment before all":  set(5, ""),
		"a moment too far":     set(4*top, ""),
		"no moment":            set(math.Inf(1), ""),
		"a holder above it":    set(last+1, "x"),
		"an end too far":       set(top-1, "x"),
		"an end in between":    set(last-top+3600e6+0.5, "x"),
	} {
		t.Run(name, func(t *testing.T) {
			if err := c.Del(ctx, key).Err(); err != nil {
				t.Fatal(err)
			}
			isSet := name != "a string" && name != "a list" && name != "a set without moment"
			if isSet {
				take(t, s, by(l, "a", "one", 1))
				last = c.ZScore(ctx, key, "").Val()
			}
			if err := spoil(); err != nil {
				t.Fatal(err)
			}
			good := hit(daily(t, 9), name, 1)
			for _, hits := range [][]bucket.Hit{
				{by(l, "a", "one", 1)}, {by(l, "a", "two", 1), good}, {good, by(l, "a", "one", -1)}, {by(l, "a", "", 0)},
			} {
				err := s.Take(ctx, hits, make([]bucket.Decision, len(hits)))
				if err == nil || !strings.Contains(err.Error(), "cannot be read") {
					t.Errorf("%d hits get the error %v", len(hits), err)
				}
			}
			if d := take(t, s, good)[0]; d.Remaining != 8 {
				t.Errorf("beside it was charged: %+v", d)
			}
			_ = c.Del(ctx, key)
		})
	}
}

// On a cluster a request over several tags that lost a race frees what it newly took,
// keeps what it renewed, and releases what it was to release.
func TestLostRaceOfHolders(t *testing.T) {
	t.Parallel()
	r := newAcrossRig(t, bucket.FailError)
	l, narrow := concurrency(t, 9, time.Minute), dailyWindow(t, 1, nil)
	lost := hit(narrow, r.users[0], 1)
	newly, renews, releases := by(l, r.users[1], "me", 1), by(l, r.users[2], "me", 1), by(l, r.users[3], "me", -1)
	release := releases
	release.Cost = 1
	take(t, r.direct, renews)
	take(t, r.direct, release)
	r.comeBefore(5, func() { take(t, r.direct, lost) })
	o := r.take(lost, newly, renews, releases)
	if o.err != nil || o.decisions[0].Allowed() || !bucket.Allowed(o.decisions[1:]) {
		t.Fatalf("the request got %+v, %v", o.decisions, o.err)
	}
	if n := metric(t, r.metrics, "redis_races_total"); n != 1 {
		t.Errorf("%v races are counted, want 1", n)
	}
	for i, want := range []int64{9, 8, 9} {
		if n := r.left([]bucket.Hit{newly, renews, releases}[i]); n != want {
			t.Errorf("of the limit of hit %d %d are free, want %d", i+1, n, want)
		}
	}
}

// A release applies also where a limit on another tag denied from the beginning.
func TestReleaseBesideADenialAcross(t *testing.T) {
	t.Parallel()
	r := newAcrossRig(t, bucket.FailError)
	l, none := concurrency(t, 1, time.Minute), hit(dailyWindow(t, 0, nil), r.users[0], 1)
	taken := by(l, r.users[1], "me", 1)
	if o := r.take(none, taken); o.err != nil || o.decisions[0].Allowed() || r.left(taken) != 1 {
		t.Errorf("a denied request got %+v, %v", o.decisions, o.err)
	}
	take(t, r.direct, taken)
	released := taken
	released.Cost = -1
	if o := r.take(none, released); o.err != nil || o.decisions[0].Allowed() || !o.decisions[1].Allowed() {
		t.Errorf("a release gets %+v, %v", o.decisions, o.err)
	}
	if n := r.left(taken); n != 1 {
		t.Errorf("%d of 1 are free after a release", n)
	}
}

// Without Redis a daemon has its share of the slots.
func TestHoldersWithoutRedis(t *testing.T) {
	t.Parallel()
	r := newRig(t, impatient)
	l := newLimit(t, bucket.Spec{Algorithm: bucket.Concurrency, Requests: 2, Period: time.Minute, OnStoreFailure: bucket.FailLocal})
	r.proxy.Hold("evalsha")
	ctx := context.Background()
	for i, c := range []struct {
		holder string
		cost   int64
		retry  time.Duration
	}{
		{"one", 1, 0}, {"two", 1, 0}, {"two", 1, 0}, {"three", 1, bucket.Unknown}, {"one", 2, bucket.Never},
		{"one", -1, 0}, {"three", 1, 0}, {"one", 1, bucket.Unknown},
	} {
		if o := r.take(ctx, by(l, "a", c.holder, c.cost)); !o.degraded() || o.decisions[0].RetryAfter != c.retry {
			t.Errorf("request %d, %d by %s, gets %+v, %v", i, c.cost, c.holder, o.decisions, o.err)
		}
	}
	three := by(l, "a", "three", 1)
	given := r.take(ctx, three)
	if err := r.store.GiveBack(ctx, []bucket.Hit{three}, given.decisions); err != nil {
		t.Error(err)
	}
	if o := r.take(ctx, by(l, "a", "one", 1)); o.err != nil || o.decisions[0].Allowed() {
		t.Errorf("a renewal was given back: %+v, %v", o.decisions, o.err)
	}
}
