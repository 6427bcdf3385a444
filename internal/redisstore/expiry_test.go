package redisstore_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/buckettest"
	"github.com/ratelimitd/ratelimitd/internal/redisconn"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

// wantEnd fails the test unless a key that was written after began expires when its state
// has mattered for so long.
func wantEnd(t *testing.T, c *redis.Client, name string, end, began time.Time, matters time.Duration) {
	t.Helper()
	const spare = 50 * time.Millisecond // for whole milliseconds and states that end a little later
	if now := redistest.Now(t, c); end.Before(began.Add(matters-time.Millisecond)) || end.After(now.Add(matters+spare)) {
		t.Errorf("%s expires at %s, written between %s and %s: its state matters for %s", name, end, began, now, matters)
	}
}

// Every key expires when its state stops to matter, never before and not much later.
// An empty state has no key.
func TestEveryKeyExpires(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	addr := redistest.Start(t).Addr() // a scan of the shared server passes the keys of all tests
	c := redistest.Client(t, addr)
	for _, a := range buckettest.Rates() {
		t.Run(a.String(), func(t *testing.T) {
			for _, postpaid := range []bucket.Postpaid{bucket.PostpaidNever, bucket.PostpaidAlways} {
				o := options(redisconn.Single, addr)
				s := open(t, o)
				began := redistest.Now(t, c)
				check := func(step string, d bucket.Decision, wantKeys int) {
					t.Helper()
					keys := redistest.Keys(t, c, o.Prefix)
					if len(keys) != wantKeys {
						t.Fatalf("%s, %s: keys %v, want %d", a, step, keys, wantKeys)
					}
					for key, end := range keys {
						wantEnd(t, c, step+", "+key, end, began, d.ResetAfter)
					}
					began = redistest.Now(t, c)
				}
				l := newLimit(t, bucket.Spec{Algorithm: a, Requests: 100, Period: time.Hour, Postpaid: postpaid})
				d := take(t, s, hit(l, "a", 5))[0]
				check("the first charge", d, 1)
				d = take(t, s, hit(l, "a", 7))[0]
				check("a further charge", d, 1)
				given := d
				d = take(t, s, hit(l, "a", -2))[0]
				check("a refund", d, 1)
				if err := s.GiveBack(ctx, []bucket.Hit{hit(l, "a", 7)}, []bucket.Decision{given}); err != nil {
					t.Fatal(err)
				}
				check("a give-back", take(t, s, hit(l, "a", 0))[0], 1)
				longer := newLimit(t, bucket.Spec{Algorithm: a, Requests: 70, Period: 2 * time.Hour, Postpaid: postpaid})
				d = take(t, s, hit(longer, "a", 1))[0]
				check("new numbers", d, 1)
				shorter := newLimit(t, bucket.Spec{Algorithm: a, Requests: 90, Period: time.Minute, Postpaid: postpaid})
				d = take(t, s, hit(shorter, "a", 1))[0]
				check("shorter numbers", d, 1)
				if postpaid == bucket.PostpaidAlways {
					d = take(t, s, hit(shorter, "a", 10000))[0]
					check("far beyond the limit", d, 1)
				}
				take(t, s, hit(shorter, "a", -20000))
				check("a refund to full", bucket.Decision{}, 0)
				d = take(t, s, hit(l, "b", 3))[0]
				if err := s.GiveBack(ctx, []bucket.Hit{hit(l, "b", 3)}, []bucket.Decision{d}); err != nil {
					t.Fatal(err)
				}
				if !a.IsBucket() {
					check("a give-back of all", bucket.Decision{}, 0)
				}
				if postpaid == bucket.PostpaidNever && a != bucket.LeakyBucket {
					blocking := newLimit(t, bucket.Spec{Algorithm: a, Requests: 3, Period: time.Minute, BlockFor: 2 * time.Hour})
					take(t, s, hit(l, "b", -100))
					take(t, s, hit(blocking, "c", 3))
					check("a denial that starts a pause", take(t, s, hit(blocking, "c", 1))[0], 1)
					check("a refund to full in a pause", take(t, s, hit(blocking, "c", -3))[0], 1)
				}
			}
		})
	}
}

