package fleet_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimitd/ratelimitd/internal/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/fleet"
	"github.com/ratelimitd/ratelimitd/internal/redisconn"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

// modes calls test for each layout of Redis that tests share.
func modes(t *testing.T, test func(t *testing.T, o options)) {
	t.Run("single", func(t *testing.T) { test(t, newOptions(redisconn.Single, redistest.Single(t))) })
	t.Run("cluster", func(t *testing.T) { test(t, newOptions(redisconn.Cluster, redistest.Cluster(t)...)) })
}

// options are those of a daemon: its connection, its hash tags, and the clock of
// Redis, if that is not to be Redis's own.
type options struct {
	redisconn.Options
	HashTags int
	Clock    func() int64
}

// newOptions are those of a daemon under a prefix of its own.
func newOptions(mode redisconn.Mode, addresses ...string) options {
	return options{
		Options: redisconn.Options{
			Mode:      mode,
			Addresses: addresses,
			Prefix:    fmt.Sprintf("test-%x", rand.Uint64()),
			// The machines that run tests may be slow; what is tested is not.
			Timeout: 10 * time.Second,
		},
		HashTags: 32,
	}
}

// daemon is one that has a connection.
type daemon struct {
	fleet.Register
	hashTags int
}

func open(t testing.TB, o options) daemon {
	t.Helper()
	conn, err := redisconn.New(o.Options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return daemon{fleet.Register{Redis: conn, Clock: o.Clock}, o.HashTags}
}

// join returns the daemon's part in the register, with what o does not say.
func (d daemon) join(o fleet.Options) *fleet.Membership {
	o.HashTags = d.hashTags
	if o.StateFormat == 0 {
		o.StateFormat, o.Reads = 1, []int{1}
	}
	return fleet.New(d.Register, o)
}

func newFleet(t testing.TB, o options, address string) *fleet.Membership {
	t.Helper()
	return open(t, o).join(named(o, address))
}

// named are the options of a daemon by an address, on the clock of Redis.
func named(o options, address string) fleet.Options {
	f := fleet.Options{Address: address, Version: "v1.2"}
	if o.Clock != nil {
		f.Clock = func() time.Time { return time.UnixMicro(o.Clock()) }
	}
	return f
}

func signIn(t testing.TB, m *fleet.Membership) {
	t.Helper()
	if err := m.SignIn(context.Background()); err != nil {
		t.Fatal(err)
	}
}

func members(t testing.TB, d daemon) []fleet.Daemon {
	t.Helper()
	m, _, err := d.Daemons(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func addresses(daemons []fleet.Daemon) string {
	var all []string
	for _, m := range daemons {
		all = append(all, m.Address)
	}
	return strings.Join(all, " ")
}

// run runs a fleet and returns what ends it and waits until it has ended.
func run(f *fleet.Membership) func() {
	ctx, cancel := context.WithCancel(context.Background())
	var wait sync.WaitGroup
	wait.Go(func() { f.Run(ctx) })
	return func() {
		cancel()
		wait.Wait()
	}
}

func TestDaemonsSeeEachOther(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, o options) {
		clock := asynctest.NewClock()
		o.Clock = clock.Micros
		s := open(t, o)
		if m := members(t, s); len(m) != 0 {
			t.Errorf("an empty register holds %+v", m)
		}
		one := s.join(fleet.Options{
			Address: "web-1:8081", Version: "v1.2", Clock: clock.Time,
			Rules: func() string { return "abc" },
		})
		two := newFleet(t, o, "web-2:8081")
		if n := one.Size(); n != 1 {
			t.Errorf("alone it sees %d daemons", n)
		}
		clock.Move(90 * time.Second)
		signIn(t, two)
		clock.Move(time.Second)
		signIn(t, one)
		signIn(t, one) // again does no harm
		if one.Size() != 2 || two.Size() != 1 {
			t.Errorf("they see %d and %d daemons, want 2, and 1 from before the other came", one.Size(), two.Size())
		}
		m, at, err := s.Daemons(context.Background())
		if err != nil || addresses(m) != "web-1:8081 web-2:8081" || !at.Equal(clock.Time()) {
			t.Fatalf("members %+v at %s, %v", m, at, err)
		}
		got := m[0]
		if got.ID == "" || got.ID == m[1].ID || got.Version != "v1.2" || got.HashTags != 32 ||
			got.StateFormat != 1 || got.Rules != "abc" ||
			!got.Seen.Equal(at) || at.Sub(got.Started) != 91*time.Second || at.Sub(m[1].Seen) != time.Second {
			t.Errorf("members %+v at %s", m, at)
		}
	})
}

func TestDaemonThatStopsRenewingIsForgotten(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, o options) {
		clock := asynctest.NewClock()
		o.Clock = clock.Micros
		one, two := newFleet(t, o, "web-1"), newFleet(t, o, "web-2")
		signIn(t, two)
		clock.Move(7*time.Second - time.Millisecond)
		signIn(t, one)
		if n := one.Size(); n != 2 {
			t.Errorf("just under 7 s after a sign-in %d daemons are seen", n)
		}
		clock.Move(time.Millisecond)
		if got := addresses(members(t, open(t, o))); got != "web-1" {
			t.Errorf("7 s after the sign-in of web-2 the members are %q", got)
		}
		signIn(t, one)
		clock.Move(7*time.Second - time.Millisecond)
		signIn(t, one)
		if n := one.Size(); n != 2 {
			t.Errorf("just under 7 s after one daemon is missed %d daemons count", n)
		}
		clock.Move(time.Millisecond)
		signIn(t, one)
		if n := one.Size(); n != 1 {
			t.Errorf("7 s after one daemon is missed %d daemons count", n)
		}
	})
}

