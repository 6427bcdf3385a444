//go:build !race

// What takes memory is counted without the race detector, which takes some itself;
// make test runs this file without it.

package memstore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/bucket/heaptest"
	"github.com/ratelimitd/ratelimitd/internal/bucket/memstore"
)

// Whatever is asked, the store takes no more bytes than allowed, and frees them when
// its keys have expired.
func TestBytesAreBounded(t *testing.T) {
	const maxBytes = 4 << 20
	bucketOf5 := bucket.Spec{Algorithm: bucket.TokenBucket, Requests: 5, Period: time.Hour}
	log := bucket.Spec{Algorithm: bucket.SlidingLog, Requests: 1000, Period: time.Hour}
	for _, c := range []struct {
		name     string
		whenFull memstore.WhenFull
		spec     bucket.Spec
		keys     int
		key      int // bytes of a value
		times    int // that a key is asked
		pause    int64
	}{
		{"short keys, allow", memstore.Allow, bucketOf5, 50_000, 8, 1, 0},
		{"short keys, deny", memstore.Deny, bucketOf5, 50_000, 8, 1, 0},
		{"long keys", memstore.Evict, bucketOf5, 20_000, 300, 1, 0},
		{"a few hits in many logs", memstore.Allow, log, 50_000, 8, 3, 1},
		{"many hits in a log", memstore.Evict, log, 4_000, 8, 100, 1},
		{"many slots of a window", memstore.Deny, bucket.Spec{Algorithm: bucket.SlidingWindow, Requests: 1e6, Period: time.Hour, SubWindows: 60}, 4_000, 8, 60, 61e6},
	} {
		t.Run(c.name, func(t *testing.T) {
			var now atomic.Int64
			now.Store(1e15)
			l := newLimit(t, c.spec)
			s := memstore.New(memstore.Options{MaxKeys: 1e6, MaxBytes: maxBytes, WhenFull: c.whenFull, Clock: now.Load})
			defer s.Close()
			before := heaptest.InUse() // with what an empty store takes
			for range c.times {
				for i := range c.keys {
					h := hit(l, fmt.Sprintf("%0*d", c.key, i), 1)
					if err := s.Take(context.Background(), []bucket.Hit{h}, make([]bucket.Decision, 1)); err != nil {
						t.Fatal(err)
					}
				}
				now.Add(c.pause)
			}
			checkBytes(t, s, before, maxBytes)
			now.Add(2 * time.Hour.Microseconds())
			checkEmpties(t, s)
			asynctest.Eventually(t, "no keys take no bytes", func() bool { return heaptest.InUse()-before < maxBytes/20 })
		})
	}
}

// checkBytes checks that a full store takes no more bytes than it may, as it counts them and
// in the heap, where before was in use when it was empty. It returns both.
func checkBytes(t *testing.T, s *memstore.Store, before, maxBytes int64) (stats memstore.Stats, used int64) {
	t.Helper()
	stats, used = s.Stats(), heaptest.InUse()-before
	const few = 64 << 10 // of the last to grow
	if stats.Bytes > maxBytes+few || used > maxBytes*11/10 {
		t.Errorf("%d keys take %d bytes, counted as %d, of %d", stats.Keys, used, stats.Bytes, maxBytes)
	}
	if stats.Bytes < maxBytes*8/10 {
		t.Errorf("%d bytes are counted: the store was not filled", stats.Bytes)
	}
	return stats, used
}

// checkEmpties waits until a store whose keys have expired has removed them.
func checkEmpties(t *testing.T, s *memstore.Store) {
	t.Helper()
	asynctest.Eventually(t, "expired keys are removed", func() bool { return s.Stats().Keys == 0 })
	if n := s.Stats().Bytes; n != 0 {
		t.Errorf("%d bytes are counted of no keys", n)
	}
}

// Holders count for the bytes of the store, few of many keys and many of a few, and
// are freed when their holds end.
func TestBytesOfHoldersAreBounded(t *testing.T) {
	const maxBytes = 4 << 20
	for _, c := range []struct {
		name     string
		whenFull memstore.WhenFull
		keys     int
		holders  int // of a key
		long     int // bytes of a holder's name
	}{
		{"one of each key", memstore.Allow, 40_000, 1, 36},
		{"some of each key", memstore.Deny, 10_000, 7, 36},
		{"many of a key, evict", memstore.Evict, 200, 700, 36},
		{"long names", memstore.Deny, 10, 10_000, bucket.MaxHolder},
	} {
		t.Run(c.name, func(t *testing.T) {
			var now atomic.Int64
			now.Store(1e15)
			l := newLimit(t, bucket.Spec{Algorithm: bucket.Concurrency, Requests: bucket.MaxHolders, Period: time.Hour})
			s := memstore.New(memstore.Options{MaxKeys: 1e6, MaxBytes: maxBytes, WhenFull: c.whenFull, Clock: now.Load})
			defer s.Close()
			before := heaptest.InUse()
			for i := range c.holders {
				for k := range c.keys {
					take(t, s, by(l, fmt.Sprint(k), fmt.Sprintf("%0*d", c.long, i), 1))
				}
				now.Add(1)
			}
			stats, used := checkBytes(t, s, before, maxBytes)
			if used < stats.Bytes*7/10 {
				t.Errorf("%d bytes are counted of %d", stats.Bytes, used)
			}
			now.Add(2 * time.Hour.Microseconds())
			checkEmpties(t, s)
		})
	}
}

