package buckettest

import (
	"math/big"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// bill is the oracle's memory of what the takes of one ID charged to one key.
type bill struct {
	takes, until int64
	portions     []portion // the oldest first
	by           governing
}

// portion is a charge at a moment, and how much of it was not given back; at is 0 where
// nothing can be given back any more.
type portion struct{ at, cost int64 }

type billOf struct{ id, key string }

// bill returns the bill of an ID, or nil.
func (o *Oracle) bill(id string, h bucket.Hit, clock int64) *bill {
	b := o.bills[billOf{id, string(h.Key)}]
	if b == nil || clock >= b.until {
		return nil
	}
	return b
}

// Reserve decides and charges a group as Take does, and notes what the ID charged.
func (o *Oracle) Reserve(clock int64, id string, lasts time.Duration, hits []bucket.Hit) []bucket.Decision {
	return o.take(clock, hits, func(h bucket.Hit, at, took int64) {
		if h.Cost <= 0 || h.Limit.Requests == 0 || h.Limit.Algorithm == bucket.Concurrency {
			return
		}
		b := o.bill(id, h, clock)
		if b == nil {
			b = &bill{}
			o.bills[billOf{id, string(h.Key)}] = b
		}
		b.takes++
		b.until = max(b.until, clock+lasts.Microseconds())
		b.add(h.Limit, at, took)
	})
}

// took returns how much of a hit's cost its state takes when it is charged: less than all if
// it then holds as much as it can.
func (o *Oracle) took(h bucket.Hit, clock int64, charge func()) int64 {
	if h.Cost <= 0 || h.Limit.Requests == 0 {
		charge()
		return 0
	}
	before := o.known(h, clock).exactly(h.Limit, clock)
	charge()
	more := new(big.Rat).Sub(o.known(h, clock).exactly(h.Limit, clock), before)
	return min(h.Cost, new(big.Int).Div(more.Num(), more.Denom()).Int64())
}

// governing says how a charge comes to count no longer: a bucket's rate, a window's length
// or calendar; slots say it themselves.
type governing struct {
	requests int64
	period   time.Duration
	calendar bucket.Calendar
}

func governs(l *bucket.Limit) governing {
	switch l.Algorithm {
	case bucket.SlidingWindow, bucket.SlidingLog:
		return governing{}
	case bucket.FixedWindow:
		calendar := l.Calendar
		calendar.Moved = 0
		return governing{period: l.Period, calendar: calendar}
	default:
		return governing{requests: l.Requests, period: l.Period}
	}
}

func (b *bill) total() (n int64) {
	for _, p := range b.portions {
		n += p.cost
	}
	return n
}

func (b *bill) add(l *bucket.Limit, at, cost int64) {
	if b.by != governs(l) {
		if n := b.total(); n > 0 {
			b.portions = []portion{{0, n}}
		}
		b.by = governs(l)
	}
	cost = min(cost, highest-b.total())
	if n := len(b.portions); n == bucket.MaxPortions || n > 0 && b.portions[n-1].at == at {
		b.portions[n-1].cost += cost // as old as its oldest part
	} else {
		b.portions = append(b.portions, portion{at, cost})
	}
	b.tidy()
}

// tidy forgets the portions that are given back.
func (b *bill) tidy() {
	var left []portion
	for _, p := range b.portions {
		if p.cost > 0 {
			left = append(left, p)
		}
	}
	b.portions = left
}

// Settle makes the costs of the hits what the ID has charged.
func (o *Oracle) Settle(clock int64, id string, hits []bucket.Hit) []bucket.Settled {
	merged, of := merge(hits)
	for _, h := range merged {
		if o.bill(id, h, clock) != nil {
			o.recall(h, clock) // all, before any is settled
		}
	}
	perKey := make([]bucket.Settled, len(merged))
	for i, h := range merged {
		perKey[i] = o.settle(clock, id, h)
	}
	settled := make([]bucket.Settled, len(hits))
	for i, j := range of {
		settled[i] = perKey[j]
	}
	return settled
}

func (o *Oracle) settle(clock int64, id string, h bucket.Hit) bucket.Settled {
	b := o.bill(id, h, clock)
	if b == nil {
		return bucket.Settled{At: clock}
	}
	total := b.total()
	goal := h.Cost
	if goal < 0 {
		goal = max(0, total+goal)
		if b.takes--; b.takes == 0 {
			goal = 0
			delete(o.bills, billOf{id, string(h.Key)})
		}
	}
	s := bucket.Settled{IsKnown: true, At: clock, Takes: b.takes}
	switch {
	case h.Limit.Requests == 0:
	case goal < total:
		s.Returned = o.returned(b, h, clock, total-goal)
	case goal > total:
		h.Cost = goal - total
		m := o.known(h, clock)
		at := m.now(h.Limit, clock)
		o.endPause(h, clock)
		s.Added = o.took(h, clock, func() {
			if m.charge(h, clock) {
				o.keep(h, m)
			}
		})
		if s.Added > 0 {
			b.add(h.Limit, at, s.Added)
		}
	}
	h.Cost = 0
	after := decide(h, o.known(h, clock), clock)
	o.deny(h, clock, &after)
	s.Remaining, s.ResetAfter = after.Remaining, after.ResetAfter
	return s
}

// returned gives back so much of the bill, the last charge first, each as far as it still
// counts.
func (o *Oracle) returned(b *bill, h bucket.Hit, clock, cost int64) (sum int64) {
	if b.by != governs(h.Limit) {
		return 0
	}
	for i := len(b.portions) - 1; i >= 0 && sum < cost; i-- {
		p := &b.portions[i]
		if p.at == 0 {
			continue
		}
		h.Cost = min(cost-sum, p.cost)
		m := o.known(h, clock)
		there := m.exactly(h.Limit, clock)
		if !m.giveBack(h, clock, *p, b.portions[:i]) {
			continue
		}
		o.keep(h, m)
		given := ceil(there.Sub(there, o.known(h, clock).exactly(h.Limit, clock))).Int64()
		p.cost -= given
		sum += given
	}
	b.tidy()
	return sum
}

// exactly is what counts at clock, without rounding.
func (m *debt) exactly(l *bucket.Limit, clock int64) *big.Rat { return m.at(l, clock) }

func (m *window) exactly(l *bucket.Limit, clock int64) *big.Rat {
	return big.NewRat(m.used(l, clock), 1)
}

func (m *slots) exactly(l *bucket.Limit, clock int64) *big.Rat {
	return big.NewRat(m.used(l, clock), 1)
}

func (m *holders) exactly(*bucket.Limit, int64) *big.Rat { return new(big.Rat) }
