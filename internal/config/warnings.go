package config

import (
	"math/big"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/glob"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
)

// warnDomain gives the warnings that need the whole domain.
func (p *fileParser) warnDomain(d *Domain) {
	if p.d.HashTag != "" && !d.root.hasKey(p.d.HashTag) {
		p.WarnAt(p.tagAt, "no descriptor has the key %s, so it places nothing", yamlfile.Quote(p.d.HashTag))
	}
	p.warnPatterns(d.root, p.general)
	p.warnReplaces(d)
}

// hasKey reports whether a descriptor below the node has the key.
func (n *node) hasKey(key string) bool {
	if n.entry.Key == key {
		return true
	}
	for below := range n.below {
		if below.hasKey(key) {
			return true
		}
	}
	return false
}

// warnPatterns gives the warnings that need all patterns of a list.
func (p *fileParser) warnPatterns(up *node, list []generalNode) {
	p.warnNeverMatch(up, list)
	p.warnCostly(up, list)
}

// warnNeverMatch warns of descriptors that never match, because others of the
// list match the same values first.
func (p *fileParser) warnNeverMatch(up *node, list []generalNode) {
	for _, n := range list {
		value := n.entry.Value
		k := up.key(n.entry.Key)
		if value == "" {
			if all := k.patterns.FirstThatCoversAll(); all >= 0 {
				p.WarnAt(n.at, "never matches: the pattern %s of the same key matches every value", yamlfile.Quote(k.patterns.Text(all)))
			}
			continue
		}
		if k.patterns.IsTooLong(value) {
			p.WarnAt(n.at, "never matches: it is longer than the %d bytes of a value up to which patterns with a text between stars are tried where a key has more than %d of these",
				glob.MaxSearchedValue, glob.FewInner)
			continue
		}
		if k.patterns.IsCrowded() {
			continue
		}
		if first := k.patterns.FirstThatCovers(value); k.patterns.nodes[first] != n.node {
			p.WarnAt(n.at, "never matches: the pattern %s before it matches all that %s does", yamlfile.Quote(k.patterns.Text(first)), yamlfile.Quote(value))
		}
	}
}

const (
	// usualValue is about how many bytes a value has in a request with as many
	// entries and as much text as the default bounds allow.
	usualValue = 320
	// manyTries is the number of patterns on which such a value is tried without
	// a warning: at some 50 ns each, a request takes a tenth of a second.
	manyTries = 500
)

// warnCostly warns of keys for which a request can be made that takes long to
// match.
func (p *fileParser) warnCostly(up *node, list []generalNode) {
	for i := range up.keys {
		k := &up.keys[i]
		tries, pattern, together := k.patterns.Costliest(usualValue)
		if tries < manyTries {
			continue
		}
		for _, n := range list {
			if n.node == k.patterns.nodes[pattern] {
				p.WarnAt(n.at, "makes the key %s costly to match: a value of %d bytes can be made that is tried on %d of its %d patterns, since the text that tells this one from others best is in %d others too; "+
					"give each pattern, before, after or between its stars, a text of some bytes that few others have, or part them by a key above",
					yamlfile.Quote(k.key), usualValue, tries, k.patterns.Len(), together-1)
			}
		}
	}
}

// quotaPeriod is the period from which on requests are more likely a quota, of a day
// or a month, than a rate.
const quotaPeriod = 24 * time.Hour

// warnQuota warns of a bucket that is likely meant as a quota: it admits its burst at
// once and, in its first period, as much again.
func (p *fileParser) warnQuota(o *yamlfile.Object, s numberSpelling, l *bucket.Limit) {
	if !l.Algorithm.IsBucket() || l.Period < quotaPeriod || l.Requests == 0 || o.Has("burst") {
		return
	}
	p.Warn(o.Key(s.period), "a %s of %s %s admits %s, so up to %s in its first %s; for a quota choose algorithm: fixed_window or sliding_window; where a bucket is meant, write burst: %d",
		l.Algorithm, requests(l), perPeriod(l.Period), DescribeNumbers(l), ShowNumber(l.Requests+l.Burst), span(l.Period), l.Burst)
}

// limitAt is a limit of a rule and where it stands.
type limitAt struct {
	*bucket.Limit
	at yamlfile.Position
}

// maxLimitsCompared bounds how many limits of one rule are held against each other.
const maxLimitsCompared = 100

// warnNeverBind warns of limits that never deny a request which another allows.
func (p *fileParser) warnNeverBind(limits []limitAt) {
	if len(limits) > maxLimitsCompared {
		return
	}
	for i, loose := range limits {
		for j, tight := range limits {
			if i == j || !neverBinds(loose.Limit, tight.Limit) {
				continue
			}
			if j > i && neverBinds(tight.Limit, loose.Limit) {
				continue // they are equals; the warning is about the later one
			}
			p.WarnAt(loose.at, "never denies what %s allows: %s beside %s", yamlfile.Quote(tight.Name), Describe(loose.Limit), Describe(tight.Limit))
			break
		}
	}
}

