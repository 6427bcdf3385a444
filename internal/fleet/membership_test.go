package fleet_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/fleet"
	"github.com/ratelimitd/ratelimitd/internal/redisconn"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

func TestDaemonsSeeEachOther(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, o options) {
		clock := asynctest.NewClock()
		o.Clock = clock.Micros
		s := open(t, o)
		if m := daemons(t, s); len(m) != 0 {
			t.Errorf("an empty register holds %+v", m)
		}
		one := s.join(fleet.Options{
			Address: "web-1:8081", Version: "v1.2", Clock: clock.Time,
			Rules:  func() string { return "abc" },
			Change: func() string { return "7-1" },
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
			t.Fatalf("daemons %+v at %s, %v", m, at, err)
		}
		got := m[0]
		if got.ID == "" || got.ID == m[1].ID || got.Version != "v1.2" || got.HashTags != 32 ||
			got.StateFormat != 1 || got.Rules != "abc" || got.Change != "7-1" || m[1].Change != "" ||
			!got.Seen.Equal(at) || at.Sub(got.Started) != 91*time.Second || at.Sub(m[1].Seen) != time.Second {
			t.Errorf("daemons %+v at %s", m, at)
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
		if got := addresses(daemons(t, open(t, o))); got != "web-1" {
			t.Errorf("7 s after the sign-in of web-2 the daemons are %q", got)
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
		if m := daemons(t, s); len(m) != 0 {
			t.Errorf("after all have signed out: %+v", m)
		}
		// A goodbye twice, or of one that never came, does no harm.
		run(newFleet(t, o, "web-3"))()
		run(one)()
	})
}

// The last known number stays while Redis is away, and an empty Redis gets all
// daemons again.
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
	server.Kill()
	asynctest.Eventually(t, "the failure is logged", func() bool { return strings.Contains(text.String(), "could not sign in") })
	if one.Size() != 2 || one.Conflict() != nil || !one.HasFailed() {
		t.Errorf("while Redis is away: %d daemons, conflict %v, failed %t", one.Size(), one.Conflict(), one.HasFailed())
	}
	server.Restart()
	asynctest.Eventually(t, "it signs in again", func() bool { return !one.HasFailed() })
	s := open(t, o)
	asynctest.Eventually(t, "both are in the empty register", func() bool { return addresses(daemons(t, s)) == "web-1 web-2" })
	asynctest.Eventually(t, "each sees the other again", func() bool { return one.Size() == 2 && two.Size() == 2 })
	if n := strings.Count(text.String(), "could not sign in"); n != 1 {
		t.Errorf("within a minute the failure is logged %d times:\n%s", n, text.String())
	}
}

// The first daemon in a register that Redis lost does not count itself alone, also
// while Redis comes and goes.
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
		server.Kill()
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

// The register's master dies: its replica has the daemons, or soon gets them.
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
	killed := 0
	for _, m := range cluster.Masters {
		if len(redistest.Keys(t, redistest.Client(t, m.Addr()), o.Prefix)) > 0 {
			m.Kill()
			killed++
		}
	}
	if killed != 1 {
		t.Fatalf("%d masters have the register", killed)
	}
	asynctest.Eventually(t, "both are in the register", func() bool {
		m, _, err := s.Daemons(context.Background())
		return err == nil && addresses(m) == "web-1 web-2"
	})
}
