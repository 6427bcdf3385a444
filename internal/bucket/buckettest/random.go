package buckettest

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/zone"
)

// Choices makes the choices of a random trace: by chance, or by a fuzzer's bytes.
type Choices interface {
	// Pick returns a number from 0 to n-1.
	Pick(n int64) int64
	// More reports whether there is more to come.
	More() bool
}

// Chance chooses at random by a seed, and stops after this many ops.
func Chance(seed uint64, ops int) Choices {
	return &chance{rand.New(rand.NewPCG(seed, 0)), ops}
}

type chance struct {
	*rand.Rand
	ops int
}

func (c *chance) Pick(n int64) int64 { return c.Int64N(n) }
func (c *chance) More() bool         { c.ops--; return c.ops >= 0 }

// Bytes lets a fuzzer choose. After the end of its bytes every choice is 0.
func Bytes(b []byte) Choices { return &bytesChoices{b} }

type bytesChoices struct{ left []byte }

func (c *bytesChoices) More() bool { return len(c.left) > 0 }

func (c *bytesChoices) Pick(n int64) int64 {
	var v uint64
	for m := n - 1; m > 0 && len(c.left) > 0; m >>= 8 {
		v = v<<8 | uint64(c.left[0])
		c.left = c.left[1:]
	}
	return int64(v % uint64(n))
}

// Options of a random trace.
type Options struct {
	// Domain keeps the trace's keys apart from those of other traces.
	Domain string
	// Algorithms are those to choose from; the listed ones if empty.
	Algorithms []bucket.Algorithm
	// OnePlace puts all keys into one place.
	OnePlace bool
	// Reserves is whether some takes have IDs, and are settled.
	Reserves bool
}

// maxOps bounds a trace, however many bytes a fuzzer has.
const maxOps = 100

// latest is where the clock stops, near the year 2096.
const latest = int64(4e15)

// RandomTrace makes up a trace and lets the oracle decide it.
func RandomTrace(c Choices, opt Options) *Trace {
	if len(opt.Algorithms) == 0 {
		opt.Algorithms = Rates()
	}
	g := &generator{Choices: c, oracle: NewOracle(), trace: &Trace{Large: map[bucket.Algorithm]int{}}, algorithms: opt.Algorithms, reserves: opt.Reserves}
	g.trace.Mended = g.oracle.mended
	// The last is a second before clocks in Europe are set back.
	g.clock = pick[int64](g, 1_790_000_000_000_000, 1_790_000_000_000_001, 86_399_999_999, 1, 1_792_889_999_000_000)
	g.isCrowded = g.Pick(4) == 0
	g.makeLanes(opt)
	for g.More() && len(g.trace.Ops) < maxOps {
		g.step()
	}
	// At the end, look at everything that should have been left alone.
	for i := range g.lanes {
		g.add(Op{GivesBack: -1, Hits: []bucket.Hit{g.lanes[i].hit(0)}})
	}
	return g.trace
}

type generator struct {
	Choices
	oracle     *Oracle
	trace      *Trace
	algorithms []bucket.Algorithm
	clock      int64
	lanes      []lane
	givenBack  map[int]bool
	reserves   bool
	// isCrowded is whether a concurrency has many holders, so that many lapse at once.
	isCrowded bool
	// right is where the clock was when it went wrong; 0 while it is right.
	right int64
}

// lane is a limit on a subject. Its numbers change over time.
type lane struct {
	subject, place []byte
	limit, before  *bucket.Limit
	last           bucket.Decision // the most recent one
}

func (l *lane) hit(cost int64) bucket.Hit {
	h := bucket.Hit{Limit: l.limit, Key: l.limit.AppendKey(nil, l.subject), Place: l.place, Cost: cost}
	if l.limit.Algorithm.HasHolders() {
		h.Holder = "a"
	}
	return h
}

