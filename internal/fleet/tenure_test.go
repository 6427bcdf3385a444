package fleet_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/fleet"
	"github.com/ratelimitd/ratelimitd/internal/redisconn"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

// awaited returns the addresses of those that are waited for, of these daemons.
func awaited(t *testing.T, by *fleet.Membership, all map[string]*fleet.Membership) (names string, lacks time.Duration) {
	t.Helper()
	a, err := by.Awaited(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for name, m := range all {
		if slices.Contains(a.IDs, m.ID()) {
			found = append(found, name)
		}
	}
	slices.Sort(found)
	if len(found) != len(a.IDs) {
		t.Errorf("%d are waited for, of which these are known: %v", len(a.IDs), found)
	}
	return strings.Join(found, " "), a.Lacks
}

// A daemon is waited for until another one has seen no sign-in of it for 7 s by its own
// clock, whatever the clock of Redis does.
func TestDaemonIsAwaitedAsLongAsItsTenureMayLast(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, o options) {
		redis, own := asynctest.NewClock(), asynctest.NewClock()
		o.Clock = redis.Micros
		register := open(t, o)
		all := map[string]*fleet.Membership{}
		for _, name := range []string{"a", "b", "c"} {
			all[name] = register.join(fleet.Options{Address: name, Clock: own.Time})
			signIn(t, all[name])
		}
		want := func(step, names string) {
			t.Helper()
			if got, _ := awaited(t, all["a"], all); got != names {
				t.Errorf("%s: %q are waited for, want %q", step, got, names)
			}
		}
		want("all have signed in", "a b c")
		for range 2 {
			redis.Move(5 * time.Second)
			want("the clock of Redis has jumped", "a b c")
			signIn(t, all["a"])
			want("one has signed in then", "a b c")
		}
		redis.Move(-time.Minute)
		want("it has jumped back", "a b c")
		own.Move(4 * time.Second)
		signIn(t, all["a"])
		signIn(t, all["b"])
		want("4 s later", "a b c")
		own.Move(3*time.Second - time.Millisecond)
		want("7 s later but for a moment", "a b c")
		own.Move(time.Millisecond)
		want("7 s after the last sign-in of one", "a b")
		signIn(t, all["c"])
		want("it is back", "a b c")
	})
}

// Whom a lost register had is not known for 7 s. It is known at once where all daemons
// have left it, or where one says for how long it was there.
func TestLostRegisterIsKnownToLackDaemons(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, o options) {
		ctx := context.Background()
		redis, own := asynctest.NewClock(), asynctest.NewClock()
		o.Clock = redis.Micros
		register := open(t, o)
		all := map[string]*fleet.Membership{}
		join := func(name string) *fleet.Membership {
			all[name] = register.join(fleet.Options{Address: name, Clock: own.Time, Every: time.Hour})
			signIn(t, all[name])
			return all[name]
		}
		want := func(step string, by string, lacks time.Duration) {
			t.Helper()
			if _, got := awaited(t, all[by], all); max(0, got) != lacks {
				t.Errorf("%s: it may lack daemons for %s, want %s", step, max(0, got), lacks)
			}
		}
		a := join("a")
		want("a first register", "a", 7*time.Second)
		own.Move(3 * time.Second)
		want("3 s later", "a", 4*time.Second)
		signIn(t, a)
		join("b")
		want("to a newcomer", "b", 4*time.Second)
		own.Move(4 * time.Second)
		want("7 s later", "a", 0)
		signIn(t, a)
		want("to the newcomer", "b", 0)

		lose := func(suffixes ...string) {
			for _, s := range suffixes {
				if err := register.Redis.Del(ctx, register.Redis.Prefix()+"{~fleet}"+s).Err(); err != nil {
					t.Fatal(err)
				}
			}
		}
		for _, lost := range [][]string{{"", "~roll"}, {""}, {"~roll"}} {
			lose(lost...)
			signIn(t, a)
			want("the register is lost", "a", 7*time.Second)
			signIn(t, all["b"])
			own.Move(7 * time.Second)
			want("7 s later", "a", 0)
		}
		redis.Move(time.Hour)
		signIn(t, a)
		want("the clock of Redis has jumped", "a", 7*time.Second)

		own.Move(7 * time.Second)
		signIn(t, a)
		signIn(t, all["b"])
		run(a)() // which leaves
		run(all["b"])()
		delete(all, "a")
		delete(all, "b")
		join("c")
		want("all had left", "c", 0)
	})
}

