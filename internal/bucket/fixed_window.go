package bucket

// fixed_window counts the hits of each window of one period; windows are aligned to the
// Unix epoch. It is the cheapest algorithm, and the one that most rate-limit services
// have. Around the border of two windows twice the limit can pass within one period,
// which sliding_window and the buckets prevent.
//
// When the period changes, a count is kept until the window in which it was written ends;
// the next hit moves it into the new window.
//
// With a Calendar the windows begin where that says. A count is then kept only in windows
// of the limit's own: what was counted before the window that contains now began does not
// count in it, whatever the window in which it was written. So where a customer's month
// begins on another day from now on, what was used counts until then and no longer.

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
	if l.calendar != nil && s.Last < l.calendar.borders(now)[0] {
		return 0, now
	}
	return s.Level, now
}

// countEnd returns the moment from which a count of the window that contains now does not
// count.
func (l *Limit) countEnd(s *State, now int64) int64 {
	if l.calendar == nil {
		return s.Expires
	}
	return min(s.Expires, l.calendar.borders(now)[1])
}

// windowEnd returns the end of the window that contains at.
func (l *Limit) windowEnd(at int64) int64 {
	if l.calendar != nil {
		return l.calendar.borders(at)[1]
	}
	return (at/l.PeriodMicros + 1) * l.PeriodMicros
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

func (l *Limit) giveBackFixedWindow(s *State, clock int64, demand Demand, took, _ Portion) {
	count, now := l.windowCount(s, clock)
	if count == 0 || l.windowEnd(took.At) != s.Expires {
		return
	}
	l.writeFixedWindow(s, now, count-min(count, demand.Cost))
}

func (l *Limit) writeFixedWindow(s *State, now, count int64) {
	if count == 0 {
		s.clear()
		return
	}
	s.Last, s.Expires, s.Level = now, l.windowEnd(now), count
}
