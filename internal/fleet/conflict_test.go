package fleet_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/fleet"
	"github.com/ratelimitd/ratelimitd/internal/redisconn"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

func TestOtherHashTagsAreAConflict(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, o options) {
		ctx := context.Background()
		clock := asynctest.NewClock()
		o.Clock = clock.Micros
		old := newFleet(t, o, "web-1:8081")
		signIn(t, old)
		other := o
		other.HashTags = 64
		newcomer := newFleet(t, other, "web-2:8081")
		want := fmt.Sprintf("redis: daemon web-1:8081 (version v1.2) shares prefix %q with redis.hash_tags 32; "+
			"this daemon (web-2:8081) has 64: all daemons of a prefix must agree", o.Prefix)
		for range 3 { // whoever renews first
			if err := newcomer.SignIn(ctx); err == nil || err.Error() != want {
				t.Errorf("the newcomer gets\n%v, want\n%s", err, want)
			}
			if err := newcomer.Conflict(); err == nil || err.Error() != want {
				t.Errorf("the newcomer's conflict is %v", err)
			}
			signIn(t, old)
			if old.Conflict() != nil || old.Size() != 1 || newcomer.Size() != 2 {
				t.Errorf("conflict %v, sizes %d and %d", old.Conflict(), old.Size(), newcomer.Size())
			}
			clock.Move(2 * time.Second)
		}
		if got := addresses(daemons(t, open(t, other))); got != "web-1:8081" {
			t.Errorf("daemons %q", got)
		}
		// Another prefix is another fleet.
		elsewhere := other
		elsewhere.Prefix += "x"
		signIn(t, newFleet(t, elsewhere, "web-3:8081"))

		third := newFleet(t, o, "web-0:8081")
		signIn(t, third)
		if err := newcomer.SignIn(ctx); err == nil || !strings.Contains(err.Error(), "web-0:8081") || !strings.HasSuffix(err.Error(), "(and 1 more like it)") {
			t.Errorf("with two others the conflict is %v", err)
		}
		clock.Move(7 * time.Second)
		signIn(t, newcomer)
		if err := newcomer.Conflict(); err != nil {
			t.Errorf("after the others have gone: %v", err)
		}
		// Now it is in, and they are the newcomers.
		if err := old.SignIn(ctx); err == nil || !strings.Contains(err.Error(), "redis.hash_tags 64; this daemon (web-1:8081) has 32") {
			t.Errorf("the one that came back gets %v", err)
		}
	})
}

func TestUnreadableStateFormatIsAConflict(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	newer := func(o options, writes int, reads ...int) *fleet.Membership {
		f := named(o, "new")
		f.StateFormat, f.Reads = writes, reads
		return open(t, o).join(f)
	}
	for _, tc := range []struct {
		name   string
		writes int
		reads  []int
		// conflicts of the one of this version, and of the newer one, when
		// the other is in; "" for none.
		ours, theirs string
	}{
		{"neither reads the other", 2, []int{2},
			`with state format 2; this daemon (old, version v1.2) reads only 1: all`,
			`with state format 1; this daemon (new, version v1.2) reads only 2: all`},
		{"the newer reads both", 2, []int{1, 2},
			`with state format 2; this daemon (old, version v1.2) reads only 1: all`,
			`with this daemon (new, version v1.2), whose state format is 2, and reads only 1: all`},
		{"the newer reads both and writes the old", 1, []int{1, 2}, "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			check := func(first, second *fleet.Membership, want string) {
				t.Helper()
				signIn(t, first)
				err := second.SignIn(ctx)
				if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
					t.Errorf("the second gets %v, want %q", err, want)
				}
				signIn(t, first) // which stays
			}
			o := newOptions(redisconn.Single, redistest.Single(t))
			check(newer(o, tc.writes, tc.reads...), newFleet(t, o, "old"), tc.ours)
			o = newOptions(redisconn.Single, redistest.Single(t))
			check(newFleet(t, o, "old"), newer(o, tc.writes, tc.reads...), tc.theirs)
		})
	}
}

// Of many daemons that come at the same time, those of one kind get in.
func TestFirstOneInWins(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, o options) {
		var in [2]atomic.Int64
		var wait sync.WaitGroup
		for i := range 20 {
			o := o
			o.HashTags = 1 + i%2
			f := newFleet(t, o, fmt.Sprint("web-", i))
			wait.Go(func() {
				if f.SignIn(context.Background()) == nil {
					in[i%2].Add(1)
				}
			})
		}
		wait.Wait()
		if a, b := in[0].Load(), in[1].Load(); a+b != 10 || a*b != 0 {
			t.Errorf("%d with 1 hash tag and %d with 2 are in", a, b)
		}
	})
}

// A conflict stands while Redis is away.
func TestConflictStaysWhileRedisIsAway(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	o := newOptions(redisconn.Single, server.Addr())
	signIn(t, newFleet(t, o, "web-1"))
	o.HashTags = 1
	f := newFleet(t, o, "web-2")
	if f.SignIn(context.Background()) == nil {
		t.Fatal("no conflict")
	}
	server.Kill()
	if err := f.SignIn(context.Background()); err == nil || f.Conflict() == nil || f.Conflict() == err {
		t.Errorf("the sign-in gives %v, the conflict is %v", err, f.Conflict())
	}
}
