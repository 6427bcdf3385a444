package memstore_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/bucket/buckettest"
	"github.com/ratelimitd/ratelimitd/internal/bucket/memstore"
	"github.com/ratelimitd/ratelimitd/internal/bucket/soaktest"
)

var (
	newLimit = buckettest.NewLimit
	hit      = buckettest.Hit
	take     = buckettest.Take
	check    = buckettest.Check
)

func TestConformance(t *testing.T) {
	h := buckettest.Harness{
		Open: func(t *testing.T, clock func() int64) bucket.Store {
			s := memstore.New(memstore.Options{MaxKeys: 1e6, Clock: clock})
			t.Cleanup(func() { s.Close() })
			return s
		},
		Traces:     soaktest.Long(2_000, 50_000),
		Algorithms: bucket.Algorithms(),
		Reserves:   true,
	}
	buckettest.Run(t, h)
	buckettest.RunHolders(t, h)
	buckettest.RunReservations(t, h)
}

func TestExpiredKeysAreRemoved(t *testing.T) {
	var now atomic.Int64
	now.Store(1e15)
	s := memstore.New(memstore.Options{MaxKeys: 1e6, Clock: now.Load})
	defer s.Close()
	l := newLimit(t, bucket.Spec{Algorithm: bucket.FixedWindow, Requests: 1, Period: time.Second})
	for i := range 1000 {
		take(t, s, hit(l, fmt.Sprint("old", i), 1))
	}
	now.Add(2e6)
	for i := range 1000 {
		take(t, s, hit(l, fmt.Sprint("new", i), 1))
	}
	if n := s.Stats().Keys; n > 1500 {
		t.Errorf("%d keys are held after 1000 of 2000 expired: insertions removed too few", n)
	}
	now.Add(2e6)
	asynctest.Eventually(t, "the sweep has removed all expired keys", func() bool { return s.Stats().Keys == 0 })
}

// Charges from before a daemon was started again are in none of its states, though
// their keys may be.
func TestGiveBackSkipsTakesOfAnEarlierStore(t *testing.T) {
	var now atomic.Int64
	now.Store(1e15)
	l := newLimit(t, bucket.Spec{Algorithm: bucket.TokenBucket, Requests: 5, Period: time.Hour})
	h := hit(l, "a", 3)
	var taken [2][]bucket.Decision
	var s *memstore.Store
	for i := range taken {
		s = memstore.New(memstore.Options{MaxKeys: 10, Clock: now.Load})
		defer s.Close()
		taken[i] = take(t, s, h)
		now.Add(1e6)
	}
	for i, want := range []int64{2, 5} {
		if err := s.GiveBack(context.Background(), []bucket.Hit{h}, taken[i]); err != nil {
			t.Fatal(err)
		}
		if got := check(t, s, hit(l, "a", 0))[0].Remaining; got != want {
			t.Errorf("after a give-back of what store %d took, %d are left, want %d", i, got, want)
		}
	}
}

func TestRefundToFullForgetsTheKey(t *testing.T) {
	s := memstore.New(memstore.Options{MaxKeys: 10})
	defer s.Close()
	l := newLimit(t, bucket.Spec{Algorithm: bucket.TokenBucket, Requests: 5, Period: time.Hour})
	take(t, s, hit(l, "a", 3))
	if n := s.Stats().Keys; n != 1 {
		t.Fatalf("%d keys, want 1", n)
	}
	take(t, s, hit(l, "a", -3))
	if n := s.Stats().Keys; n != 0 {
		t.Errorf("%d keys are held for a full bucket", n)
	}
}

