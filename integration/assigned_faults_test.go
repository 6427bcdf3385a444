package integration

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
)

// An import during which Redis fails over says what it did. Running it again mends
// what it did not do, and what the failover lost.
func TestImportWhileRedisFailsOver(t *testing.T) {
	t.Parallel()
	const n = 12_000
	c := redistest.StartCluster(t, 1, "--cluster-require-full-coverage", "no")
	flags := steered(t, tenantPlans, redisFlags("cluster", c.Addrs()...)...)
	daemons := startAll(t, 3, flags...)
	rows := rowsOf("acme", n, "ten,year=7,,nightly")
	var sum imported
	var stderr string
	var code int
	var wait sync.WaitGroup
	wait.Go(func() { sum, stderr, code = daemons[0].importRows(rows) })
	asynctest.Eventually(t, "the import is under way", func() bool { return daemons[1].total("ratelimitd_assignments") > n/10 })
	c.Masters[0].Kill()
	wait.Wait()
	t.Logf("the import ends with %d: %+v\n%s", code, sum, stderr)
	if sum.Created == 0 || code != 0 && code != 4 && !strings.Contains(stderr, "run it again") {
		t.Errorf("the import ends with %d: %+v\n%s", code, sum, stderr)
	}
	witness := redistest.Client(t, c.Masters[1].Addr())
	asynctest.Eventually(t, "a replica is promoted", func() bool {
		addr, err := masterOf(witness, 0)
		return err == nil && addr != c.Masters[0].Addr()
	})
	want := exportOf(t, rows)
	for _, d := range daemons {
		got := d.export()
		if len(got) > sum.done()+sum.Unknown {
			t.Errorf("%d rows are in force, and the import tells of %+v", len(got), sum)
		}
		isWanted := make(map[string]bool)
		for _, line := range want {
			isWanted[line] = true
		}
		for _, line := range got {
			if !isWanted[line] {
				t.Errorf("half of a row is in force: %s", line)
			}
		}
	}
	for try := 1; ; try++ {
		again, stderr, code := daemons[try%3].importRows(rows)
		if again.done() == n {
			break
		}
		if try == 5 {
			t.Fatalf("the %dth import ends with %d: %+v\n%s", try, code, again, stderr)
		}
	}
	if got := wantSame(t, daemons...); !slices.Equal(got, want) {
		t.Errorf("%d rows are in force, of %d", len(got), len(want))
	}
	if sum := daemons[2].importAll(rows); sum.Unchanged != n {
		t.Errorf("of rows that are in force: %+v", sum)
	}
	c.Masters[0].Restart()
	c.WaitOK()
	if got := wantSame(t, append(daemons, start(t, flags...))...); !slices.Equal(got, want) {
		t.Errorf("once the former master is back %d rows are in force, of %d", len(got), len(want))
	}
}

// A daemon is killed in the middle of changes: each was made as a whole or not, those
// that were answered are in force, and another daemon makes the rest.
func TestDaemonKilledInTheMiddleOfChanges(t *testing.T) {
	t.Parallel()
	const n, together = 10_000, 500
	flags := steered(t, tenantPlans, redisFlags("single", redistest.Single(t))...)
	daemons := startAll(t, 3, flags...)
	before, after := rowsOf("acme", n, "ten,,,first"), rowsOf("acme", n, ",year=3,,second")
	if sum := daemons[0].importAll(before); sum.Created != n {
		t.Fatalf("%+v", sum)
	}
	victim := daemons[0].steering()
	answered, begun := 0, make(chan int)
	var wait sync.WaitGroup
	wait.Go(func() {
		defer close(begun)
		for answered < n {
			r := &adminv1.PutAssignmentsRequest{}
			for i := answered; i < answered+together; i++ {
				r.Puts = append(r.Puts, &adminv1.PutAssignment{Assignment: tenant(fmt.Sprintf("acme-%06d", i), &adminv1.Assignment{
					Numbers: []*adminv1.AssignedNumbers{{Limit: "year", Requests: 3}}, Reason: "second",
				})})
			}
			begun <- answered
			if _, err := victim.PutAssignments(forAWhile(t), r); err != nil {
				return
			}
			answered += together
		}
	})
	for i := range begun {
		if i >= n/2 {
			break
		}
	}
	time.Sleep(rand.N(20 * time.Millisecond))
	daemons[0].stop(syscall.SIGKILL)
	for range begun {
	}
	wait.Wait()
	old, new := exportOf(t, before), exportOf(t, after)
	made := 0
	for i, line := range wantSame(t, daemons[1:]...) {
		switch {
		case line == new[i]:
			made++
		case line != old[i] || i < answered:
			t.Fatalf("row %d, of %d that were answered, is %s", i, answered, line)
		}
	}
	if made > answered+together {
		t.Errorf("%d changes were made, where %d were asked for", made, answered+together)
	}
	// The last ones may not have been followed yet.
	if sum := daemons[1].importAll(after); sum.Replaced+sum.Unchanged != n || sum.Unchanged < made || sum.Unchanged > answered+together {
		t.Errorf("where %d changes were made the import did %+v", made, sum)
	}
	daemons[0] = start(t, flags...)
	if got := wantSame(t, daemons...); !slices.Equal(got, new) {
		t.Error("not all changes are in force")
	}
}

