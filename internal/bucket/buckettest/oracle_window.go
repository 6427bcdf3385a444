package buckettest

import "github.com/ratelimitd/ratelimitd/internal/bucket"

// window is the memory of a fixed window: how much was admitted in the window that
// ends at end.
type window struct {
	n         int64
	last, end int64
}

// windowOf returns the window of a limit that contains the moment at.
func windowOf(l *bucket.Limit, at int64) (start, end int64) {
	if l.Calendar != (bucket.Calendar{}) {
		return l.Calendar.Window(at)
	}
	period := l.Period.Microseconds()
	start = at / period * period
	return start, start + period
}

func windowEnd(l *bucket.Limit, at int64) int64 {
	_, end := windowOf(l, at)
	return end
}

func (m *window) expires() int64 { return m.end }
func (m *window) empty() bool    { return m.n == 0 }

func (m *window) written(*bucket.Limit) int64 { return m.last }

func (m *window) now(_ *bucket.Limit, clock int64) int64 { return max(clock, m.last) }

// moveTo moves the count to the window of clock.
func (m *window) moveTo(l *bucket.Limit, clock int64) {
	m.last, m.end = clock, windowEnd(l, clock)
}

// used is the count until its own window ends. Under other numbers it counts in the window
// of its last write alone, or in all until the calendar's first start after it was moved.
func (m *window) used(l *bucket.Limit, clock int64) int64 {
	if start, _ := windowOf(l, m.now(l, clock)); m.last < start && start > l.Calendar.Moved {
		return 0
	}
	return m.n
}

func (m *window) fallsTo(l *bucket.Limit, clock, _ int64) int64 {
	return min(m.end, windowEnd(l, m.now(l, clock)))
}

// charge moves the count to the window of now.
func (m *window) charge(h bucket.Hit, clock int64) bool {
	l, cost := h.Limit, h.Cost
	before := m.used(l, clock)
	after := min(max(before+cost, 0), highest)
	if before == 0 && after == 0 {
		return false
	}
	now := m.now(l, clock)
	*m = window{n: after, last: now, end: windowEnd(l, now)}
	return true
}

func (m *window) giveBack(h bucket.Hit, clock int64, charged portion, _ []portion) bool {
	if windowEnd(h.Limit, charged.at) != m.fallsTo(h.Limit, clock, 0) {
		return false
	}
	h.Cost = -h.Cost
	return m.charge(h, clock)
}