// neverBinds reports whether the loose limit provably allows all that the
// tight one allows, given that both are charged for the same hits: whatever
// the costs, the refunds and the moments, on a clock that does not run
// backwards and with numbers that stay. It may miss some.
//
// For most pairs it compares two bounds. What the tight limit lets through in
// any span of time is at most its admission; what the loose one holds against
// a hit are the hits, less the refunds, of some span that ends with it. The
// bounds are inclusive: all is allowed that does not exceed the capacity.
func neverBinds(loose, tight *bucket.Limit) bool {
	switch {
	case tight.Requests == 0:
		return true
	case loose.Requests == 0, loose.Postpaid == bucket.PostpaidAlways, tight.Postpaid == bucket.PostpaidAlways:
		// Postpaid limits are charged for what others deny, and let through
		// more than they say.
		return false
	case loose.Algorithm.IsBucket() && tight.Algorithm.IsBucket():
		return bucketOverBucket(loose, tight)
	case loose.Algorithm.IsBucket():
		return bucketOverWindow(loose, tight)
	case loose.Algorithm == bucket.FixedWindow:
		// Hits are whole: what is admitted is less than one above the capacity.
		return rat(loose.Capacity+1).Cmp(admittedInWindow(loose.PeriodMicros, tight)) > 0
	default:
		return slidingOverSliding(loose, tight)
	}
}

func rat(n int64) *big.Rat               { return new(big.Rat).SetInt64(n) }
func times(a *big.Rat, n int64) *big.Rat { return new(big.Rat).Mul(a, rat(n)) }
func plus(a, b *big.Rat) *big.Rat        { return new(big.Rat).Add(a, b) }

// perQuantum is how many tokens of a bucket drain in a quantum.
func perQuantum(l *bucket.Limit) *big.Rat { return big.NewRat(l.Rate, l.Unit) }

// bucketOverBucket: in n ticks a bucket admits up to its capacity and what
// drains in them. Ticks of equal length begin together; else a span holds up
// to one more of the tight one's and one less of the loose one's.
func bucketOverBucket(loose, tight *bucket.Limit) bool {
	looseRate, tightRate := perQuantum(loose), perQuantum(tight)
	most := rat(tight.Capacity)
	if loose.Quantum != tight.Quantum {
		most = plus(most, plus(looseRate, tightRate))
	}
	return rat(loose.Capacity).Cmp(most) >= 0 &&
		times(looseRate, tight.Quantum).Cmp(times(tightRate, loose.Quantum)) >= 0
}

// bucketOverWindow: a window admits its capacity at once, again as soon as a
// border passes, and then every period. For a fixed window the first border
// can be a microsecond away, for a sliding one it is a period. The bucket must
// hold all of that, less what has drained by then.
func bucketOverWindow(loose, tight *bucket.Limit) bool {
	first := tight.PeriodMicros
	if tight.Algorithm == bucket.FixedWindow {
		first = 1
	}
	rate, period := perQuantum(loose), tight.PeriodMicros
	if times(rate, period).Cmp(times(rat(tight.Capacity), loose.Quantum)) < 0 {
		return false // falls behind with every period
	}
	drained := times(rate, first/loose.Quantum)
	if period%loose.Quantum != 0 {
		// Later borders come at other moments within a tick.
		drained = plus(drained, times(rate, -1))
	}
	second := plus(times(rat(tight.Capacity), 2), times(drained, -1))
	return loose.Capacity >= tight.Capacity && rat(loose.Capacity).Cmp(second) >= 0
}

// admittedInWindow is the most that a limit admits within one window, aligned
// to the epoch, of a length in microseconds.
func admittedInWindow(length int64, l *bucket.Limit) *big.Rat {
	capacity := rat(l.Capacity)
	switch {
	case l.Algorithm.IsBucket():
		ticks := (length-1)/l.Quantum + 1
		if length%l.Quantum == 0 {
			ticks = length/l.Quantum - 1
		}
		return plus(capacity, times(perQuantum(l), ticks))
	case l.Algorithm == bucket.FixedWindow:
		// The windows that one of the given length can touch: it begins at a
		// multiple of g, at the latest g before the next border.
		g := new(big.Int).GCD(nil, nil, big.NewInt(length), big.NewInt(l.PeriodMicros)).Int64()
		return times(capacity, 1+(length-g+l.PeriodMicros-1)/l.PeriodMicros)
	default:
		return times(capacity, (length+l.PeriodMicros-1)/l.PeriodMicros)
	}
}

// slidingOverSliding: both forget their oldest hits first, by age and by
// refund. So what the loose one holds is the newer part of what the tight one
// holds, if it never remembers a hit for longer: up to its period and a slot,
// where the other is sure to remember for its period; or if their slots are
// the same. No other algorithm bounds a sliding one: refunds take its oldest
// hits and leave it those that count for longest.
func slidingOverSliding(loose, tight *bucket.Limit) bool {
	if tight.Algorithm != bucket.SlidingWindow && tight.Algorithm != bucket.SlidingLog {
		return false
	}
	same := loose.PeriodMicros == tight.PeriodMicros && loose.SlotMicros == tight.SlotMicros
	shorter := loose.PeriodMicros+loose.SlotMicros-1 <= tight.PeriodMicros
	return (same || shorter) && loose.Capacity >= tight.Capacity
}
