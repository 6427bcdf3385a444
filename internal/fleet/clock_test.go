package fleet_test

import (
	"context"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/fleet"
	"github.com/ratelimitd/ratelimitd/internal/redisconn"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

// A promoted replica's clock is behind: no registration outlives its daemon for it.
func TestRegisterForgetsWhenTheClockGoesBack(t *testing.T) {
	t.Parallel()
	o := newOptions(redisconn.Single, redistest.Single(t))
	clock := asynctest.NewClock()
	o.Clock = clock.Micros
	one, two := newFleet(t, o, "web-1"), newFleet(t, o, "web-2")
	signIn(t, one)
	signIn(t, two)
	clock.Move(-time.Hour)
	signIn(t, one)
	if n := one.Size(); n != 2 {
		t.Errorf("%d daemons are seen when the clock went back", n)
	}
	for range 2 { // until the other is gone, and until that counts
		clock.Move(7 * time.Second)
		signIn(t, one)
	}
	if n := one.Size(); n != 1 {
		t.Errorf("14 s later %d daemons are seen", n)
	}
}

// When the clock goes back, a daemon that is gone is forgotten in time, also if only
// a daemon looks that it keeps out.
func TestClockThatGoesBackKeepsNobodyOut(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, o options) {
		ctx := context.Background()
		clock := asynctest.NewClock()
		other := o
		o.Clock, other.Clock = clock.Micros, clock.Micros
		other.HashTags = 64
		signIn(t, newFleet(t, o, "web-1"))
		newcomer := newFleet(t, other, "web-2")
		clock.Move(-24 * time.Hour)
		if err := newcomer.SignIn(ctx); err == nil {
			t.Error("a daemon that was seen just now is passed over")
		}
		clock.Move(7*time.Second - time.Millisecond)
		if err := newcomer.SignIn(ctx); err == nil {
			t.Error("a daemon is gone before its time")
		}
		clock.Move(time.Millisecond)
		if m := daemons(t, open(t, other)); len(m) != 0 {
			t.Errorf("7 s after the clock went back the daemons are %+v", m)
		}
		clock.Move(7 * time.Second)
		signIn(t, newcomer)
	})
}

// A daemon that is kept out does not take the place of those that run when the
// register is lost, be it by a clock that jumps ahead: they sign in again.
func TestClockThatJumpsAheadLetsNobodyIn(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, o options) {
		ctx := context.Background()
		clock, own := asynctest.NewClock(), asynctest.NewClock()
		other := o
		o.Clock, other.Clock = clock.Micros, clock.Micros
		other.HashTags = 64
		one := newFleet(t, o, "web-1")
		signIn(t, one)
		newcomer := open(t, other).join(fleet.Options{Address: "web-2", Clock: own.Time})
		refused := newcomer.SignIn(ctx)
		if refused == nil {
			t.Fatal("no conflict")
		}
		clock.Move(time.Hour)
		own.Move(2 * time.Second)
		if err := newcomer.SignIn(ctx); err == nil || err.Error() != refused.Error() || newcomer.Conflict() == nil {
			t.Errorf("when the register is lost the newcomer gets %v, conflict %v", err, newcomer.Conflict())
		}
		signIn(t, one)
		own.Move(2 * time.Second)
		if newcomer.SignIn(ctx) == nil {
			t.Error("beside one that signed in again there is no conflict")
		}
		clock.Move(7 * time.Second)
		own.Move(7*time.Second - time.Millisecond)
		if newcomer.SignIn(ctx) == nil {
			t.Error("the newcomer is in before all have had the time to sign in")
		}
		own.Move(time.Millisecond)
		signIn(t, newcomer)
	})
}
