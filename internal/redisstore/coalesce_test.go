package redisstore

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/buckettest"
	"github.com/ratelimitd/ratelimitd/internal/redisconn"
	"github.com/ratelimitd/ratelimitd/internal/redisstore/script"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

func testStore(t testing.TB, clock func() int64) *Store {
	t.Helper()
	return openAt(t, redistest.Single(t), fmt.Sprintf("test-%x", rand.Uint64()), Options{HashTags: 4, Clock: clock})
}

// openAt returns a store on one server.
func openAt(t testing.TB, address, prefix string, o Options) *Store {
	t.Helper()
	conn, err := redisconn.New(redisconn.Options{
		Mode: redisconn.Single, Addresses: []string{address}, Prefix: prefix, Timeout: 10 * time.Second, Script: script.Source,
	})
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(conn, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Close()
		conn.Close()
	})
	return s
}

func TestEqualGroupsShareALine(t *testing.T) {
	s := testStore(t, nil)
	l := buckettest.NewLimit(t, bucket.Spec{Algorithm: bucket.GCRA, Requests: 3, Period: time.Hour})
	again := buckettest.NewLimit(t, l.Spec)
	a, b := testHit(s, l, "a", 1), testHit(s, l, "b", 1)
	costly := a
	costly.Cost = 2
	aside := b
	aside.Role = bucket.Aside
	copied := a
	copied.Key = slices.Clone(a.Key)
	groups := []*script.Group{
		testGroup(s, script.Take, a),                         // 0
		testGroup(s, script.Take, b),                         // 1
		testGroup(s, script.Take, copied),                    // as 0
		testGroup(s, script.Check, a),                        // 3
		testGroup(s, script.Take, costly),                    // 4
		testGroup(s, script.GiveBack, a),                     // 5
		testGroup(s, script.Take, a, b),                      // 6
		testGroup(s, script.Take, b, a),                      // 7
		testGroup(s, script.Take, b),                         // as 1
		testGroup(s, script.GiveBack, a),                     // 9
		testGroup(s, script.Take, a),                         // as 0
		testGroup(s, script.Take, testHit(s, again, "a", 1)), // 11
		testGroup(s, script.Take, a, b),                      // as 6
		testGroup(s, script.Take, a, aside),                  // 13
	}
	// Groups with equal hashes may differ.
	for _, i := range []int{3, 4, 5, 11} {
		groups[i].Hash = groups[0].Hash
	}
	all := slices.Clone(groups)
	batch := script.NewEncoder(s.seed)
	for range 2 { // what was linked before is forgotten
		lines := batch.Coalesce(slices.Clone(all))
		var got [][]int
		for _, head := range lines {
			var line []int
			for g := head; g != nil; g = g.Same {
				line = append(line, slices.Index(all, g))
			}
			got = append(got, line)
		}
		want := [][]int{{0, 2, 10}, {1, 8}, {3}, {4}, {5}, {6, 12}, {7}, {9}, {11}, {13}}
		if !slices.EqualFunc(got, want, slices.Equal) {
			t.Fatalf("the lines are %v, want %v", got, want)
		}
	}
	if lines := batch.Coalesce([]*script.Group{all[2]}); len(lines) != 1 || lines[0] != all[2] || all[2].Same != nil {
		t.Errorf("a group alone, after other uses, gives %d lines", len(lines))
	}
}

