package redisstore_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// A quota decides at the check only, and fails with its store all the same.
func TestQuotaFailsWithItsStore(t *testing.T) {
	t.Parallel()
	r := newAcrossRig(t, bucket.FailAllow)
	quota := func(n int, h bucket.Hit) bucket.Hit {
		h.Role = bucket.Quota(n)
		return h
	}
	taken := quota(1, hit(dailyWindow(t, 100, nil), r.users[0], 1))
	failing := quota(2, hit(dailyWindow(t, 100, onFailure(bucket.FailError)), r.users[1], 1))
	r.comeBefore(3, func() { r.spoil(failing) })
	if o := r.take(taken, failing); o.err == nil {
		t.Errorf("the request got %+v", o.decisions)
	}
	if n := r.left(taken); n != 100 {
		t.Errorf("%d of 100 remain of a quota that a failed request took from", n)
	}
	if n := r.counted("error"); n != 1 || r.counted() != 1 {
		t.Errorf("%v answers of mode error are counted of %v, want 1 of 1", n, r.counted())
	}
}

// A quota that the fallback denies at the take leaves the request to the others.
func TestQuotaIsDeniedWithoutItsStore(t *testing.T) {
	t.Parallel()
	r := newAcrossRig(t, bucket.FailAllow)
	taken := hit(dailyWindow(t, 100, nil), r.users[0], 1)
	denied := hit(dailyWindow(t, 100, onFailure(bucket.FailDeny)), r.users[1], 1)
	taken.Role, denied.Role = bucket.Quota(1), bucket.Quota(2)
	r.comeBefore(3, func() { r.spoil(denied) })
	o := r.take(taken, denied)
	if o.err != nil || !o.decisions[0].Allowed() || o.decisions[1].Allowed() || !o.decisions[1].Degraded {
		t.Fatalf("the request got %+v, %v", o.decisions, o.err)
	}
	if n := r.left(taken); n != 99 {
		t.Errorf("%d of 100 remain of a quota that allowed the request, want 99", n)
	}
}

// The charges of quotas are given back, also if a postpaid limit denied one of them.
func TestQuotasAreGivenBack(t *testing.T) {
	t.Parallel()
	quota := func(n int, h bucket.Hit) bucket.Hit {
		h.Role = bucket.Quota(n)
		return h
	}
	local := func(name string, requests int64, postpaid bucket.Postpaid) *bucket.Limit {
		return newLimit(t, bucket.Spec{
			Name: name, Algorithm: bucket.SlidingWindow, Requests: requests, Period: 24 * time.Hour,
			Postpaid: postpaid, OnStoreFailure: bucket.FailLocal,
		})
	}
	for _, spoilt := range []bool{false, true} {
		t.Run(fmt.Sprintf("by the fallback %t", spoilt), func(t *testing.T) {
			t.Parallel()
			r := newAcrossRig(t, bucket.FailError)
			first := quota(1, hit(local("first", 100, bucket.PostpaidNever), r.users[0], 1))
			plain := quota(2, hit(local("plain", 100, bucket.PostpaidNever), r.users[1], 1))
			paid := quota(2, hit(local("paid", 5, bucket.PostpaidAlways), r.users[1], 1))
			if spoilt {
				r.spoil(plain)
			}
			empty := paid
			empty.Role, empty.Cost = bucket.Enforced, 7
			aside := plain // so that both ways the fallback decides both
			aside.Role, aside.Cost = bucket.Aside, 0
			if o := r.take(empty, aside); o.err != nil || o.degraded() != spoilt {
				t.Fatalf("the first charge got %+v, %v", o.decisions, o.err)
			}
			hits := []bucket.Hit{first, plain, paid}
			o := r.take(hits...)
			if o.err != nil || !bucket.GroupAllowed(hits, o.decisions) || o.decisions[2].Allowed() || o.decisions[1].Degraded != spoilt {
				t.Fatalf("the request got %+v, %v", o.decisions, o.err)
			}
			if err := r.store.GiveBack(context.Background(), hits, o.decisions); err != nil {
				t.Fatal(err)
			}
			plain.Role, plain.Cost = bucket.Enforced, 0
			if got := r.take(plain); got.err != nil || got.decisions[0].Remaining != 100 || got.decisions[0].Degraded != spoilt {
				t.Errorf("after the give-back of a quota of 100 a peek gets %+v, %v", got.decisions, got.err)
			}
		})
	}
}
