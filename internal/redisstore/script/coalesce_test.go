package script

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/buckettest"
)

// Many requests in one command, equal ones as one, are decided as if each had a command
// of its own, in the order of their Seq, and leave the same states; also if the clock
// was an hour ahead for a while.
func TestCommandIsDecidedAsItsRequestsAlone(t *testing.T) {
	clock := int64(1_800_000_000_000_000)
	now := func() int64 { return clock }
	together, apart := newRig(t, now), newRig(t, now)
	command := NewCommand()
	ahead, mended := int64(0), int64(0)
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 0))
		c := &comparison{Rand: r, limits: comparedLimits(t, r), users: []string{fmt.Sprint(seed, "a"), fmt.Sprint(seed, "b")}}
		for range 6 {
			clock += r.Int64N(1 + 3*int64(time.Second/time.Microsecond)/(1+r.Int64N(100)))
			if r.IntN(3) == 0 {
				clock -= ahead
				ahead = time.Hour.Microseconds() - ahead
				clock += ahead
			}
			asked := c.asks(1 + r.IntN(60))
			more := decideBy(t, together, command, asked.on(together))
			mended += more
			slices.SortFunc(asked, func(a, b *ask) int { return cmp.Compare(a.request.Decisions[0].Seq, b.request.Decisions[0].Seq) })
			for _, a := range asked {
				more -= c.compare(t, apart, a)
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

// comparison makes up requests, many of them equal.
type comparison struct {
	*rand.Rand
	limits []*bucket.Limit
	users  []string
	taken  []*ask // of earlier rounds, to give back
}

// comparedLimits are two of each algorithm, the second with new numbers under
// the same keys.
func comparedLimits(t *testing.T, r *rand.Rand) (limits []*bucket.Limit) {
	for _, a := range buckettest.Rates() {
		for range 2 {
			spec := bucket.Spec{Algorithm: a, Requests: r.Int64N(12), Period: time.Duration(1+r.IntN(4000)) * time.Millisecond, Postpaid: bucket.Postpaid(r.IntN(3))}
			l := buckettest.NewLimit(t, spec)
			limits = append(limits, l, l.Reported())
		}
	}
	month := bucket.Calendar{Unit: bucket.CalendarMonth, Zone: time.UTC}
	l := buckettest.NewLimit(t, bucket.Spec{Name: "month", Algorithm: bucket.FixedWindow, Requests: r.Int64N(12), Calendar: month, Postpaid: bucket.Postpaid(r.IntN(3))})
	limits = append(limits, l, l.Reported())
	for range 2 {
		spec := bucket.Spec{Algorithm: bucket.Concurrency, Requests: r.Int64N(4), Period: time.Duration(1+r.IntN(4000)) * time.Millisecond}
		l := buckettest.NewLimit(t, spec)
		limits = append(limits, l, l)
	}
	return limits
}

// ask is a request without a store.
type ask struct {
	mode    Mode
	hits    []askedHit
	request *Group // where it was decided together with others
	took    []bucket.Decision
}

type askedHit struct {
	limit        *bucket.Limit
	user, holder string
	cost         int64
	role         bucket.Role
}

type asks []*ask

func (a *ask) on(s *rig) *Group {
	var hits []bucket.Hit
	for _, h := range a.hits {
		asked := testHit(s, h.limit, h.user, h.cost)
		asked.Role, asked.Holder = h.role, h.holder
		hits = append(hits, asked)
	}
	r := groupOn(s, a.mode, hits...)
	copy(r.Decisions, a.took)
	return r
}

func (as asks) on(s *rig) (requests []*Group) {
	for _, a := range as {
		a.request = a.on(s)
		requests = append(requests, a.request)
	}
	return requests
}

func (c *comparison) asks(n int) (made asks) {
	var backs asks
	for _, a := range c.taken {
		if a.request.Err == nil && bucket.Allowed(a.request.Decisions) && c.IntN(4) == 0 {
			backs = append(backs, &ask{mode: GiveBack, hits: a.hits, took: a.request.Decisions})
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
		if a.mode == Take {
			c.taken = append(c.taken, a)
		}
	}
	made = append(made, backs...)
	c.Shuffle(len(made), func(i, j int) { made[i], made[j] = made[j], made[i] })
	return made
}

func (c *comparison) ask() *ask {
	a := &ask{mode: Take}
	if c.IntN(6) == 0 {
		a.mode = Check
	}
	for range 1 + max(0, c.IntN(6)-2) {
		h := askedHit{
			limit: c.limits[c.IntN(len(c.limits))],
			user:  c.users[c.IntN(len(c.users))],
			cost:  []int64{1, 1, 1, 1, 0, 2, 5, -1, -4, 1 << 40}[c.IntN(10)],
			role:  []bucket.Role{0, 0, 0, 0, bucket.Aside, bucket.Quota(1 + len(a.hits)/2)}[c.IntN(6)],
		}
		if h.limit.Algorithm == bucket.Concurrency {
			h.holder = []string{"", "one", "two", "three", "four"}[c.IntN(5)]
		}
		// A key is a user and an algorithm.
		if !slices.ContainsFunc(a.hits, func(o askedHit) bool {
			return o.user == h.user && o.holder == h.holder && o.limit.Algorithm == h.limit.Algorithm
		}) {
			a.hits = append(a.hits, h)
		}
	}
	return a
}

// compare decides a request alone on another store, and returns how many states
// that mended.
func (c *comparison) compare(t *testing.T, apart *rig, a *ask) (mended int64) {
	t.Helper()
	r, alone := a.request, a.on(apart)
	mended = decideBy(t, apart, NewCommand(), []*Group{alone})
	for i := range r.Decisions { // it was not the first one there
		r.Decisions[i].Seq = alone.Decisions[i].Seq
	}
	if alone.Err != r.Err || !slices.Equal(alone.Decisions, r.Decisions) {
		t.Errorf("mode %d of %+v got\n%+v, %v; alone it gets\n%+v, %v", r.Mode, a.hits, r.Decisions, r.Err, alone.Decisions, alone.Err)
	}
	return mended
}

func (c *comparison) compareStates(t *testing.T, stores ...*rig) {
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
		for _, l := range c.limits {
			for _, u := range c.users {
				if l.Algorithm == bucket.Concurrency {
					states[i] = append(states[i], holdersOf(t, s, testHit(s, l, u, 0)))
				}
			}
		}
	}
	if !slices.Equal(states[0], states[1]) {
		t.Errorf("the states are\n%q, alone\n%q", states[0], states[1])
	}
}

// holdersOf returns the holders, and when each hold ends.
func holdersOf(t *testing.T, s *rig, h bucket.Hit) string {
	t.Helper()
	now := &redis.ZRangeBy{Min: fmt.Sprint("(", s.clock()), Max: "+inf"} // lapsed holders may be gone
	got, err := s.redis.ZRangeByScoreWithScores(context.Background(), string(h.Key), now).Result()
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%.0f", got)
}

// A used command is made like a new one.
func TestCommandKeepsNothingOfEarlierRequests(t *testing.T) {
	s := newRig(t, nil)
	r := rand.New(rand.NewPCG(6, 0))
	c := &comparison{Rand: r, limits: comparedLimits(t, r), users: []string{"a", "b", "c"}}
	used := NewCommand()
	for _, n := range []int{1, 300, 2, 40, 1, 1, 90, 3} {
		requests := c.asks(n).on(s)
		got := flat(argsOf(s, used, requests))
		if want := flat(argsOf(s, NewCommand(), requests)); !bytes.Equal(got, want) {
			t.Fatalf("a command used before is\n%q, a new one\n%q", got, want)
		}
		if n > 10 && used.Distinct() == len(requests) {
			t.Error("no requests were equal")
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
