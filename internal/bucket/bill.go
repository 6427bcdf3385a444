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
// A settlement takes back the newest charge first. Two portions are kept apart, the first
// take and what came after it, so that a settlement to more and then to less takes back
// what it had added itself. Where the later portion has several moments, the oldest
// counts. So it errs on the safe side, since the older a charge the less of it can be
// given back.
type Bill struct {
	// Until is the moment from which the store knows nothing of the ID, in microseconds
	// since the Unix epoch.
	Until int64
	// Takes is how many takes charged something; 0 means that there is no bill.
	Takes int64
	// Pace is that of the limit that charged the portions.
	Pace int64
	// Portions are the older and the newer one. A Cost of 0 is none; the newer one is
	// none if the older one is.
	Portions [2]Portion
}

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
func (b *Bill) Total() int64 { return b.Portions[0].Cost + b.Portions[1].Cost }

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

// charge adds to the newer portion.
func (b *Bill) charge(l *Limit, at, cost int64) {
	if pace := l.Pace(); b.Pace != pace {
		b.Void()
		b.Pace = pace
	}
	cost = min(cost, maxLevel-b.Total())
	switch {
	case b.Portions[0].Cost == 0:
		b.Portions[0] = Portion{at, cost}
	case b.Portions[1].Cost == 0:
		b.Portions[1] = Portion{at, cost}
	default:
		b.Portions[1].Cost += cost
	}
}

// Void notes that nothing says any more how much of the portions still counts: the state
// that they were charged to is lost, or was charged by other numbers since.
func (b *Bill) Void() {
	b.Portions = [2]Portion{{Cost: b.Total()}}
}

// Settle makes cost what the ID has charged, or if cost is negative takes a take of that
// much out of it. Less is given back as far as it still counts, more is charged in full,
// whatever remains. The bill must be known, and void if the state is not the one that was
// charged, and the state mended.
func (b *Bill) Settle(l *Limit, s *State, clock, cost int64) Settled {
	total := b.Total()
	if cost < 0 {
		cost = max(0, total+cost)
		b.Takes--
	}
	r := Settled{IsKnown: true, Takes: b.Takes, At: clock}
	switch {
	case !l.looksAtState() || l.Algorithm.HasHolders():
	case cost < total:
		r.Returned = b.giveBack(l, s, clock, total-cost)
	case cost > total:
		room, at := l.Room(s, clock), l.Decide(s, clock, Demand{}).At
		l.algorithm().charge(l, s, clock, Demand{Cost: cost - total})
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

// giveBack gives up to cost back, of the newer portion first, and returns how much.
func (b *Bill) giveBack(l *Limit, s *State, clock, cost int64) (returned int64) {
	if b.Pace != l.Pace() {
		return 0
	}
	before := b.Portions[0]
	for i := len(b.Portions) - 1; i >= 0; i-- {
		p := &b.Portions[i]
		if i == 0 {
			before = Portion{}
		}
		part := min(cost-returned, p.Cost)
		if part == 0 || p.At == 0 {
			continue
		}
		level := l.algorithm().level(l, s, clock)
		l.algorithm().giveBack(l, s, clock, Demand{Cost: part}, *p, before)
		given := ceilDiv(level-l.algorithm().level(l, s, clock), max(1, l.Unit))
		p.Cost -= given
		returned += given
	}
	if b.Portions[0].Cost == 0 {
		b.Portions[0], b.Portions[1] = b.Portions[1], Portion{}
	}
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
