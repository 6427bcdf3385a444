package bucket

import (
	"encoding/binary"
	"hash/fnv"
	"io"
	"slices"
	"time"
)

// Reservation names a take, so that Settle can change what it charged: what something
// costs is often known only afterwards, and reserved before.
type Reservation struct {
	// ID names it, and is not empty. Takes with one ID add up.
	ID string
	// Owner is the caller who takes, or empty where callers have no names: one must not
	// take the room for all bills.
	Owner string
	// Lasts is how long the store keeps what was charged, from the last take on: whole
	// microseconds, at least 1 and at most MaxReservation.
	Lasts time.Duration
}

// MaxReservation bounds how long a reservation lasts.
const MaxReservation = 24 * time.Hour

// Bill is what the takes of one ID have charged to one key, and which of it still counts
// as far as moments say. A store keeps it beside the state. The zero Bill is that of an
// ID that no one took with.
//
// A settlement takes back the newest charge first. What was charged at different moments is
// kept apart, in at most MaxPortions portions. What comes after that is in the last of them,
// as if it were as old. So it errs on the safe side, since the older a charge the less of it
// can be given back.
type Bill struct {
	// Until is the moment from which the store knows nothing of the ID, in microseconds
	// since the Unix epoch.
	Until int64
	// Takes is how many takes charged something; 0 means that there is no bill.
	Takes int64
	// Pace is that of the limit that charged the portions.
	Pace int64
	// Portions are what was charged and not given back, the oldest first, none of it with a
	// cost of 0. An At of 0 means that nothing says how much of it still counts.
	Portions []Portion
}

// MaxPortions bounds the portions of a bill.
const MaxPortions = 16

// Settled is what a settlement did to one hit.
type Settled struct {
	// IsKnown is whether the ID has charged something. All but At, Seq and Degraded are 0
	// if it has not: nothing was taken, or all of it was denied or given back, or it was
	// too long ago.
	IsKnown bool
	// Returned is how much of the cost went back, rounded up, and Added how much was
	// charged beyond it: less than was used where the state holds as much as it can.
	Returned, Added int64
	// Takes is how many takes the ID has.
	Takes int64
	// Remaining and ResetAfter are those of a Decision, after the settlement.
	Remaining  int64
	ResetAfter time.Duration
	// At is the moment of the settlement, in microseconds since the Unix epoch, and Seq
	// orders it among decisions of that moment as in a Decision.
	At  int64
	Seq uint32
	// Degraded marks a settlement of what was charged without the limit's own state.
	Degraded bool
}

// IsKnown reports whether the bill has charges of an ID when the clock is at clock.
func (b *Bill) IsKnown(clock int64) bool { return b.Takes > 0 && clock < b.Until }

// Total returns what the ID has charged that was not given back.
func (b *Bill) Total() (sum int64) {
	for _, p := range b.Portions {
		sum += p.Cost
	}
	return sum
}

// Add notes that a take has charged a cost to l at the moment at: what the state has taken
// of it, see Room. The bill of an ID that is no longer known begins again.
func (b *Bill) Add(l *Limit, clock, at, cost int64, lasts time.Duration) {
	if !b.IsKnown(clock) {
		*b = Bill{}
	}
	b.Takes++
	b.Until = max(b.Until, clock+lasts.Microseconds())
	b.charge(l, at, cost)
}

// charge adds a portion, or adds to the newest.
func (b *Bill) charge(l *Limit, at, cost int64) {
	if pace := l.Pace(); b.Pace != pace {
		b.Void()
		b.Pace = pace
	}
	cost = min(cost, maxLevel-b.Total())
	n := len(b.Portions)
	switch {
	case cost == 0:
	case n == MaxPortions, n > 0 && b.Portions[n-1].At == at:
		b.Portions[n-1].Cost += cost
	default:
		b.Portions = append(b.Portions, Portion{at, cost})
	}
}

// Void notes that nothing says any more how much of the portions still counts: the state
// that they were charged to is lost, or was charged by other numbers since.
func (b *Bill) Void() {
	if total := b.Total(); total > 0 {
		b.Portions = append(b.Portions[:0], Portion{Cost: total})
	}
}