// Many groups in one command, equal ones on one line, are decided as by a command
// each, in the order of the lines, and leave the same states; also if the clock was an
// hour ahead for a while.
func TestLineIsDecidedAsItsGroupsAlone(t *testing.T) {
	clock := int64(1_800_000_000_000_000)
	now := func() int64 { return clock }
	together, apart := testStore(t, now), testStore(t, now)
	batch := script.NewEncoder(together.seed)
	ahead, mended := int64(0), int64(0)
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 0))
		c := &comparison{Rand: r, limits: comparedLimits(t, r), users: []string{fmt.Sprint(seed, "a"), fmt.Sprint(seed, "b")}}
		for range 6 {
			clock += r.Int64N(1 + 3*int64(time.Second/time.Microsecond)/(1+r.Int64N(100)))
			if r.IntN(3) == 0 {
				clock -= ahead
				ahead = time.Hour.Microseconds() - ahead
				clock += ahead
			}
			asked := c.groups(1 + r.IntN(60))
			lines := batch.Coalesce(asked.on(together))
			more := decideLines(t, together, batch, lines)
			mended += more
			for _, head := range lines {
				for g := head; g != nil; g = g.Same {
					more -= c.compare(t, apart, asked, g)
				}
			}
			if more != 0 {
				t.Errorf("%d more states were mended than alone", more)
			}
			c.compareStates(t, together, apart)
			if t.Failed() {
				t.Fatalf("seed %d", seed)
			}
		}
	}
	if mended < 100 {
		t.Errorf("only %d states were mended: the test looks at too little", mended)
	}
}

// comparison makes up groups, many of them equal.
type comparison struct {
	*rand.Rand
	limits []*bucket.Limit
	users  []string
	taken  []*ask // of earlier rounds, to give back
}

// comparedLimits are two of each algorithm, the second with new numbers under
// the same keys.
func comparedLimits(t *testing.T, r *rand.Rand) (limits []*bucket.Limit) {
	for _, a := range bucket.Algorithms() {
		for range 2 {
			spec := bucket.Spec{Algorithm: a, Requests: r.Int64N(12), Period: time.Duration(1+r.IntN(4000)) * time.Millisecond, Postpaid: bucket.Postpaid(r.IntN(3))}
			l := buckettest.NewLimit(t, spec)
			limits = append(limits, l, l.Reported())
		}
	}
	return limits
}

// ask is a group without a store.
type ask struct {
	mode  script.Mode
	hits  []askedHit
	group *script.Group // where it was decided together with others
	took  []bucket.Decision
}

type askedHit struct {
	limit *bucket.Limit
	user  string
	cost  int64
	role  bucket.Role
}

type asks []*ask

func (a *ask) on(s *Store) *script.Group {
	var hits []bucket.Hit
	for _, h := range a.hits {
		asked := testHit(s, h.limit, h.user, h.cost)
		asked.Role = h.role
		hits = append(hits, asked)
	}
	g := testGroup(s, a.mode, hits...)
	copy(g.Decisions, a.took)
	return g
}

func (as asks) on(s *Store) (groups []*script.Group) {
	for _, a := range as {
		a.group = a.on(s)
		groups = append(groups, a.group)
	}
	return groups
}

func (c *comparison) groups(n int) (made asks) {
	var backs asks
	for _, a := range c.taken {
		if a.group.Err == nil && bucket.Allowed(a.group.Decisions) && c.IntN(4) == 0 {
			backs = append(backs, &ask{mode: script.GiveBack, hits: a.hits, took: a.group.Decisions})
		}
	}
	c.taken = nil
	for len(made) < n {
		a := c.ask()
		for range 1 + c.IntN(1+c.IntN(20)) {
			made = append(made, &ask{mode: a.mode, hits: a.hits})
		}
	}
	for _, a := range made {
		if a.mode == script.Take {
			c.taken = append(c.taken, a)
		}
	}
	made = append(made, backs...)
	c.Shuffle(len(made), func(i, j int) { made[i], made[j] = made[j], made[i] })
	return made
}

func (c *comparison) ask() *ask {
	a := &ask{mode: script.Take}
	if c.IntN(6) == 0 {
		a.mode = script.Check
	}
	for range 1 + max(0, c.IntN(6)-2) {
		h := askedHit{
			limit: c.limits[c.IntN(len(c.limits))],
			user:  c.users[c.IntN(len(c.users))],
			cost:  []int64{1, 1, 1, 1, 0, 2, 5, -1, -4, 1 << 40}[c.IntN(10)],
			role:  []bucket.Role{0, 0, 0, 0, bucket.Aside, bucket.Quota(1 + len(a.hits)/2)}[c.IntN(6)],
		}
		// A key is a user and an algorithm.
		if !slices.ContainsFunc(a.hits, func(o askedHit) bool { return o.user == h.user && o.limit.Algorithm == h.limit.Algorithm }) {
			a.hits = append(a.hits, h)
		}
	}
	return a
}

