package integration

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
)

// A daemon is killed in the middle of changes: each was made as a whole or not, those
// that were answered are in force, and another daemon makes the rest.
func TestDaemonKilledInTheMiddleOfChanges(t *testing.T) {
	t.Parallel()
	const n, together = 2_000, 100
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
	for _, mode := range []string{"local", "error"} {
		one = start(t, append(flags, "--failure-mode", mode)...)
		daemons[mode] = one
	}
	rows := rowsOf("blocked", 100, ",,true,away") + rowsOf("few", 100, ",year=0,,away")[len("entries,plan,limits,blocked,reason\n"):]
	one.importAll(rows)
	unlimited := &adminv1.PutAssignmentsRequest{Puts: []*adminv1.PutAssignment{{Assignment: tenant("free", &adminv1.Assignment{Unlimited: true})}}}
	if _, err := one.steering().PutAssignments(forAWhile(t), unlimited); err != nil {
		t.Fatal(err)
	}
	want := wantSame(t, one, daemons["local"])
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
	if got := wantSame(t, one, daemons["local"], late); len(got) != len(want) && len(got) != len(want)+1 {
		t.Errorf("with Redis again %d are assigned, of %d", len(got), len(want))
	}
}
