package buckettest

import (
	"fmt"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

func withRole(h bucket.Hit, r bucket.Role) bucket.Hit {
	h.Role = r
	return h
}

// asideHasNoSay: a hit aside denies nothing, and is charged if it and its group are
// allowed.
func asideHasNoSay(t *testing.T, h Harness) {
	s := h.Open(t, nil)
	for _, a := range Rates() {
		enforced := Hit(stillLimit(t, a, 3), a.String()+" enforced", 1)
		aside := withRole(Hit(stillLimit(t, a, 2), a.String()+" aside", 1), bucket.Aside)
		for i, want := range []struct {
			enforced, aside int64 // remain
			allowed, fits   bool
		}{
			{2, 1, true, true}, {1, 0, true, true}, {0, 0, true, false}, {0, 0, false, false},
		} {
			d := Take(t, s, aside, enforced)
			if d[1].Allowed() != want.allowed || d[1].Remaining != want.enforced || d[0].Allowed() != want.fits || d[0].Remaining != want.aside {
				t.Errorf("%s: take %d got %+v, want %+v", a, i+1, d, want)
			}
		}
		// Denied by the enforced one, the other is left alone.
		aside.Key = append([]byte("another "), aside.Key...)
		if d := Take(t, s, enforced, aside); d[0].Allowed() || !d[1].Allowed() || d[1].Remaining != 2 {
			t.Errorf("%s: got %+v, want the first denied and nothing charged", a, d)
		}
		wantRemaining(t, s, aside, 2)
		if d := Take(t, s, aside); !d[0].Allowed() || d[0].Remaining != 1 {
			t.Errorf("%s: got %+v, want one aside alone to be charged", a, d)
		}
	}
}

// oneQuotaIsEnough: of several quotas one must be allowed, and the others cost
// nothing.
func oneQuotaIsEnough(t *testing.T, h Harness) {
	s := h.Open(t, nil)
	for _, a := range Rates() {
		enforced := Hit(stillLimit(t, a, 9), a.String()+" enforced", 1)
		small := withRole(Hit(stillLimit(t, a, 1), a.String()+" small", 1), bucket.Quota(1))
		left := withRole(Hit(stillLimit(t, a, 2), a.String()+" left", 1), bucket.Quota(2))
		right := withRole(Hit(stillLimit(t, a, 9), a.String()+" right", 1), bucket.Quota(2))
		for i, want := range []struct {
			remain [4]int64
			fits   [4]bool
		}{
			{[4]int64{8, 0, 1, 8}, [4]bool{true, true, true, true}},
			{[4]int64{7, 0, 0, 7}, [4]bool{true, false, true, true}},
			// All quotas are over, one by its first limit only: nothing is charged.
			{[4]int64{7, 0, 0, 7}, [4]bool{true, false, false, true}},
			{[4]int64{7, 0, 0, 7}, [4]bool{true, false, false, true}},
		} {
			for j, d := range Take(t, s, enforced, small, left, right) {
				if d.Remaining != want.remain[j] || d.Allowed() != want.fits[j] {
					t.Errorf("%s: take %d, hit %d got %+v, want %d remaining, allowed %v", a, i+1, j, d, want.remain[j], want.fits[j])
				}
			}
		}
		// A cost that fits the first quota alone is enough.
		small.Key = append([]byte("another "), small.Key...)
		if d := Take(t, s, small, left, right, enforced); !d[0].Allowed() || d[0].Remaining != 0 || d[1].Allowed() || d[2].Remaining != 6 || d[3].Remaining != 6 {
			t.Errorf("%s: got %+v, want all but the second charged", a, d)
		}
	}
}

// rolesGiveBack: a give-back of a group with roles gives back what was charged, and
// nothing else.
func rolesGiveBack(t *testing.T, h Harness) {
	s := h.Open(t, nil)
	for _, a := range Rates() {
		name := func(s string) string { return fmt.Sprint(a, " ", s) }
		hits := []bucket.Hit{
			Hit(stillLimit(t, a, 5), name("enforced"), 2),
			withRole(Hit(stillLimit(t, a, 5), name("aside"), 2), bucket.Aside),
			withRole(Hit(stillLimit(t, a, 3), name("aside over"), 2), bucket.Aside),
			withRole(Hit(stillLimit(t, a, 5), name("quota"), 2), bucket.Quota(1)),
			withRole(Hit(stillLimit(t, a, 3), name("quota over"), 2), bucket.Quota(2)),
		}
		Take(t, s, hits...)
		second := Take(t, s, hits...)
		want := []int64{1, 1, 1, 1, 1}
		for i, d := range second {
			if d.Remaining != want[i] || d.Allowed() != (i != 2 && i != 4) {
				t.Errorf("%s: got %+v, want %d remaining, and hits 2 and 4 denied", hits[i].Key, d, want[i])
			}
		}
		GiveBack(t, s, hits, second)
		for i, remain := range []int64{3, 3, 1, 3, 1} {
			wantRemaining(t, s, hits[i], remain)
		}
	}
}

// equalKeysTakeTheStricterRole: hits of equal keys have the strictest of their
// roles.
func equalKeysTakeTheStricterRole(t *testing.T, h Harness) {
	s := h.Open(t, nil)
	for _, a := range Rates() {
		x := Hit(stillLimit(t, a, 3), a.String(), 2)
		other := Hit(stillLimit(t, a, 3), a.String()+" other", 1)
		if d := Take(t, s, withRole(x, bucket.Aside), other, x); d[0].Allowed() || d[2].Allowed() || d[1].Remaining != 3 {
			t.Errorf("%s: 4 of 3, asked aside and not, got %+v, want denied and nothing charged", a, d)
		}
		if d := Take(t, s, withRole(x, bucket.Quota(1)), other, withRole(x, bucket.Aside)); d[0].Allowed() || d[1].Remaining != 3 {
			t.Errorf("%s: 4 of 3, asked aside and of the only quota, got %+v, want denied and nothing charged", a, d)
		}
		if d := Take(t, s, withRole(x, bucket.Aside), other, withRole(x, bucket.Aside)); d[0].Allowed() || d[1].Remaining != 2 {
			t.Errorf("%s: 4 of 3, twice aside, got %+v, want denied by itself and the other charged", a, d)
		}
		// A key of two quotas is the first one's, and no quota by itself.
		shared := Hit(stillLimit(t, a, 3), a.String()+" shared", 1)
		first, second := Hit(stillLimit(t, a, 1), a.String()+" first", 1), Hit(stillLimit(t, a, 1), a.String()+" second", 1)
		Take(t, s, first, second)
		group := []bucket.Hit{
			withRole(shared, bucket.Quota(1)), withRole(first, bucket.Quota(1)),
			withRole(shared, bucket.Quota(2)), withRole(second, bucket.Quota(2)),
		}
		if d := Take(t, s, group...); !d[0].Allowed() || d[0].Remaining != 3 || d[1].Allowed() || d[3].Allowed() {
			t.Errorf("%s: two quotas that share a key and are over, got %+v, want nothing charged", a, d)
		}
		wantRemaining(t, s, shared, 3)
	}
}
