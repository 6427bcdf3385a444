package integration

import (
	"strconv"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

// slack is the margin for promises about time on busy machines.
const slack = time.Second

const failoverLimits = `
domain: all
descriptors:
  - key: busy
    rate_limit: {algorithm: fixed_window, requests: 1000000, period: 365d}
  - key: held
    rate_limit: {algorithm: sliding_window, requests: 50, period: 365d}
`

// site is Redis with replicas that loses a master.
type site struct {
	flags   []string
	masters []*redistest.Server
	victim  *redistest.Server
	// spared are untouched nodes.
	spared []*redistest.Server
	// promoted reports whether another node has the victim's place.
	promoted func() bool
}

// ways are the ways to lose a master: with reset connections, and in silence.
var ways = []struct {
	name       string
	lose, back func(*redistest.Server)
}{
	{"killed", (*redistest.Server).Kill, (*redistest.Server).Restart},
	{"stopped", (*redistest.Server).Pause, (*redistest.Server).Resume},
}

func TestClusterFailoverLosesNoReplicatedCount(t *testing.T) {
	t.Parallel()
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			// With full coverage required, all masters refuse while one is down.
			c := redistest.StartCluster(t, 1, "--cluster-require-full-coverage", "no")
			witness := redistest.Client(t, c.Masters[1].Addr())
			testFailover(t, site{
				flags:   redisFlags("cluster", c.Addrs()...),
				masters: c.Masters,
				victim:  c.Masters[0],
				spared:  []*redistest.Server{c.Masters[1], c.Masters[2], c.Replicas[0]},
				promoted: func() bool {
					addr, err := masterOf(witness, 0)
					return err == nil && addr != c.Masters[0].Addr()
				},
			}, way.lose, way.back)
		})
	}
}

// testFailover loses a master under load. Replicated counts go on, and keys of
// other masters are unaffected. Keys of the lost one are answered without
// Redis until a second after the promotion, and these answers are counted. The
// node's return disturbs nobody.
func testFailover(t *testing.T, s site, lose, back func(*redistest.Server)) {
	const timeout = 500 * time.Millisecond
	dir := t.TempDir()
	write(t, dir, "all.yaml", failoverLimits)
	d := start(t, append(s.flags, "--redis-timeout", timeout.String(), "--limits-path", dir)...)
	held, busy := numbered("held", 12), numbered("busy", 24)
	for _, h := range held {
		if !ok(d.ask("all", 30, h)) {
			t.Fatalf("%s: 30 of 50 are denied", h)
		}
	}
	stalls := watchStalls(t, s.spared)
	c := gather(t, []*daemon{d}, "all", 2, 40*time.Millisecond, busy...)
	c.waitDecided(5, busy)
	var mine, others []string
	for subject, master := range holders(t, flagOf(s.flags, "--redis-prefix"), s.masters, busy...) {
		if master == s.victim {
			mine = append(mine, subject)
		} else {
			others = append(others, subject)
		}
	}
	waitReplicated(t, s.victim)
	if lost := c.sum(busy); lost.unsure() != 0 && !stalls.reached(timeout/2) {
		t.Fatalf("before the fault: %v", lost)
	}

	lose(s.victim)
	asynctest.Eventually(t, "the lost keys are answered without Redis", func() bool { return c.sum(mine).degraded > 0 })
	asynctest.Eventually(t, "a replica is promoted", s.promoted)
	promotion := time.Now()
	c.waitDecided(20, mine)
	asynctest.Eventually(t, "the time is over in which answers may be degraded", func() bool {
		return time.Since(promotion) > time.Second+slack
	})
	c.waitDecided(20, busy)

	during := c.sum(mine)
	if late := during.lost.Sub(promotion); late > time.Second+slack && !stalls.reached(timeout/2) {
		t.Errorf("the last answer without Redis came %v after the promotion: %v", late, during)
	}
	if during.failed > 0 || during.slowest > timeout+50*time.Millisecond+slack && !stalls.reached(timeout/2) {
		t.Errorf("of the lost keys: %v", during)
	}
	if o := c.sum(others); o.unsure() != 0 && !stalls.reached(timeout/2) {
		t.Errorf("of the other masters' keys: %v; in all %s", o, d.whyDegraded())
	}
	for _, h := range held {
		// First one more than the rest, then exactly the rest.
		if ok(d.ask("all", 21, h)) || !ok(d.ask("all", 20, h)) || ok(d.ask("all", 1, h)) {
			t.Errorf("%s: not exactly what was left before the failover is left after it", h)
		}
	}

	back(s.victim)
	returned := redistest.Client(t, s.victim.Addr())
	asynctest.Eventually(t, "the node is back as a replica", func() bool {
		return info(returned, "replication", "role") == "slave" && info(returned, "replication", "master_link_status") == "up"
	})
	c.waitDecided(50, busy)
	for _, h := range held {
		if ok(d.ask("all", 1, h)) {
			t.Errorf("%s is allowed again after the node's return", h)
		}
	}
	c.goHome()
	after := c.sum(busy)
	if after.unsure() != during.unsure() && !stalls.reached(timeout/2) {
		t.Errorf("the return of the node disturbs: %v; before it: %v; in all %s", after, during, d.whyDegraded())
	}
	if n := d.total("ratelimitd_degraded_answers_total"); int(n) != after.degraded {
		t.Errorf("%v degraded answers are counted of %d", n, after.degraded)
	}
}

// numbered returns n subjects of one key.
func numbered(key string, n int) []string {
	var subjects []string
	for i := range n {
		subjects = append(subjects, key+"=k"+strconv.Itoa(i))
	}
	return subjects
}
