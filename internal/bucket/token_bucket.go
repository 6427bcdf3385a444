package bucket

import (
	"fmt"
	"strings"
	"time"
)

// token_bucket, gcra and leaky_bucket are one algorithm. It keeps the debt, which
// is what was taken and has not yet been refilled, instead of the tokens that
// remain. Debt drains at requests/period; a hit is allowed while debt + cost stays
// within the burst. No state means no debt, so a full bucket costs no memory.
//
// It is the leaky bucket as a meter of J. Turner, "New Directions in
// Communications", IEEE Communications Magazine 24(10), 1986, and equals the
// virtual scheduling form of the GCRA in ITU-T I.371, Annex A, whose
// theoretical arrival time is now + debt/rate.
//
// Debt is counted in units: a token has Unit of them and Rate drain per
// quantum, so every value is a whole number and nothing is ever rounded.

func tokenBucket(name string) algorithm {
	return algorithm{
		name: name, maxRequests: MaxRequests, hasBurst: true,
		derive:   (*Limit).deriveBucket,
		decide:   (*Limit).decideBucket,
		charge:   (*Limit).chargeBucket,
		giveBack: (*Limit).giveBackBucket,
		level: func(l *Limit, s *State, clock int64) int64 {
			debt, _ := l.debt(s, clock)
			return debt
		},
		remaining: func(l *Limit, s *State) int64 { return l.room(s.Level) },
		mend:      (*Limit).mendBucket,
		numbers:   func(l *Limit) [4]int64 { return [4]int64{l.Quantum, l.Unit, l.Rate, l.MaxDebt} },
	}
}

func (l *Limit) deriveBucket() error {
	hasBurst := l.Burst != 0
	if !hasBurst {
		l.Burst = l.Requests
	}
	l.Capacity = l.Burst
	if l.Requests == 0 {
		return nil
	}
	return l.deriveUnits(hasBurst)
}

// deriveUnits chooses the quantum of a bucket and counts its numbers in it. hasBurst is
// whether its burst is not just as large as its requests.
func (l *Limit) deriveUnits(hasBurst bool) error {
	if maxBurst := maxToRefill(l.Requests, l.Period); l.Burst > maxBurst {
		days := float64(l.Burst) * l.Period.Hours() / 24 / float64(l.Requests)
		return &SpecError{
			Field:   "burst",
			Found:   fmt.Sprintf("%d, which needs %.0f days to refill", l.Burst, days),
			Allowed: fmt.Sprintf("at most %d here: a burst refills within 366 days", min(maxBurst, maxToCount(l.Requests, l.Period))),
		}
	}
	for _, q := range quanta {
		if l.PeriodMicros%q != 0 {
			break
		}
		period := l.PeriodMicros / q
		g := gcd(l.Requests, period)
		unit, rate := period/g, l.Requests/g
		if l.Burst > maxLevel/unit {
			continue
		}
		l.Quantum, l.Unit, l.Rate = q, unit, rate
		l.full = l.Burst * unit
		l.MaxDebt = maxLevel
		if ticks := maxDrain / q; ticks <= maxLevel/rate {
			l.MaxDebt = ticks * rate
		}
		return l.leaseBucket()
	}
	return l.inexact(hasBurst)
}

// inexact says which numbers would do in place of those of a bucket that cannot be counted
// exactly. hasBurst is whether its burst is not just as large as its requests.
func (l *Limit) inexact(hasBurst bool) *SpecError {
	e := &SpecError{
		Field: "requests",
		Found: fmt.Sprintf("%d in %s, which a %s cannot count exactly", l.Requests, l.Period, l.Algorithm),
	}
	var instead []string
	if hasBurst {
		e.Field = "burst"
		e.Found = fmt.Sprintf("%d beside %d requests in %s, which a %s cannot count exactly", l.Burst, l.Requests, l.Period, l.Algorithm)
		instead = append(instead, fmt.Sprintf("at most %d here", maxToCount(l.Requests, l.Period)))
	} else {
		// A token has as many units as there are ticks, or one.
		ticks := coarsestTicks(l.Period)
		instead = append(instead, fmt.Sprintf("at most %d requests", maxLevel/ticks), fmt.Sprintf("a multiple of %d", ticks))
	}
	if whole := l.Period.Truncate(time.Minute); whole != l.Period && whole > 0 && l.Burst <= maxToCount(l.Requests, whole) {
		instead = append(instead, fmt.Sprintf("a period of %s", whole))
	}
	e.Allowed = strings.Join(append(instead, fmt.Sprintf("a %s, which counts every number", FixedWindow)), ", or ")
	return e
}