func TestFullStoreDecidesNewKeysByItsPolicy(t *testing.T) {
	const maxKeys = 100
	for _, tc := range []struct {
		policy   memstore.WhenFull
		allowed  bool
		evicted  int64
		degraded int64
	}{
		{memstore.Allow, true, 0, 1},
		{memstore.Deny, false, 0, 1},
		{memstore.Evict, true, 1, 1},
	} {
		t.Run(fmt.Sprint(tc.policy), func(t *testing.T) {
			s := memstore.New(memstore.Options{MaxKeys: maxKeys, WhenFull: tc.policy})
			defer s.Close()
			hour := newLimit(t, bucket.Spec{Algorithm: bucket.SlidingLog, Requests: 5, Period: time.Hour})
			for i := range maxKeys {
				if d := take(t, s, hit(hour, fmt.Sprint(i), 1))[0]; d.Degraded || !d.Allowed() {
					t.Fatalf("key %d of %d: %+v", i, maxKeys, d)
				}
			}
			// A new key and a known one in one group.
			checked := check(t, s, hit(hour, "0", 1), hit(hour, "new", 2))
			if n := s.Stats(); n.Keys != maxKeys || n.Evicted != 0 || n.Degraded != 0 {
				t.Errorf("a check left %+v", n)
			}
			d := take(t, s, hit(hour, "0", 1), hit(hour, "new", 2))
			for i := range d {
				if checked[i].RetryAfter != d[i].RetryAfter || checked[i].Degraded != d[i].Degraded {
					t.Errorf("a check says %+v, the take after it %+v", checked[i], d[i])
				}
			}
			if d[0].Degraded || !d[1].Degraded || d[1].Allowed() != tc.allowed {
				t.Errorf("the new key: %+v", d)
			}
			if tc.allowed && d[1].Remaining != 3 {
				t.Errorf("%d remain to the new key, want 3", d[1].Remaining)
			}
			left := map[bool]int64{true: 3, false: 4}[tc.allowed]
			if got := take(t, s, hit(hour, "0", 0))[0].Remaining; got != left {
				t.Errorf("%d remain to the known key, want %d", got, left)
			}
			st := s.Stats()
			if st.Keys != maxKeys || st.Evicted != tc.evicted || st.Degraded != tc.degraded {
				t.Errorf("stats %+v", st)
			}
			// Refunds, and hits that are denied anyway, need no room.
			for _, h := range []bucket.Hit{hit(hour, "r", -1), hit(hour, "d", 6)} {
				if d := take(t, s, h)[0]; d.Degraded {
					t.Errorf("cost %d on a new key is degraded", h.Cost)
				}
			}
			// A peek says what a cost of 1 would get.
			if d := take(t, s, hit(hour, "p", 0))[0]; d.Allowed() != tc.allowed {
				t.Errorf("a peek at a new key: %+v", d)
			}
		})
	}
}

// A take that a full store allowed and forgot is not given back: that would give back
// what others took.
func TestGiveBackSkipsForgottenTakes(t *testing.T) {
	for _, a := range buckettest.Rates() {
		t.Run(a.String(), func(t *testing.T) {
			var now atomic.Int64
			now.Store(1e15)
			s := memstore.New(memstore.Options{MaxKeys: 1, Clock: now.Load})
			defer s.Close()
			short := newLimit(t, bucket.Spec{Algorithm: a, Requests: 1, Period: time.Millisecond})
			long := newLimit(t, bucket.Spec{Algorithm: a, Requests: 10, Period: time.Hour})
			take(t, s, hit(short, "other", 1))
			forgotten := take(t, s, hit(long, "a", 10))
			if !forgotten[0].Degraded {
				t.Fatalf("%s: the store had room: %+v", a, forgotten)
			}
			now.Add(2000)
			if d := take(t, s, hit(long, "a", 10))[0]; d.Degraded || !d.Allowed() {
				t.Fatalf("%s: with room again: %+v", a, d)
			}
			if err := s.GiveBack(context.Background(), []bucket.Hit{hit(long, "a", 10)}, forgotten); err != nil {
				t.Fatal(err)
			}
			if d := take(t, s, hit(long, "a", 1))[0]; d.Allowed() {
				t.Errorf("%s: what was never charged was given back", a)
			}
		})
	}
}

// A limit of 0 is never charged, postpaid or not, so its key evicts no other.
func TestDenialEvictsNobody(t *testing.T) {
	s := memstore.New(memstore.Options{MaxKeys: 1, WhenFull: memstore.Evict})
	defer s.Close()
	take(t, s, hit(newLimit(t, bucket.Spec{Algorithm: bucket.GCRA, Requests: 5, Period: time.Hour}), "a", 1))
	none := newLimit(t, bucket.Spec{Algorithm: bucket.GCRA, Period: time.Hour, Postpaid: bucket.PostpaidAlways})
	if d := take(t, s, hit(none, "b", 1))[0]; d.RetryAfter != bucket.Never || s.Stats().Evicted > 0 || s.Stats().Keys != 1 {
		t.Errorf("a limit of 0 gives %+v, and %+v", d, s.Stats())
	}
}

// bytesOf returns how many bytes a store counts for the key of a hit.
func bytesOf(tb testing.TB, h bucket.Hit) int64 {
	tb.Helper()
	s := memstore.New(memstore.Options{MaxKeys: 1})
	defer s.Close()
	take(tb, s, h)
	return s.Stats().Bytes
}