// A failover loses the last sign-ins. For 7 s nobody knows whose they were, and nobody is
// taken for gone.
func TestFailoverMayHaveLostSignIns(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	server := redistest.Start(t)
	o := newOptions(redisconn.Single, server.Addr())
	own := asynctest.NewClock()
	register := open(t, o)
	all := map[string]*fleet.Membership{}
	join := func(names ...string) {
		for _, name := range names {
			if all[name] == nil {
				all[name] = register.join(fleet.Options{Address: name, Clock: own.Time})
			}
			signIn(t, all[name])
		}
	}
	want := func(step, by, names string, lacks time.Duration, isMoved bool) {
		t.Helper()
		got, gotLacks := awaited(t, all[by], all)
		a, err := all[by].Awaited(ctx)
		if err != nil || got != names || max(0, gotLacks) != lacks || a.IsMoved != isMoved {
			t.Errorf("%s: %q are waited for, and perhaps more for %s (%t, %v), want %q, %s (%t)", step, got, max(0, gotLacks), a.IsMoved, err, names, lacks, isMoved)
		}
	}
	join("a", "b", "a")
	own.Move(7 * time.Second)
	join("a")
	want("one is gone", "a", "a", 0, false)
	client := redistest.Client(t, server.Addr())
	replicated := map[string]string{}
	for key := range redistest.Keys(t, client, o.Prefix) {
		replicated[key] = client.Dump(ctx, key).Val()
	}
	join("c")
	own.Move(time.Second)
	want("another has signed in", "a", "a c", 0, false)
	// The server becomes a replica that lacks that sign-in, and is promoted.
	if err := client.ReplicaOf(ctx, "127.0.0.1", "1").Err(); err != nil {
		t.Fatal(err)
	}
	if err := client.ReplicaOf(ctx, "NO", "ONE").Err(); err != nil {
		t.Fatal(err)
	}
	for key, dump := range replicated {
		if err := client.RestoreReplace(ctx, key, time.Minute, dump).Err(); err != nil {
			t.Fatal(err)
		}
	}
	want("its sign-in is lost", "a", "a b", 7*time.Second, true)
	own.Move(3 * time.Second)
	join("a", "c")
	want("it signs in again", "a", "a b c", 4*time.Second, true)
	join("d")
	want("to a newcomer", "d", "a b c d", 4*time.Second, false)
	own.Move(4 * time.Second)
	want("7 s later", "a", "a c d", 0, true)
}

// A tenure lasts 6 s from a sign-in on, is kept by sign-ins in time, and begins again
// once the daemon has caught up after one.
func TestTenureEndsBeforeADaemonIsGone(t *testing.T) {
	t.Parallel()
	o := newOptions(redisconn.Single, redistest.Single(t))
	own := asynctest.NewClock()
	m := open(t, o).join(fleet.Options{Address: "a", Clock: own.Time, Every: time.Hour})
	var caughtUp atomic.Int64
	var failure atomic.Pointer[error]
	tenure := m.Tenure()
	tenure.OnRegain(func(context.Context) error {
		caughtUp.Add(1)
		if err := failure.Load(); err != nil {
			return *err
		}
		return nil
	})
	if _, ok := tenure.At(own.Time()); ok || tenure.Holds() {
		t.Error("a daemon that has not signed in has tenure")
	}
	defer run(m)()
	asynctest.Eventually(t, "the tenure begins", tenure.Holds)
	first, _ := tenure.At(own.Time())
	for range 3 {
		own.Move(5 * time.Second)
		signIn(t, m)
	}
	if n, ok := tenure.At(own.Time()); !ok || n != first || !tenure.StillHolds(first) || caughtUp.Load() != 1 {
		t.Errorf("with sign-ins in time it has the tenure %d (%t), want %d, and has caught up %d times", n, ok, first, caughtUp.Load())
	}
	own.Move(6*time.Second - time.Millisecond)
	if !tenure.StillHolds(first) {
		t.Error("the tenure ends before its time")
	}
	own.Move(time.Millisecond)
	if _, ok := tenure.At(own.Time()); ok || tenure.StillHolds(first) {
		t.Error("the tenure goes on after its time")
	}
	away := errors.New("Redis is away")
	failure.Store(&away)
	if err := tenure.Regain(context.Background()); !errors.Is(err, away) || tenure.Holds() {
		t.Errorf("a daemon that cannot catch up gets %v", err)
	}
	failure.Store(nil)
	asynctest.Eventually(t, "it catches up", func() bool { return tenure.Regain(context.Background()) == nil })
	if n, ok := tenure.At(own.Time()); !ok || n == first || tenure.StillHolds(first) {
		t.Errorf("after a gap it has the tenure %d (%t), and had %d", n, ok, first)
	}
	second, _ := tenure.At(own.Time())
	tenure.Void()
	if tenure.StillHolds(second) {
		t.Error("a tenure that is void goes on")
	}
	if err := tenure.Regain(context.Background()); err != nil || tenure.StillHolds(second) {
		t.Errorf("after it was void: %v", err)
	}
}
