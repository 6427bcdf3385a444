package integration

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

const reshardLimits = `
domain: all
descriptors:
  - key: bucket
    rate_limit: {algorithm: token_bucket, requests: 20000, period: 366d}
  - key: window
    rate_limit: {algorithm: fixed_window, requests: 20000, period: 366d}
  - key: full
    rate_limit: {algorithm: sliding_log, requests: 100, period: 366d}
  - key: pair
    rate_limits:
      - {name: first, algorithm: fixed_window, requests: 20000, period: 366d}
      - {name: second, algorithm: sliding_window, requests: 20000, period: 366d}
`

// Slots move under load, key by key, and the scripts are flushed meanwhile.
// Redis decides every answer, and every counter equals what callers were told.
func TestMovingSlotsLosesNoCount(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 0)
	dir := t.TempDir()
	write(t, dir, "all.yaml", reshardLimits)
	// Few places give each slot several keys, and a batch several keys of one
	// slot.
	flags := append(redisFlags("cluster", c.Addrs()...), "--redis-hash-tags", "6", "--limits-path", dir)
	daemons := []*daemon{start(t, flags...), start(t, flags...)}
	subjects := append(append(append(numbered("bucket", 9), numbered("window", 9)...), numbered("pair", 9)...), numbered("full", 3)...)
	load := gather(t, daemons, "all", 2, 10*time.Millisecond, subjects...)
	load.waitDecided(5, subjects)

	prefix := flagOf(flags, "--redis-prefix")
	slots := liveSlots(t, c.Masters[0], prefix)
	if len(slots) != 2 {
		t.Fatalf("the first of three masters has %d of 6 places", len(slots))
	}
	for i, slot := range slots {
		m := newMove(t, c.Masters, 0, 1+i, slot)
		m.begin()
		load.waitDecided(5, subjects) // fresh keys go to the new place too
		for m.key() {
			load.waitDecided(2, load.single())
			flushScripts(t, c.Masters)
		}
		m.end()
		load.waitDecided(10, subjects)
	}
	for _, e := range []string{"TRYAGAIN", "ASK", "MOVED", "NOSCRIPT"} {
		if !errorSeen(t, c.Masters, e) {
			t.Errorf("no node ever said %s: the test does not test", e)
		}
	}
	if left := liveSlots(t, c.Masters[0], prefix); len(left) != 0 {
		t.Errorf("keys were made in slots %v after those moved away", left)
	}
	load.goHome()

	all := load.sum(subjects)
	if all.unsure() != 0 {
		t.Errorf("while slots moved: %v", all)
	}
	for _, s := range subjects {
		limit := 20000
		if strings.HasPrefix(s, "full") {
			limit = 100
		}
		told := load.sum([]string{s})
		if n := daemons[0].taken("all", s, limit); n != told.admitted {
			t.Errorf("%s: %d are charged; callers were told: %v", s, n, told)
		}
	}
	for i, d := range daemons {
		if n := d.total("ratelimitd_degraded_answers_total") + d.total("ratelimitd_redis_unknown_outcomes_total"); n != 0 {
			t.Errorf("daemon %d counts %v answers degraded or unknown", i, n)
		}
	}
}

// single returns the subjects of one hit.
func (c *crowd) single() []string {
	var single []string
	for _, s := range c.subjects() {
		if !strings.HasPrefix(s, "pair") {
			single = append(single, s)
		}
	}
	return single
}

func flushScripts(t testing.TB, nodes []*redistest.Server) {
	t.Helper()
	for _, n := range nodes {
		if err := redistest.Client(t, n.Addr()).ScriptFlush(context.Background()).Err(); err != nil {
			t.Fatal(err)
		}
	}
}

// errorSeen reports whether a node ever answered with this error.
func errorSeen(t testing.TB, nodes []*redistest.Server, kind string) bool {
	for _, n := range nodes {
		if info(redistest.Client(t, n.Addr()), "errorstats", "errorstat_"+kind) != "" {
			return true
		}
	}
	return false
}

// liveSlots returns the slots of the keys of a prefix at a node.
func liveSlots(t testing.TB, n *redistest.Server, prefix string) []int {
	t.Helper()
	c := redistest.Client(t, n.Addr())
	seen := make(map[int]bool)
	var slots []int
	for _, key := range keysAt(t, n, prefix) {
		slot, err := c.ClusterKeySlot(context.Background(), key).Result()
		if err != nil {
			t.Fatal(err)
		}
		// The keys of the register and of probes share slots with limits.
		if !seen[int(slot)] {
			seen[int(slot)] = true
			slots = append(slots, int(slot))
		}
	}
	return slots
}

// move takes a slot from one master to another, like redis-cli.
type move struct {
	t          testing.TB
	slot       int
	nodes      []*redis.Client
	from, to   *redis.Client
	host, port string // of to
}

func newMove(t testing.TB, masters []*redistest.Server, from, to, slot int) *move {
	m := &move{t: t, slot: slot}
	for _, n := range masters {
		m.nodes = append(m.nodes, redistest.Client(t, n.Addr()))
	}
	m.from, m.to = m.nodes[from], m.nodes[to]
	host, port, err := net.SplitHostPort(masters[to].Addr())
	if err != nil {
		t.Fatal(err)
	}
	m.host, m.port = host, port
	return m
}

func (m *move) do(c *redis.Client, args ...any) {
	m.t.Helper()
	if err := c.Do(context.Background(), args...).Err(); err != nil {
		m.t.Fatalf("%v: %v", args, err)
	}
}

func (m *move) id(c *redis.Client) string {
	m.t.Helper()
	id, err := c.Do(context.Background(), "cluster", "myid").Text()
	if err != nil {
		m.t.Fatal(err)
	}
	return id
}

// begin opens the slot at both ends.
func (m *move) begin() {
	m.t.Helper()
	m.do(m.to, "cluster", "setslot", m.slot, "importing", m.id(m.from))
	m.do(m.from, "cluster", "setslot", m.slot, "migrating", m.id(m.to))
}

// key moves one key. It returns false if there is none.
func (m *move) key() bool {
	m.t.Helper()
	keys, err := m.from.ClusterGetKeysInSlot(context.Background(), m.slot, 1).Result()
	if err != nil {
		m.t.Fatal(err)
	}
	if len(keys) > 0 {
		err = m.from.Do(context.Background(), "migrate", m.host, m.port, keys[0], 0, 5000).Err()
		if err != nil && !errors.Is(err, redis.Nil) {
			m.t.Fatalf("migrate %q: %v", keys[0], err)
		}
	}
	return len(keys) > 0
}

// end gives the slot to its new master, and tells that master first.
func (m *move) end() {
	m.t.Helper()
	id := m.id(m.to)
	m.do(m.to, "cluster", "setslot", m.slot, "node", id)
	for _, n := range m.nodes {
		if n != m.to {
			m.do(n, "cluster", "setslot", m.slot, "node", id)
		}
	}
}
