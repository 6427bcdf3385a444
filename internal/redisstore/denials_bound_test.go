package redisstore_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/redisstore"
)

// Denied requests that change something are never remembered: those with postpaid hits
// and with refunds.
func TestDenialsThatChargeAreNotRemembered(t *testing.T) {
	t.Parallel()
	s := newSideBySide(t, time.Second)
	full := hit(newLimit(t, bucket.Spec{Algorithm: bucket.GCRA, Period: time.Hour}), "none", 1) // of 0
	postpaid := newLimit(t, bucket.Spec{Algorithm: bucket.FixedWindow, Requests: 5, Period: time.Hour, Postpaid: bucket.PostpaidAlways})
	refunded := newLimit(t, bucket.Spec{Algorithm: bucket.FixedWindow, Requests: 5, Period: time.Hour})
	for range 10 {
		s.both(full, hit(postpaid, "a", 3))
		s.both(hit(postpaid, "b", 3))
		s.both(full, hit(refunded, "a", -1))
	}
	if n := s.known(); n != 0 {
		t.Errorf("%v were answered from memory", n)
	}
	// 30 of 5 were charged, although the limit of 0 denied.
	if a, _ := s.both(hit(postpaid, "a", -26)); a[0].Remaining != 1 {
		t.Errorf("after a refund of 26 there remain %d, want 1", a[0].Remaining)
	}
}

// Denials by the fallback end when Redis is back.
func TestDegradedDenialsAreNotRemembered(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(o *testOptions) {
		impatient(o)
		o.DenialMemory = time.Second
	})
	h := hit(newLimit(t, bucket.Spec{Algorithm: bucket.GCRA, Requests: 1000, Period: time.Hour, OnStoreFailure: bucket.FailDeny}), "a", 1)
	r.proxy.Hold("evalsha")
	for range 3 {
		if o := r.take(context.Background(), h); !o.degraded() || o.decisions[0].Allowed() {
			t.Errorf("mode deny: %+v", o)
		}
	}
	if n := r.metric("redis_known_denials_total"); n != 0 {
		t.Errorf("%v were answered from memory", n)
	}
	r.proxy.Heal(t)
	asynctest.Eventually(t, "Redis decides", func() bool { return r.take(context.Background(), h).decided() })
}

// The memory is bounded, however many keys are denied, and knows those that were
// denied last.
func TestDenialsAreBounded(t *testing.T) {
	t.Parallel()
	const bytes = 4 * redisstore.MinDenialBytes
	s := newSideBySide(t, time.Second, func(o *testOptions) { o.DenialBytes = bytes })
	none := newLimit(t, bucket.Spec{Algorithm: bucket.GCRA, Period: time.Hour}) // of 0
	const keys, callers = 9000, 500
	const last = keys / 10
	takeFrom := func(first, end int) {
		var all sync.WaitGroup
		for i := range callers {
			all.Go(func() {
				d := make([]bucket.Decision, 1)
				for k := first + i; k < end; k += callers {
					if err := s.remembers.Take(context.Background(), []bucket.Hit{hit(none, fmt.Sprint(k), 1)}, d); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		all.Wait()
	}
	takeFrom(0, keys-last) // all of it, before the last: a caller may run ahead
	takeFrom(keys-last, keys)
	if n := s.known(); n != 0 {
		t.Errorf("%v of distinct keys were answered from memory", n)
	}
	takeFrom(keys-last, keys)
	if n := s.known(); n != last {
		t.Errorf("%v of the %d denied last were answered from memory", n, last)
	}
	takeFrom(0, keys)
	if n := s.known() - last; n > bytes/600 {
		t.Errorf("%v of %d were answered from memory of %d bytes", n, keys, bytes)
	}
}

// A denial is remembered for as long as the memory lasts, whenever it came.
func TestDenialsLastAsLongAsTheMemory(t *testing.T) {
	t.Parallel()
	const memory = time.Second
	s := newSideBySide(t, memory)
	const many = 200
	s.denied("first", many)
	s.pass(memory * 9 / 10)
	hits := s.denied("second", many)
	s.pass(memory / 5)
	s.denied("third", many)
	if n := s.knownOf(hits); n != many {
		t.Errorf("%v of %d are known after a fifth of the time", n, many)
	}
}

// A denial that takes the place of an earlier one takes no more of the memory.
func TestDenialsOfOneKeyLeaveTheOthers(t *testing.T) {
	t.Parallel()
	s := newSideBySide(t, time.Second, func(o *testOptions) { o.DenialBytes = redisstore.MinDenialBytes })
	const many = 200
	hits := s.denied("other", many)
	again := hit(newLimit(t, bucket.Spec{Algorithm: bucket.GCRA, Requests: 1, Period: time.Hour}), "again", 1)
	for range redisstore.MinDenialBytes / 16 / 300 {
		take(t, s.remembers, again)
		take(t, s.remembers, again)
		refund := again
		refund.Cost = -1
		take(t, s.remembers, refund)
	}
	// Each of the others is forgotten too if its key shares a count of returns with that
	// one: 1 in 4,096, so hardly ever several. A shard of the memory has a dozen.
	if n := s.knownOf(hits); n < many-3 {
		t.Errorf("%v of %d are known after many denials of one key", n, many)
	}
}
