package memstore_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/memstore"
)

func by(l *bucket.Limit, user, holder string, cost int64) bucket.Hit {
	h := hit(l, user, cost)
	h.Holder = holder
	return h
}

// The holders of one request find room together, and a check finds as much as a take.
func TestHoldersOfOneRequestShareTheRoom(t *testing.T) {
	for _, c := range []struct {
		name     string
		whenFull memstore.WhenFull
		maxKeys  int64
		maxBytes int64
		keys     int
		holders  int
		allowed  bool
		degraded bool
	}{
		{"allow", memstore.Allow, 100, 20_000, 1, 10_000, true, true},
		{"deny", memstore.Deny, 100, 20_000, 1, 10_000, false, true},
		{"evict", memstore.Evict, 100, 20_000, 1, 10_000, true, true},
		{"a few of many keys", memstore.Deny, 10_000, 200_000, 100, 50, false, true},
		{"some fit", memstore.Deny, 100, 20_000, 1, 100, true, false},
		{"one key", memstore.Deny, 1, 0, 1, 3, true, false},
		{"two keys, one fits", memstore.Deny, 1, 0, 2, 3, false, true},
		{"two keys, one is kept", memstore.Allow, 1, 0, 2, 3, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := memstore.New(memstore.Options{
				MaxKeys: c.maxKeys, MaxBytes: c.maxBytes, WhenFull: c.whenFull, Clock: func() int64 { return 1e15 },
			})
			defer s.Close()
			l := newLimit(t, bucket.Spec{Algorithm: bucket.Concurrency, Requests: bucket.MaxHolders, Period: time.Hour})
			var hits []bucket.Hit
			for i := range c.holders {
				for k := range c.keys {
					hits = append(hits, by(l, fmt.Sprint(k), fmt.Sprintf("%036d", i), 1))
				}
			}
			checked, taken := check(t, s, hits...), take(t, s, hits...)
			isDegraded := false
			for i, d := range taken {
				isDegraded = isDegraded || d.Degraded
				if d.Degraded != checked[i].Degraded || d.RetryAfter != checked[i].RetryAfter {
					t.Fatalf("hit %d gets %+v, and %+v when it was checked", i, d, checked[i])
				}
			}
			if bucket.Allowed(taken) != c.allowed || isDegraded != c.degraded {
				t.Errorf("allowed %v, degraded %v", bucket.Allowed(taken), isDegraded)
			}
			if n := s.Stats(); n.Bytes > n.MaxBytes {
				t.Errorf("%d bytes are counted, of %d", n.Bytes, n.MaxBytes)
			}
		})
	}
}

// A store without room for another holder decides by its policy, on a key that it has
// as on a new one.
func TestNoRoomForAHolder(t *testing.T) {
	for _, whenFull := range []memstore.WhenFull{memstore.Allow, memstore.Deny, memstore.Evict} {
		t.Run(fmt.Sprint(whenFull), func(t *testing.T) {
			now := int64(1e15)
			s := memstore.New(memstore.Options{MaxKeys: 100, MaxBytes: 4000, WhenFull: whenFull, Clock: func() int64 { return now }})
			defer s.Close()
			l := newLimit(t, bucket.Spec{Algorithm: bucket.Concurrency, Requests: 1000, Period: time.Hour})
			other := newLimit(t, bucket.Spec{Algorithm: bucket.GCRA, Requests: 5, Period: time.Minute})
			take(t, s, by(l, "a", "first", 1))
			full := 0
			for !take(t, s, hit(other, fmt.Sprint("filler", strings.Repeat("x", 100), full), 1))[0].Degraded {
				full++
			}
			var first bucket.Hit
			var checked, taken bucket.Decision
			for i := range 100 { // the first few may still fit
				first = by(l, "a", fmt.Sprint("second", i), 1)
				look := first
				look.Cost = 0
				peeked := take(t, s, look)[0]
				checked, taken = check(t, s, first)[0], take(t, s, first)[0]
				if whenFull == memstore.Deny && peeked.Allowed() != taken.Allowed() {
					t.Errorf("a look gets %+v, a take %+v", peeked, taken)
				}
				if taken.Degraded {
					break
				}
			}
			if !checked.Degraded || !taken.Degraded || checked.Allowed() != taken.Allowed() || taken.Allowed() == (whenFull == memstore.Deny) {
				t.Fatalf("a check gets %+v, a take %+v", checked, taken)
			}
			again := take(t, s, first)[0]
			if isKept := again.Allowed() && !again.Degraded; isKept != (whenFull == memstore.Evict) {
				t.Errorf("a take again gets %+v", again)
			}
			// Who holds renews, whatever room there is.
			if d := take(t, s, by(l, "a", "first", 1))[0]; d.Degraded || !d.Allowed() {
				t.Errorf("a renewal gets %+v", d)
			}
			if n := s.Stats(); n.Bytes > n.MaxBytes {
				t.Errorf("%d bytes are taken of %d", n.Bytes, n.MaxBytes)
			}
			// Two of one new key that find no room, in one request.
			if whenFull == memstore.Deny {
				d := take(t, s, by(l, "new", "one", 1), by(l, "new", "two", 1))
				if bucket.Allowed(d) {
					t.Errorf("two of a new key get %+v", d)
				}
			}
		})
	}
}
