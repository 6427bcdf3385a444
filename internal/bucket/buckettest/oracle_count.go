package buckettest

import "github.com/ratelimitd/ratelimitd/internal/bucket"

// count is the memory of a fixed window: how much was admitted in the window
// that ends at end.
type count struct {
	n         int64
	last, end int64
}

// windowEnd is the end of the window that holds the moment at.
func windowEnd(l *bucket.Limit, at int64) int64 {
	period := l.Period.Microseconds()
	return (at/period + 1) * period
}

func (m *count) expires() int64 { return m.end }
func (m *count) empty() bool    { return m.n == 0 }

func (m *count) now(_ *bucket.Limit, clock int64) int64 { return max(clock, m.last) }

// moveTo: the count is that of the window of clock.
func (m *count) moveTo(l *bucket.Limit, clock int64) {
	m.last, m.end = clock, windowEnd(l, clock)
}

// used is the count until its own window ends, be the limit's window now
// another one or not.
func (m *count) used(*bucket.Limit, int64) int64           { return m.n }
func (m *count) fallsTo(*bucket.Limit, int64, int64) int64 { return m.end }

// charge moves the count to the window of now.
func (m *count) charge(l *bucket.Limit, clock, cost int64) bool {
	before := m.n
	after := min(max(before+cost, 0), highest)
	if before == 0 && after == 0 {
		return false
	}
	now := m.now(l, clock)
	*m = count{n: after, last: now, end: windowEnd(l, now)}
	return true
}

func (m *count) giveBack(l *bucket.Limit, clock, at, cost int64) bool {
	if windowEnd(l, at) != m.end {
		return false
	}
	return m.charge(l, clock, -cost)
}