// hit is a hit of some cost on a lane, by some holder if the limit asks for one.
func (g *generator) hit(l *lane) bucket.Hit {
	if !l.limit.Algorithm.HasHolders() {
		return l.hit(g.cost(l))
	}
	h := l.hit(pick[int64](g, 1, 1, 1, 1, 1, 0, -1, -1, 2, math.MaxInt64, math.MinInt64))
	if g.isCrowded {
		h.Holder = fmt.Sprint("crowd", g.Pick(40))
	} else {
		h.Holder = pick(g, "a", "b", "c", "d", "e", "f", "\x00\xff", strings.Repeat("long", bucket.MaxHolder/4), "")
	}
	return h
}

// makeLanes makes one to four limits on one to three subjects.
func (g *generator) makeLanes(opt Options) {
	n := 1 + g.Pick(4)
	subjects := 1 + g.Pick(min(n, 3))
	for i := range n {
		entries := []bucket.Entry{{Key: "k", Value: fmt.Sprint(i % subjects)}}
		l := lane{subject: bucket.AppendSubject(nil, opt.Domain, entries)}
		l.place = l.subject
		if opt.OnePlace {
			l.place = []byte(opt.Domain)
		}
		l.limit = g.limit(g.algorithms[g.Pick(int64(len(g.algorithms)))], fmt.Sprint("l", i))
		l.before = l.limit
		g.lanes = append(g.lanes, l)
	}
	g.givenBack = map[int]bool{}
}

// limit makes up numbers, mostly small ones, some at the bounds.
func (g *generator) limit(a bucket.Algorithm, name string) *bucket.Limit {
	s := bucket.Spec{Name: name, Algorithm: a, Postpaid: pick(g, bucket.PostpaidNever, bucket.PostpaidNever, bucket.PostpaidAlways, bucket.PostpaidAuto)}
	switch g.Pick(9) {
	case 0: // anything
		s.Requests = 1 + g.Pick(bucket.MaxRequests)>>g.Pick(52)
		s.Period = time.Duration(1+g.Pick(bucket.MaxPeriod.Milliseconds())) * time.Millisecond
		s.Burst = 1 + g.Pick(bucket.MaxRequests)>>g.Pick(52)
	case 1: // large numbers that a bucket counts exactly
		s.Requests, s.Period = g.large()
		s.Burst = pick(g, 0, s.Requests, 1+g.Pick(s.Requests))
	case 2: // the bounds
		s.Requests = pick[int64](g, 1, 1000, 1<<20, 1<<32-1, 1<<32, bucket.MaxRequests-1, bucket.MaxRequests)
		s.Period = pick(g, bucket.MinPeriod, 3*time.Millisecond, time.Second, 366*24*time.Hour-time.Millisecond,
			365*24*time.Hour, 366*24*time.Hour-time.Second, 366*24*time.Hour-time.Minute, bucket.MaxPeriod)
		s.Burst = pick[int64](g, 0, 1, 1<<20, 1<<32, bucket.MaxRequests)
	default:
		s.Requests = 1 + g.Pick(12)
		s.Period = pick[time.Duration](g, 1, 2, 7, 10, 60, 90, 1000) * pick(g, time.Millisecond, time.Second, time.Minute)
		s.Burst = g.Pick(20)
	}
	if g.Pick(30) == 0 {
		s.Requests, s.Burst = 0, 0
	}
	if s.Postpaid == bucket.PostpaidNever && a != bucket.LeakyBucket && a != bucket.Concurrency {
		s.BlockFor = pick(g, 0, 0, time.Second, 10*time.Second, 90*time.Second, time.Hour, bucket.MaxBlockFor)
	}
	if a == bucket.FixedWindow && g.Pick(2) == 0 {
		s.Period, s.Burst, s.Calendar = 0, 0, g.calendar()
		l, err := bucket.NewLimit(s)
		if err != nil {
			panic(err)
		}
		return l
	}
	if a == bucket.Concurrency {
		s.Postpaid = bucket.PostpaidNever
		s.Requests = min(s.Requests, pick[int64](g, 1, 2, 3, bucket.MaxHolders))
		if g.isCrowded && s.Requests > 0 {
			s.Requests = pick[int64](g, 5, 20, 33, bucket.MaxHolders)
		}
	}
	if a == bucket.SlidingLog {
		s.Requests = min(s.Requests, bucket.MaxLogRequests)
	}
	if a == bucket.SlidingWindow {
		s.SubWindows = pick[int64](g, 0, 1, 2, 3, 7, bucket.MaxSubWindows)
	}
	if !a.IsBucket() {
		s.Burst = 0
	} else if s.Requests > 0 {
		refill := float64(bucket.MaxPeriod) / float64(s.Period) * float64(s.Requests)
		s.Burst = min(s.Burst, int64(math.Min(refill, bucket.MaxRequests)))
	}
	var lease time.Duration
	if s.Postpaid == bucket.PostpaidNever && s.BlockFor == 0 && a != bucket.LeakyBucket && a != bucket.Concurrency {
		lease = pick(g, 0, 0, time.Millisecond, 100*time.Millisecond, time.Second)
	}
	for _, whole := range []time.Duration{time.Millisecond, time.Second, time.Minute} {
		s.Period = max(whole, s.Period.Truncate(whole))
		for _, s.Lease = range []time.Duration{lease, 0} {
			if l, err := bucket.NewLimit(s); err == nil {
				return l
			}
		}
	}
	s.Requests, s.Period, s.Burst, s.Lease = 10, time.Minute, 0, 0
	l, err := bucket.NewLimit(s)
	if err != nil {
		panic(err)
	}
	return l
}