// compare decides a group alone on another store, and returns how many states
// that mended.
func (c *comparison) compare(t *testing.T, apart *Store, asked asks, g *script.Group) (mended int64) {
	t.Helper()
	a := asked[slices.IndexFunc(asked, func(a *ask) bool { return a.group == g })]
	alone := a.on(apart)
	mended = decideLines(t, apart, script.NewEncoder(apart.seed), []*script.Group{alone})
	for i := range g.Decisions { // it was not the first group there
		g.Decisions[i].Seq = alone.Decisions[i].Seq
	}
	if alone.Err != g.Err || !slices.Equal(alone.Decisions, g.Decisions) {
		t.Errorf("mode %d of %+v got\n%+v, %v; alone it gets\n%+v, %v", g.Mode, a.hits, g.Decisions, g.Err, alone.Decisions, alone.Err)
	}
	return mended
}

func (c *comparison) compareStates(t *testing.T, stores ...*Store) {
	t.Helper()
	var states [2][]any
	for i, s := range stores {
		var keys []string
		for _, l := range c.limits {
			for _, u := range c.users {
				keys = append(keys, string(testHit(s, l, u, 0).Key))
			}
		}
		var err error
		if states[i], err = s.redis.MGet(context.Background(), keys...).Result(); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(states[0], states[1]) {
		t.Errorf("the states are\n%q, alone\n%q", states[0], states[1])
	}
}

// An encoder that was used before encodes as a new one does.
func TestEncoderKeepsNothingOfEarlierGroups(t *testing.T) {
	s := testStore(t, nil)
	r := rand.New(rand.NewPCG(5, 0))
	c := &comparison{Rand: r, limits: comparedLimits(t, r), users: []string{"a", "b", "c"}}
	used := script.NewEncoder(s.seed)
	for _, n := range []int{1, 300, 2, 40, 1, 1, 90, 3} {
		groups := c.groups(n).on(s)
		lines := used.Coalesce(groups)
		used.Encode(lines)
		fresh := script.NewEncoder(s.seed)
		fresh.Encode(lines)
		if got, want := flat(used.Command(s.skew, "")), flat(fresh.Command(s.skew, "")); !bytes.Equal(got, want) {
			t.Fatalf("a batch used before encodes\n%q, a new one\n%q", got, want)
		}
		if len(lines) == len(groups) && n > 2 {
			t.Error("no groups were equal")
		}
	}
}

func flat(args []any) (text []byte) {
	for _, a := range args {
		if p, ok := a.(*string); ok {
			a = *p
		}
		text = fmt.Appendf(text, "%q ", a)
	}
	return text
}

// A caller that chooses the costs on one key cannot make the hashes collide.
func TestCostsDoNotCollide(t *testing.T) {
	s := testStore(t, nil)
	l := buckettest.NewLimit(t, bucket.Spec{Algorithm: bucket.GCRA, Requests: 3, Period: time.Hour})
	const n = 1024
	for _, step := range []int64{1, 1 << 10, 1 << 15, 1 << 22, 1 << 40} {
		t.Run(fmt.Sprint("steps of ", step), func(t *testing.T) {
			ends := make(map[uint64]bool)
			for i := range int64(n) {
				g := testGroup(s, script.Take, testHit(s, l, "a", i*step))
				ends[g.Hash%(2*n)] = true
			}
			// Of hashes by chance, some 800 would be.
			if len(ends) < n/4 {
				t.Errorf("%d costs, each %d more than the one before, have %d places in a table of %d", n, step, len(ends), 2*n)
			}
		})
	}
}
