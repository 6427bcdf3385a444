package bucket

// sliding_window admits at most its requests in any span of one period, in
// bounded memory. Admitted hits are kept in slots of (first, last, count). A
// slot gathers hits for SlotMicros from its first, and all of it counts until
// its last hit is a period old. So each hit counts for at least a period and for less
// than a period and a slot: it errs only on the safe side, and needs at most SubWindows +
// 1 slots.
//
// When the numbers change, existing slots count for the new period, and the newest one
// gathers hits for the new SlotMicros.
//
// sliding_log admits at most its requests in any span of one period, exactly: it
// keeps a stamp (time, cost) of every admitted hit until it is a period old. It
// is a sliding_window whose slots gather hits for one microsecond, the tick of
// the clock, so that a hit counts for exactly a period. Hits of the same
// microsecond share a stamp, which makes no difference. The price is a stamp per
// hit, so that requests are at most MaxLogRequests.
//
// Charges of use on a log are not bounded by its requests. From the stamp
// maxSpans on, or where no more can be counted, further ones join the newest stamp, which
// then counts from the latest of them: it errs only on the safe side.

func slidingWindow() algorithm {
	a := slidingLog()
	a.name, a.maxRequests, a.whyMaxRequests, a.hasSubWindows = "sliding_window", MaxRequests, "", true
	a.derive = func(l *Limit) error {
		if l.SubWindows == 0 {
			l.SubWindows = DefaultSubWindows
		}
		l.SlotMicros = ceilDiv(l.PeriodMicros, l.SubWindows)
		l.Leeway = l.Lease.Microseconds()
		return nil
	}
	return a
}

func slidingLog() algorithm {
	return algorithm{
		name: "sliding_log", maxRequests: MaxLogRequests, hasSpans: true,
		whyMaxRequests: " for a sliding_log, which keeps a stamp per request; a sliding_window takes more",
		derive: func(l *Limit) error {
			l.SlotMicros = 1
			l.Leeway = l.Lease.Microseconds()
			return nil
		},
		decide:   (*Limit).decideSliding,
		charge:   (*Limit).chargeSliding,
		giveBack: (*Limit).giveBackSliding,
		level: func(l *Limit, s *State, clock int64) int64 {
			_, count, _ := l.alive(s, clock)
			return count
		},
		remaining: (*Limit).remainingOfCount,
		mend:      (*Limit).mendSliding,
		numbers:   func(l *Limit) [4]int64 { return [4]int64{l.PeriodMicros, l.SlotMicros} },
	}
}

// alive returns the index of the oldest span that still counts, the sum of the
// counts from there on, and the key's now.
func (l *Limit) alive(s *State, clock int64) (oldest int, count, now int64) {
	if clock >= s.Expires {
		return len(s.Spans), 0, clock
	}
	now = max(clock, s.Last)
	count = s.Level
	for oldest < len(s.Spans) && now-s.Spans[oldest].Last >= l.PeriodMicros {
		count -= s.Spans[oldest].Count
		oldest++
	}
	return oldest, count, now
}

// pass returns the last moment of the span that holds the n-th oldest hit of spans. There
// are at least n.
func pass(spans []Span, n int64) int64 {
	for n > spans[0].Count {
		n -= spans[0].Count
		spans = spans[1:]
	}
	return spans[0].Last
}

func (l *Limit) decideSliding(s *State, clock int64, demand Demand) Decision {
	cost := demand.Cost
	oldest, count, now := l.alive(s, clock)
	d := Decision{At: now, Remaining: max(0, l.Capacity-count)}
	if count > 0 {
		newest := s.Spans[len(s.Spans)-1]
		d.ResetAfter = until(clock, newest.Last+l.PeriodMicros, s.Expires)
	}
	if cost < 0 {
		return d
	}
	switch claim := l.claim(cost); {
	case claim > l.Capacity:
		d.RetryAfter = Never
	case count+claim > l.Capacity:
		last := pass(s.Spans[oldest:], count+claim-l.Capacity)
		d.RetryAfter = until(clock, last+l.PeriodMicros, s.Expires)
	}
	return d
}

func (l *Limit) chargeSliding(s *State, clock int64, demand Demand) (wrote bool) {
	cost := demand.Cost
	oldest, count, now := l.alive(s, clock)
	if cost < 0 && count == 0 {
		return false
	}
	s.Spans = append(s.Spans[:0], s.Spans[oldest:]...)
	if cost < 0 {
		l.refundSliding(s, now, count, min(count, -cost))
		return true
	}
	cost = min(maxLevel-count, cost)
	n, used := len(s.Spans), now+l.Leeway
	if n > 0 { // its lease may have been longer
		used = max(used, s.Spans[n-1].Last)
	}
	if n > 0 && (used < s.Spans[n-1].First+l.SlotMicros || n >= maxSpans || cost == 0) {
		s.Spans[n-1].Last = used
		s.Spans[n-1].Count += cost
	} else {
		s.Spans = append(s.Spans, Span{First: used, Last: used, Count: cost})
	}
	l.writeSliding(s, now, count+cost)
	return true
}

// refundSliding takes n of count from the oldest hits.
func (l *Limit) refundSliding(s *State, now, count, n int64) {
	count -= n
	oldest := 0
	for n > 0 && n >= s.Spans[oldest].Count {
		n -= s.Spans[oldest].Count
		oldest++
	}
	s.Spans = append(s.Spans[:0], s.Spans[oldest:]...)
	if n > 0 {
		s.Spans[0].Count -= n
	}
	l.writeSliding(s, now, count)
}

// giveBackSliding takes cost from the very slot that the hit went into, if it still
// counts.
func (l *Limit) giveBackSliding(s *State, clock int64, demand Demand, took Portion, _ []Portion) {
	oldest, count, now := l.alive(s, clock)
	used := took.At + l.Leeway
	for i := oldest; i < len(s.Spans); i++ {
		if used < s.Spans[i].First || used > s.Spans[i].Last {
			continue
		}
		n := min(demand.Cost, s.Spans[i].Count)
		s.Spans[i].Count -= n
		if s.Spans[i].Count == 0 {
			s.Spans = append(s.Spans[:i], s.Spans[i+1:]...)
		}
		s.Spans = append(s.Spans[:0], s.Spans[oldest:]...)
		l.writeSliding(s, now, count-n)
		return
	}
}

func (l *Limit) writeSliding(s *State, now, count int64) {
	l.dropPause(s)
	if count == 0 {
		s.clear()
		return
	}
	s.Last, s.Level = now, count
	s.Expires = s.Spans[len(s.Spans)-1].Last + l.PeriodMicros
}

func (l *Limit) mendSliding(s *State, clock, _ int64) bool {
	used := clock + l.Leeway
	s.Expires -= max(0, s.Spans[len(s.Spans)-1].Last-used)
	for i := range s.Spans {
		span := &s.Spans[i]
		span.First, span.Last = min(span.First, used), min(span.Last, used)
	}
	s.Last = clock
	return true
}