// Settle makes cost what the ID has charged, or if cost is negative takes a take of that
// much out of it. Less is given back as far as it still counts, more is charged in full,
// whatever remains. The bill must be known, and void if the state is not the one that was
// charged, and the state mended.
func (b *Bill) Settle(l *Limit, s *State, clock, cost int64) Settled {
	total := b.Total()
	if cost < 0 {
		cost = max(0, total+cost)
		if b.Takes--; b.Takes == 0 {
			cost = 0 // what a settlement has added goes with the last take
		}
	}
	r := Settled{IsKnown: true, Takes: b.Takes, At: clock}
	switch {
	case !l.looksAtState() || l.Algorithm.HasHolders():
	case cost < total:
		r.Returned = b.giveBack(l, s, clock, total-cost)
	case cost > total:
		room, at := l.Room(s, clock), l.Decide(s, clock, Demand{}).At
		l.charge(s, clock, Demand{Cost: cost - total})
		if r.Added = min(cost-total, room); r.Added > 0 {
			b.charge(l, at, r.Added)
		}
	}
	after := l.Decide(s, clock, Demand{})
	r.Remaining, r.ResetAfter = after.Remaining, after.ResetAfter
	return r
}

// Room returns the largest cost that a state can take, beyond the capacity too. What is
// charged beyond that is in no state: if it were in a bill, a settlement would give it back
// out of what others have charged.
func (l *Limit) Room(s *State, clock int64) int64 {
	highest := int64(maxLevel)
	if l.algorithm().hasBurst {
		highest = l.MaxDebt
	}
	return max(0, highest-l.algorithm().level(l, s, clock)) / max(1, l.Unit)
}

// MaxSettled returns the largest cost to which a settlement may make a charge: what a bucket
// refills within MaxPeriod, so that no settlement denies for longer.
func (l *Limit) MaxSettled() int64 {
	if !l.algorithm().hasBurst || l.Requests == 0 {
		return MaxCost
	}
	ticks := MaxPeriod.Microseconds() / l.Quantum
	if ticks > maxLevel/l.Rate {
		return MaxCost
	}
	return ticks * l.Rate / l.Unit
}

// Rooms returns, for hits that are about to be reserved, the Room of each that is charged
// whatever remains, and for others what no cost exceeds; nil if there are only such. state
// returns the state of hit i, or nil, and its clock; Rooms mends it, see Mend.
func Rooms(hits []Hit, maxSkew int64, state func(i int) (s *State, clock int64)) (rooms []int64) {
	for i := range hits {
		h := &hits[i]
		if !h.IsReserved() || !h.Limit.ChargedAnyway(h.Cost) {
			continue
		}
		if rooms == nil {
			rooms = slices.Repeat([]int64{MaxCost}, len(hits))
		}
		s, clock := state(i)
		if s == nil {
			s = new(State)
		}
		h.Limit.Mend(s, clock, maxSkew)
		rooms[i] = h.Limit.Room(s, clock)
	}
	return rooms
}

// giveBack gives up to cost back, of the newest portion first, and returns how much.
func (b *Bill) giveBack(l *Limit, s *State, clock, cost int64) (returned int64) {
	if b.Pace != l.Pace() {
		return 0
	}
	for i := len(b.Portions) - 1; i >= 0 && returned < cost; i-- {
		p := &b.Portions[i]
		if p.At == 0 {
			continue
		}
		level := l.algorithm().level(l, s, clock)
		l.algorithm().giveBack(l, s, clock, Demand{Cost: min(cost-returned, p.Cost)}, *p, b.Portions[:i])
		given := ceilDiv(level-l.algorithm().level(l, s, clock), max(1, l.Unit))
		p.Cost -= given
		returned += given
	}
	b.Portions = slices.DeleteFunc(b.Portions, func(p Portion) bool { return p.Cost == 0 })
	return returned
}

// Pace says how charges of the limit come to count no longer: limits of one Pace give
// back the same part of a charge. It is under 2^53.
func (l *Limit) Pace() int64 {
	var b [2 * 8]byte
	switch a := l.algorithm(); {
	case a.hasSpans: // its spans say what counts
	case a.hasBurst:
		binary.LittleEndian.PutUint64(b[:], uint64(l.Requests))
		fallthrough
	default:
		binary.LittleEndian.PutUint64(b[8:], uint64(l.PeriodMicros))
	}
	h := fnv.New64a()
	_, _ = h.Write(b[:]) // never fails
	if l.Calendar.Unit != NoCalendar {
		_, _ = io.WriteString(h, l.Calendar.String())
	}
	return int64(h.Sum64() >> 11)
}

// AppendBill appends the key of the bill of an ID beside the state of a key: no key of a
// limit, nor of another bill, is equal to it, since an ID's tildes are escaped.
func AppendBill(dst, key []byte, id string) []byte {
	return appendEscaped(append(append(dst, key...), '~'), id)
}

// AppendReset appends the key that says, beside the state of a key, when that was reset,
// for as long as there may be bills from before: no ID is empty.
func AppendReset(dst, key []byte) []byte { return AppendBill(dst, key, "") }
