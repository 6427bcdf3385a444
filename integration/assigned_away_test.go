package integration

import (
	"context"
	"crypto/rand"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
)

// put assigns a yearly number to a tenant, and returns the daemons that may not have it
// in force yet.
func (d *daemon) put(tenantName string, requests uint64) (pending []*adminv1.Daemon) {
	d.t.Helper()
	a := tenant(tenantName, &adminv1.Assignment{Numbers: []*adminv1.AssignedNumbers{{Limit: "year", Requests: requests}}})
	r, err := d.steering().PutAssignments(forAWhile(d.t), &adminv1.PutAssignmentsRequest{Puts: []*adminv1.PutAssignment{{Assignment: a}}})
	if err != nil {
		d.t.Fatal(err)
	}
	if c := r.GetChanges()[0]; c.GetError() != "" {
		d.t.Fatal(c)
	}
	return r.GetPending()
}

// putEverywhere assigns a yearly number until no daemon is named that may not have it.
func (d *daemon) putEverywhere(tenantName string, requests uint64) {
	d.t.Helper()
	asynctest.Eventually(d.t, "a change names no daemon", func() bool { return len(d.put(tenantName, requests)) == 0 })
}

// persistent asks for a tenant again and again from many callers, whatever it gets, and
// counts what is admitted for sure.
type persistent struct {
	callers    sync.WaitGroup
	isHome     atomic.Bool
	hasChanged atomic.Bool
	// earlier counts what was admitted for sure before hasChanged was set.
	earlier               atomic.Int64
	sure, unsure, refused atomic.Int64 // since then
}

func (d *daemon) sendPersistent(subject string) *persistent {
	p := new(persistent)
	for range 32 {
		p.callers.Go(func() {
			for !p.isHome.Load() {
				counts := p.hasChanged.Load()
				r, err := d.tryAsk("api", 1, subject)
				isAdmitted := err == nil && !degraded(r) && ok(r)
				switch {
				case isAdmitted && !counts:
					p.earlier.Add(1)
				case !counts:
				case isAdmitted:
					p.sure.Add(1)
				case err == nil && degraded(r):
					p.unsure.Add(1)
				default:
					p.refused.Add(1)
				}
			}
		})
	}
	d.t.Cleanup(p.goHome)
	return p
}

func (p *persistent) goHome() {
	p.isHome.Store(true)
	p.callers.Wait()
}

// isSure waits until the daemon decides by Redis again.
func (d *daemon) isSure(subject string) {
	d.t.Helper()
	asynctest.Eventually(d.t, "answers are sure again", func() bool {
		r, err := d.tryAsk("api", 1, subject)
		return err == nil && !degraded(r)
	})
}

func stopped(_ *testing.T, addrs []string) ([]string, func(*daemon) func()) {
	return addrs, (*daemon).hang
}

// behindProxy has a daemon reach a server through a proxy, that is to cut it off.
func behindProxy(cut func(*redistest.Proxy)) func(*testing.T, []string) ([]string, func(*daemon) func()) {
	return func(t *testing.T, addrs []string) ([]string, func(*daemon) func()) {
		proxy := redistest.StartProxy(t, addrs[0])
		return []string{proxy.Addr()}, func(*daemon) func() {
			cut(proxy)
			return func() { proxy.Heal(t) }
		}
	}
}

