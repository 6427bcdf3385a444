package buckettest

import (
	"fmt"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// checkAgrees: whatever remains of a limit, a check decides as the take after it
// does, and so does a second check.
func checkAgrees(t *testing.T, h Harness) {
	s := h.Open(t, nil)
	for _, a := range Rates() {
		for _, charging := range chargings {
			l := charging.of(t, bucket.Spec{Algorithm: a, Requests: 10, Period: still})
			for _, used := range []int64{0, 4, 10, 12} {
				for _, cost := range []int64{0, 1, 6, 7, 10, 11, bucket.MaxCost, -1, -bucket.MaxCost} {
					x := Hit(l, fmt.Sprint(a, charging.name, used, cost), used)
					Take(t, s, x)
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

// agree fails t unless two checks of x decide as the take after them does.
func agree(t *testing.T, s bucket.Store, x bucket.Hit) {
	t.Helper()
	before := remaining(t, s, x)
	for range 2 {
		if d := Check(t, s, x)[0]; d.Remaining != before {
			t.Errorf("%s: a check of %d says that %d remain, want %d, which nothing was charged to", x.Key, x.Cost, d.Remaining, before)
		}
	}
	checked := Check(t, s, x)[0]
	wantRemaining(t, s, x, before)
	taken := Take(t, s, x)[0]
	// A charge that never fits puts the limit over for a time, not for ever.
	isNever := func(d bucket.Decision) bool { return d.RetryAfter == bucket.Never && !x.Limit.ChargedAnyway(x.Cost) }
	if checked.Allowed() != taken.Allowed() || isNever(checked) != isNever(taken) {
		t.Errorf("%s: a check of %d says %+v, the take after it %+v", x.Key, x.Cost, checked, taken)
	}
}

// checkOfAGroup: a check of hits on every algorithm, with postpaid ones, refunds
// and equal keys, decides each as the take does, whether another hit denies the
// group or not, and changes none of them.
func checkOfAGroup(t *testing.T, h Harness) {
	s := h.Open(t, nil)
	var hits []bucket.Hit
	for _, a := range Rates() {
		plain := Hit(stillLimit(t, a, 10), a.String(), 4)
		post := Hit(NewLimit(t, bucket.Spec{Name: "post", Algorithm: a, Requests: 10, Period: still, Postpaid: bucket.PostpaidAlways}), a.String(), 4)
		refund := Hit(stillLimit(t, a, 10), a.String()+" refund", 4)
		Take(t, s, plain, post, refund)
		refund.Cost = -2
		again := plain
		again.Cost = 1 // with plain, half of what is left and more
		hits = append(hits, plain, post, refund, again)
	}
	last := Hit(stillLimit(t, bucket.TokenBucket, 2), "last", 3)
	for _, denied := range []bool{true, false} {
		if !denied {
			last.Cost = 2
		}
		group := append(hits[:len(hits):len(hits)], last)
		var checked []bucket.Decision
		for range 2 {
			checked = Check(t, s, group...)
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
		for i, d := range Take(t, s, group...) {
			if d.Allowed() != checked[i].Allowed() {
				t.Errorf("%s: a check said %+v, the take after it %+v", group[i].Key, checked[i], d)
			}
		}
	}
}
