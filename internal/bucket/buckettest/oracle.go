// Package buckettest holds what every store of limits is tested against: an
// oracle that is slow and obviously right, random traces with the decisions
// that the oracle expects, and the conformance suite that runs them.
//
// Only tests import it.
package buckettest

import (
	"fmt"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// Oracle decides groups of hits as the design's words say, with rational
// numbers and without any care for speed. It shares no arithmetic with package
// bucket: of a Limit it reads the Spec, and takes as given only its Quantum
// and its MaxDebt.
type Oracle struct {
	memories map[string]memory
	numbers  numbers
	// moved counts the memories that were moved to the clock, by algorithm.
	moved map[bucket.Algorithm]int
}

// NewOracle returns an oracle that remembers nothing.
func NewOracle() *Oracle {
	return &Oracle{memories: map[string]memory{}, numbers: numbers{}, moved: map[bucket.Algorithm]int{}}
}

// memory is what one key remembers, by algorithm: of buckets, fixed windows,
// or sliding windows and logs. Its methods are only called while it lives, or
// when it is fresh.
type memory interface {
	// expires is the moment from which all of it is void.
	expires() int64
	// now is the moment at which l decides when the clock stands at clock.
	now(l *bucket.Limit, clock int64) int64
	// used is how much of the capacity is taken, in whole requests, rounded up.
	used(l *bucket.Limit, clock int64) int64
	// fallsTo is the first moment at which used, if left alone, is at most
	// goal; it is more now.
	fallsTo(l *bucket.Limit, clock, goal int64) int64
	// charge adds a cost, or takes back a negative one. It reports whether
	// that changed anything.
	charge(l *bucket.Limit, clock, cost int64) bool
	// giveBack takes back what still counts of a cost charged at the moment at.
	giveBack(l *bucket.Limit, clock, at, cost int64) bool
	// empty reports whether nothing is left to remember.
	empty() bool
	// moveTo lets what is used have been used at clock, which is before now.
	moveTo(l *bucket.Limit, clock int64)
}

func (o *Oracle) fresh(a bucket.Algorithm) memory {
	switch a {
	case bucket.TokenBucket, bucket.GCRA, bucket.LeakyBucket:
		return newDebt(o.numbers)
	case bucket.FixedWindow:
		return &count{}
	default:
		return &slots{}
	}
}

// maxSkew is how far ahead of the clock a last moment lies at most that a right
// clock wrote, in microseconds.
var maxSkew = bucket.DefaultMaxClockSkew.Microseconds()

// recall returns what lives of the hit's key. What has expired is as if it had
// never been, its last moment too. What a wrong clock wrote goes on from clock.
func (o *Oracle) recall(h bucket.Hit, clock int64) memory {
	m := o.memories[string(h.Key)]
	if m == nil || clock >= m.expires() {
		return o.fresh(h.Limit.Algorithm)
	}
	if h.Limit.Requests == 0 {
		return m // nobody looks at it
	}
	// A bucket's last moment may have been rounded up, by less than a quantum.
	if atLeast := m.now(h.Limit, clock) - h.Limit.Quantum + 1; atLeast > clock+maxSkew {
		m.moveTo(h.Limit, clock)
		o.moved[h.Limit.Algorithm]++
	}
	return m
}

func (o *Oracle) keep(h bucket.Hit, m memory) {
	if m.empty() {
		delete(o.memories, string(h.Key))
	} else {
		o.memories[string(h.Key)] = m
	}
}

// Take decides a group and charges it.
func (o *Oracle) Take(clock int64, hits []bucket.Hit) []bucket.Decision {
	merged, of := merge(hits)
	decided := make([]bucket.Decision, len(merged))
	for i, h := range merged {
		decided[i] = decide(h, o.recall(h, clock), clock)
	}
	granted := isGranted(merged, decided)
	for i, h := range merged {
		if granted && decided[i].Allowed() || h.Limit.Postpaid && h.Cost > 0 {
			decided[i] = o.charge(h, clock, decided[i])
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
	for i, j := range of {
		decisions[i] = decide(merged[j], o.recall(merged[j], clock), clock)
	}
	return decisions
}

// charge writes a hit down and returns its decision with what is true
// afterwards: what remains, when all of it is back, and, for a postpaid hit
// that found nothing left, when there is something again.
func (o *Oracle) charge(h bucket.Hit, clock int64, d bucket.Decision) bucket.Decision {
	if h.Cost == 0 || h.Limit.Requests == 0 {
		return d
	}
	if m := o.recall(h, clock); m.charge(h.Limit, clock, h.Cost) {
		o.keep(h, m)
	}
	h.Cost = 0
	after := decide(h, o.recall(h, clock), clock)
	d.Remaining, d.ResetAfter = after.Remaining, after.ResetAfter
	if !d.Allowed() {
		d.RetryAfter = after.RetryAfter
	}
	return d
}

// GiveBack returns what still counts of what a Take charged for these hits.
func (o *Oracle) GiveBack(clock int64, hits []bucket.Hit, decisions []bucket.Decision) {
	merged, of := merge(hits)
	perKey := make([]bucket.Decision, len(merged))
	for i, j := range of {
		perKey[j] = decisions[i]
	}
	granted := isGranted(merged, perKey)
	done := make([]bool, len(merged))
	for i := range hits {
		h := merged[of[i]]
		charged := h.Cost > 0 && h.Limit.Requests > 0 && (granted && decisions[i].Allowed() || h.Limit.Postpaid)
		if done[of[i]] || !charged {
			continue
		}
		done[of[i]] = true
		if m := o.recall(h, clock); m.giveBack(h.Limit, clock, decisions[i].At, h.Cost) {
			o.keep(h, m)
		}
	}
}

// lastVoid is the latest moment at which something expired that is void when
// the clock stands at clock; 0 if nothing is.
func (o *Oracle) lastVoid(clock int64) int64 {
	var last int64
	for _, m := range o.memories {
		if e := m.expires(); e <= clock {
			last = max(last, e)
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

// decide tells what a hit gets, and changes nothing.
func decide(h bucket.Hit, m memory, clock int64) bucket.Decision {
	l := h.Limit
	if l.Requests == 0 {
		d := bucket.Decision{At: clock}
		if h.Cost >= 0 {
			d.RetryAfter = bucket.Never
		}
		return d
	}

	capacity := l.Requests
	if l.Algorithm.IsBucket() && l.Burst != 0 {
		capacity = l.Burst
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

	needed := h.Cost // how much must be free
	switch {
	case h.Cost < 0:
		needed = 0
	case h.Cost == 0 || l.Postpaid:
		needed = 1
	}
	switch {
	case needed > capacity:
		d.RetryAfter = bucket.Never
	case needed > 0:
		d.RetryAfter = wait(l, m, clock, capacity-needed)
	}
	return d
}

// wait is how long it takes, counted from clock, until at most goal is used.
// The moment is computed by the algorithm, and proven here by its definition:
// somebody who asks then finds it so, somebody who asks a microsecond earlier
// does not. Once the memory has expired, anybody finds nothing used.
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

// merge makes one hit of those with equal keys: the first, with the sum of the
// costs and the stricter role. Sums are cut to MaxCost either way. of is each hit's index in merged.
func merge(hits []bucket.Hit) (merged []bucket.Hit, of []int) {
	index := map[string]int{}
	for _, h := range hits {
		h.Cost = cut(h.Cost)
		i, seen := index[string(h.Key)]
		if seen {
			merged[i].Cost = cut(merged[i].Cost + h.Cost)
			merged[i].Role = stricter(merged[i].Role, h.Role)
		} else {
			i = len(merged)
			index[string(h.Key)] = i
			merged = append(merged, h)
		}
		of = append(of, i)
	}
	return merged, of
}

// stricter returns the role with more of a say: enforced, else a quota's, the
// first of two.
func stricter(a, b bucket.Role) bucket.Role {
	for _, r := range []bucket.Role{bucket.Enforced, min(a, b), max(a, b)} {
		if r != bucket.Aside && (r == a || r == b) {
			return r
		}
	}
	return bucket.Aside
}

// highest is the highest that a cost or a level goes.
const highest = 1 << 52

func cut(cost int64) int64 { return min(max(cost, -highest), highest) }