// Keys that are written together expire each after its own time, however long that is.
func TestKeysExpireApart(t *testing.T) {
	t.Parallel()
	addr := redistest.Single(t)
	o := options(redisconn.Single, addr)
	s := open(t, o)
	const long = 1_000_000_005 * time.Millisecond // the zeros must not get lost
	periods := []time.Duration{time.Hour, time.Hour, long, long, time.Minute, bucket.MaxPeriod, long - 10*time.Millisecond}
	var hits []bucket.Hit
	for i, period := range periods {
		l := newLimit(t, bucket.Spec{Algorithm: bucket.TokenBucket, Requests: 1, Period: period})
		hits = append(hits, hit(l, fmt.Sprintf("user-%d", i), 1))
	}
	c := redistest.Client(t, addr)
	began := redistest.Now(t, c)
	take(t, s, hits...)
	keys := redistest.Keys(t, c, o.Prefix)
	if len(keys) != len(periods) {
		t.Fatalf("keys %v, want %d", keys, len(periods))
	}
	for key, end := range keys {
		for i, period := range periods {
			if strings.Contains(key, fmt.Sprintf("user-%d", i)) {
				wantEnd(t, c, key, end, began, period)
			}
		}
	}
}

// A replica whose clock is 9 s behind becomes the master: nothing is given
// away, and no key expires before its state is drained.
func TestPromotedClockBehindGivesNothingAway(t *testing.T) {
	t.Parallel()
	addr := redistest.Single(t)
	c := redistest.Client(t, addr)
	for _, a := range buckettest.Rates() {
		t.Run(a.String(), func(t *testing.T) {
			o := options(redisconn.Single, addr)
			began := redistest.Now(t, c)
			ahead := began.Add(9 * time.Second).UnixMicro()
			o.Clock = func() int64 { return ahead }
			old := open(t, o)
			o.Clock = nil
			promoted := open(t, o)
			l := newLimit(t, bucket.Spec{Algorithm: a, Requests: 10, Period: 8 * time.Second})
			take(t, old, hit(l, "a", 9))
			peek := take(t, promoted, hit(l, "a", 0))[0]
			if peek.Remaining != 1 || peek.At < ahead && a != bucket.FixedWindow {
				t.Errorf("%s: after the change of masters %+v", a, peek)
			}
			// After a write of the new master, the key lives until the moment
			// that the old clock had named, on the new clock.
			d := take(t, promoted, hit(l, "a", 1))[0]
			if !d.Allowed() || d.Remaining != 0 {
				t.Fatalf("%s: the last request: %+v", a, d)
			}
			for key, end := range redistest.Keys(t, c, o.Prefix) {
				wantEnd(t, c, key, end, began, d.ResetAfter)
			}
			if d := take(t, promoted, hit(l, "a", 1))[0]; d.Allowed() {
				t.Errorf("%s: one too many passed after the change of masters", a)
			}
		})
	}
}

// A state ends at a microsecond, and a key in a whole millisecond, at the end of
// which it is gone: not before the state.
func TestNoKeyExpiresBeforeItsState(t *testing.T) {
	t.Parallel()
	addr := redistest.Single(t)
	c := redistest.Client(t, addr)
	o := options(redisconn.Single, addr)
	s := open(t, o)
	ends := map[string]int64{} // in microseconds
	for _, a := range buckettest.Rates() {
		for i := range int64(100) {
			l := newLimit(t, bucket.Spec{Algorithm: a, Requests: 7 + i, Period: time.Hour})
			h := hit(l, fmt.Sprint(i), 1)
			d := take(t, s, h)[0]
			ends[string(h.Key)] = d.At + d.ResetAfter.Microseconds()
		}
	}
	keys, gone := redistest.Keys(t, c, o.Prefix), map[string]int64{}
	if len(keys) > len(ends) {
		t.Errorf("%d keys of %d", len(keys), len(ends))
	}
	for key, end := range keys {
		_, name, _ := strings.Cut(key, "}:")
		gone[name] = end.Add(time.Millisecond).UnixMicro()
	}
	now := redistest.Now(t, c).UnixMicro()
	for name, end := range ends {
		switch at, ok := gone[name]; {
		case !ok && end > now: // at the turn of an hour a window has ended meanwhile
			t.Errorf("%s has no key", name)
		case ok && at < end:
			t.Errorf("%s is gone %d us before its state ends", name, end-at)
		}
	}
}
