package buckettest

import (
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// eachDenialPauses: of a denied group, those limits that deny start pauses, in the first
// denial alone; a hit aside is paused too, and has no say.
func eachDenialPauses(t *testing.T, h Harness) {
	s := h.Open(t, nil)
	for _, a := range Rates() {
		if a == bucket.LeakyBucket {
			continue
		}
		named := func(name string, requests int64, role bucket.Role) bucket.Hit {
			l := NewLimit(t, bucket.Spec{Algorithm: a, Requests: requests, Period: still, BlockFor: time.Hour})
			return withRole(Hit(l, a.String()+" "+name, 1), role)
		}
		hits := []bucket.Hit{named("wide", 9, bucket.Enforced), named("aside", 1, bucket.Aside), named("narrow", 2, bucket.Enforced)}
		for i, want := range []struct {
			remain              [3]int64
			fits, began, paused [3]bool
		}{
			{remain: [3]int64{8, 0, 1}, fits: [3]bool{true, true, true}},
			{remain: [3]int64{7, 0, 0}, fits: [3]bool{true, false, true}, began: [3]bool{false, true, false}, paused: [3]bool{false, true, false}},
			{remain: [3]int64{7, 0, 0}, fits: [3]bool{true, false, false}, began: [3]bool{false, false, true}, paused: [3]bool{false, true, true}},
			{remain: [3]int64{7, 0, 0}, fits: [3]bool{true, false, false}, paused: [3]bool{false, true, true}},
		} {
			for j, d := range Take(t, s, hits...) {
				isPaused := d.Paused > 0 && d.Paused <= time.Hour
				if d.Remaining != want.remain[j] || d.Allowed() != want.fits[j] || d.PauseBegan != want.began[j] || isPaused != want.paused[j] {
					t.Errorf("%s: take %d, hit %d got %+v, want %+v", a, i+1, j, d, want)
				}
			}
		}
		wantRemaining(t, s, hits[0], 7)
	}
}
