//go:build !race

// The race detector makes sync.Pool forget at random; make test runs this file
// without it.

package memstore_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/buckettest"
	"github.com/ratelimitd/ratelimitd/internal/bucket/memstore"
)

func TestRenewalDoesNotAllocate(t *testing.T) {
	s := memstore.New(memstore.Options{MaxKeys: 1000})
	defer s.Close()
	l := newLimit(t, bucket.Spec{Algorithm: bucket.Concurrency, Requests: 100, Period: time.Hour})
	for i := range 50 {
		take(t, s, by(l, "a", fmt.Sprint(i), 1))
	}
	hits, d := []bucket.Hit{by(l, "a", "7", 1)}, make([]bucket.Decision, 1)
	if n := testing.AllocsPerRun(100, func() {
		if err := s.Take(context.Background(), hits, d); err != nil {
			t.Fatal(err)
		}
	}); n > 0.5 {
		t.Errorf("%v allocations a renewal", n)
	}
}

func TestTakeDoesNotAllocate(t *testing.T) {
	s := memstore.New(memstore.Options{MaxKeys: 1000})
	defer s.Close()
	for _, a := range buckettest.Rates() {
		t.Run(a.String(), func(t *testing.T) {
			l := newLimit(t, bucket.Spec{Algorithm: a, Requests: 1000, Period: time.Hour})
			hits := []bucket.Hit{hit(l, "a", 1), hit(l, "b", 1)}
			d := make([]bucket.Decision, len(hits))
			run := func() {
				if err := s.Take(context.Background(), hits, d); err != nil {
					t.Fatal(err)
				}
			}
			for range 300 {
				run() // the stamps of a log grow
			}
			if n := testing.AllocsPerRun(100, run); n > 0.5 {
				t.Errorf("%s: %v allocations a decision on known keys", a, n)
			}
		})
	}
}
