package buckettest

import (
	"maps"
	"slices"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// holders is the memory of a concurrency: when the hold of each holder ends, or ended.
// Its clock is later than all its writes, so that no two of them share a moment. It
// remembers who has lapsed for as long as the hold was at the last write.
type holders struct {
	ends  map[string]int64
	wrote int64
	hold  int64
	held  int64 // right after the last change
}

func (m *holders) expires() int64 {
	last := m.wrote + 1
	for _, end := range m.ends {
		last = max(last, end+m.hold)
	}
	return last
}

// empty is never true: at the moment of the last write it matters that there was one.
func (m *holders) empty() bool { return false }

func (m *holders) written(*bucket.Limit) int64 { return m.wrote }

func (m *holders) now(_ *bucket.Limit, clock int64) int64 { return max(clock, m.wrote+1) }

// living returns the holders whose hold has not ended.
func (m *holders) living(l *bucket.Limit, clock int64) map[string]int64 {
	return m.endingAfter(m.now(l, clock))
}

func (m *holders) endingAfter(at int64) map[string]int64 {
	living := maps.Clone(m.ends)
	maps.DeleteFunc(living, func(_ string, end int64) bool { return end <= at })
	return living
}

func (m *holders) used(l *bucket.Limit, clock int64) int64 { return int64(len(m.living(l, clock))) }

// fallsTo is never asked: no one knows when a slot is free.
func (m *holders) fallsTo(*bucket.Limit, int64, int64) int64 { return m.expires() }

// decide returns the decision on a hit, and whether it takes a slot. pending holders are
// about to take slots before it, which does not matter to a look without a holder.
func (m *holders) decide(h bucket.Hit, clock, pending int64) (d bucket.Decision, takes bool) {
	free := h.Limit.Requests - m.used(h.Limit, clock)
	d = bucket.Decision{Remaining: max(0, free), At: m.now(h.Limit, clock)}
	_, holds := m.living(h.Limit, clock)[h.Holder]
	switch {
	case h.Cost < 0:
		d.Released = m.released(h, clock)
	case h.Cost > 1 || h.Cost == 1 && h.Holder == "" || h.Limit.Requests == 0:
		d.RetryAfter = bucket.Never
	case holds && h.Cost == 1:
		d.Renewal = bucket.Renewed
		hold := h.Limit.Period.Microseconds()
		if heard := m.ends[h.Holder] - hold; m.now(h.Limit, clock)-heard < hold/8 {
			d.Renewal = bucket.RenewedSoon
		}
	case holds:
	case free > pending, free > 0 && h.Holder == "":
		takes = h.Cost == 1
	default:
		d.RetryAfter = bucket.Unknown
		d.Wait = m.freeIn(h, clock, pending)
	}
	return d, takes
}

// freeIn is how long until there is room for the hit and for pending holders before it if
// no one renews; 0 if that is never. The first microsecond with room is searched among
// the ends.
func (m *holders) freeIn(h bucket.Hit, clock, pending int64) time.Duration {
	ends := slices.Sorted(maps.Values(m.living(h.Limit, clock)))
	for _, end := range ends {
		left := slices.DeleteFunc(slices.Clone(ends), func(other int64) bool { return other <= end })
		if int64(len(left))+pending < h.Limit.Requests {
			return time.Duration(end-m.now(h.Limit, clock)) * time.Microsecond
		}
	}
	return 0
}

// released is what a release finds.
func (m *holders) released(h bucket.Hit, clock int64) bucket.Released {
	end, isKnown := m.ends[h.Holder]
	now := m.now(h.Limit, clock)
	switch {
	case isKnown && end > now:
		return bucket.ReleasedSlot
	case isKnown && now-end < h.Limit.Period.Microseconds():
		return bucket.ReleasedTooLate
	}
	return bucket.ReleasedNothing
}

// resets is how long after now someone holds.
func (m *holders) resets(now int64) time.Duration {
	last := now
	for _, end := range m.ends {
		last = max(last, end)
	}
	return time.Duration(last-now) * time.Microsecond
}

// charged returns the decision on a hit that was charged just now.
func (m *holders) charged(h bucket.Hit, clock int64, d bucket.Decision) bucket.Decision {
	if h.Cost > 0 && d.At != 0 {
		d.At = m.wrote // which is later if there was another hit
	}
	d.Remaining = max(0, h.Limit.Requests-m.held)
	if d.ResetAfter = 0; m.held > 0 {
		d.ResetAfter = m.resets(m.wrote)
	}
	return d
}

func (m *holders) charge(h bucket.Hit, clock int64) bool {
	if h.Cost < 0 {
		return m.release(h, clock)
	}
	now := m.now(h.Limit, clock)
	m.hold = h.Limit.Period.Microseconds()
	m.ends[h.Holder] = now + m.hold
	m.wrote, m.held = now, int64(len(m.endingAfter(now)))
	return true
}

// release frees the slot of a holder, or forgets that it lapsed. A write has a moment only
// if others hold.
func (m *holders) release(h bucket.Hit, clock int64) bool {
	now := m.now(h.Limit, clock)
	_, holds := m.living(h.Limit, clock)[h.Holder]
	delete(m.ends, h.Holder)
	if !holds {
		return false
	}
	m.hold = h.Limit.Period.Microseconds()
	if m.held = int64(len(m.endingAfter(now))); m.held > 0 {
		m.wrote = now
	}
	return true
}

func (m *holders) giveBack(h bucket.Hit, clock int64, charged portion, _ []portion) bool {
	end, holds := m.living(h.Limit, clock)[h.Holder]
	return holds && end == charged.at+h.Limit.Period.Microseconds() && m.release(h, clock)
}

// moveTo: a holder that held at the last write holds at clock, and no longer than one who takes
// then.
func (m *holders) moveTo(l *bucket.Limit, clock int64) {
	for holder, end := range m.ends {
		if end <= m.wrote {
			delete(m.ends, holder)
		} else {
			m.ends[holder] = min(end, clock+l.Period.Microseconds())
		}
	}
	m.wrote, m.hold = clock, l.Period.Microseconds()
}
