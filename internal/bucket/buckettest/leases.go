package buckettest

import (
	"fmt"
	"slices"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// LeaseRun is what became of a random run of clients that decide by leases.
type LeaseRun struct {
	// Used is what was used, by the moment of the use, of the first numbers and then of
	// others, which came with a reload.
	Used []Admitted
	// Leased is how much of it was used by a lease.
	Leased int64

	c Choices
	// isGreedy clients ask for all that there is, and use it as late as they can.
	isGreedy bool
	// differ says that daemons have different leases. Then nobody gives back:
	// what a give-back returns is by the lease of its own daemon.
	differ  bool
	leases  map[time.Duration]bool // those there were
	limits  []*bucket.Limit        // of each daemon
	state   bucket.State
	clock   int64
	grants  []*grant
	changed int64 // when the numbers did; 0: not yet
}

// grant is what a client was granted: it may use it from the answer until its end.
type grant struct {
	limit       *bucket.Limit
	at          int64 // of the take
	from, until int64
	left        int64
}

// leaseEvents is how much happens in a run.
const leaseEvents = 60

// RandomLeases lets some clients take and use leases of one key. Their requests and answers
// come late or never, clients stop for a while or die, daemons reload: other leases, and
// once other numbers. It returns an error if some
// span of time saw more used than the limit, which has no lease then, says. A span in which
// the numbers changed, or a lease after, says nothing.
//
// Without leeway the limit is decided as if it had no lease.
func RandomLeases(c Choices, leeway bool) (*LeaseRun, error) {
	r := &LeaseRun{c: c, clock: pick[int64](c, 1_790_000_000_000_000, 86_399_950_000, 3_600_000_000-1), isGreedy: c.Pick(2) == 0, differ: c.Pick(3) == 0, leases: map[time.Duration]bool{}}
	spec := randomLeaseSpec(c)
	numbers := []bucket.Spec{spec}
	for range 1 + c.Pick(3) {
		r.limits = append(r.limits, leaseLimit(spec, leeway))
	}
	r.Used = make([]Admitted, 1, 2)
	for range leaseEvents {
		r.tick(spec)
		switch c.Pick(12) {
		case 0:
			r.giveBack()
		case 1:
			other := numbers[len(numbers)-1]
			other.Lease = time.Duration(c.Pick(1+int64(spec.Lease/bucket.MinPeriod))) * bucket.MinPeriod
			r.reload(leaseLimit(other, leeway))
		case 2:
			if r.changed != 0 || c.Pick(10) != 0 {
				continue
			}
			other := randomLeaseSpec(c)
			other.Algorithm = spec.Algorithm
			other.Lease = spec.Lease
			if _, err := bucket.NewLimit(other); err != nil {
				continue
			}
			numbers, r.changed, r.differ = append(numbers, other), r.clock, false
			clear(r.leases)
			r.reload(leaseLimit(other, leeway))
			r.Used = append(r.Used, nil)
		case 3, 4, 5, 6:
			r.ask()
		default:
			r.use()
		}
	}
	for i, used := range r.Used {
		whole := numbers[i]
		whole.Lease = 0
		if i > 0 { // what is out may still be used
			begin := r.changed + spec.Lease.Microseconds()
			used = slices.DeleteFunc(used, func(u struct{ At, Cost int64 }) bool { return u.At < begin })
		}
		if err := used.Exceeds(mustLimit(whole)); err != nil {
			return r, fmt.Errorf("%+v: %w", numbers[i], err)
		}
	}
	return r, nil
}

// reload gives all daemons another limit, or one of them if they may differ.
func (r *LeaseRun) reload(l *bucket.Limit) {
	if r.differ {
		r.limits[r.c.Pick(int64(len(r.limits)))] = l
		return
	}
	if r.leases[l.Lease] {
		return // what was taken before the last reload could be given back again
	}
	r.leases[l.Lease] = true
	for i := range r.limits {
		r.limits[i] = l
	}
}

// randomLeaseSpec makes up the numbers of a limit with a lease.
func randomLeaseSpec(c Choices) bucket.Spec {
	for {
		s := bucket.Spec{
			Algorithm: pick(c, bucket.TokenBucket, bucket.GCRA, bucket.FixedWindow, bucket.SlidingWindow, bucket.SlidingLog),
			Requests:  pick[int64](c, 2, 5, 10, 37, 100, 1000),
			Period:    pick(c, 10*time.Millisecond, 100*time.Millisecond, time.Second, 7*time.Second, time.Minute),
		}
		if s.Algorithm.IsBucket() {
			s.Burst = pick(c, 0, 2*s.Requests, max(2, s.Requests/3))
		}
		for _, s.Lease = range []time.Duration{time.Second, pick(c, 300*time.Millisecond, 700*time.Millisecond), 100 * time.Millisecond, 10 * time.Millisecond, time.Millisecond} {
			if _, err := bucket.NewLimit(s); err == nil {
				return s
			}
		}
	}
}

func mustLimit(s bucket.Spec) *bucket.Limit {
	l, err := bucket.NewLimit(s)
	if err != nil {
		panic(err)
	}
	return l
}

// leaseLimit is the limit of a daemon. Without leeway it only grants like one with a lease.
func leaseLimit(s bucket.Spec, leeway bool) *bucket.Limit {
	l := mustLimit(s)
	if leeway || l.Lease == 0 {
		return l
	}
	s.Lease = 0
	without := mustLimit(s)
	without.Lease = l.Lease
	return without
}

// tick moves the clock: hardly, by a part of a lease, to the end of a grant, or far.
func (r *LeaseRun) tick(s bucket.Spec) {
	switch r.c.Pick(8) {
	case 0, 1, 2:
		r.clock += r.c.Pick(20)
	case 3, 4:
		r.clock += r.c.Pick(s.Lease.Microseconds())
	case 5, 6:
		if g := r.pick(func(g *grant) bool { return g.until > r.clock && g.left > 0 }); g != nil {
			r.clock = g.until - 1
			if r.isGreedy {
				r.useAll()
				r.ask()
			}
		}
	default:
		r.clock += r.c.Pick(s.Period.Microseconds())
	}
}

// pick returns one of the grants of which ok says so, or nil.
func (r *LeaseRun) pick(ok func(*grant) bool) *grant {
	var some []*grant
	for _, g := range r.grants {
		if ok(g) {
			some = append(some, g)
		}
	}
	if len(some) == 0 {
		return nil
	}
	return some[r.c.Pick(int64(len(some)))]
}

// note notes a use.
func (r *LeaseRun) note(n int64) { r.Used[len(r.Used)-1].Add(r.clock, n) }

// ask has a daemon decide a take that was sent some time ago, and that costs 1 or asks for
// more. Its answer comes later, or never.
func (r *LeaseRun) ask() {
	l := r.limits[r.c.Pick(int64(len(r.limits)))]
	sent := r.clock - r.c.Pick(3)*r.c.Pick(1+l.Lease.Microseconds()/4)
	wants := int64(1)
	if l.Lease != 0 {
		wants = pick(r.c, 1, 1+r.c.Pick(l.Requests), l.Capacity)
		if r.isGreedy {
			wants = max(1, l.Decide(&r.state, r.clock, bucket.Demand{}).Remaining)
		}
	}
	d := r.take(l, wants)
	if !d.Allowed() && wants > 1 {
		wants = 1
		d = r.take(l, 1)
	}
	if !d.Allowed() {
		return
	}
	r.note(1)
	if wants == 1 || r.c.Pick(8) == 0 { // the answer is lost, or its client dies
		return
	}
	g := &grant{limit: l, at: d.At, from: r.clock + r.c.Pick(2)*r.c.Pick(l.Lease.Microseconds()/4), left: wants - 1}
	g.until = sent + l.GoodFor(&d).Microseconds()
	r.grants = append(r.grants, g)
}

// take decides a cost and charges it if it is allowed.
func (r *LeaseRun) take(l *bucket.Limit, cost int64) bucket.Decision {
	demand := bucket.Demand{Cost: cost}
	d := l.Decide(&r.state, r.clock, demand)
	if d.Allowed() {
		l.Charge(&r.state, r.clock, demand, d)
	}
	return d
}

// use uses some or all that is left of a grant, if there is one.
func (r *LeaseRun) use() bool {
	g := r.pick(func(g *grant) bool { return g.left > 0 && g.from <= r.clock && r.clock < g.until })
	if g == nil {
		return false
	}
	n := pick(r.c, 1, g.left, 1+r.c.Pick(g.left))
	if r.isGreedy {
		n = g.left
	}
	g.left -= n
	r.Leased += n
	r.note(n)
	return true
}

func (r *LeaseRun) useAll() {
	for r.use() {
	}
}

// giveBack gives back what is left of a grant. A daemon that has other numbers refuses it.
func (r *LeaseRun) giveBack() {
	g := r.pick(func(g *grant) bool { return g.left > 0 })
	if g == nil {
		return
	}
	cost := g.left
	g.left = 0
	if r.differ {
		return
	}
	if l := r.limits[r.c.Pick(int64(len(r.limits)))]; l.CountsAs(g.limit) {
		l.GiveBack(&r.state, r.clock, g.at, bucket.Demand{Cost: cost})
	}
}
