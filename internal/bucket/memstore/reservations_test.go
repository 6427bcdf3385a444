package memstore_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/bucket/buckettest"
	"github.com/ratelimitd/ratelimitd/internal/bucket/heaptest"
	"github.com/ratelimitd/ratelimitd/internal/bucket/memstore"
)

// However many IDs callers make up, bills take no more than a quarter of the keys and
// bytes, so that others have room for their states; takes beyond are charged all the
// same.
func TestBillsAreBounded(t *testing.T) {
	const maxBytes = 8 << 20
	for name, c := range map[string]struct {
		whenFull memstore.WhenFull
		maxKeys  int64
		maxBills int64
		id       int // bytes of an ID
	}{
		"keys, evict":  {memstore.Evict, 10_000, 2_500, 8},
		"keys, deny":   {memstore.Deny, 10_000, 2_500, 8},
		"bytes, allow": {memstore.Allow, 1e6, maxBytes / reservedShare / 800, 300},
	} {
		t.Run(name, func(t *testing.T) {
			var now atomic.Int64
			now.Store(1e15)
			s := memstore.New(memstore.Options{MaxKeys: c.maxKeys, MaxBytes: maxBytes, WhenFull: c.whenFull, Clock: now.Load})
			defer s.Close()
			before := heaptest.InUse()
			l := newLimit(t, bucket.Spec{Algorithm: bucket.FixedWindow, Requests: 1e6, Period: time.Hour})
			x := hit(l, "attacker", 1)
			const ids = 30_000
			for i := range ids {
				id := fmt.Sprintf("%0*d", c.id, i)
				if err := s.Reserve(context.Background(), bucket.Reservation{ID: id, Lasts: 24 * time.Hour}, []bucket.Hit{x}, make([]bucket.Decision, 1)); err != nil {
					t.Fatal(err)
				}
			}
			stats := s.Stats()
			if stats.Reservations > c.maxBills || stats.Reservations < c.maxBills/2 || stats.Unreserved != ids-stats.Reservations {
				t.Errorf("%d bills are kept and %d are not, want at most %d of %d", stats.Reservations, stats.Unreserved, c.maxBills, ids)
			}
			if used := heaptest.InUse() - before; used > maxBytes/reservedShare*12/10 || stats.Bytes > maxBytes/reservedShare+1000 {
				t.Errorf("%d bytes are counted and %d used, want at most a quarter of %d", stats.Bytes, used, maxBytes)
			}
			if d := take(t, s, hit(l, "attacker", 0))[0]; d.Remaining != 1e6-ids {
				t.Errorf("%d remain after %d takes", d.Remaining, ids)
			}
			if d := take(t, s, hit(l, "another", 1))[0]; d.Degraded || d.Remaining != 1e6-1 {
				t.Errorf("another gets %+v", d)
			}
			now.Add(25 * time.Hour.Microseconds())
			asynctest.Eventually(t, "bills are removed", func() bool { return s.Stats().Keys == 0 && s.Stats().Reservations == 0 })
			if n := s.Stats().Bytes; n != 0 {
				t.Errorf("%d bytes are counted of no keys", n)
			}
			asynctest.Eventually(t, "no bills take no bytes", func() bool { return heaptest.InUse()-before < maxBytes/20 })
		})
	}
}

// reservedShare is the part of a store that bills may take: one of so many.
const reservedShare = 4

