package redislog_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/assign"
	"github.com/ratelimitd/ratelimitd/internal/assign/assigntest"
	"github.com/ratelimitd/ratelimitd/internal/assign/redislog"
	"github.com/ratelimitd/ratelimitd/internal/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/redisconn"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

// hasPlan waits until a daemon has a plan of a subject in force.
func hasPlan(t *testing.T, d *daemon, s assign.Subject, plan string) {
	t.Helper()
	asynctest.Eventually(t, "it has the plan "+plan, func() bool {
		a := d.Table().Get(s)
		return a != nil && a.Plan == plan
	})
}

// caughtUp waits until a daemon has caught up, and wants it to have a plan then.
func caughtUp(t *testing.T, d *daemon, s assign.Subject, plan string) {
	t.Helper()
	asynctest.Eventually(t, "it catches up", func() bool { return d.CatchUp(t.Context()) == nil })
	if a := d.Table().Get(s); a == nil || a.Plan != plan {
		t.Errorf("a daemon that has caught up has %v, want the plan %s", a, plan)
	}
}

// awaiting returns the daemons that a change waits for, which a test may replace.
func awaiting(all ...string) (*atomic.Pointer[redislog.Awaited], func(context.Context) (redislog.Awaited, error)) {
	p := new(atomic.Pointer[redislog.Awaited])
	p.Store(&redislog.Awaited{IDs: all})
	return p, func(context.Context) (redislog.Awaited, error) { return *p.Load(), nil }
}

// A daemon misses a change, and Redis loses it before the daemon is back. It has caught
// up only once it has that change from a daemon that knows it.
func TestDaemonThatWasAwayTakesOverWhatRedisHasLost(t *testing.T) {
	t.Parallel()
	c := connOptions(redisconn.Single, redistest.Single(t))
	_, alone := awaiting("here")
	_, both := awaiting("away", "here")
	here := startLoaded(t, c, redislog.Options{ID: "here", Awaited: alone})
	away, proxy := cutOff(t, c, redislog.Options{ID: "away", Awaited: both})
	subject := assigntest.Subject("api", "acme")
	for range 3 {
		assigntest.Apply(t, here, assigntest.Plan(subject, "old"))
		hasPlan(t, away, subject, "old")
		caughtUp(t, away, subject, "old")
		proxy.Refuse()
		assigntest.Apply(t, here, assigntest.Plan(subject, "new"))
		here.lose(t, everything...)
		proxy.Heal(t)
		caughtUp(t, away, subject, "new")
	}
}

// Where Redis has lost something, a daemon that does not answer is waited for until it is
// gone: it may have what Redis lacks. So are those that a lost register does not name.
func TestWhoeverMayHaveWhatRedisHasLostIsWaitedFor(t *testing.T) {
	t.Parallel()
	c := connOptions(redisconn.Single, redistest.Single(t))
	awaited, all := awaiting("away", "silent")
	away := startLoaded(t, c, redislog.Options{ID: "away", Awaited: all})
	subject := assigntest.Subject("api", "acme")
	awaited.Store(&redislog.Awaited{IDs: []string{"away"}})
	assigntest.Apply(t, away, assigntest.Plan(subject, "old"))
	for _, while := range []redislog.Awaited{{IDs: []string{"away", "silent"}}, {IDs: []string{"away"}, Lacks: time.Hour}} {
		awaited.Store(&redislog.Awaited{IDs: []string{"away", "silent"}})
		caughtUp(t, away, subject, "old") // nothing is lost, and there is no answer
		awaited.Store(&while)
		away.lose(t, everything...)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		for ctx.Err() == nil {
			if away.CatchUp(ctx) == nil {
				t.Fatalf("it has caught up, where it should wait: %+v", while)
			}
		}
		cancel()
		awaited.Store(&redislog.Awaited{IDs: []string{"away"}})
		caughtUp(t, away, subject, "old")
	}
}