// debt returns the debt of a bucket in units, and the tick at which it has that.
// Ticks are counted in quanta since the Unix epoch.
func (l *Limit) debt(s *State, clock int64) (debt, now int64) {
	now = clock / l.Quantum
	if clock >= s.Expires {
		return 0, now
	}
	last := ceilDiv(s.Last, l.Quantum)
	now = max(now, last)
	debt = min(s.Level, l.MaxDebt)
	if s.Unit != l.Unit {
		// New numbers: the debt goes on in whole tokens.
		debt = l.units(ceilDiv(s.Level, s.Unit))
	}
	elapsed := now - last
	if elapsed >= ceilDiv(debt, l.Rate) {
		return 0, now
	}
	return debt - elapsed*l.Rate, now
}

// units converts tokens to units, up to MaxDebt.
func (l *Limit) units(tokens int64) int64 {
	if tokens > l.MaxDebt/l.Unit {
		return l.MaxDebt
	}
	return tokens * l.Unit
}

// drained returns the moment at which a debt at the tick now has drained, in
// microseconds.
func (l *Limit) drained(now, debt int64) int64 {
	return (now + ceilDiv(debt, l.Rate)) * l.Quantum
}

// room returns how many tokens a bucket with this debt has.
func (l *Limit) room(debt int64) int64 { return max(0, l.full-max(debt, l.Leeway)) / l.Unit }

func (l *Limit) decideBucket(s *State, clock int64, demand Demand) Decision {
	cost := demand.Cost
	debt, now := l.debt(s, clock)
	d := Decision{
		At:        now * l.Quantum,
		Remaining: l.room(debt),
	}
	if over := debt - l.Leeway; over > 0 {
		d.ResetAfter = until(clock, l.drained(now, over), s.Expires)
		if l.Algorithm == LeakyBucket {
			d.Wait = d.ResetAfter
		}
	}
	if cost < 0 {
		return d
	}
	claim := l.claim(cost)
	if claim > l.Capacity {
		d.RetryAfter = Never
	} else if over := max(debt, l.Leeway) + claim*l.Unit - l.full; over > 0 {
		d.RetryAfter = until(clock, l.drained(now, over), s.Expires)
	}
	return d
}

func (l *Limit) chargeBucket(s *State, clock int64, demand Demand) (wrote bool) {
	cost := demand.Cost
	debt, now := l.debt(s, clock)
	switch {
	case cost > 0:
		debt = max(debt, l.Leeway)
		debt += min(l.MaxDebt-debt, l.units(cost))
	case debt == 0:
		return false
	default:
		debt -= min(debt, l.units(-cost))
	}
	l.writeBucket(s, now, debt)
	return true
}

// giveBackBucket gives back no more than what has not been refilled since of all that the
// caller had taken then: had it taken less, the bucket would have been full sooner. Nor
// does it give back the Leeway, if others took since: without this take, the debt of one of
// those might have begun there.
func (l *Limit) giveBackBucket(s *State, clock int64, demand Demand, took Portion, older []Portion) {
	debt, now := l.debt(s, clock)
	at := took.At / l.Quantum
	taken := l.units(took.Cost) + l.owed(older, at)
	elapsed := now - at
	// A take that lies ahead was made while the clock was wrong, or the state of
	// that take was lost: then the debt may be that of other hits.
	left := l.left(taken, elapsed)
	if s.Last != took.At {
		left = max(0, left-l.Leeway)
	}
	if debt == 0 || left == 0 {
		return
	}
	l.writeBucket(s, now, debt-min(debt, l.units(demand.Cost), left))
}

// owed returns how many units the portions would leave by the tick at in a bucket of their
// own.
func (l *Limit) owed(older []Portion, at int64) (units int64) {
	last := int64(0)
	for _, p := range older {
		tick := p.At / l.Quantum
		units = min(l.MaxDebt, l.left(units, tick-last)+l.units(p.Cost))
		last = tick
	}
	return l.left(units, at-last)
}

// left returns how many of the units were not refilled after so many ticks; none if the
// clock went back.
func (l *Limit) left(units, ticks int64) int64 {
	if ticks < 0 || ticks >= ceilDiv(units, l.Rate) {
		return 0
	}
	return units - ticks*l.Rate
}

func (l *Limit) writeBucket(s *State, now, debt int64) {
	l.dropPause(s)
	if debt == 0 {
		s.clear()
		return
	}
	s.Last, s.Expires = now*l.Quantum, l.drained(now, debt)
	s.Level, s.Unit = debt, l.Unit
}

func (l *Limit) mendBucket(s *State, clock, skew int64) bool {
	// New numbers have moved the last moment to the end of their quantum.
	if last := ceilDiv(s.Last, l.Quantum) * l.Quantum; last-clock < skew+l.Quantum {
		return false
	}
	s.Expires -= s.Last - clock
	s.Last = clock
	return true
}
