package buckettest

import (
	"fmt"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// checkAgrees: whatever a limit has left, a check says what the take that
// follows gets, and a second check says it again.
func checkAgrees(t *testing.T, h Harness) {
	s := h.Open(t, nil)
	for _, a := range bucket.Algorithms() {
		for _, postpaid := range []bool{false, true} {
			l := newLimit(t, bucket.Spec{Algorithm: a, Requests: 10, Period: still, Postpaid: postpaid})
			for _, used := range []int64{0, 4, 10} {
				for _, cost := range []int64{0, 1, 6, 7, 10, 11, bucket.MaxCost, -1, -bucket.MaxCost} {
					x := hit(l, fmt.Sprint(a, postpaid, used, cost), used)
					take(t, s, x)
					x.Cost = cost
					agree(t, s, x)
				}
			}
		}
	}
	for _, x := range eachAlgorithm(t, 0, 1) { // limits of 0
		agree(t, s, x)
	}
}

// agree wants a check, and another one, to say what the take of x then gets.
func agree(t *testing.T, s bucket.Store, x bucket.Hit) {
	t.Helper()
	before := remaining(t, s, x)
	for range 2 {
		if d := check(t, s, x)[0]; d.Remaining != before {
			t.Errorf("%s: a check of %d says that %d remain, want %d, which nothing was charged to", x.Key, x.Cost, d.Remaining, before)
		}
	}
	checked := check(t, s, x)[0]
	wantRemaining(t, s, x, before)
	taken := take(t, s, x)[0]
	if checked.Allowed() != taken.Allowed() || (checked.RetryAfter == bucket.Never) != (taken.RetryAfter == bucket.Never) {
		t.Errorf("%s: a check of %d says %+v, the take after it %+v", x.Key, x.Cost, checked, taken)
	}
}

// checkOfAGroup: a check of hits on every algorithm, postpaid ones, refunds
// and equal keys among them, says of each what the take gets, whether another
// hit denies the group or not, and leaves all of them as they were.
func checkOfAGroup(t *testing.T, h Harness) {
	s := h.Open(t, nil)
	var hits []bucket.Hit
	for _, a := range bucket.Algorithms() {
		plain := hit(stillLimit(t, a, 10), a.String(), 4)
		post := hit(newLimit(t, bucket.Spec{Name: "post", Algorithm: a, Requests: 10, Period: still, Postpaid: true}), a.String(), 4)
		refund := hit(stillLimit(t, a, 10), a.String()+" refund", 4)
		take(t, s, plain, post, refund)
		refund.Cost = -2
		again := plain
		again.Cost = 1 // with plain, half of what is left and more
		hits = append(hits, plain, post, refund, again)
	}
	last := hit(stillLimit(t, bucket.TokenBucket, 2), "last", 3)
	for _, denied := range []bool{true, false} {
		if !denied {
			last.Cost = 2
		}
		group := append(hits[:len(hits):len(hits)], last)
		var checked []bucket.Decision
		for range 2 {
			checked = check(t, s, group...)
			if bucket.Allowed(checked) == denied || checked[len(hits)].Allowed() == denied {
				t.Fatalf("a check of %d of 2 beside others: %+v", last.Cost, checked)
			}
		}
		for i, x := range group {
			wantRemaining(t, s, x, checked[i].Remaining)
		}
		for i := 0; i < len(hits); i += 4 {
			if checked[i] != checked[i+3] {
				t.Errorf("%s: equal keys got %+v and %+v", hits[i].Key, checked[i], checked[i+3])
			}
		}
		for i, d := range take(t, s, group...) {
			if d.Allowed() != checked[i].Allowed() {
				t.Errorf("%s: a check said %+v, the take after it %+v", group[i].Key, checked[i], d)
			}
		}
	}
}
