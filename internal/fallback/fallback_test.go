package fallback_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/buckettest"
)

const (
	inherit = bucket.FailureDefault
	local   = bucket.FailLocal
	allow   = bucket.FailAllow
	deny    = bucket.FailDeny
	fail    = bucket.FailError
)

// Each hit is the first on its key, on one of 4 daemons, 0 s into a minute.
func TestModeDecidesAFirstHit(t *testing.T) {
	ok := func(remaining int64, reset time.Duration) bucket.Decision {
		return bucket.Decision{Remaining: remaining, ResetAfter: reset}
	}
	no := func(retry time.Duration, remaining int64, reset time.Duration) bucket.Decision {
		return bucket.Decision{Remaining: remaining, RetryAfter: retry, ResetAfter: reset}
	}
	const s, never = time.Second, bucket.Never
	for _, c := range []struct {
		name           string
		daemon, limit  bucket.FailureMode
		requests, cost int64
		want           bucket.Decision
	}{
		{"allow", fail, allow, 40, 1, ok(40, 0)},
		{"allow all of it", fail, allow, 40, 40, ok(40, 0)},
		{"allow a peek", fail, allow, 40, 0, ok(40, 0)},
		{"allow a refund", fail, allow, 40, -1, ok(40, 0)},
		{"allow more than there ever is", fail, allow, 40, 41, no(never, 40, 0)},
		{"allow on a limit of 0", fail, allow, 0, 1, no(never, 0, 60*s)},
		{"allow a peek at a limit of 0", fail, allow, 0, 0, no(never, 0, 60*s)},

		{"deny", fail, deny, 40, 1, no(s, 0, s)},
		{"deny a peek", fail, deny, 40, 0, no(s, 0, s)},
		{"deny a refund", fail, deny, 40, -1, ok(0, s)},
		{"deny more than there ever is", fail, deny, 40, 41, no(never, 0, s)},
		{"deny on a limit of 0", fail, deny, 0, 1, no(never, 0, 60*s)},

		{"local", fail, local, 40, 1, ok(9, 60*s)},
		{"local all of the share", fail, local, 40, 10, ok(0, 60*s)},
		{"local peek", fail, local, 40, 0, ok(10, 0)},
		{"local refund", fail, local, 40, -1, ok(10, 0)},
		{"local more than the share", fail, local, 40, 11, no(s, 10, 0)},
		{"local all of the limit", fail, local, 40, 40, no(s, 10, 0)},
		{"local more than there ever is", fail, local, 40, 41, no(never, 10, 0)},
		{"local on a limit of 0", fail, local, 0, 1, no(never, 0, 60*s)},
		{"local peek at a limit of 0", fail, local, 0, 0, no(never, 0, 60*s)},

		{"the daemon's mode allow", allow, inherit, 40, 1, ok(40, 0)},
		{"the daemon's mode deny", deny, inherit, 40, 1, no(s, 0, s)},
		{"the daemon's mode local", local, inherit, 40, 1, ok(9, 60*s)},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFixture(t, c.daemon, 4)
			h := hit(t, spec(c.limit, c.requests), "k", c.cost)
			checked, taken := f.check(t, h)[0], f.take(t, h)[0]
			if checked.Allowed() != taken.Allowed() || checked.RetryAfter != taken.RetryAfter {
				t.Errorf("a check says %+v, the take after it %+v", checked, taken)
			}
			if taken.Share == 0 && taken.At != 0 {
				t.Errorf("what no share granted names the moment %d to give it back to", taken.At)
			}
			taken.At, taken.Share, c.want.Degraded = 0, 0, true
			if taken != c.want {
				t.Errorf("got %+v, want %+v", taken, c.want)
			}
		})
	}
}

// A cost that exceeds a used share, but not the limit, is retried when the share is
// full, and not before the store may be back.
func TestCostAboveAUsedShareRetriesWhenItIsFull(t *testing.T) {
	f := newFixture(t, local, 4)
	h := hit(t, spec(local, 40), "k", 3)
	f.take(t, h)
	f.pass(20 * time.Second)
	if d := f.take(t, cost(h, 11))[0]; d.RetryAfter != 40*time.Second || d.Remaining != 7 {
		t.Errorf("20 s into the minute: %+v, want to retry after 40 s", d)
	}
	f.pass(39*time.Second + 500*time.Millisecond)
	if d := f.take(t, cost(h, 11))[0]; d.RetryAfter != time.Second {
		t.Errorf("half a second before the share is full: %+v, want to retry after 1 s", d)
	}
}

