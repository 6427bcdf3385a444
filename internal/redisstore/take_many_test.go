package redisstore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/redisconn"
	"github.com/ratelimitd/ratelimitd/internal/redisstore"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

// others is a store that takes each time for others too.
type others struct{ *redisstore.Store }

func amongOthers(s *redisstore.Store) bucket.Store { return others{s} }

// Take implements bucket.Store.
func (s others) Take(ctx context.Context, hits []bucket.Hit, decisions []bucket.Decision) error {
	if len(hits) != len(decisions) {
		return s.Store.Take(ctx, hits, decisions)
	}
	if len(hits) == 0 {
		return nil
	}
	takes := make([]bucket.Take, 5)
	mine := rand.IntN(len(takes))
	for i := range takes {
		if i == mine {
			takes[i] = bucket.Take{Hits: hits, Decisions: decisions}
			continue
		}
		other := hits[0]
		other.Key = fmt.Appendf(nil, "other-%x", rand.Uint64())
		other.Place, other.Cost, other.Role = other.Key, 1, bucket.Enforced
		takes[i] = bucket.Take{Hits: []bucket.Hit{other}, Decisions: make([]bucket.Decision, 1)}
	}
	s.TakeMany(ctx, takes)
	return takes[mine].Err
}

// takesOf returns n takes of a hit.
func takesOf(n int, h bucket.Hit) []bucket.Take {
	takes := make([]bucket.Take, n)
	for i := range takes {
		takes[i] = bucket.Take{Hits: []bucket.Hit{h}, Decisions: make([]bucket.Decision, 1)}
	}
	return takes
}

// Of many takes of one key at a time as many are allowed as the limit says.
func TestManyTakesOfOneKeyAreExact(t *testing.T) {
	t.Parallel()
	for _, memory := range []time.Duration{0, time.Second} {
		r := newRig(t, func(o *testOptions) { o.DenialMemory = memory })
		allowed := 0
		for range 3 {
			takes := takesOf(20, hit(daily(t, 25), "a", 1))
			r.store.TakeMany(t.Context(), takes)
			for _, take := range takes {
				if take.Err != nil || take.Decisions[0].Degraded {
					t.Fatalf("%+v", take)
				}
				if take.Decisions[0].Allowed() {
					allowed++
				}
			}
		}
		if allowed != 25 {
			t.Errorf("with a denial memory of %s %d are allowed of 25", memory, allowed)
		}
	}
}

// Where Redis does not answer, each of many takes gets what its limit says.
func TestManyTakesWithoutRedis(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(o *testOptions) { o.Timeout = 50 * time.Millisecond })
	asked, err := bucket.NewLimit(bucket.Spec{Algorithm: bucket.FixedWindow, Requests: 5, Period: time.Hour, OnStoreFailure: bucket.FailError})
	if err != nil {
		t.Fatal(err)
	}
	r.proxy.Drop()
	asynctest.Eventually(t, "Redis is silent", func() bool {
		takes := append(takesOf(3, hit(daily(t, 5), "a", 1)), takesOf(2, hit(asked, "b", 1))...)
		r.store.TakeMany(t.Context(), takes)
		for i, take := range takes {
			if fails := i >= 3; fails != (take.Err != nil) || !fails && !take.Decisions[0].Degraded {
				t.Logf("take %d: %+v", i, take)
				return false
			}
		}
		return true
	})
}

// On a cluster takes of one node may be taken together, also if the cluster has moved a slot
// since, and what asks several hash tags is of no node.
func TestManyTakesOnACluster(t *testing.T) {
	t.Parallel()
	s := open(t, options(redisconn.Cluster, redistest.Cluster(t)...))
	l := daily(t, 10)
	asynctest.Eventually(t, "the nodes are known", func() bool {
		nodes := make(map[any]bool)
		for i := range 40 {
			nodes[s.NodeOf([]bucket.Hit{hit(l, fmt.Sprint("user-", i), 1)})] = true
		}
		return len(nodes) == 3
	})
	var takes []bucket.Take
	for i := range 200 {
		takes = append(takes, takesOf(1, hit(l, fmt.Sprint("user-", i%40), 1))...)
	}
	spread := []bucket.Hit{hit(l, "a", 1), hit(l, "b", 1), hit(l, "c", 1)}
	if n := s.NodeOf(spread); n != nil {
		t.Errorf("several tags are of the node %v", n)
	}
	takes = append(takes, bucket.Take{Hits: spread, Decisions: make([]bucket.Decision, len(spread))})
	for round := range 3 {
		s.TakeMany(t.Context(), takes)
		for i, take := range takes {
			if take.Err != nil || take.Decisions[0].Degraded {
				t.Fatalf("take %d: %+v", i, take)
			}
			// A user takes five times in each round.
			if i < 200 && take.Decisions[0].Allowed() != (round < 2) {
				t.Errorf("round %d, take %d: %+v", round, i, take.Decisions[0])
			}
		}
	}
}
