package bucket_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/buckettest"
)

// Of a few hits and of many, those of one holder are one hit, and those of several
// stay apart.
func TestMergeKeepsHoldersApart(t *testing.T) {
	l := buckettest.NewLimit(t, bucket.Spec{Algorithm: bucket.GCRA, Requests: 9, Period: time.Hour})
	hit := func(key, holder string, cost int64) bucket.Hit {
		h := buckettest.Hit(l, key, cost)
		h.Holder = holder
		return h
	}
	group := []bucket.Hit{
		hit("a", "x", 1), hit("a", "y", 1), hit("a", "", 3), hit("b", "x", 1), hit("a", "", 4),
		hit("a", "x", 0), hit("a", "x", 1), // he has a slot already
		hit("a", "y", 2),
		hit("b", "x", -1), hit("b", "x", 1), // a release stays one
	}
	wantOf, wantCosts := []int{0, 1, 2, 3, 2, 0, 0, 1, 3, 3}, []int64{1, 2, 7, -1}
	for _, more := range []int{0, 20} {
		hits := slices.Clone(group)
		for i := range more {
			hits = append(hits, hit(fmt.Sprint("other", i), "x", 1))
		}
		merged, of := bucket.Merge(nil, nil, hits)
		if !slices.Equal(of[:len(group)], wantOf) {
			t.Errorf("beside %d others, hits became %v, want %v", more, of[:len(group)], wantOf)
		}
		for i, want := range wantCosts {
			if merged[i].Cost != want {
				t.Errorf("beside %d others, merged hit %d costs %d, want %d", more, i, merged[i].Cost, want)
			}
		}
		if len(merged) != len(wantCosts)+more {
			t.Errorf("beside %d others, %d hits are left", more, len(merged))
		}
	}
}

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
				continue // no one has to ask about each
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

func TestSettledQuotasAllowTheSameAsMergedHits(t *testing.T) {
	t.Parallel()
	l, err := bucket.NewLimit(bucket.Spec{Algorithm: bucket.FixedWindow, Requests: 5, Period: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	const enforced, aside = bucket.Enforced, bucket.Aside
	first, second, third := bucket.Quota(1), bucket.Quota(2), bucket.Quota(3)
	for _, tc := range []struct {
		name        string
		keys        string // one letter a hit
		roles, want []bucket.Role
	}{
		{"no quota", "ab", []bucket.Role{enforced, aside}, []bucket.Role{enforced, aside}},
		{"no key is shared", "abc", []bucket.Role{enforced, first, second}, []bucket.Role{enforced, first, second}},
		{"one quota is enforced anyway", "abac", []bucket.Role{enforced, second, first, third}, []bucket.Role{enforced, aside, aside, aside}},
		{"one key of a quota is enforced anyway", "aabc", []bucket.Role{enforced, first, first, second}, []bucket.Role{enforced, first, first, second}},
		{"a quota asks for more than another", "abac", []bucket.Role{first, first, second, third}, []bucket.Role{aside, aside, second, third}},
		{"two quotas ask for one key", "aa", []bucket.Role{first, second}, []bucket.Role{first, second}},
		{"two quotas ask for the same keys", "abab", []bucket.Role{first, first, second, second}, []bucket.Role{first, first, second, second}},
		{"a key that is aside too", "aab", []bucket.Role{aside, first, second}, []bucket.Role{aside, first, second}},
		{"what is left of a quota is a key of its own", "aabb", []bucket.Role{enforced, first, first, second}, []bucket.Role{enforced, first, first, second}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var hits []bucket.Hit
			for i, key := range tc.keys {
				hits = append(hits, bucket.Hit{Limit: l, Key: []byte(string(key)), Cost: 1, Role: tc.roles[i]})
			}
			bucket.SettleQuotas(hits)
			var got []bucket.Role
			for _, h := range hits {
				got = append(got, h.Role)
			}
			if !slices.Equal(got, tc.want) {
				t.Fatalf("the roles of %s are %v, want %v", tc.keys, got, tc.want)
			}
			// Whichever keys are over, the merged hits allow what these do.
			merged, of := bucket.Merge(nil, nil, hits)
			for over := range 1 << len(merged) {
				decided := make([]bucket.Decision, len(merged))
				for j := range merged {
					if over>>j&1 == 1 {
						decided[j].RetryAfter = time.Second
					}
				}
				each := make([]bucket.Decision, len(hits))
				for i, j := range of {
					each[i] = decided[j]
				}
				if one, all := bucket.GroupAllowed(merged, decided), bucket.GroupAllowed(hits, each); one != all {
					t.Errorf("with the keys %b over, merged hits are allowed %t, the others %t", over, one, all)
				}
			}
		})
	}
}