func TestErrorModeFailsTheRequestWithItsCause(t *testing.T) {
	for _, c := range []struct {
		name   string
		daemon bucket.FailureMode
		limit  bucket.FailureMode
	}{
		{"the limit's", allow, fail},
		{"the daemon's", fail, inherit},
		{"none at all", inherit, inherit},
		{"unknown", allow, 200},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFixture(t, c.daemon, 1)
			good := hit(t, spec(local, 10), "good", 4)
			post := hit(t, postpaid(spec(local, 10)), "post", 4)
			hits := []bucket.Hit{good, post, hit(t, spec(c.limit, 10), "bad", 1)}
			decisions := make([]bucket.Decision, len(hits))
			for _, decide := range []func(context.Context, []bucket.Hit, []bucket.Decision, error) error{f.Take, f.Check} {
				if err := decide(context.Background(), hits, decisions, errDown); !errors.Is(err, errDown) {
					t.Errorf("got %v, want it to be %v", err, errDown)
				}
			}
			if a, b := f.left(t, good), f.left(t, post); a != 10 || b != 10 {
				t.Errorf("%d and %d remain of 10 beside a limit that fails", a, b)
			}
		})
	}
}

// A group is allowed or denied as a whole, whatever the modes of its limits.
func TestGroupOfSeveralModesIsDecidedAsOne(t *testing.T) {
	f := newFixture(t, fail, 2)
	plain := hit(t, spec(local, 20), "local", 1)
	post := hit(t, postpaid(spec(local, 20)), "postpaid", 1)
	open := hit(t, spec(allow, 20), "allow", 1)
	shut := hit(t, spec(deny, 20), "deny", 1)
	broken := hit(t, spec(fail, 20), "error", 1)
	over := hit(t, spec(local, 20), "over", 11) // more than the share
	over2 := hit(t, spec(local, 20), "over too", 11)
	q1, q2 := bucket.Quota(1), bucket.Quota(2)
	for _, c := range []struct {
		name            string
		hits            []bucket.Hit
		allowed         []bool
		plain, postpaid int64 // what they lose
	}{
		{"local and allow", []bucket.Hit{plain, open, post}, []bool{true, true, true}, 1, 1},
		{"deny among them", []bucket.Hit{plain, open, shut, post}, []bool{true, true, false, true}, 0, 1},
		{"a denied peek", []bucket.Hit{cost(shut, 0), plain, post}, []bool{false, true, true}, 0, 1},
		{"a refund where all is denied", []bucket.Hit{cost(shut, -1), plain, post}, []bool{true, true, true}, 1, 1},
		{"allow, but more than there ever is", []bucket.Hit{plain, cost(open, 21), post}, []bool{true, false, true}, 0, 1},
		{"more than the share", []bucket.Hit{cost(plain, 11), open, post}, []bool{false, true, true}, 0, 1},
		{"equal keys", []bucket.Hit{plain, post, plain}, []bool{true, true, true}, 2, 1},
		{"equal keys, too much together", []bucket.Hit{cost(plain, 6), open, cost(plain, 5)}, []bool{false, true, false}, 0, 0},
		{"equal keys, allow, too much together", []bucket.Hit{cost(open, 11), plain, cost(open, 10)}, []bool{false, true, false}, 0, 0},
		{"equal keys, deny, a refund on the whole", []bucket.Hit{cost(shut, 1), plain, cost(shut, -2)}, []bool{true, true, true}, 1, 0},
		{"a local refund in a denied group", []bucket.Hit{cost(plain, -5), shut}, []bool{true, false}, 0, 0},
		{"deny, but aside", []bucket.Hit{plain, role(shut, bucket.Aside), post}, []bool{true, false, true}, 1, 1},
		{"error, but aside", []bucket.Hit{plain, role(broken, bucket.Aside)}, []bool{true, true}, 1, 0},
		{"local and aside, more than the share", []bucket.Hit{role(cost(plain, 6), bucket.Aside), open, post}, []bool{false, true, true}, 0, 1},
		{"a local quota over, another allowed", []bucket.Hit{role(cost(plain, 6), q1), role(open, q2), post}, []bool{false, true, true}, 0, 1},
		{"a local quota, the other denied", []bucket.Hit{role(shut, q1), role(plain, q2), post}, []bool{false, true, true}, 1, 1},
		{"a local quota over, the other denied", []bucket.Hit{role(shut, q1), role(cost(post, 1), q1), role(cost(plain, 6), q2)}, []bool{false, true, false}, 0, 1},
		{"a local half of a quota that is denied", []bucket.Hit{role(shut, q1), role(plain, q1), role(cost(open, 21), q2)}, []bool{false, true, false}, 0, 0},
		{"the same, another allowed", []bucket.Hit{role(shut, q1), role(plain, q1), role(open, q2)}, []bool{false, true, true}, 1, 0},
		{"a local quota over, another allowed, and local", []bucket.Hit{role(over, q1), role(open, q2), plain}, []bool{false, true, true}, 1, 0},
		{"a local quota over, the other never allowed, and local", []bucket.Hit{role(cost(open, 21), q1), role(over, q2), plain}, []bool{false, false, true}, 0, 0},
		{"a local half of a quota that is denied, the other over", []bucket.Hit{role(shut, q1), role(plain, q1), role(over, q2)}, []bool{false, true, false}, 0, 0},
		{"a local half of the only quota over", []bucket.Hit{role(over, q1), role(open, q1), plain}, []bool{false, true, true}, 0, 0},
		{"half of a quota that is denied, the other over", []bucket.Hit{role(shut, q1), role(open, q1), role(over, q2), plain}, []bool{false, true, false, true}, 0, 0},
		{"the last of a postpaid limit, where all is denied", []bucket.Hit{shut, cost(post, 5), plain}, []bool{false, true, true}, 0, 5},
		{"all quotas local and over, beside allow", []bucket.Hit{open, role(over, q1), role(over2, q2), plain}, []bool{true, false, false, true}, 0, 0},
		{"no hits", nil, nil, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			f.pass(time.Minute)
			f.take(t, cost(plain, 5), cost(post, 5)) // of 10
			for name, d := range map[string][]bucket.Decision{"check": f.check(t, c.hits...), "take": f.take(t, c.hits...)} {
				for i := range d {
					if d[i].Allowed() != c.allowed[i] {
						t.Errorf("%s: hit %d: %+v, want allowed %v", name, i, d[i], c.allowed[i])
					}
				}
			}
			if got := 5 - f.left(t, plain); got != c.plain {
				t.Errorf("the local limit lost %d, want %d", got, c.plain)
			}
			if got := 5 - f.left(t, post); got != c.postpaid {
				t.Errorf("the postpaid limit lost %d, want %d", got, c.postpaid)
			}
		})
	}
}