func TestSignOutIsSeenAtOnce(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, o options) {
		clock := asynctest.NewClock() // which stands still, so nothing expires
		o.Clock = clock.Micros
		s := open(t, o)
		own := asynctest.NewClock()
		one := s.join(fleet.Options{Address: "web-1", Every: 10 * time.Millisecond, Clock: own.Time})
		two := s.join(fleet.Options{Address: "web-2", Every: 10 * time.Millisecond})
		stopOne, stopTwo := run(one), run(two)
		asynctest.Eventually(t, "each sees the other", func() bool { return one.Size() == 2 && two.Size() == 2 })
		stopTwo()
		asynctest.Eventually(t, "web-1 is alone", func() bool {
			own.Move(time.Second)
			return one.Size() == 1
		})
		stopOne()
		if m := members(t, s); len(m) != 0 {
			t.Errorf("after all have signed out: %+v", m)
		}
		// A goodbye twice, or of one that never came, does no harm.
		run(newFleet(t, o, "web-3"))()
		run(one)()
	})
}

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
		if got := addresses(members(t, open(t, other))); got != "web-1:8081" {
			t.Errorf("members %q", got)
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

// A value that is no register reads as an empty one and is overwritten; what
// is no entry in one is passed over.
func TestForeignValueReadsAsAnEmptyRegister(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	addr := redistest.Single(t)
	c := redistest.Client(t, addr)
	o := newOptions(redisconn.Single, addr)
	key := o.Prefix + "{~fleet}"
	s := open(t, o)
	f := newFleet(t, o, "web-1")
	entry := func(change func(string) string) string {
		now := time.Now().UnixMilli()
		return change(fmt.Sprintf(`{"id":"x","address":"other","version":"v","hash_tags":32,"state_format":1,"reads":[1],"rules":"","started":%d,"seen":%d}`, now, now))
	}
	replace := func(old, new string) string {
		return entry(func(e string) string {
			if !strings.Contains(e, old) {
				t.Fatalf("%s lacks %s", e, old)
			}
			return strings.Replace(e, old, new, 1)
		})
	}
	for _, value := range []string{
		"", "x", "null", "1", `"a"`, "{}", "[]", "[", "[[]]", "[null]", "[1,2]", `[{}]`, "\xff\x00", `{"a":{"id":"x"}}`,
		strings.Repeat("[", 5000), strings.Repeat("[", 900) + strings.Repeat("]", 900),
		"[" + replace(`"x"`, `5`) + "]",
		"[" + replace(`"other"`, `"a\u001b[31m"`) + "]",
		"[" + replace(`"other"`, `"`+strings.Repeat("a", 256)+`"`) + "]",
		"[" + replace(`[1]`, `[]`) + "]",
		"[" + replace(`[1]`, `{}`) + "]",
		"[" + replace(`[1]`, `["1"]`) + "]",
		"[" + replace(`:32`, `:NaN`) + "]",
		"[" + replace(`:32`, `:1e999`) + "]",
		"[" + replace(`:32`, `:32.5`) + "]",
		"[" + replace(`:32`, `:-1`) + "]",
		"[" + replace(`,"seen"`, `,"sin"`) + "]",
		"[" + replace(`"seen":`, `"seen":1e14,"x":`) + "]",
		"[" + replace(`"seen":`, `"seen":0,"x":`) + "]",
	} {
		t.Run(fmt.Sprintf("%.40q", value), func(t *testing.T) {
			if err := c.Set(ctx, key, value, time.Hour).Err(); err != nil {
				t.Fatal(err)
			}
			if m := members(t, s); len(m) != 0 {
				t.Errorf("%.80q reads as %+v", value, m)
			}
			signIn(t, f)
			if got := addresses(members(t, s)); got != "web-1" {
				t.Errorf("after %.80q the members are %q", value, got)
			}
			if ttl := c.PTTL(ctx, key).Val(); ttl <= 0 || ttl > 7*time.Second {
				t.Errorf("after %.80q the register lives for %s", value, ttl)
			}
		})
	}
	for _, write := range []*redis.IntCmd{c.RPush(ctx, key+"2", "x"), c.HSet(ctx, key+"2h", "x", "y")} {
		if err := write.Err(); err != nil {
			t.Fatal(err)
		}
		if err := c.Rename(ctx, write.Args()[1].(string), key).Err(); err != nil {
			t.Fatal(err)
		}
		signIn(t, f)
		if got := addresses(members(t, s)); got != "web-1" {
			t.Errorf("after a value of another type the members are %q", got)
		}
	}
	// Good entries among bad ones, with a field of a later version, count.
	value := "[1," + entry(func(e string) string { return strings.Replace(e, "{", `{"new":[[{}]],`, 1) }) + ",{}]"
	if err := c.Set(ctx, key, value, time.Hour).Err(); err != nil {
		t.Fatal(err)
	}
	signIn(t, f)
	if got := addresses(members(t, s)); got != "other web-1" {
		t.Errorf("beside a good entry the members are %q", got)
	}
}

// What a daemon says of itself never spoils the register.
func TestStrangeTextsAreMadeHarmless(t *testing.T) {
	t.Parallel()
	o := newOptions(redisconn.Single, redistest.Single(t))
	s := open(t, o)
	strange := "a\x00\x1b[1m\"\\/\xff" + strings.Repeat("ä", 200)
	signIn(t, s.join(fleet.Options{Address: strange, Version: strange, Rules: func() string { return strange }}))
	m := members(t, s)
	if len(m) != 1 || !strings.HasPrefix(m[0].Address, `a??[1m"\/`) || len(m[0].Rules) > 255 || len(m[0].Rules) < 200 {
		t.Errorf("members %+v", m)
	}
}

func TestRegisterIsBounded(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	addr := redistest.Single(t)
	c := redistest.Client(t, addr)
	o := newOptions(redisconn.Single, addr)
	clock := asynctest.NewClock()
	o.Clock = clock.Micros
	var b strings.Builder
	for i := range 10_001 {
		fmt.Fprintf(&b, `,{"id":"%d","address":"a","version":"","hash_tags":32,"state_format":1,"reads":[1],"rules":"","started":0,"seen":%d}`, i, clock.Micros()/1000)
	}
	if err := c.Set(ctx, o.Prefix+"{~fleet}", "["+b.String()[1:]+"]", time.Hour).Err(); err != nil {
		t.Fatal(err)
	}
	f := newFleet(t, o, "web-1")
	if err := f.SignIn(ctx); err == nil || !strings.Contains(err.Error(), "full") || f.Conflict() != nil {
		t.Errorf("a full register gives %v, conflict %v", err, f.Conflict())
	}
	if n := f.Size(); n != 10_001 {
		t.Errorf("%d daemons are seen", n)
	}
	if n := len(members(t, open(t, o))); n != 10_000 {
		t.Errorf("%d members", n)
	}
}

// The register lives as long as its newest entry, and is the only key.
func TestRegisterExpires(t *testing.T) {
	t.Parallel()
	addr := redistest.Single(t)
	c := redistest.Client(t, addr)
	o := newOptions(redisconn.Single, addr)
	check := func(step string, want int) {
		t.Helper()
		keys := redistest.Keys(t, c, o.Prefix)
		if len(keys) != want {
			t.Fatalf("%s: keys %v, want %d", step, keys, want)
		}
		for key, ttl := range keys {
			if ttl <= 0 || ttl > 7*time.Second {
				t.Errorf("%s: %s lives for %s", step, key, ttl)
			}
		}
	}
	one, two := newFleet(t, o, "web-1"), newFleet(t, o, "web-2")
	signIn(t, one)
	check("the first sign-in", 1)
	signIn(t, two)
	signIn(t, one)
	check("a renewal", 1)
	members(t, open(t, o))
	check("a look", 1)
	other := o
	other.HashTags = 2
	if newFleet(t, other, "web-3").SignIn(context.Background()) == nil {
		t.Error("no conflict")
	}
	check("a conflict", 1)
	run(two)()
	check("a sign-out", 1)
	run(one)()
	check("the last sign-out", 0)
}

// A promoted replica's clock is behind: no entry outlives its daemon for it.
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

// A daemon that is gone is so in time when the clock went back, also where
// nobody but one that it keeps out looks.
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
		if m := members(t, open(t, other)); len(m) != 0 {
			t.Errorf("7 s after the clock went back the members are %+v", m)
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

// The clock of a real server steps: those who live are back at their next
// sign-in, and those who do not are gone when they should be.
func TestRegisterFillsAgainWhenTheClockSteps(t *testing.T) {
	t.Parallel()
	server, clock := redistest.StartWithClock(t)
	o := newOptions(redisconn.Single, server.Addr())
	s, c := open(t, o), redistest.Client(t, server.Addr())
	one := s.join(fleet.Options{Address: "web-1", Every: 20 * time.Millisecond})
	two := s.join(fleet.Options{Address: "web-2", Every: 20 * time.Millisecond})
	defer run(one)()
	defer run(two)()
	registered := func() string { return addresses(members(t, s)) }
	asynctest.Eventually(t, "both are in", func() bool { return registered() == "web-1 web-2" && one.Size() == 2 && two.Size() == 2 })
	for _, at := range []time.Duration{10 * time.Minute, 0, 25 * time.Hour, 0, -25 * time.Hour, 0} {
		signIn(t, s.join(fleet.Options{Address: fmt.Sprint("web-3 at ", at)})) // who never comes back
		clock.Set(at)
		asynctest.Eventually(t, "both are in after the step", func() bool {
			names := registered()
			return strings.HasPrefix(names, "web-1 web-2") && strings.Count(names, "web-3") <= 1
		})
		clock.Set(at + 7*time.Second)
		asynctest.Eventually(t, "both are in alone", func() bool { return registered() == "web-1 web-2" })
		if one.Size() < 2 || two.Size() < 2 {
			t.Errorf("at %s they count %d and %d daemons", at, one.Size(), two.Size())
		}
		for key, ttl := range redistest.Keys(t, c, o.Prefix) {
			if ttl > 7*time.Second {
				t.Errorf("at %s %s lives for %s", at, key, ttl)
			}
		}
	}
}

// The last known number stays while Redis is away, and an empty Redis learns
// of everybody again.
func TestRegisterSurvivesARestart(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	o := newOptions(redisconn.Single, server.Addr())
	var text asynctest.Buffer
	log := slog.New(slog.NewTextHandler(&text, nil))
	one := open(t, o).join(fleet.Options{Address: "web-1", Every: 20 * time.Millisecond, Log: log})
	two := open(t, o).join(fleet.Options{Address: "web-2", Every: 20 * time.Millisecond})
	defer run(one)()
	defer run(two)()
	asynctest.Eventually(t, "each sees the other", func() bool { return one.Size() == 2 && two.Size() == 2 })
	server.Stop()
	asynctest.Eventually(t, "the failure is logged", func() bool { return strings.Contains(text.String(), "could not sign in") })
	if one.Size() != 2 || one.Conflict() != nil {
		t.Errorf("while Redis is away: %d daemons, conflict %v", one.Size(), one.Conflict())
	}
	server.Restart()
	s := open(t, o)
	asynctest.Eventually(t, "both are in the empty register", func() bool { return addresses(members(t, s)) == "web-1 web-2" })
	asynctest.Eventually(t, "each sees the other again", func() bool { return one.Size() == 2 && two.Size() == 2 })
	if n := strings.Count(text.String(), "could not sign in"); n != 1 {
		t.Errorf("within a minute the failure is logged %d times:\n%s", n, text.String())
	}
}

// Who signs in first to a register that Redis lost is not the only daemon, nor
// is it while Redis comes and goes.
func TestLostRegisterFillsAgain(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	o := newOptions(redisconn.Single, server.Addr())
	clock := asynctest.NewClock()
	o.Clock = clock.Micros
	one, two := newFleet(t, o, "web-1"), newFleet(t, o, "web-2")
	signIn(t, two)
	signIn(t, one)
	for range 3 {
		server.Stop()
		if one.SignIn(context.Background()) == nil {
			t.Error("a sign-in succeeds without Redis")
		}
		clock.Move(time.Hour)
		server.Restart()
		asynctest.Eventually(t, "web-1 is in the empty register", func() bool { return one.SignIn(context.Background()) == nil })
		clock.Move(6 * time.Second)
		signIn(t, one)
		if n := one.Size(); n != 2 {
			t.Errorf("6 s after it signed in to an empty register, web-1 counts %d daemons", n)
		}
	}
	clock.Move(time.Second)
	signIn(t, one)
	if n := one.Size(); n != 1 {
		t.Errorf("7 s after web-2 did not come back, web-1 counts %d daemons", n)
	}
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
	server.Stop()
	if err := f.SignIn(context.Background()); err == nil || f.Conflict() == nil || f.Conflict() == err {
		t.Errorf("the sign-in gives %v, the conflict is %v", err, f.Conflict())
	}
}

// The register's master dies: its replica has, or soon learns, who is there.
func TestRegisterSurvivesAFailover(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 1)
	o := newOptions(redisconn.Cluster, cluster.Addrs()...)
	s := open(t, o)
	one := s.join(fleet.Options{Address: "web-1", Every: 50 * time.Millisecond})
	two := s.join(fleet.Options{Address: "web-2", Every: 50 * time.Millisecond})
	defer run(one)()
	defer run(two)()
	asynctest.Eventually(t, "each sees the other", func() bool { return one.Size() == 2 && two.Size() == 2 })
	for _, m := range cluster.Masters {
		if len(redistest.Keys(t, redistest.Client(t, m.Addr()), o.Prefix)) == 1 {
			m.Kill()
		}
	}
	asynctest.Eventually(t, "both are in the register", func() bool {
		m, _, err := s.Daemons(context.Background())
		return err == nil && addresses(m) == "web-1 web-2"
	})
}

// Rules that differ are told once they have for a while, and then now and then.
func TestRulesThatDifferAreLogged(t *testing.T) {
	t.Parallel()
	o := newOptions(redisconn.Single, redistest.Single(t))
	clock := asynctest.NewClock()
	o.Clock = clock.Micros
	var text asynctest.Buffer
	rules := "aaa"
	one := open(t, o).join(fleet.Options{
		Address: "web-1", Clock: clock.Time, Rules: func() string { return "aaa" },
		Log: slog.New(slog.NewTextHandler(&text, nil)),
	})
	two := open(t, o).join(fleet.Options{
		Address: "web-2", Clock: clock.Time, Rules: func() string { return rules },
	})
	// pass lets time go by and returns how many more warnings there are.
	pass := func(d time.Duration) int {
		t.Helper()
		before := strings.Count(text.String(), "different rules")
		for ; d > 0; d -= 2 * time.Second {
			clock.Move(2 * time.Second)
			signIn(t, two)
			signIn(t, one)
		}
		return strings.Count(text.String(), "different rules") - before
	}
	for _, step := range []struct {
		rules string
		after time.Duration
		want  int
		what  string
	}{
		{"aaa", time.Minute, 0, "equal rules"},
		{"bbb", 10 * time.Second, 0, "a reload under way"},
		{"aaa", time.Minute, 0, "a reload that was taken back"},
		{"bbb", 14 * time.Second, 1, "a difference that stays"},
		{"bbb", 9 * time.Minute, 0, "one that was told"},
		{"bbb", 2 * time.Minute, 1, "one that was told long ago"},
		{"ccc", 14 * time.Second, 1, "another difference"},
		{"", time.Hour, 0, "no fingerprint"},
	} {
		rules = step.rules
		if n := pass(step.after); n != step.want {
			t.Errorf("%s: %d warnings, want %d", step.what, n, step.want)
		}
	}
	if !strings.Contains(text.String(), `rules="aaa at web-1, bbb at web-2"`) {
		t.Errorf("the warnings do not say who has what:\n%s", text.String())
	}
}

func TestRulesDifferNamesDaemons(t *testing.T) {
	t.Parallel()
	var m []fleet.Daemon
	add := func(n int, rules string) {
		for range n {
			m = append(m, fleet.Daemon{Address: fmt.Sprint("web-", len(m)), Rules: rules})
		}
	}
	add(7, "0123456789abcdef")
	if got := fleet.RulesDiffer(m); got != "" {
		t.Errorf("equal rules give %q", got)
	}
	add(1, "fedc")
	want := "0123456789ab at web-0, web-1, web-2, web-3, web-4 and 2 more, fedc at web-7"
	if got := fleet.RulesDiffer(m); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