// large returns numbers up to MaxRequests by which a token has one unit to three.
func (g *generator) large() (requests int64, period time.Duration) {
	of := pick(g, []struct {
		period time.Duration
		ticks  int64 // of the coarsest quantum
	}{
		{period: time.Millisecond, ticks: 1}, {period: time.Second, ticks: 1}, {period: 7 * time.Second, ticks: 7},
		{period: time.Minute, ticks: 1}, {period: time.Hour, ticks: 60}, {period: 30 * 24 * time.Hour, ticks: 43_200},
	}...)
	units := 1 + g.Pick(3)
	for of.ticks%units != 0 {
		units--
	}
	step := of.ticks / units
	steps := bucket.MaxRequests / units / step
	return step * pick(g, steps, max(1, steps-1), 1+g.Pick(steps), 1+g.Pick(steps)>>g.Pick(20)), of.period
}

// calendar makes up windows, in places whose clocks do all that clocks do.
func (g *generator) calendar() bucket.Calendar {
	name := pick(g, "UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Monrovia", "Pacific/Apia")
	z, err := zone.Load(name)
	if err != nil {
		panic(err)
	}
	c := bucket.Calendar{Unit: pick(g, bucket.CalendarUnits()...), Zone: z}
	starts, units := bucket.ParseStarts(pick(g, ":00", ":59", "02:30", "sunday 02:00", "31", "02-29"))
	if slices.Contains(units, c.Unit) {
		c.Starts = starts
	}
	if g.Pick(3) == 0 {
		c = c.MovedAt(g.clock-g.Pick(c.Period().Microseconds()), g.clock)
	}
	return c
}

func pick[T any](c Choices, from ...T) T { return from[c.Pick(int64(len(from)))] }