// A postpaid limit is charged beyond its share, and denies until that is paid.
func TestPostpaidLimitIsChargedBeyondItsShare(t *testing.T) {
	f := newFixture(t, local, 4)
	h := hit(t, bucket.Spec{Algorithm: bucket.TokenBucket, Requests: 40, Period: time.Minute, Postpaid: bucket.PostpaidAlways}, "k", 20)
	if d := f.take(t, h)[0]; !d.Allowed() || d.Remaining != 0 {
		t.Errorf("20 of a share of 10: %+v, want them charged", d)
	}
	// 11 tokens, and one comes back every 6 s.
	if d := f.check(t, cost(h, 0))[0]; d.RetryAfter != 66*time.Second {
		t.Errorf("after 20 of 10: %+v, want to be denied for 66 s", d)
	}
}

func TestGiveBackReturnsWhatLocalLimitsCharged(t *testing.T) {
	f := newFixture(t, local, 2)
	plain := hit(t, spec(local, 20), "local", 3)
	post := hit(t, postpaid(spec(local, 20)), "postpaid", 3)
	open := hit(t, spec(allow, 20), "allow", 3)
	shut := hit(t, spec(deny, 20), "deny", 3)
	spent := hit(t, postpaid(spec(local, 2)), "spent", 1)
	for _, c := range []struct {
		name            string
		hits            []bucket.Hit
		plain, postpaid int64 // what they have back
	}{
		{"local", []bucket.Hit{plain, post}, 3, 3},
		{"beside allow", []bucket.Hit{open, plain}, 3, 0},
		{"equal keys", []bucket.Hit{plain, open, cost(plain, 2)}, 5, 0},
		{"a group that deny denied", []bucket.Hit{plain, shut, post}, 0, 3},
		{"a group that a limit denied", []bucket.Hit{cost(plain, 9), post}, 0, 3},
		{"beside a postpaid quota that is over", []bucket.Hit{role(spent, bucket.Quota(1)), role(open, bucket.Quota(2)), plain}, 3, 0},
		{"nothing but allow", []bucket.Hit{open}, 0, 0},
		{"nothing but deny", []bucket.Hit{shut}, 0, 0},
		{"peeks and refunds", []bucket.Hit{cost(plain, 0), cost(post, -1)}, 0, 0},
		{"no hits", nil, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			f.pass(time.Minute)
			f.take(t, cost(plain, 4), cost(post, 4), spent)
			taken := f.take(t, c.hits...)
			plainLeft, postLeft := f.left(t, plain), f.left(t, post)
			f.giveBack(t, c.hits, taken)
			if got := f.left(t, plain) - plainLeft; got != c.plain {
				t.Errorf("%d came back to the local limit, want %d", got, c.plain)
			}
			if got := f.left(t, post) - postLeft; got != c.postpaid {
				t.Errorf("%d came back to the postpaid limit, want %d", got, c.postpaid)
			}
		})
	}
}

