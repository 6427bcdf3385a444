package script

import (
	"fmt"
	"hash/maphash"
	"slices"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/buckettest"
)

var testSeed = maphash.MakeSeed()

func testRequest(m Mode, hits ...bucket.Hit) *Group {
	r := &Group{Mode: m, Hits: hits, Decisions: make([]bucket.Decision, len(hits))}
	for _, h := range hits {
		r.Hashes = append(r.Hashes, maphash.Bytes(testSeed, h.Key))
	}
	return r
}

func TestEqualRequestsTravelAsOne(t *testing.T) {
	l := buckettest.NewLimit(t, bucket.Spec{Algorithm: bucket.GCRA, Requests: 3, Period: time.Hour})
	again := buckettest.NewLimit(t, l.Spec)
	a, b := buckettest.Hit(l, "a", 1), buckettest.Hit(l, "b", 1)
	costly := a
	costly.Cost = 2
	held, other := a, a
	held.Holder, other.Holder = "one", "another"
	aside := b
	aside.Role = bucket.Aside
	copied := a
	copied.Key = slices.Clone(a.Key)
	requests := []*Group{
		testRequest(Take, a),                             // 0
		testRequest(Take, b),                             // 1
		testRequest(Take, copied),                        // as 0
		testRequest(Check, a),                            // 3
		testRequest(Take, costly),                        // 4
		testRequest(GiveBack, a),                         // 5
		testRequest(Take, a, b),                          // 6
		testRequest(Take, b, a),                          // 7
		testRequest(Take, b),                             // as 1
		testRequest(GiveBack, a),                         // 9
		testRequest(Take, a),                             // as 0
		testRequest(Take, buckettest.Hit(again, "a", 1)), // 11
		testRequest(Take, a, b),                          // as 6
		testRequest(Take, a, aside),                      // 13
		testRequest(Take, held),                          // 14
		testRequest(Take, other),                         // 15
		testRequest(Take, held),                          // 16: holders are asked one after the other
	}
	c := NewCommand()
	for range 2 { // what was linked before is forgotten
		c.Reset()
		for _, r := range requests {
			c.Add(r)
		}
		var got [][]int
		for _, first := range c.requests {
			var equals []int
			for r := first; r != nil; r = r.same {
				equals = append(equals, slices.Index(requests, r))
			}
			got = append(got, equals)
		}
		want := [][]int{{0, 2, 10}, {1, 8}, {3}, {4}, {5}, {6, 12}, {7}, {9}, {11}, {13}, {14}, {15}, {16}}
		if !slices.EqualFunc(got, want, slices.Equal) {
			t.Fatalf("the requests travel as %v, want %v", got, want)
		}
		if c.Len() != len(requests) || c.Distinct() != len(want) {
			t.Errorf("%d requests are counted, %d distinct ones, want %d and %d", c.Len(), c.Distinct(), len(requests), len(want))
		}
	}
}

// A caller that chooses the costs on one key cannot make the hashes collide.
func TestCostsDoNotCollide(t *testing.T) {
	l := buckettest.NewLimit(t, bucket.Spec{Algorithm: bucket.GCRA, Requests: 3, Period: time.Hour})
	const n = 1024
	for _, step := range []int64{1, 1 << 10, 1 << 15, 1 << 22, 1 << 40} {
		t.Run(fmt.Sprint("steps of ", step), func(t *testing.T) {
			ends := make(map[uint64]bool)
			for i := range int64(n) {
				ends[testRequest(Take, buckettest.Hit(l, "a", i*step)).hash(testSeed)%(2*n)] = true
			}
			// Of hashes by chance, some 800 would be.
			if len(ends) < n/4 {
				t.Errorf("%d costs, each %d more than the one before, have %d places in a table of %d", n, step, len(ends), 2*n)
			}
		})
	}
}
