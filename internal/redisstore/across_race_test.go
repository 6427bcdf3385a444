package redisstore_test

import (
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// A request that loses a race is denied. What it took is given back; postpaid charges
// stay, and their decisions show them.
func TestLostRaceIsGivenBack(t *testing.T) {
	t.Parallel()
	r := newAcrossRig(t, bucket.FailError)
	narrow, plain, paid := dailyWindow(t, 1, nil), dailyWindow(t, 100, nil), dailyWindow(t, 100, postpaid)
	lost, taken, charged := hit(narrow, r.users[0], 1), hit(plain, r.users[1], 2), hit(paid, r.users[2], 3)
	r.comeBefore(4, func() { take(t, r.direct, lost) })
	o := r.take(lost, taken, charged)
	if o.err != nil || o.decisions[0].Allowed() || !o.decisions[1].Allowed() || !o.decisions[2].Allowed() {
		t.Fatalf("the request got %+v, %v", o.decisions, o.err)
	}
	if n := metric(t, r.metrics, "redis_races_total"); n != 1 {
		t.Errorf("%v races are counted, want 1", n)
	}
	if told, left := o.decisions[1].Remaining, r.left(taken); told != 100 || left != 100 {
		t.Errorf("of a limit that was given back %d of 100 are told to remain, %d do", told, left)
	}
	if told, left := o.decisions[2].Remaining, r.left(charged); told != 97 || left != 97 {
		t.Errorf("of a postpaid limit %d are told to remain, %d do; want 97 of 100", told, left)
	}
}

// A part that lost a race took nothing from its other limits either: nothing is given
// back to them, and their decisions show them as they are by then.
func TestLostRaceBesideAnother(t *testing.T) {
	t.Parallel()
	r := newAcrossRig(t, bucket.FailError)
	narrow, plain := dailyWindow(t, 1, nil), dailyWindow(t, 100, func(s *bucket.Spec) { s.Name = "plain" })
	lost, beside, taken := hit(narrow, r.users[0], 1), hit(plain, r.users[0], 2), hit(plain, r.users[1], 2)
	r.comeBefore(3, func() { take(t, r.direct, lost, hit(plain, r.users[0], 5)) })
	o := r.take(lost, beside, taken)
	if o.err != nil || o.decisions[0].Allowed() || !o.decisions[1].Allowed() || !o.decisions[2].Allowed() {
		t.Fatalf("the request got %+v, %v", o.decisions, o.err)
	}
	if told, left := o.decisions[1].Remaining, r.left(beside); told != 95 || left != 95 {
		t.Errorf("of a limit from which others took 5 of 100, %d are told to remain, %d do", told, left)
	}
	if told, left := o.decisions[2].Remaining, r.left(taken); told != 100 || left != 100 {
		t.Errorf("of a limit that was given back %d of 100 are told to remain, %d do", told, left)
	}
}

// A peek denies a request whose limit others have used up since the check, as do quotas
// that were all used up. The request costs nothing.
func TestLostRaceWithoutACharge(t *testing.T) {
	t.Parallel()
	narrow, plain := dailyWindow(t, 1, nil), dailyWindow(t, 100, nil)
	for _, c := range []struct {
		name  string
		cost  int64
		roles []bucket.Role // of hits on the narrow limit
	}{
		{"a peek", 0, []bucket.Role{bucket.Enforced}},
		{"quotas", 1, []bucket.Role{bucket.Quota(1), bucket.Quota(2)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newAcrossRig(t, bucket.FailError)
			taken := hit(plain, r.users[0], 2)
			hits := []bucket.Hit{taken}
			for i, role := range c.roles {
				h := hit(narrow, r.users[i+1], c.cost)
				h.Role = role
				hits = append(hits, h)
			}
			r.comeBefore(len(hits)+1, func() { // after the checks
				for i := range c.roles {
					take(t, r.direct, hit(narrow, r.users[i+1], 1))
				}
			})
			if o := r.take(hits...); o.err != nil || bucket.GroupAllowed(hits, o.decisions) {
				t.Fatalf("the request got %+v, %v", o.decisions, o.err)
			}
			if n := r.left(taken); n != 100 {
				t.Errorf("%d of 100 remain of a limit that was given back", n)
			}
			if n := metric(t, r.metrics, "redis_races_total"); n != 1 {
				t.Errorf("%v races are counted, want 1", n)
			}
		})
	}
}

// Between a check that denies and the command that starts the pause there may be room
// again. Then nothing is charged, since the request is denied, and no pause begins.
func TestRoomBeforeAPause(t *testing.T) {
	t.Parallel()
	r := newAcrossRig(t, bucket.FailError)
	plain := hit(dailyWindow(t, 100, nil), r.users[0], 1)
	blocking := hit(dailyWindow(t, 1, func(s *bucket.Spec) { s.BlockFor = time.Hour }), r.users[1], 1)
	take(t, r.direct, blocking)
	refund := blocking
	refund.Cost = -1
	r.comeBefore(3, func() { take(t, r.direct, refund) })
	o := r.take(plain, blocking)
	if o.err != nil || bucket.Allowed(o.decisions) || o.decisions[1].PauseBegan {
		t.Errorf("it got %+v", o)
	}
	if a, b := r.left(plain), r.left(blocking); a != 100 || b != 1 {
		t.Errorf("%d of 100 and %d of 1 remain", a, b)
	}
}

// Where Redis does not start a pause, the denial stands.
func TestPauseThatFails(t *testing.T) {
	t.Parallel()
	r := newAcrossRig(t, bucket.FailAllow)
	plain := hit(dailyWindow(t, 100, nil), r.users[0], 1)
	blocking := hit(dailyWindow(t, 1, func(s *bucket.Spec) { s.BlockFor = time.Hour }), r.users[1], 1)
	take(t, r.direct, blocking)
	r.comeBefore(3, func() { r.spoil(blocking) })
	if o := r.take(plain, blocking); o.err != nil || o.decisions[1].Allowed() || o.decisions[1].Degraded {
		t.Errorf("it got %+v", o)
	}
	if n := r.left(plain); n != 100 {
		t.Errorf("%d of 100 remain", n)
	}
}