// A check makes no entries, yet counts the room for all the keys of its group.
func TestCheckCountsTheRoom(t *testing.T) {
	l := newLimit(t, bucket.Spec{Algorithm: bucket.GCRA, Requests: 5, Period: time.Hour})
	post := newLimit(t, bucket.Spec{Algorithm: bucket.GCRA, Requests: 5, Period: time.Hour, Postpaid: bucket.PostpaidAlways})
	for name, o := range map[string]memstore.Options{
		"room for two keys":             {MaxKeys: 2},
		"room for the bytes of two":     {MaxKeys: 100, MaxBytes: 2 * bytesOf(t, hit(l, "a", 1))},
		"a byte less than those of two": {MaxKeys: 100, MaxBytes: 2*bytesOf(t, hit(l, "a", 1)) - 1},
	} {
		for _, o.WhenFull = range []memstore.WhenFull{memstore.Allow, memstore.Deny, memstore.Evict} {
			t.Run(fmt.Sprint(name, "/", o.WhenFull), func(t *testing.T) {
				for _, group := range [][]bucket.Hit{
					{hit(l, "a", 1), hit(l, "b", 1)},                                       // just fits into the first two
					{hit(l, "a", 1), hit(l, "b", 1), hit(l, "c", 1), hit(l, "d", 1)},       // does not
					{hit(post, "a", 1), hit(l, "b", 1), hit(l, "c", 1), hit(post, "d", 1)}, // is charged in part
					{hit(l, "a", 6), hit(post, "b", 1), hit(post, "c", 1), hit(post, "d", 1)},
					{hit(l, "a", 0), hit(l, "b", -1), hit(l, "c", 1), hit(l, "d", 1)},
				} {
					s := memstore.New(o)
					defer s.Close()
					checked := check(t, s, group...)
					if n := s.Stats().Keys; n != 0 {
						t.Fatalf("%d keys are held after a check", n)
					}
					for i, d := range take(t, s, group...) {
						if checked[i].Allowed() != d.Allowed() || checked[i].Degraded != d.Degraded {
							t.Errorf("%s: a check says %+v, the take after it %+v", group[i].Key, checked[i], d)
						}
					}
				}
			})
		}
	}
}

// A peek says what a cost of 1 would get, which needs the room of one key.
func TestPeekAtTheLastRoom(t *testing.T) {
	s := memstore.New(memstore.Options{MaxKeys: 2, WhenFull: memstore.Deny})
	defer s.Close()
	l := newLimit(t, bucket.Spec{Algorithm: bucket.GCRA, Requests: 5, Period: time.Hour})
	for i := range 3 {
		isFull := i == 2
		user := fmt.Sprint(i)
		peek, taken := take(t, s, hit(l, user, 0))[0], take(t, s, hit(l, user, 1))[0]
		for name, d := range map[string]bucket.Decision{"a peek": peek, "a take": taken} {
			if d.Degraded != isFull || d.Allowed() == isFull {
				t.Errorf("%s beside %d keys of 2: %+v", name, i, d)
			}
		}
	}
}

// Where a key without a say finds no room, it is denied by itself: the others
// of its group are charged all the same.
func TestNoRoomForAKeyWithoutASay(t *testing.T) {
	s := memstore.New(memstore.Options{MaxKeys: 1, WhenFull: memstore.Deny})
	defer s.Close()
	l := newLimit(t, bucket.Spec{Algorithm: bucket.GCRA, Requests: 5, Period: time.Hour})
	known, aside := hit(l, "known", 1), hit(l, "new", 1)
	aside.Role = bucket.Aside
	take(t, s, known)
	for name, d := range map[string][]bucket.Decision{"check": check(t, s, known, aside), "take": take(t, s, known, aside)} {
		if !d[0].Allowed() || d[0].Degraded || d[1].Allowed() || !d[1].Degraded {
			t.Errorf("a %s gets %+v", name, d)
		}
	}
	if n := take(t, s, hit(l, "known", 0))[0].Remaining; n != 3 {
		t.Errorf("%d of 5 remain after two takes of 1, want 3", n)
	}
}

// What a full store allows without remembering it is reported as for a new key,
// but no moment to give it back to.
func TestForgottenTakesAreToldAsNew(t *testing.T) {
	for _, a := range buckettest.Rates() {
		for _, cost := range []int64{1, 3} {
			clock := func() int64 { return 1e15 }
			full := memstore.New(memstore.Options{MaxKeys: 1, Clock: clock})
			defer full.Close()
			empty := memstore.New(memstore.Options{MaxKeys: 1, Clock: clock})
			defer empty.Close()
			h := hit(newLimit(t, bucket.Spec{Algorithm: a, Requests: 5, Period: time.Hour}), "a", cost)
			take(t, full, hit(h.Limit, "other", 1))
			got, want := take(t, full, h)[0], take(t, empty, h)[0]
			want.Degraded, want.At = true, 0
			if got != want {
				t.Errorf("%s, cost %d: a full store says %+v, want %+v", a, cost, got, want)
			}
		}
	}
}

