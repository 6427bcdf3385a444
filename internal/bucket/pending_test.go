package bucket_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/buckettest"
)

// randomTakers returns n hits of distinct holders, most of them on one of a few keys.
func randomTakers(t testing.TB, r *rand.Rand, n int) ([]bucket.Hit, []bucket.Decision) {
	l := buckettest.NewLimit(t, bucket.Spec{Algorithm: bucket.Concurrency, Requests: 9, Period: time.Hour})
	hits, decisions := make([]bucket.Hit, n), make([]bucket.Decision, n)
	for i := range hits {
		hits[i] = buckettest.Hit(l, fmt.Sprint(r.IntN(3)), r.Int64N(5)/2) // 0, 0, 1, 1 or 2
		if r.IntN(9) > 0 {
			hits[i].Holder = fmt.Sprint(i)
		}
		decisions[i].At = r.Int64N(3)
		if r.IntN(4) == 0 {
			decisions[i].RetryAfter = bucket.Unknown
		}
	}
	return hits, decisions
}

// Of a few hits and of many, those count that come before, have the same key, and are
// about to take a slot.
func TestPendingCountsThoseBefore(t *testing.T) {
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 0))
		hits, decisions := randomTakers(t, r, 1+r.IntN(40))
		var pending bucket.Pending
		for i := range hits {
			if r.IntN(5) == 0 {
				continue // nobody has to ask about each
			}
			want := int64(0)
			for j := range i {
				isSlot := decisions[j].Allowed() && decisions[j].At != 0 && hits[j].Cost > 0 && hits[j].Holder != ""
				if isSlot && hits[i].Holder != "" && string(hits[i].Key) == string(hits[j].Key) {
					want++
				}
			}
			if got := pending.Before(hits, decisions, i); got != want {
				t.Fatalf("seed %d: of %d hits, %d are pending before hit %d, want %d", seed, len(hits), got, i, want)
			}
		}
	}
}

// BenchmarkPending measures a hit of a group: however many it has, about the same.
func BenchmarkPending(b *testing.B) {
	for _, n := range []int{1, 16, 100, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			hits, decisions := randomTakers(b, rand.New(rand.NewPCG(1, 1)), n)
			for done := 0; done < b.N; done += n {
				var pending bucket.Pending
				for i := range hits {
					pending.Before(hits, decisions, i)
				}
			}
		})
	}
}