// A caller with a name takes no more room for bills than it leaves to others.
func TestBillsAreSharedByCallers(t *testing.T) {
	for name, o := range map[string]memstore.Options{
		"keys":  {MaxKeys: 1200},
		"bytes": {MaxKeys: 1e6, MaxBytes: 1 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			var now atomic.Int64
			now.Store(1e15)
			o.Clock = now.Load
			s := memstore.New(o)
			defer s.Close()
			x := hit(newLimit(t, bucket.Spec{Algorithm: bucket.FixedWindow, Requests: 1e6, Period: time.Hour}), "x", 1)
			bills := func(owner string) int64 {
				before := s.Stats().Reservations
				for i := range 3000 {
					r := bucket.Reservation{ID: fmt.Sprint(owner, "/", i), Owner: owner, Lasts: time.Hour}
					if err := s.Reserve(context.Background(), r, []bucket.Hit{x}, make([]bucket.Decision, 1)); err != nil {
						t.Fatal(err)
					}
				}
				return s.Stats().Reservations - before
			}
			a, b, c := bills("a"), bills("b"), bills("c")
			// A half, a half of the rest, and so on; all names have the same length.
			if b < a*45/100 || b > a*55/100 || c < a*20/100 || c > a*30/100 || o.MaxBytes == 0 && a != 150 {
				t.Errorf("%d, %d and %d bills", a, b, c)
			}
			now.Add(2 * time.Hour.Microseconds())
			asynctest.Eventually(t, "bills are removed", func() bool { return s.Stats().Reservations == 0 })
			if again := bills("a"); again != a {
				t.Errorf("%d bills once all have ended, and %d at first", again, a)
			}
		})
	}
}

// What was charged to a state that is forgotten is not given back out of another.
func TestNothingOfALostStateIsGivenBack(t *testing.T) {
	for _, a := range buckettest.Rates() {
		l := newLimit(t, bucket.Spec{Algorithm: a, Requests: 100, Period: 24 * time.Hour})
		x := hit(l, "a", 50)
		for name, lose := range map[string]func(*memstore.Store){
			"reset": func(s *memstore.Store) { s.Forget([]string{s.Locate(&x).Key}) },
			"evicted": func(s *memstore.Store) {
				long := newLimit(t, bucket.Spec{Algorithm: bucket.SlidingWindow, Requests: 1, Period: bucket.MaxPeriod})
				for i := range 40 { // the one that expires first goes first
					take(t, s, hit(long, fmt.Sprint(i), 1))
				}
				if s.Counted([]string{s.Locate(&x).Key}) > 0 {
					t.Fatalf("%s: the state is still there", a)
				}
			},
		} {
			s := memstore.New(memstore.Options{MaxKeys: 20, WhenFull: memstore.Evict})
			buckettest.Reserve(t, s, "before", x)
			buckettest.Reserve(t, s, "both", x)
			lose(s)
			x := hit(l, "a", 30)
			take(t, s, x)
			x.Cost = 10
			buckettest.Reserve(t, s, "both", x)
			x.Cost = 0
			if got := buckettest.Settle(t, s, "before", x)[0]; !got.IsKnown || got.Returned != 0 || got.Remaining != 60 {
				t.Errorf("%s, %s: a take from before is settled as %+v", a, name, got)
			}
			if got := buckettest.Settle(t, s, "both", x)[0]; got.Takes != 2 || got.Returned != 10 || got.Remaining != 70 {
				t.Errorf("%s, %s: takes from before and after are settled as %+v", a, name, got)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// Where there is no room for the state, nothing is charged, and a settlement may be sent
// again.
func TestSettlementWithoutRoom(t *testing.T) {
	var now atomic.Int64
	now.Store(1e15)
	s := memstore.New(memstore.Options{MaxKeys: 8, WhenFull: memstore.Allow, Clock: now.Load})
	defer s.Close()
	x := hit(newLimit(t, bucket.Spec{Algorithm: bucket.FixedWindow, Requests: 100, Period: time.Second}), "a", 50)
	buckettest.Reserve(t, s, "one", x)
	now.Add(2e6)
	long := newLimit(t, bucket.Spec{Algorithm: bucket.FixedWindow, Requests: 1, Period: time.Hour})
	for i := range 10 {
		take(t, s, hit(long, fmt.Sprint(i), 1))
	}
	x.Cost = 70
	if got := buckettest.Settle(t, s, "one", x)[0]; !got.IsKnown || !got.Degraded || got.Added != 0 {
		t.Errorf("without room it is settled as %+v", got)
	}
	s.Forget([]string{string(hit(long, "0", 1).Key), string(hit(long, "1", 1).Key), string(hit(long, "2", 1).Key)})
	if got := buckettest.Settle(t, s, "one", x)[0]; !got.IsKnown || got.Degraded || got.Added != 20 || got.Remaining != 80 {
		t.Errorf("with room it is settled as %+v", got)
	}
}