// Bytes of keys that have expired are room for a key that takes as many, and
// not for a longer one.
func TestExpiredKeysAreAsMuchRoomAsTheyTook(t *testing.T) {
	second := newLimit(t, bucket.Spec{Algorithm: bucket.GCRA, Requests: 1, Period: time.Second})
	hour := newLimit(t, bucket.Spec{Algorithm: bucket.GCRA, Requests: 1, Period: time.Hour})
	for user, hasRoom := range map[string]bool{"n": true, strings.Repeat("n", 100): false} {
		var now atomic.Int64
		now.Store(1e15)
		s := memstore.New(memstore.Options{
			MaxKeys: 10, MaxBytes: 2 * bytesOf(t, hit(hour, "a", 1)), WhenFull: memstore.Deny, Clock: now.Load,
		})
		defer s.Close()
		take(t, s, hit(second, "a", 1))
		take(t, s, hit(hour, "b", 1))
		now.Add(1e6)
		h := hit(hour, user, 1)
		checked, taken := check(t, s, h)[0], take(t, s, h)[0]
		if checked.Degraded == hasRoom || taken.Degraded == hasRoom {
			t.Errorf("a user of %d bytes: a check says %+v, the take after it %+v", len(user), checked, taken)
		}
	}
}

// One expired key among many that live is found, wherever it is.
func TestFullButForOneHasRoom(t *testing.T) {
	const maxKeys = 50
	for expired := range maxKeys {
		t.Run(fmt.Sprint("key ", expired), func(t *testing.T) {
			var now atomic.Int64
			now.Store(1e15)
			s := memstore.New(memstore.Options{MaxKeys: maxKeys, WhenFull: memstore.Deny, Clock: now.Load})
			defer s.Close()
			for i := range maxKeys {
				period := time.Hour
				if i == expired {
					period = time.Second
				}
				take(t, s, hit(newLimit(t, bucket.Spec{Algorithm: bucket.GCRA, Requests: 1, Period: period}), fmt.Sprint(i), 1))
			}
			now.Add(1e6)
			h := hit(newLimit(t, bucket.Spec{Algorithm: bucket.GCRA, Requests: 1, Period: time.Hour}), "new", 1)
			if d := take(t, s, h)[0]; d.Degraded || !d.Allowed() {
				t.Errorf("where key %d has expired: %+v", expired, d)
			}
		})
	}
}

// Eviction spares the keys of the group that is decided, also one that expires
// first.
func TestEvictionSparesTheGroup(t *testing.T) {
	s := memstore.New(memstore.Options{MaxKeys: 2, WhenFull: memstore.Evict, Clock: func() int64 { return 1e15 }})
	defer s.Close()
	first := newLimit(t, bucket.Spec{Algorithm: bucket.FixedWindow, Requests: 10, Period: time.Minute})
	l := newLimit(t, bucket.Spec{Algorithm: bucket.FixedWindow, Requests: 10, Period: time.Hour})
	for range 50 {
		take(t, s, hit(first, "a", 1), hit(l, "b", 1))
		// Of the group a is known, c takes the place of b, never that of a.
		d := take(t, s, hit(first, "a", 1), hit(l, "c", 1))
		if a := take(t, s, hit(first, "a", 0))[0]; a.Remaining != d[0].Remaining || a.Remaining != 8 {
			t.Fatalf("a was given %d and has %d left, want 8", d[0].Remaining, a.Remaining)
		}
		if n := s.Stats().Keys; n != 2 {
			t.Errorf("%d keys, want 2", n)
		}
		take(t, s, hit(first, "a", -10), hit(l, "b", -10), hit(l, "c", -10))
	}
}

func BenchmarkTake(b *testing.B) {
	const keys = 100_000
	l := newLimit(b, bucket.Spec{Algorithm: bucket.TokenBucket, Requests: 1e6, Period: 30 * 24 * time.Hour})
	s := memstore.New(memstore.Options{MaxKeys: 2 * keys})
	defer s.Close()
	hits := make([]bucket.Hit, keys)
	for i := range hits {
		hits[i] = hit(l, fmt.Sprint(i), 1)
		take(b, s, hits[i])
	}
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		d := make([]bucket.Decision, 1)
		for i := uint64(time.Now().UnixNano()); pb.Next(); i = i*6364136223846793005 + 1442695040888963407 {
			k := (i >> 33) % keys
			if err := s.Take(context.Background(), hits[k:k+1], d); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "decisions/s")
}

func TestOrderOfDecisions(t *testing.T) {
	t.Parallel()
	for name, clock := range map[string]func() int64{"wall clock": nil, "a clock that stands still": func() int64 { return 1 << 50 }} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := memstore.New(memstore.Options{MaxKeys: 1000, Ordered: true, Clock: clock})
			t.Cleanup(func() { s.Close() })
			buckettest.RunOrder(t, s)
		})
	}
}
