// Package buckettest tests stores of limits: it has an oracle that is slow and
// obviously right, random traces with the decisions that the oracle expects, and
// the conformance suite that runs them on a store. It imports bucket and zone alone,
// and only tests import it.
package buckettest

import (
	"fmt"
	"math/big"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// Oracle decides groups of hits by the definitions of the algorithms, with
// rational numbers and without any care for speed. It shares no arithmetic with
// package bucket: of the numbers that a Limit derives it takes only Quantum and
// MaxDebt as given, and the windows of a Calendar, which are held against those of Python.
type Oracle struct {
	memories map[string]memory
	bills    map[billOf]*bill
	pauses   map[string]pause // by key; also past ones that nothing was charged after
	numbers  numbers
	// mended counts the memories that a wrong clock wrote, by algorithm.
	mended map[bucket.Algorithm]int
}

// NewOracle returns an oracle that remembers nothing.
func NewOracle() *Oracle {
	return &Oracle{memories: map[string]memory{}, bills: map[billOf]*bill{}, pauses: map[string]pause{}, numbers: numbers{}, mended: map[bucket.Algorithm]int{}}
}

// memory is the state of one key: a debt, a window, slots or holders, by algorithm. Its
// methods are only called before it expires, or when it is fresh.
type memory interface {
	// expires is the moment from which it counts as fresh.
	expires() int64
	// written is the moment of the last write, or the earliest that it may have been.
	written(l *bucket.Limit) int64
	// now is the moment at which l decides when the clock stands at clock.
	now(l *bucket.Limit, clock int64) int64
	// used is how much of the capacity is taken, in whole requests, rounded up.
	used(l *bucket.Limit, clock int64) int64
	// fallsTo is the first moment at which used, if left alone, is at most goal.
	// It is more than goal at clock.
	fallsTo(l *bucket.Limit, clock, goal int64) int64
	// charge adds the cost of a hit, or takes back a negative one. It reports whether
	// that changed anything.
	charge(h bucket.Hit, clock int64) bool
	// giveBack takes back the hit's cost, all or a part of what was charged, as far as that
	// still counts. before is what was charged before it by the same caller and is still,
	// if that is known.
	giveBack(h bucket.Hit, clock int64, charged portion, older []portion) bool
	// exactly is what counts at clock, in requests without rounding.
	exactly(l *bucket.Limit, clock int64) *big.Rat
	// empty reports whether it is as if it were fresh.
	empty() bool
	// moveTo moves to clock what was used later than clock.
	moveTo(l *bucket.Limit, clock int64)
}

func (o *Oracle) fresh(a bucket.Algorithm) memory {
	switch a {
	case bucket.TokenBucket, bucket.GCRA, bucket.LeakyBucket:
		return newDebt(o.numbers)
	case bucket.FixedWindow:
		return &window{}
	case bucket.Concurrency:
		return &holders{ends: map[string]int64{}, wrote: -1}
	default:
		return &slots{}
	}
}

// maxSkew is how far ahead of the clock the last moment of a memory may lie, in
// microseconds. What lies further ahead was written by a wrong clock.
var maxSkew = bucket.DefaultMaxClockSkew.Microseconds()

// known returns the memory of the hit's key: a fresh one if the other has expired.
func (o *Oracle) known(h bucket.Hit, clock int64) memory {
	m := o.memories[string(h.Key)]
	if m == nil || clock >= m.expires() {
		return o.fresh(h.Limit.Algorithm)
	}
	return m
}

// recall is known before a request: a memory that a wrong clock wrote goes on from
// clock.
func (o *Oracle) recall(h bucket.Hit, clock int64) memory {
	m := o.known(h, clock)
	if h.Limit.Requests == 0 && h.Limit.Algorithm != bucket.Concurrency {
		return m // a limit of 0 does not look at it
	}
	isMoved := o.movePause(h, clock)
	if m.written(h.Limit) > clock+maxSkew {
		m.moveTo(h.Limit, clock)
		o.writes(h)
		isMoved = true
	}
	if isMoved {
		o.mended[h.Limit.Algorithm]++
	}
	return m
}

func (o *Oracle) keep(h bucket.Hit, m memory) {
	o.writes(h)
	if m.empty() {
		delete(o.memories, string(h.Key))
	} else {
		o.memories[string(h.Key)] = m
	}
}

// Take decides a group and charges it.
func (o *Oracle) Take(clock int64, hits []bucket.Hit) []bucket.Decision {
	return o.take(clock, hits, func(bucket.Hit, int64, int64) {})
}

// take is Take, and calls charged with each merged hit that is charged and its moment.
func (o *Oracle) take(clock int64, hits []bucket.Hit, charged func(h bucket.Hit, at, took int64)) []bucket.Decision {
	merged, of := merge(hits)
	decided := o.decide(clock, merged)
	granted := isGranted(merged, decided)
	for i, h := range merged {
		if granted && decided[i].Allowed() || chargesUse(h) {
			took := o.took(h, clock, func() { decided[i] = o.charge(h, clock, decided[i]) })
			charged(h, decided[i].At, took)
		} else {
			o.startPause(h, clock, &decided[i])
		}
	}
	decisions := make([]bucket.Decision, len(hits))
	for i := range hits {
		decisions[i] = decided[of[i]]
	}
	return decisions
}

// Check decides a group and changes nothing.
func (o *Oracle) Check(clock int64, hits []bucket.Hit) []bucket.Decision {
	merged, of := merge(hits)
	decisions := make([]bucket.Decision, len(hits))
	decided := o.decide(clock, merged)
	for i, j := range of {
		decisions[i] = decided[j]
	}
	return decisions
}

// decide decides each merged hit by itself, and after the holders before it.
func (o *Oracle) decide(clock int64, merged []bucket.Hit) []bucket.Decision {
	decided := make([]bucket.Decision, len(merged))
	pending := map[string]int64{}
	for i, h := range merged {
		m := o.recall(h, clock)
		held, isHeld := m.(*holders)
		if !isHeld {
			decided[i] = decide(h, m, clock)
			o.deny(h, clock, &decided[i])
			continue
		}
		var takes bool
		if decided[i], takes = held.decide(h, clock, pending[string(h.Key)]); takes {
			pending[string(h.Key)]++
		}
		decided[i].ResetAfter = held.resets(held.now(h.Limit, clock))
	}
	return decided
}

// charge charges a hit and returns its decision with the numbers after it: what
// remains, when all of it is back, and, for a hit that was denied, what remained
// before and when a peek is allowed.
func (o *Oracle) charge(h bucket.Hit, clock int64, d bucket.Decision) bucket.Decision {
	if h.Cost == 0 || h.Limit.Requests == 0 && h.Limit.Algorithm != bucket.Concurrency {
		return d
	}
	m := o.known(h, clock)
	o.endPause(h, clock)
	if !m.charge(h, clock) {
		return d
	}
	o.keep(h, m)
	if held, ok := m.(*holders); ok {
		return held.charged(h, clock, d)
	}
	h.Cost = 0
	after := decide(h, o.known(h, clock), clock)
	o.deny(h, clock, &after)
	if !d.Allowed() {
		d.RoomBefore = d.Remaining
	}
	d.Remaining, d.ResetAfter = after.Remaining, after.ResetAfter
	if !d.Allowed() && !after.Allowed() {
		d.RetryAfter = after.RetryAfter
	}
	return d
}

// GiveBack takes back what still counts of what a Take charged for these hits.
func (o *Oracle) GiveBack(clock int64, hits []bucket.Hit, decisions []bucket.Decision) {
	merged, of := merge(hits)
	perKey := make([]bucket.Decision, len(merged))
	for i, j := range of {
		perKey[j] = decisions[i]
	}
	granted := isGranted(merged, perKey)
	charged := make([]bool, len(merged))
	for i, h := range merged {
		charged[i] = h.Cost > 0 && h.Limit.Requests > 0 && perKey[i].Renewal == bucket.NotRenewed && (granted && perKey[i].Allowed() || chargesUse(h))
		if charged[i] {
			o.recall(h, clock) // all, before any is given back
		}
	}
	for i, h := range merged {
		if !charged[i] {
			continue
		}
		if m := o.known(h, clock); m.giveBack(h, clock, portion{perKey[i].At, h.Cost}, nil) {
			o.keep(h, m)
		}
	}
}

// lastExpiry returns the latest moment up to clock at which a memory, a bill or a pause
// ended, or 0 if none did.
func (o *Oracle) lastExpiry(clock int64) int64 {
	var last int64
	for _, m := range o.memories {
		if e := m.expires(); e <= clock {
			last = max(last, e)
		}
	}
	for _, b := range o.bills {
		if b.until <= clock {
			last = max(last, b.until)
		}
	}
	for _, p := range o.pauses {
		if p.until <= clock {
			last = max(last, p.until)
		}
	}
	return last
}

// isGranted reports whether a group of hits with these decisions is allowed: all
// enforced ones are, and all of some quota, if there are quotas.
func isGranted(hits []bucket.Hit, decided []bucket.Decision) bool {
	quotas := map[bucket.Role]bool{}
	for i, h := range hits {
		allowed := decided[i].Allowed()
		switch {
		case h.Role == bucket.Aside:
		case h.Role == bucket.Enforced:
			if !allowed {
				return false
			}
		default:
			before, seen := quotas[h.Role]
			quotas[h.Role] = allowed && (before || !seen)
		}
	}
	for _, allowed := range quotas {
		if allowed {
			return true
		}
	}
	return len(quotas) == 0
}

// decide returns the decision on a hit, and changes nothing.
func decide(h bucket.Hit, m memory, clock int64) bucket.Decision {
	l := h.Limit
	if l.Requests == 0 {
		d := bucket.Decision{At: clock}
		if l.Algorithm == bucket.FixedWindow {
			d.ResetAfter = time.Duration(windowEnd(l, clock)-clock) * time.Microsecond
		}
		if h.Cost >= 0 {
			d.RetryAfter = bucket.Never
		}
		return d
	}

	capacity := l.Requests
	if l.Algorithm.IsBucket() && l.Burst != 0 {
		capacity = l.Burst
	}
	if l.Algorithm.IsBucket() && l.Lease != 0 {
		capacity -= ceil(numbers{}.of(l).leeway).Int64()
	}
	used := m.used(l, clock)
	d := bucket.Decision{
		Remaining:  max(0, capacity-used),
		ResetAfter: wait(l, m, clock, 0),
		At:         m.now(l, clock),
	}
	if l.Algorithm == bucket.LeakyBucket {
		d.Wait = d.ResetAfter
	}

	if h.Cost < 0 {
		return d
	}
	needed := h.Cost // how much must be free
	switch {
	case l.Charging() == bucket.ChargesUse, h.Cost == 0 && l.Charging() == bucket.ChargesAdmitted:
		needed = 1
	}
	if needed > capacity {
		d.RetryAfter = bucket.Never
	} else {
		d.RetryAfter = wait(l, m, clock, capacity-needed)
	}
	return d
}

// chargesUse reports whether a hit is charged whatever it and its group get.
func chargesUse(h bucket.Hit) bool {
	if h.Limit.Algorithm == bucket.Concurrency {
		return h.Cost < 0 // a release
	}
	return h.Cost > 0 && h.Limit.Charging() != bucket.ChargesAdmitted
}

// wait returns how long after clock at most goal is used. The algorithm computes
// that moment, and wait proves it by its definition: at that moment at most goal is
// used, and a microsecond earlier more is. From its expiry on nothing is used.
func wait(l *bucket.Limit, m memory, clock, goal int64) time.Duration {
	if m.used(l, clock) <= goal {
		return 0
	}
	then := min(m.fallsTo(l, clock, goal), m.expires())
	if then <= clock || m.used(l, then-1) <= goal || then < m.expires() && m.used(l, then) > goal {
		panic(fmt.Sprintf("oracle: %d is not the first moment from %d on at which %+v has at most %d used", then, clock, l.Spec, goal))
	}
	return time.Duration(then-clock) * time.Microsecond
}

// merge makes one hit of those with equal keys and holders, whose limits are equal
// too: the first, with the sum of the costs and the stricter role, as reported if one of
// them is. Sums are capped at MaxCost and -MaxCost. A holder has one slot, so of its
// costs the largest counts, or a release. of has each hit's index in merged.
func merge(hits []bucket.Hit) (merged []bucket.Hit, of []int) {
	type name struct{ key, holder string }
	index := map[name]int{}
	for _, h := range hits {
		h.Cost = cut(h.Cost)
		i, seen := index[name{key: string(h.Key), holder: h.Holder}]
		if seen {
			a, b := merged[i].Cost, h.Cost
			switch {
			case h.Holder == "":
				merged[i].Cost = cut(a + b)
			case a < 0 || b < 0:
				merged[i].Cost = min(a, b)
			default:
				merged[i].Cost = max(a, b)
			}
			merged[i].Role = stricter(merged[i].Role, h.Role)
			if h.Limit.Charging() == bucket.ChargesReported {
				merged[i].Limit = h.Limit
			}
		} else {
			i = len(merged)
			index[name{key: string(h.Key), holder: h.Holder}] = i
			merged = append(merged, h)
		}
		of = append(of, i)
	}
	return merged, of
}

// stricter returns the stricter of two roles: enforced, otherwise the first quota.
func stricter(a, b bucket.Role) bucket.Role {
	for _, r := range []bucket.Role{bucket.Enforced, min(a, b), max(a, b)} {
		if r != bucket.Aside && (r == a || r == b) {
			return r
		}
	}
	return bucket.Aside
}

// highest bounds levels. A cost is bounded by one more, which no limit allows.
const highest = 1 << 52

func cut(cost int64) int64 { return min(max(cost, -highest-1), highest+1) }