// step moves the clock and adds a take, a check, or a give-back of an earlier
// take.
func (g *generator) step() {
	l := &g.lanes[g.Pick(int64(len(g.lanes)))]
	if g.Pick(8) == 0 {
		g.reload(l)
	}
	switch {
	case g.right != 0 && g.Pick(3) == 0:
		g.setRight(l)
	case g.right == 0 && g.Pick(12) == 0:
		g.goWrong()
	default:
		g.moveClock(l)
	}
	if g.Pick(8) == 0 && g.giveBack() {
		return
	}
	if g.reserves && g.Pick(3) == 0 {
		g.settle(l)
		return
	}
	var op Op
	op.GivesBack = -1
	for range 1 + max(0, g.Pick(6)-2) {
		h := g.hit(l)
		if g.Pick(2) == 0 {
			h.Limit = h.Limit.Reported()
		}
		op.Hits = append(op.Hits, h)
		l = &g.lanes[g.Pick(int64(len(g.lanes)))]
	}
	if len(op.Hits) > 1 && g.Pick(3) == 0 {
		g.roles(op.Hits)
	}
	op.Checks = g.Pick(6) == 0
	if g.reserves && !op.Checks && g.Pick(3) > 0 {
		op.ID = g.id()
		op.Lasts = pick(g, time.Hour, time.Hour, bucket.MaxReservation, time.Second, time.Minute, time.Microsecond)
	}
	g.add(op)
}

// id makes up an ID, of few, so that takes and settlements meet.
func (g *generator) id() string { return pick(g, "a", "b", "{~}|é") }

// settle settles what an ID charged to some lanes, mostly to costs near what it was.
func (g *generator) settle(l *lane) {
	op := Op{GivesBack: -1, Settles: true, ID: g.id()}
	for range 1 + max(0, g.Pick(5)-2) {
		cost := g.Pick(4)
		switch g.Pick(8) {
		case 0:
			cost = l.limit.Capacity
		case 1:
			cost = g.Pick(l.limit.Capacity + 2)
		case 2:
			cost = l.last.Remaining + g.Pick(2)
		case 3:
			cost = -1 - g.Pick(5)
		case 4:
			cost = pick[int64](g, math.MaxInt64, math.MinInt64, bucket.MaxCost, bucket.MaxCost-1, 1<<51, 1<<32)
		}
		op.Hits = append(op.Hits, l.hit(cost))
		l = &g.lanes[g.Pick(int64(len(g.lanes)))]
	}
	g.add(op)
}

// roles gives hits random roles; the numbers of quotas rise. Hits that are merged get the
// same role, as those of a rule do, so that after merging the hits of a quota still
// follow each other.
func (g *generator) roles(hits []bucket.Hit) {
	quota := 1
	for i := range hits {
		same := func(h bucket.Hit) bool { return bytes.Equal(h.Key, hits[i].Key) && h.Holder == hits[i].Holder }
		if first := slices.IndexFunc(hits, same); first < i {
			hits[i].Role = hits[first].Role
			continue
		}
		switch g.Pick(4) {
		case 0:
			hits[i].Role = bucket.Aside
		case 1:
			quota++
			hits[i].Role = bucket.Quota(quota)
		case 2:
			hits[i].Role = bucket.Quota(quota)
		}
	}
}

// reload gives a limit new numbers, or those it had before.
func (g *generator) reload(l *lane) {
	switch g.Pick(3) {
	case 0:
		l.limit, l.before = l.before, l.limit
		return
	case 1: // another rate in the same period, which may have the same unit
		s := l.limit.Spec
		s.Requests += g.Pick(3)
		if changed, err := bucket.NewLimit(s); err == nil {
			l.limit, l.before = changed, l.limit
			return
		}
	}
	l.limit, l.before = g.limit(l.limit.Algorithm, l.limit.Name), l.limit
}

func (g *generator) add(op Op) {
	op.Clock = g.clock
	g.trace.Ops = append(g.trace.Ops, op)
	i := len(g.trace.Ops) - 1
	g.trace.ask(g.oracle, i)
	for h, d := range g.trace.Ops[i].Want {
		for j := range g.lanes {
			if l := &g.lanes[j]; l.limit.Reported() == op.Hits[h].Limit.Reported() {
				l.last = d
			}
		}
	}
}

