package buckettest

import (
	"math/big"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// debt is the memory of a bucket: how many tokens were taken and not refilled at
// its last write, as an exact fraction.
type debt struct {
	known  numbers
	tokens *big.Rat
	// unit is the smallest fraction of a token at the last write.
	unit *big.Rat
	// last is the moment of that write, end when the debt has drained at its rate.
	last, end int64
}

func newDebt(known numbers) *debt {
	return &debt{known: known, tokens: new(big.Rat), unit: new(big.Rat)}
}

func (m *debt) expires() int64 { return m.end }
func (m *debt) empty() bool    { return m.tokens.Sign() == 0 }

// fractions are the numbers of a bucket in tokens and quanta.
type fractions struct {
	// rate is how many tokens come back in a quantum.
	rate *big.Rat
	// unit is the smallest fraction of a token that whole quanta bring back.
	unit *big.Rat
	// top is the largest debt.
	top *big.Rat
	// leeway is what comes back within a lease.
	leeway *big.Rat
}

// numbers caches the fractions of limits.
type numbers map[*bucket.Limit]fractions

func (n numbers) of(l *bucket.Limit) fractions {
	f, ok := n[l]
	if !ok {
		perPeriod := new(big.Int).Mul(big.NewInt(l.Requests), big.NewInt(l.Quantum))
		f.rate = new(big.Rat).SetFrac(perPeriod, big.NewInt(l.Period.Microseconds()))
		f.unit = new(big.Rat).SetFrac(big.NewInt(1), f.rate.Denom())
		f.top = new(big.Rat).Mul(big.NewRat(l.MaxDebt, 1), f.unit)
		ticks := (l.Lease.Microseconds() + l.Quantum - 1) / l.Quantum
		f.leeway = new(big.Rat).Mul(big.NewRat(ticks, 1), f.rate)
		n[l] = f
	}
	return f
}

// tick is the quantum of the decision: the clock's, or that of the last write
// if it is later. The last write lies at the end of the quantum that it fell
// into, since its own quantum may have been a finer one.
func (m *debt) tick(l *bucket.Limit, clock int64) int64 {
	return max(clock/l.Quantum, m.lastTick(l))
}

func (m *debt) lastTick(l *bucket.Limit) int64 {
	t := m.last / l.Quantum
	if m.last%l.Quantum != 0 {
		t++
	}
	return t
}

// moveTo moves the debt to clock, to drain in the time that it had.
func (m *debt) moveTo(_ *bucket.Limit, clock int64) {
	lasts := m.end - m.last
	m.last, m.end = clock, clock+lasts
}

// written: the last moment may have been rounded up, by less than a quantum.
func (m *debt) written(l *bucket.Limit) int64 { return (m.lastTick(l)-1)*l.Quantum + 1 }

func (m *debt) now(l *bucket.Limit, clock int64) int64 { return m.tick(l, clock) * l.Quantum }

// at returns the debt at clock.
func (m *debt) at(l *bucket.Limit, clock int64) *big.Rat {
	owed := new(big.Rat).Set(m.tokens)
	if m.unit.Cmp(m.known.of(l).unit) != 0 {
		owed.SetInt(ceil(owed))
	}
	if top := m.known.of(l).top; owed.Cmp(top) > 0 {
		owed.Set(top)
	}
	ticks := big.NewRat(m.tick(l, clock)-m.lastTick(l), 1)
	owed.Sub(owed, ticks.Mul(ticks, m.known.of(l).rate))
	if owed.Sign() < 0 {
		owed.SetInt64(0)
	}
	return owed
}

// used is beside the leeway, which nobody can use.
func (m *debt) used(l *bucket.Limit, clock int64) int64 {
	return ceil(m.over(l, clock)).Int64()
}

// over is how much of the debt at clock is more than the leeway.
func (m *debt) over(l *bucket.Limit, clock int64) *big.Rat {
	over := m.at(l, clock)
	return positive(over.Sub(over, m.known.of(l).leeway))
}

// positive is r, or 0 if that is less.
func positive(r *big.Rat) *big.Rat {
	if r.Sign() < 0 {
		r.SetInt64(0)
	}
	return r
}

func (m *debt) fallsTo(l *bucket.Limit, clock, goal int64) int64 {
	excess := m.over(l, clock)
	excess.Sub(excess, big.NewRat(goal, 1))
	return (m.tick(l, clock) + ceil(excess.Quo(excess, m.known.of(l).rate)).Int64()) * l.Quantum
}

func (m *debt) charge(h bucket.Hit, clock int64) bool {
	return m.change(h.Limit, clock, big.NewRat(h.Cost, 1))
}

// giveBack: the bucket of the caller alone would hold what is left of its portions.
func (m *debt) giveBack(h bucket.Hit, clock int64, charged portion, older []portion) bool {
	l := h.Limit
	if m.tick(l, clock) < charged.at/l.Quantum {
		return false // the take lies ahead, so this debt is not from it
	}
	alone, last := new(big.Rat), int64(0)
	for _, p := range older {
		alone = m.drain(l, alone, p.at/l.Quantum-last)
		alone.Add(alone, m.atMost(l, p.cost))
		if top := m.known.of(l).top; alone.Cmp(top) > 0 {
			alone.Set(top)
		}
		last = p.at / l.Quantum
	}
	alone = m.drain(l, alone, charged.at/l.Quantum-last)
	alone.Add(alone, m.atMost(l, charged.cost))
	left := m.drain(l, alone, m.tick(l, clock)-charged.at/l.Quantum)
	if m.last != charged.at {
		left = positive(left.Sub(left, m.known.of(l).leeway))
	}
	if left.Sign() == 0 {
		return false
	}
	if part := big.NewRat(h.Cost, 1); left.Cmp(part) > 0 {
		left.Set(part)
	}
	return m.change(l, clock, left.Neg(left))
}

// atMost is a cost, or the most that a bucket takes.
func (m *debt) atMost(l *bucket.Limit, cost int64) *big.Rat {
	tokens := big.NewRat(cost, 1)
	if top := m.known.of(l).top; tokens.Cmp(top) > 0 {
		tokens.Set(top)
	}
	return tokens
}

// drain is what is left of tokens after this many ticks; nothing if they go back.
func (m *debt) drain(l *bucket.Limit, tokens *big.Rat, ticks int64) *big.Rat {
	refilled := big.NewRat(ticks, 1)
	left := new(big.Rat).Sub(tokens, refilled.Mul(refilled, m.known.of(l).rate))
	if ticks < 0 || left.Sign() < 0 {
		left.SetInt64(0)
	}
	return left
}

// change writes the debt of now, changed by tokens.
func (m *debt) change(l *bucket.Limit, clock int64, tokens *big.Rat) bool {
	before := m.at(l, clock)
	after := new(big.Rat).Add(before, tokens)
	if leeway := m.known.of(l).leeway; tokens.Sign() > 0 && before.Cmp(leeway) < 0 {
		after.Add(leeway, tokens)
	}
	if after.Sign() < 0 {
		after.SetInt64(0)
	}
	if top := m.known.of(l).top; after.Cmp(top) > 0 {
		after.Set(top)
	}
	if before.Sign() == 0 && after.Sign() == 0 {
		return false
	}
	now := m.now(l, clock)
	ticks := ceil(new(big.Rat).Quo(after, m.known.of(l).rate)).Int64()
	*m = debt{known: m.known, tokens: after, unit: m.known.of(l).unit, last: now, end: now + ticks*l.Quantum}
	return true
}

// ceil rounds up.
func ceil(r *big.Rat) *big.Int {
	n := new(big.Int).Add(r.Num(), r.Denom())
	n.Sub(n, big.NewInt(1))
	return n.Div(n, r.Denom()) // Euclidean: the denominator is positive
}
