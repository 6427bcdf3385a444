package integration

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/bucket/buckettest"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
)

// takers are callers of several daemons, each of which takes again and again for the
// subject that they are sent to.
type takers struct {
	t       *testing.T
	daemons []*daemon
	callers sync.WaitGroup
	isHome  atomic.Bool
	at      atomic.Pointer[takersAt]
	// unsure are degraded answers. A daemon may give them once it has lost its tenure,
	// as where the machine stands still for seconds; Redis does not count them.
	unsure atomic.Int64
}

// takersAt is a subject that callers take for, and what they were told.
type takersAt struct {
	subject string
	// pause is the longest pause of a caller between two takes.
	pause time.Duration
	// hasChanged is set once a change has returned. earlier were admitted that were
	// asked for before, and later after that.
	hasChanged             atomic.Bool
	earlier, later, denied atomic.Int64
}

const takersCount = 64

func sendTakers(t *testing.T, daemons []*daemon) *takers {
	all := &takers{t: t, daemons: daemons}
	for i := range takersCount {
		all.callers.Go(func() {
			for !all.isHome.Load() {
				if at := all.at.Load(); at != nil {
					all.take(daemons[i%len(daemons)], at)
				} else {
					time.Sleep(time.Millisecond)
				}
			}
		})
	}
	t.Cleanup(all.goHome)
	return all
}

func (all *takers) goHome() {
	all.isHome.Store(true)
	all.callers.Wait()
	losses := 0.0
	for _, d := range all.daemons {
		losses += d.total("ratelimitd_fleet_tenure_losses_total")
	}
	if n := all.unsure.Load(); n > 0 && losses == 0 {
		all.t.Errorf("%d answers are degraded, and no daemon has lost its tenure", n)
	}
}

// sendTo has all callers take for a subject.
func (all *takers) sendTo(subject string, pause time.Duration) *takersAt {
	at := &takersAt{subject: subject, pause: pause}
	all.at.Store(at)
	return at
}

func (all *takers) take(d *daemon, at *takersAt) {
	if at.pause > 0 {
		time.Sleep(rand.N(at.pause))
	}
	count := &at.earlier
	if at.hasChanged.Load() {
		count = &at.later
	}
	r, err := d.tryAsk("api", 1, at.subject)
	switch {
	case err != nil:
		all.t.Errorf("%s: %v", at.subject, err)
		all.isHome.Store(true)
	case degraded(r):
		all.unsure.Add(1)
	case ok(r):
		count.Add(1)
	default:
		at.denied.Add(1)
	}
}

// stateOf returns how to read what Redis has of a subject's only limit.
func stateOf(t testing.TB, nodes []*redis.Client, prefix, subject string) (read func() string) {
	t.Helper()
	for _, n := range nodes {
		keys, err := n.Keys(context.Background(), prefix+"*|"+subject+"#*").Result()
		if err != nil {
			t.Fatal(err)
		}
		if len(keys) > 0 {
			return func() string {
				state, err := n.Get(context.Background(), keys[0]).Result()
				if err != nil {
					t.Error(err)
				}
				return state
			}
		}
	}
	t.Fatalf("there is no state of %s", subject)
	return nil
}

// From the moment that a change has returned nobody is admitted by what held before,
// at any of three daemons that have 100,000 other tenants assigned.
func TestChangeHoldsOnceItHasReturned(t *testing.T) {
	t.Parallel()
	const tenants = 30
	addrs := redistest.Cluster(t)
	flags := steered(t, tenantPlans, redisFlags("cluster", addrs...)...)
	daemons := startAll(t, 3, flags...)
	rows := rowsOf("other", 100_000, "ten,,,nightly")
	if sum := daemons[0].importAll(rows); sum.Created != sum.Rows {
		t.Errorf("of rows that are all new: %+v", sum)
	}
	for _, d := range daemons {
		asynctest.Eventually(t, "all daemons have all", func() bool { return d.total("ratelimitd_assignments") == 100_000 })
	}
	daemons[1].atRest()
	var nodes []*redis.Client
	for _, a := range addrs {
		nodes = append(nodes, redistest.Client(t, a))
	}
	var steering []adminv1.AdminServiceClient
	for _, d := range daemons {
		steering = append(steering, d.steering())
	}
	// put reports whether all daemons are known to have it.
	put := func(i int, a *adminv1.Assignment) bool {
		t.Helper()
		r, err := steering[i%len(steering)].PutAssignments(forAWhile(t), &adminv1.PutAssignmentsRequest{Puts: []*adminv1.PutAssignment{{Assignment: a}}})
		if err != nil {
			t.Fatal(err)
		}
		if c := r.GetChanges()[0]; c.GetError() != "" {
			t.Fatal(c)
		}
		return len(r.GetPending()) == 0
	}
	numbers := func(n uint64) *adminv1.Assignment {
		return &adminv1.Assignment{Numbers: []*adminv1.AssignedNumbers{{Limit: "year", Requests: n}}}
	}
	for _, change := range []struct {
		name  string
		min   int64 // how many are admitted before
		pause time.Duration
		// max is how many may be admitted if no more were before.
		max           int64
		before, after func() *adminv1.Assignment
	}{
		{"10 to 3", 1, 80 * time.Millisecond, 3, func() *adminv1.Assignment { return numbers(10) }, func() *adminv1.Assignment { return numbers(3) }},
		{"1000000 to 3", 20, 0, 3, func() *adminv1.Assignment { return numbers(1_000_000) }, func() *adminv1.Assignment { return numbers(3) }},
		{"block", 20, 0, 0, func() *adminv1.Assignment { return numbers(1_000_000) }, func() *adminv1.Assignment { return &adminv1.Assignment{Blocked: true} }},
		{"another plan", 20, 0, 3, func() *adminv1.Assignment { return &adminv1.Assignment{Plan: "huge"} }, func() *adminv1.Assignment { return &adminv1.Assignment{Plan: "three"} }},
	} {
		t.Run(change.name, func(t *testing.T) {
			all := sendTakers(t, daemons)
			late, inTime := 0, 0
			for i := range tenants {
				name := fmt.Sprintf("%s-%d", strings.ReplaceAll(change.name, " ", "-"), i)
				put(i, tenant(name, change.before()))
				at := all.sendTo("tenant="+name, change.pause)
				asynctest.Eventually(t, "some are admitted", func() bool { return at.earlier.Load() >= change.min || all.isHome.Load() })
				state := stateOf(t, nodes, flagOf(flags, "--redis-prefix"), at.subject)
				if !put(i, tenant(name, change.after())) {
					late++
					continue
				}
				at.hasChanged.Store(true)
				charged := state()
				denied := at.denied.Load()
				asynctest.Eventually(t, "many are denied", func() bool { return at.denied.Load() > denied+takersCount || all.isHome.Load() })
				earlier, later := at.earlier.Load(), at.later.Load()
				if earlier+later > max(change.max, earlier) {
					t.Errorf("%s: %d were admitted before the change had returned, and %d after", name, earlier, later)
				}
				// What was charged without tenure is given back.
				if change.min > change.max && state() != charged && all.unsure.Load() == 0 {
					t.Errorf("%s: a decision that began before the change was charged after it had returned", name)
				}
				inTime++
			}
			if late > inTime {
				t.Errorf("%d changes of %d were not seen to be in force everywhere", late, tenants)
			}
		})
	}
}