// What was taken from a share is given back to that share alone: nobody knows how much
// of it another share has refilled.
func TestGiveBackSkipsAnotherShare(t *testing.T) {
	for _, c := range []struct {
		name     string
		replicas []int64 // between the take and the give-back
		others   bool    // another daemon took
		want     int64
	}{
		{"the same", []int64{4}, false, 5},
		{"a smaller one", []int64{8}, false, 0},
		{"a larger one", []int64{2}, false, 0},
		{"the same after another", []int64{1, 4}, false, 0},
		{"another daemon's", []int64{4}, true, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFixture(t, local, 4)
			h := hit(t, bucket.Spec{Algorithm: bucket.TokenBucket, Requests: 400, Period: time.Hour}, "k", 5)
			taken := f.take(t, h)
			if c.others {
				taken = newFixture(t, local, 4).take(t, h)
			}
			for _, n := range c.replicas {
				f.replicas.Store(n)
				f.take(t, cost(h, 1))
			}
			before := f.left(t, h)
			f.giveBack(t, []bucket.Hit{h}, taken)
			if got := f.left(t, h) - before; got != c.want {
				t.Errorf("%d came back, want %d", got, c.want)
			}
		})
	}
}

// A store that comes and goes grants no fresh share each time it goes.
func TestFlappingStoreGrantsOneShare(t *testing.T) {
	f := newFixture(t, local, 3)
	h := hit(t, bucket.Spec{Algorithm: bucket.TokenBucket, Requests: 30, Period: time.Minute}, "k", 10)
	if d := f.take(t, h)[0]; !d.Allowed() || d.Remaining != 0 {
		t.Fatalf("the share of 10: %+v", d)
	}
	h.Cost = 1
	for range 5 {
		f.pass(time.Second) // in which the store was back
		if f.take(t, h)[0].Allowed() {
			t.Fatal("the store came and went, and granted more than the share")
		}
	}
	f.pass(time.Second) // 6 s refill 1 of 10 a minute
	if !f.take(t, h)[0].Allowed() || f.take(t, h)[0].Allowed() {
		t.Error("after 6 s exactly 1 must pass")
	}
}

// Charges count on when daemons come and go.
func TestChargesCountOnWhenReplicasChange(t *testing.T) {
	for _, a := range buckettest.Rates() {
		t.Run(a.String(), func(t *testing.T) {
			f := newFixture(t, local, 2)
			h := hit(t, bucket.Spec{Algorithm: a, Requests: 100, Period: time.Minute}, "k", 30)
			for _, c := range []struct {
				replicas  int64
				allowed   bool
				remaining int64
			}{
				{2, true, 20},  // 30 of 50
				{4, false, 0},  // 30 of 25 are used
				{3, false, 3},  // 30 of 33
				{1, true, 40},  // 60 of 100
				{2, false, 0},  // 60 of 50 are used
				{1, true, 10},  // 90 of 100
				{50, false, 0}, // of 2, and 30 exceed that
			} {
				f.replicas.Store(c.replicas)
				d := f.take(t, h)[0]
				if d.Allowed() != c.allowed || d.Remaining != c.remaining || d.RetryAfter == bucket.Never {
					t.Errorf("with %d daemons: %+v, want allowed %v with %d remaining", c.replicas, d, c.allowed, c.remaining)
				}
			}
		})
	}
}
