package bucket

// fixed_window counts the hits of each window of one period; windows are aligned to the
// Unix epoch. It is the cheapest algorithm, and the one that most rate-limit services
// have. Around the border of two windows twice the limit can pass within one period,
// which sliding_window and the buckets prevent.
//
// Under new numbers a count counts in the new window that contains its last write, and in
// no other, and never beyond the window in which it was written. So nobody waits longer
// than one new window, and no new window admits more than its number. Only where it is
// known when the start of windows was moved, as in an assignment, a count goes on until
// the first new start after that: otherwise each move could begin a window of its own.

func fixedWindow() algorithm {
	return algorithm{
		name: "fixed_window", maxRequests: MaxRequests,
		decide:   (*Limit).decideFixedWindow,
		charge:   (*Limit).chargeFixedWindow,
		giveBack: (*Limit).giveBackFixedWindow,
		level: func(l *Limit, s *State, clock int64) int64 {
			count, _ := l.windowCount(s, clock)
			return count
		},
		remaining: (*Limit).remainingOfCount,
		mend: func(l *Limit, s *State, clock, _ int64) bool {
			s.Expires, s.Last = l.windowEnd(clock), clock
			return true
		},
		numbers:   func(l *Limit) [4]int64 { return [4]int64{l.PeriodMicros} },
		periodEnd: (*Limit).windowEnd,
	}
}

// remainingOfCount is what remains by a state whose level is a count.
func (l *Limit) remainingOfCount(s *State) int64 { return max(0, l.Capacity-s.Level) }

// windowCount returns the count of the window that contains now, and the key's
// now.
func (l *Limit) windowCount(s *State, clock int64) (count, now int64) {
	if clock >= s.Expires {
		return 0, clock
	}
	now = max(clock, s.Last)
	if start, _ := l.window(now); s.Last < start && start > l.Calendar.Moved {
		return 0, now
	}
	return s.Level, now
}

// countEnd returns the moment from which a count of the window that contains now does not
// count.
func (l *Limit) countEnd(s *State, now int64) int64 { return min(s.Expires, l.windowEnd(now)) }

// window returns the start and the end of the window that contains at.
func (l *Limit) window(at int64) (start, end int64) {
	if l.calendar != nil {
		b := l.calendar.borders(at)
		return b[0], b[1]
	}
	start = at - at%l.PeriodMicros
	return start, start + l.PeriodMicros
}

func (l *Limit) windowEnd(at int64) int64 {
	_, end := l.window(at)
	return end
}

func (l *Limit) decideFixedWindow(s *State, clock int64, demand Demand) Decision {
	cost := demand.Cost
	count, now := l.windowCount(s, clock)
	d := Decision{At: now, Remaining: max(0, l.Capacity-count)}
	if count > 0 {
		d.ResetAfter = micros(l.countEnd(s, now) - clock)
	}
	if cost < 0 {
		return d
	}
	switch claim := l.claim(cost); {
	case claim > l.Capacity:
		d.RetryAfter = Never
	case count+claim > l.Capacity:
		d.RetryAfter = micros(l.countEnd(s, now) - clock)
	}
	return d
}

func (l *Limit) chargeFixedWindow(s *State, clock int64, demand Demand) (wrote bool) {
	cost := demand.Cost
	count, now := l.windowCount(s, clock)
	switch {
	case cost > 0:
		count += min(maxLevel-count, cost)
	case count == 0:
		return false
	default:
		count -= min(count, -cost)
	}
	l.writeFixedWindow(s, now, count)
	return true
}

func (l *Limit) giveBackFixedWindow(s *State, clock int64, demand Demand, took Portion, _ []Portion) {
	count, now := l.windowCount(s, clock)
	if count == 0 || l.windowEnd(took.At) != l.countEnd(s, now) {
		return
	}
	l.writeFixedWindow(s, now, count-min(count, demand.Cost))
}

func (l *Limit) writeFixedWindow(s *State, now, count int64) {
	l.dropPause(s)
	if count == 0 {
		s.clear()
		return
	}
	s.Last, s.Expires, s.Level = now, l.windowEnd(now), count
}
