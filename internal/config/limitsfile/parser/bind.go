package parser

import (
	"math/big"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/rules/words"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
)

// limitAt is a limit of a rule and its position.
type limitAt struct {
	*bucket.Limit
	at yamlfile.Position
}

// maxLimitsCompared bounds how many limits of one rule are compared with each other.
const maxLimitsCompared = 100

// warnNeverBind warns of limits that never deny a request that another allows.
func (p *reader) warnNeverBind(limits []limitAt) {
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
			p.WarnAt(loose.at, "never denies what %s allows: %s beside %s", yamlfile.Quote(tight.Name), words.Limit(loose.Limit), words.Limit(tight.Limit))
			break
		}
	}
}

// neverBinds reports whether the loose limit provably allows everything that the tight
// one allows, given that both are charged for the same hits: whatever the costs, the
// refunds and the times, on a clock that does not run backwards and with numbers that do
// not change. It may miss some cases.
//
// For most pairs it compares two bounds. What the tight limit lets through in any span of
// time is at most its admission; what the loose one holds against a hit are the hits,
// less the refunds, of some span that ends with it. The bounds are inclusive: everything
// up to the capacity is allowed.
func neverBinds(loose, tight *bucket.Limit) bool {
	switch {
	case loose.Algorithm.HasHolders() || tight.Algorithm.HasHolders():
		return concurrencyOverConcurrency(loose, tight)
	case tight.Requests == 0:
		return true
	case loose.Requests == 0, loose.Postpaid == bucket.PostpaidAlways, tight.Postpaid == bucket.PostpaidAlways:
		// Postpaid limits are charged for what others deny, and let through
		// more than they say.
		return false
	case isByCalendar(loose) || isByCalendar(tight):
		return isByCalendar(loose) && isByCalendar(tight) && calendarOverCalendar(loose, tight)
	case loose.Algorithm.IsBucket() && tight.Algorithm.IsBucket():
		return bucketOverBucket(loose, tight)
	case loose.Algorithm.IsBucket():
		return bucketOverWindow(loose, tight)
	case loose.Algorithm == bucket.FixedWindow:
		// Hits are integers, so what is admitted is less than one above the capacity.
		return rat(loose.Capacity+1).Cmp(admittedInWindow(loose.PeriodMicros, tight)) > 0
	default:
		return slidingOverSliding(loose, tight)
	}
}

func isByCalendar(l *bucket.Limit) bool { return l.Calendar != (bucket.Calendar{}) }

// calendarOverCalendar: where each window of the tight limit is made of whole ones of the
// loose, no loose one holds more than a tight one admits.
func calendarOverCalendar(loose, tight *bucket.Limit) bool {
	a, b := loose.Calendar, tight.Calendar
	isPart := a == b
	if a.Zone == b.Zone && a.Starts == (bucket.Starts{}) && b.Starts == (bucket.Starts{}) {
		isPart = a.Unit <= b.Unit && (a.Unit != bucket.CalendarWeek || b.Unit == bucket.CalendarWeek)
	}
	return isPart && loose.Capacity >= tight.Capacity
}

func rat(n int64) *big.Rat               { return new(big.Rat).SetInt64(n) }
func times(a *big.Rat, n int64) *big.Rat { return new(big.Rat).Mul(a, rat(n)) }
func plus(a, b *big.Rat) *big.Rat        { return new(big.Rat).Add(a, b) }

// perQuantum is how many tokens of a bucket drain in one quantum.
func perQuantum(l *bucket.Limit) *big.Rat { return big.NewRat(l.Rate, l.Unit) }

// concurrencyOverConcurrency: both have the same holders, whom the one with the shorter
// hold forgets sooner.
func concurrencyOverConcurrency(loose, tight *bucket.Limit) bool {
	return loose.Algorithm == tight.Algorithm && loose.PeriodMicros <= tight.PeriodMicros && loose.Capacity >= tight.Capacity
}

// bucketOverBucket: in n ticks a bucket admits up to its capacity plus what drains in
// them. Ticks of equal length begin together; otherwise a span holds up to one more of
// the tight one's and one less of the loose one's.
func bucketOverBucket(loose, tight *bucket.Limit) bool {
	looseRate, tightRate := perQuantum(loose), perQuantum(tight)
	bound := rat(tight.Capacity)
	if loose.Quantum != tight.Quantum {
		bound = plus(bound, plus(looseRate, tightRate))
	}
	return rat(loose.Capacity).Cmp(bound) >= 0 &&
		times(looseRate, tight.Quantum).Cmp(times(tightRate, loose.Quantum)) >= 0
}

// bucketOverWindow: a window admits its capacity at once, again as soon as a border
// passes, and then every period. For a fixed window the first border can be a microsecond
// away, for a sliding one it is a period away. The bucket must hold all of that, less
// what has drained by then.
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
		// Later borders fall at other moments within a tick.
		drained = plus(drained, times(rate, -1))
	}
	second := plus(times(rat(tight.Capacity), 2), times(drained, -1))
	return loose.Capacity >= tight.Capacity && rat(loose.Capacity).Cmp(second) >= 0
}

// admittedInWindow is the most that a limit admits within one window of the given length
// in microseconds, aligned to the epoch.
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
		// The number of windows that one of the given length can touch: it begins at a
		// multiple of g, at the latest g before the next border.
		g := new(big.Int).GCD(nil, nil, big.NewInt(length), big.NewInt(l.PeriodMicros)).Int64()
		return times(capacity, 1+(length-g+l.PeriodMicros-1)/l.PeriodMicros)
	default:
		return times(capacity, (length+l.PeriodMicros-1)/l.PeriodMicros)
	}
}

// slidingOverSliding: both forget their oldest hits first, by age and by refund. So the
// loose one holds the newer part of what the tight one holds, provided that it never
// remembers a hit for longer, that is, its period and a slot are no longer than the
// period for which the other is sure to remember it; or provided that their slots are the
// same. No other algorithm bounds a sliding window: refunds take its oldest hits and
// leave the ones that count longest.
func slidingOverSliding(loose, tight *bucket.Limit) bool {
	if tight.Algorithm != bucket.SlidingWindow && tight.Algorithm != bucket.SlidingLog {
		return false
	}
	same := loose.PeriodMicros == tight.PeriodMicros && loose.SlotMicros == tight.SlotMicros
	shorter := loose.PeriodMicros+loose.SlotMicros-1 <= tight.PeriodMicros
	return (same || shorter) && loose.Capacity >= tight.Capacity
}