// Holders that come and go take no more than is counted of them, as many as there are.
func TestBytesOfHoldersThatComeAndGo(t *testing.T) {
	for _, n := range []int{6, 25, 180, 1500} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			var now atomic.Int64
			now.Store(1e15)
			s := memstore.New(memstore.Options{MaxKeys: 10_000, Clock: now.Load})
			defer s.Close()
			l := newLimit(t, bucket.Spec{Algorithm: bucket.Concurrency, Requests: int64(n), Period: time.Hour})
			keys := 8000 / n
			name := func(i int) string { return fmt.Sprintf("%036d", i) }
			before := heaptest.InUse()
			for i := range 8 * n {
				now.Add(1)
				for k := range keys {
					take(t, s, by(l, fmt.Sprint(k), name(i), 1))
					if i >= n-1 {
						take(t, s, by(l, fmt.Sprint(k), name(i-n+1), -1))
					}
				}
			}
			if counted, used := s.Stats().Bytes, heaptest.InUse()-before; used > counted*6/5 {
				t.Errorf("%d bytes are counted, and %d are used", counted, used)
			}
		})
	}
}

// When few keys of many are left, the memory of the others is freed.
func TestFewKeysOfManyTakeLittle(t *testing.T) {
	var now atomic.Int64
	now.Store(1e15)
	before := heaptest.InUse()
	s := memstore.New(memstore.Options{MaxKeys: 1e6, Clock: now.Load})
	defer s.Close()
	for i := range 200_000 {
		period := time.Minute
		if i%100 == 0 {
			period = time.Hour
		}
		take(t, s, hit(newLimit(t, bucket.Spec{Algorithm: bucket.GCRA, Requests: 1, Period: period}), fmt.Sprint(i), 1))
	}
	now.Add(time.Minute.Microseconds())
	asynctest.Eventually(t, "few keys take little", func() bool { return s.Stats().Keys == 2000 && heaptest.InUse()-before < 2<<20 })
	for i := range 200_000 {
		if i%100 != 0 {
			continue
		}
		l := newLimit(t, bucket.Spec{Algorithm: bucket.GCRA, Requests: 1, Period: time.Hour})
		if d := take(t, s, hit(l, fmt.Sprint(i), 1))[0]; d.Allowed() {
			t.Fatalf("key %d was forgotten", i)
		}
	}
}

// A log or window without room for another span never admits more than its requests in
// a period.
func TestFullStoreAdmitsNoMore(t *testing.T) {
	for _, spec := range []bucket.Spec{
		{Algorithm: bucket.SlidingLog, Requests: 40, Period: time.Second},
		{Algorithm: bucket.SlidingWindow, Requests: 40, Period: time.Second, SubWindows: 20},
	} {
		t.Run(spec.Algorithm.String(), func(t *testing.T) {
			for seed := range uint64(20) {
				r := rand.New(rand.NewPCG(seed, 1))
				var now atomic.Int64
				now.Store(1e15)
				s := memstore.New(memstore.Options{MaxKeys: 1e6, MaxBytes: 1 << 20, WhenFull: memstore.Deny, Clock: now.Load})
				defer s.Close()
				l, filler := newLimit(t, spec), newLimit(t, bucket.Spec{Algorithm: bucket.GCRA, Requests: 1, Period: time.Hour})
				take(t, s, hit(l, "a", 1))
				for i := 0; take(t, s, hit(filler, strings.Repeat("x", 100)+fmt.Sprint(i), 1))[0].Allowed(); i++ {
				}
				type admitted struct{ at, cost int64 }
				hits := []admitted{{now.Load(), 1}}
				joined := 0
				for range 2000 {
					now.Add(r.Int64N(40_000))
					cost := 1 + r.Int64N(3)
					d := take(t, s, hit(l, "a", cost))[0]
					if d.Degraded {
						t.Fatalf("a known key is degraded: %+v", d)
					}
					if !d.Allowed() {
						joined++
						continue
					}
					hits = append(hits, admitted{now.Load(), cost})
					in := int64(0)
					for i := len(hits) - 1; i >= 0 && now.Load()-hits[i].at < spec.Period.Microseconds(); i-- {
						in += hits[i].cost
					}
					if in > spec.Requests {
						t.Fatalf("seed %d: %d admitted within a period", seed, in)
					}
				}
				if len(hits) < 100 || joined == 0 {
					t.Errorf("seed %d: %d admitted, %d denied", seed, len(hits), joined)
				}
			}
		})
	}
}
