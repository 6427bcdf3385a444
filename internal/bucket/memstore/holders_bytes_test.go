//go:build !race

// What takes memory is counted without the race detector, which takes some itself;
// make test runs this file without it.

package memstore_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/bucket/heaptest"
	"github.com/ratelimitd/ratelimitd/internal/bucket/memstore"
)

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
		{"a few more", memstore.Evict, 10_000, 12, 36},
		{"many of a key", memstore.Allow, 10, 10_000, 36},
		{"many of a key, deny", memstore.Deny, 10, 10_000, 36},
		{"many of a key, evict", memstore.Evict, 700, 700, 36},
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
			stats, used := s.Stats(), heaptest.InUse()-before
			const few = 64 << 10
			if stats.Bytes > maxBytes+few {
				t.Errorf("%d bytes are counted, of %d", stats.Bytes, maxBytes)
			}
			if used > maxBytes*11/10 {
				t.Errorf("%d keys take %d bytes, of %d", stats.Keys, used, maxBytes)
			}
			if stats.Bytes < maxBytes*8/10 {
				t.Errorf("%d bytes are counted: the store was not filled", stats.Bytes)
			}
			if used < stats.Bytes*7/10 {
				t.Errorf("%d bytes are counted of %d", stats.Bytes, used)
			}
			now.Add(2 * time.Hour.Microseconds())
			asynctest.Eventually(t, "keys without holders are removed", func() bool { return s.Stats().Keys == 0 })
			if n := s.Stats().Bytes; n != 0 {
				t.Errorf("%d bytes are counted of no keys", n)
			}
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
			for i := range 15 * n {
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
