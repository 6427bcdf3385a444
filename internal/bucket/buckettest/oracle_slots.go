package buckettest

import (
	"slices"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// slots is the memory of a sliding window or log: what was admitted and when, in
// the order of time. A log is a window whose slots last a microsecond.
type slots struct {
	list      []slot
	last, end int64
}

// slot holds the hits from first to last.
type slot struct{ first, last, n int64 }

// maxSlots is how many stamps a log has at most.
const maxSlots = 1000

// slotLength is how long a slot gathers hits.
func slotLength(l *bucket.Limit) int64 {
	if l.Algorithm == bucket.SlidingLog {
		return 1
	}
	sub := l.SubWindows
	if sub == 0 {
		sub = bucket.DefaultSubWindows
	}
	return (l.Period.Microseconds() + sub - 1) / sub
}

func (m *slots) expires() int64 { return m.end }
func (m *slots) empty() bool    { return len(m.list) == 0 }

func (m *slots) written(*bucket.Limit) int64 { return m.last }

func (m *slots) now(_ *bucket.Limit, clock int64) int64 { return max(clock, m.last) }

// moveTo moves hits later than clock to clock. The memory expires as long after
// its newest hit as it would have.
func (m *slots) moveTo(l *bucket.Limit, clock int64) {
	newest := &m.list[len(m.list)-1]
	lasts := m.end - newest.last
	used := clock + l.Lease.Microseconds()
	for i, s := range m.list {
		m.list[i].first, m.list[i].last = min(s.first, used), min(s.last, used)
	}
	m.last, m.end = clock, newest.last+lasts
}

// living returns the slots whose last hit is not yet a period old.
func (m *slots) living(l *bucket.Limit, clock int64) []slot {
	var living []slot
	for _, s := range m.list {
		if m.now(l, clock)-s.last < l.Period.Microseconds() {
			living = append(living, s)
		}
	}
	return living
}

func (m *slots) used(l *bucket.Limit, clock int64) int64 { return sum(m.living(l, clock)) }

func sum(list []slot) (n int64) {
	for _, s := range list {
		n += s.n
	}
	return n
}

// fallsTo: used falls whenever a slot is a period old.
func (m *slots) fallsTo(l *bucket.Limit, clock, goal int64) int64 {
	var gone int64
	living := m.living(l, clock)
	used := sum(living)
	for _, s := range living {
		if gone += s.n; used-gone <= goal {
			return s.last + l.Period.Microseconds()
		}
	}
	return m.end
}

func (m *slots) charge(h bucket.Hit, clock int64) bool {
	l, cost := h.Limit, h.Cost
	list, now := m.living(l, clock), m.now(l, clock)
	if cost < 0 {
		return m.write(l, now, list, oldest(list, -cost))
	}
	cost = min(cost, highest-sum(list))
	newest := len(list) - 1
	used := now + l.Lease.Microseconds() // at the latest
	if newest >= 0 {
		used = max(used, list[newest].last)
	}
	gathers := newest >= 0 && used < list[newest].first+slotLength(l)
	if gathers || len(list) == maxSlots || cost == 0 {
		list[newest].last = used
		list[newest].n += cost
	} else {
		list = append(list, slot{first: used, last: used, n: cost})
	}
	return m.write(l, now, list, true)
}

// oldest removes n hits from the list, the oldest first, and reports whether there were
// any.
func oldest(list []slot, n int64) (changed bool) {
	for i := range list {
		took := min(n, list[i].n)
		list[i].n -= took
		n -= took
		changed = changed || took > 0
	}
	return changed
}

func (m *slots) giveBack(h bucket.Hit, clock int64, charged portion, _ []portion) bool {
	l, cost := h.Limit, h.Cost
	list, now := m.living(l, clock), m.now(l, clock)
	for i, s := range list {
		if used := charged.at + l.Lease.Microseconds(); s.first <= used && used <= s.last {
			return m.write(l, now, list, oldest(list[i:i+1], cost))
		}
	}
	return false
}

// write keeps what is left of list, if it changed.
func (m *slots) write(l *bucket.Limit, now int64, list []slot, changed bool) bool {
	if !changed {
		return false
	}
	list = slices.DeleteFunc(list, func(s slot) bool { return s.n == 0 })
	*m = slots{list: list, last: now}
	if len(list) > 0 {
		m.end = list[len(list)-1].last + l.Period.Microseconds()
	}
	return true
}