// A change waits for a decision that began before it, at another daemon, and says which
// daemon that is if it takes too long.
func TestChangeWaitsForDecisionsUnderWay(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t)
	proxy := redistest.StartProxy(t, server)
	flags := steered(t, tenantPlans, redisFlags("single", server)...)
	steering := start(t, flags...).steering()
	behind := slices.Clone(flags)
	behind[slices.Index(flags, server)] = proxy.Addr()
	slow := start(t, behind...)
	pending := func(terms *adminv1.Assignment) int {
		t.Helper()
		r, err := steering.PutAssignments(forAWhile(t), &adminv1.PutAssignmentsRequest{Puts: []*adminv1.PutAssignment{{Assignment: tenant("slow", terms)}}})
		if err != nil {
			t.Fatal(err)
		}
		return len(r.GetPending())
	}
	pending(&adminv1.Assignment{Plan: "ten"})
	proxy.Hold("|tenant=slow#")
	var decision sync.WaitGroup
	decision.Go(func() {
		if !ok(slow.ask("api", 1, "tenant=slow")) {
			t.Error("a decision that began before the block is a denial")
		}
	})
	asynctest.Eventually(t, "a decision is under way", func() bool { return proxy.Held() == 1 })
	if n := pending(&adminv1.Assignment{Blocked: true}); n != 1 {
		t.Errorf("while a decision of before is under way %d daemons are said to be late, want 1", n)
	}
	if ok(slow.ask("api", 1, "tenant=slow")) {
		t.Error("a decision that begins after the block is no denial")
	}
	proxy.Heal(t)
	decision.Wait()
	asynctest.Eventually(t, "changes hold everywhere", func() bool { return pending(&adminv1.Assignment{Blocked: true, Reason: time.Now().String()}) == 0 })
}

// However often limits are reset under load, nobody is admitted more often than the
// limit allows for each time.
func TestResetsGiveOutTheLimitOnceEach(t *testing.T) {
	t.Parallel()
	const resets = 8
	var limits strings.Builder
	limits.WriteString("domain: api\ndescriptors:\n")
	for _, a := range buckettest.Rates() {
		fmt.Fprintf(&limits, "  - {key: %s, rate_limit: {name: year, algorithm: %s, requests: 100, period: 365d}}\n", a, a)
	}
	daemons := startAll(t, 3, steered(t, limits.String(), redisFlags("cluster", redistest.Cluster(t)...)...)...)
	for _, a := range buckettest.Rates() {
		all := sendTakers(t, daemons)
		at := all.sendTo(a.String()+"=k", 0)
		for i := range resets {
			// The first ones come when all is gone, the others while there is plenty left.
			whenGone, denied, admitted := i < resets/2, at.denied.Load(), at.earlier.Load()
			asynctest.Eventually(t, "many are asked for", func() bool {
				return all.isHome.Load() || at.denied.Load() > denied+takersCount || !whenGone && at.earlier.Load() > admitted+10
			})
			if n := at.earlier.Load(); n > int64(100*(i+1)) {
				t.Errorf("%s: %d were admitted with a limit of 100 and %d resets", a, n, i)
			}
			if out, stderr, code := daemons[i%3].steer("", "reset", "--timeout", "1m", "--domain", "api", at.subject); code != 0 && code != 4 {
				t.Fatalf("a reset ends with %d: %s %s", code, out, stderr)
			}
		}
		denied := at.denied.Load()
		asynctest.Eventually(t, "all is gone", func() bool { return all.isHome.Load() || at.denied.Load() > denied+10*takersCount })
		all.goHome()
		if n := at.earlier.Load(); n > 100*(resets+1) || n < 100*resets/2 {
			t.Errorf("%s: %d were admitted with a limit of 100 and %d resets", a, n, resets)
		}
	}
}
