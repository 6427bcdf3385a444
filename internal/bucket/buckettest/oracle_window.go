package buckettest

import "github.com/ratelimitd/ratelimitd/internal/bucket"

// window is the memory of a fixed window: how much was admitted in the window that
// ends at end.
type window struct {
	n         int64
	last, end int64
}

// windowEnd returns the end of the window that contains the moment at.
func windowEnd(l *bucket.Limit, at int64) int64 {
	period := l.Period.Microseconds()
	return (at/period + 1) * period
}

func (m *window) expires() int64 { return m.end }
func (m *window) empty() bool    { return m.n == 0 }

func (m *window) written(*bucket.Limit) int64 { return m.last }

func (m *window) now(_ *bucket.Limit, clock int64) int64 { return max(clock, m.last) }

// moveTo moves the count to the window of clock.
func (m *window) moveTo(l *bucket.Limit, clock int64) {
	m.last, m.end = clock, windowEnd(l, clock)
}

// used is the count until its own window ends, even if the limit has another
// period now.
func (m *window) used(*bucket.Limit, int64) int64           { return m.n }
func (m *window) fallsTo(*bucket.Limit, int64, int64) int64 { return m.end }

// charge moves the count to the window of now.
func (m *window) charge(h bucket.Hit, clock int64) bool {
	l, cost := h.Limit, h.Cost
	before := m.n
	after := min(max(before+cost, 0), highest)
	if before == 0 && after == 0 {
		return false
	}
	now := m.now(l, clock)
	*m = window{n: after, last: now, end: windowEnd(l, now)}
	return true
}

func (m *window) giveBack(h bucket.Hit, clock int64, charged, _ portion) bool {
	if windowEnd(h.Limit, charged.at) != m.end {
		return false
	}
	h.Cost = -h.Cost
	return m.charge(h, clock)
}