// giveBack gives back a recent take, allowed or not, for the first time.
func (g *generator) giveBack() bool {
	i := len(g.trace.Ops) - 1 - int(g.Pick(4))
	if i < 0 || g.trace.Ops[i].GivesBack >= 0 || g.trace.Ops[i].Checks || g.trace.Ops[i].ID != "" || g.givenBack[i] {
		return false
	}
	g.givenBack[i] = true
	g.add(Op{GivesBack: i, Hits: g.trace.Ops[i].Hits})
	return true
}

// cost makes up a cost, often one that just fits or just does not.
func (g *generator) cost(l *lane) int64 {
	switch g.Pick(12) {
	case 0:
		return 0
	case 1:
		return l.limit.Capacity
	case 2:
		return l.limit.Capacity + 1
	case 3:
		return l.last.Remaining
	case 4:
		return l.last.Remaining + 1
	case 5:
		return -1 - g.Pick(3)
	case 6:
		return -1 - g.Pick(l.limit.Capacity+2)
	case 7:
		return 1 + g.Pick(l.limit.Capacity+2)
	case 8:
		return pick[int64](g, math.MaxInt64, math.MinInt64, bucket.MaxCost, -bucket.MaxCost, bucket.MaxRequests, -bucket.MaxRequests, 1<<51, 1<<32)
	default:
		return 1 + g.Pick(3)
	}
}

// moveClock moves the clock to where something might happen to l. Sometimes it goes
// back, as on a promoted replica, but never to before a moment at which something
// expired: a store may or may not have removed that.
func (g *generator) moveClock(l *lane) {
	was := g.clock
	period := l.limit.Period.Microseconds()
	switch g.Pick(14) {
	case 0, 1:
	case 2:
		g.clock++
	case 3:
		g.clock += g.Pick(10_000)
	case 4, 5:
		if l.last.RetryAfter > 0 {
			g.clock += l.last.RetryAfter.Microseconds() - g.Pick(2)
		}
	case 6:
		g.clock += l.last.ResetAfter.Microseconds() - g.Pick(2)
	case 7: // the border of windows
		g.clock = windowEnd(l.limit, g.clock) - g.Pick(2)
	case 8:
		g.clock += period - g.Pick(2)
	case 9:
		g.clock += period/(1+g.Pick(20)) + g.Pick(2)
	case 10:
		g.clock += pick(g, l.limit.Quantum, 1e3, 1e6, 60e6) + g.Pick(3) - 1
	case 11:
		g.clock -= g.Pick(5_000_000)
	case 12:
		g.clock -= 1 + g.Pick(3)
	case 13:
		g.clock += pick(g, 10*period, bucket.MaxPeriod.Microseconds(), g.Pick(2*period))
	}
	if g.clock > latest {
		g.clock = was
	}
	g.stayAfterExpiry(was)
}

// stayAfterExpiry keeps a clock that goes back from was at or after the last expiry
// before was.
func (g *generator) stayAfterExpiry(was int64) {
	g.clock = max(g.clock, min(was, max(1, g.oracle.lastExpiry(was))))
}

// goWrong makes the clock jump ahead, and takes from each limit then, so that
// nothing that expired by the jump keeps the clock from coming back.
func (g *generator) goWrong() {
	g.right = g.clock
	jump := pick(g, maxSkew-1, maxSkew, maxSkew+1, 60e6, 3600e6, 86400e6, 365*86400e6, g.Pick(4*maxSkew))
	g.clock = min(latest, g.clock+jump)
	for i := range g.lanes {
		g.add(Op{GivesBack: -1, Hits: []bucket.Hit{g.lanes[i].hit(1)}})
	}
}

// setRight makes the clock come back: to where it would be if it had never gone
// wrong, or to about maxSkew behind l's last moment.
func (g *generator) setRight(l *lane) {
	was := g.clock
	back := g.right + g.Pick(5_000_000)
	if g.Pick(3) == 0 {
		back = l.last.At - maxSkew - g.Pick(2)*l.limit.Quantum + g.Pick(3) - 1
	}
	g.clock = min(was, back)
	g.stayAfterExpiry(was)
	g.right = 0
}
