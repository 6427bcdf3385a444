package bucket_test

import (
	"slices"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

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