// outageLimits have no plans, so that a number of its own has one limit to replace.
const outageLimits = `
domain: api
descriptors:
  - {key: tenant, rate_limit: {name: year, requests: 100, period: 365d}}
`

// What is assigned holds while Redis is away, whatever is done then about limits. A
// daemon that starts meanwhile has it once Redis is back.
func TestAssignmentsWhileRedisIsAway(t *testing.T) {
	t.Parallel()
	proxy := redistest.StartProxy(t, redistest.Single(t))
	flags := steered(t, outageLimits, append(redisFlags("single", proxy.Addr()), "--redis-timeout", "1s")...)
	daemons := make(map[string]*daemon)
	var one *daemon
	for _, mode := range []string{"local", "allow", "deny", "error"} {
		one = start(t, append(flags, "--failure-mode", mode)...)
		daemons[mode] = one
	}
	rows := rowsOf("blocked", 100, ",,true,away") + rowsOf("few", 100, ",year=0,,away")[len("entries,plan,limits,blocked,reason\n"):]
	one.importAll(rows)
	unlimited := &adminv1.PutAssignmentsRequest{Puts: []*adminv1.PutAssignment{{Assignment: tenant("free", &adminv1.Assignment{Unlimited: true})}}}
	if _, err := one.steering().PutAssignments(forAWhile(t), unlimited); err != nil {
		t.Fatal(err)
	}
	want := wantSame(t, one, daemons["local"], daemons["allow"], daemons["deny"])
	check := func(when string) {
		t.Helper()
		for mode, d := range daemons {
			for range 3 {
				if ok(d.ask("api", 1, "tenant=blocked-000007")) {
					t.Errorf("%s: a block does not hold in mode %s", when, mode)
				}
				if !ok(d.ask("api", 1, "tenant=free")) {
					t.Errorf("%s: the mode %s denies who is unlimited", when, mode)
				}
				if r, err := d.tryAsk("api", 1, "tenant=few-000007"); err == nil && ok(r) {
					t.Errorf("%s: a number of 0 does not hold in mode %s", when, mode)
				}
			}
		}
	}
	check("with Redis")
	proxy.Refuse()
	check("without Redis")
	for mode, d := range daemons {
		if !slices.Equal(d.export(), want) {
			t.Errorf("without Redis the daemon in mode %s has not what it had", mode)
		}
	}
	if out, stderr, code := one.steer("", "block", "--domain", "api", "tenant=late"); code == 0 || out == "" && stderr == "" {
		t.Errorf("without Redis a block exits with %d: %s%s", code, out, stderr)
	}
	late := start(t, flags...)
	late.waitForLog("assignments are not loaded yet")
	if !ok(late.ask("api", 1, "tenant=someone")) {
		t.Error("a daemon that starts without Redis denies")
	}
	proxy.Heal(t)
	asynctest.Eventually(t, "the daemon has all assignments", func() bool { return late.total("ratelimitd_assignments_loaded") == 1 })
	daemons["that started without Redis"] = late
	check("with Redis again")
	if got := wantSame(t, one, daemons["local"], daemons["allow"], daemons["deny"], late); len(got) != len(want) && len(got) != len(want)+1 {
		t.Errorf("with Redis again %d are assigned, of %d", len(got), len(want))
	}
}

// A daemon without Redis that is killed has what was assigned when it starts again.
func TestRestartedDaemonForgetsNoAssignment(t *testing.T) {
	t.Parallel()
	flags := steered(t, tenantPlans, "--assignments-path", t.TempDir()+"/assignments.db")
	d := start(t, flags...)
	d.importAll(rowsOf("acme", 1000, "three,,,first"))
	for _, args := range []string{
		"block --domain api tenant=mallory --for 24h --reason scraping",
		"assign --domain api tenant=acme-000001 --plan ten --limit year=7 --until 2254-12-31",
		"unassign --domain api tenant=acme-000002",
	} {
		if out, stderr, code := d.steer("", strings.Fields(args)...); code != 0 {
			t.Fatalf("%s ends with %d: %s%s", args, code, out, stderr)
		}
	}
	want := d.export()
	if len(want) != 1001 { // a row for what lies on top of one, too
		t.Errorf("%d rows are exported, want 1001", len(want))
	}
	for _, s := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
		d.stop(s)
		d = start(t, flags...)
		if !slices.Equal(d.export(), want) {
			t.Errorf("after %v not all is assigned as it was", s)
		}
		if ok(d.ask("api", 1, "tenant=mallory")) || ok(d.ask("api", 8, "tenant=acme-000001")) || !ok(d.ask("api", 7, "tenant=acme-000001")) ||
			ok(d.ask("api", 4, "tenant=acme-000003")) || !ok(d.ask("api", 4, "tenant=acme-000002")) {
			t.Errorf("after %v not all holds as it did", s)
		}
	}
}