// A daemon that was stopped, or cut off, for longer than changes wait for it has missed
// a change when it goes on. It admits nobody by what was, but for degraded answers.
func TestDaemonThatWasAwayAdmitsNobodyByWhatWas(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, mode string
		// redis returns where the daemon that goes away finds Redis, and how it goes
		// and comes back.
		redis func(t *testing.T, addrs []string) (_ []string, leave func(*daemon) (back func()))
	}{
		{name: "stopped", mode: "single", redis: stopped},
		{name: "stopped on a cluster", mode: "cluster", redis: stopped},
		{name: "cut off", mode: "single", redis: behindProxy((*redistest.Proxy).Drop)},
		{name: "refused", mode: "single", redis: behindProxy((*redistest.Proxy).Refuse)},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			addrs := []string{redistest.Single(t)}
			if c.mode == "cluster" {
				addrs = redistest.Cluster(t)
			}
			behind, leave := c.redis(t, addrs)
			flags := steered(t, tenantPlans)
			prefix := "--redis-prefix=" + rand.Text()
			here := start(t, slices.Concat(flags, redisFlags(c.mode, addrs...), []string{prefix})...)
			away := start(t, slices.Concat(flags, redisFlags(c.mode, behind...), []string{prefix, "--redis-timeout=500ms"})...)
			here.putEverywhere("acme", 1_000_000)
			p := away.sendPersistent("tenant=acme")
			asynctest.Eventually(t, "more are admitted than the change allows", func() bool { return p.earlier.Load() > 1000 })
			back := leave(away)
			here.putEverywhere("acme", 3)
			// What was asked before the change has returned does not count, though it may
			// be answered only now.
			p.hasChanged.Store(true)
			time.Sleep(100 * time.Millisecond) // for callers that had read it before
			p.sure.Store(0)
			back()
			away.isSure("tenant=other")
			before := p.refused.Load() + p.sure.Load()
			asynctest.Eventually(t, "many have asked again", func() bool { return p.refused.Load()+p.sure.Load() > before+1000 })
			if n := p.sure.Load(); n > 0 {
				t.Errorf("%d were admitted by what held before the change, and %d answers were degraded", n, p.unsure.Load())
			}
			if n := away.total("ratelimitd_fleet_tenure_losses_total"); n == 0 {
				t.Error("the daemon has not noticed that it was away")
			}
			t.Logf("%d degraded, %d denied or failed", p.unsure.Load(), p.refused.Load())
		})
	}
}

// The clock of Redis jumps by more than a registration lives. A change waits all the
// same for a daemon that hangs since a moment ago.
func TestChangeWaitsForDaemonsWhenTheClockOfRedisJumps(t *testing.T) {
	t.Parallel()
	for _, jump := range []time.Duration{8 * time.Second, 2 * time.Minute, -time.Hour} {
		t.Run(jump.String(), func(t *testing.T) {
			t.Parallel()
			server, clock := redistest.StartWithClock(t)
			flags := steered(t, tenantPlans, redisFlags("single", server.Addr())...)
			here, away := start(t, flags...), start(t, flags...)
			here.putEverywhere("acme", 1_000_000)
			p := away.sendPersistent("tenant=acme")
			asynctest.Eventually(t, "more are admitted than the change allows", func() bool { return p.earlier.Load() > 1000 })
			back := away.hang()
			clock.Set(jump)
			if pending := here.put("acme", 3); len(pending) == 0 {
				p.hasChanged.Store(true)
				time.Sleep(100 * time.Millisecond)
				p.sure.Store(0)
			}
			back()
			away.isSure("tenant=other")
			if n := p.sure.Load(); n > 0 {
				t.Errorf("the change named nobody, and %d were admitted by what held before it", n)
			}
			here.putEverywhere("acme", 4)
		})
	}
}

// Redis loses its register, with all else, while daemons live: changes wait until all
// of them are known again.
func TestChangeWaitsForDaemonsThatRedisForgot(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	flags := steered(t, tenantPlans, redisFlags("single", server.Addr())...)
	here, away := start(t, flags...), start(t, flags...)
	client := redistest.Client(t, server.Addr())
	for range 2 {
		here.putEverywhere("acme", 1_000_000)
		back := away.hang()
		if err := client.FlushAll(context.Background()).Err(); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		pending := here.put("acme", 3)
		if len(pending) == 0 && time.Since(began) < 5*time.Second {
			t.Errorf("a change took %s, and named nobody, while a daemon hangs that Redis forgot", time.Since(began))
		}
		back()
		away.isSure("tenant=other")
	}
}
