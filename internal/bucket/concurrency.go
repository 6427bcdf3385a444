package bucket

// concurrency admits at most its requests at the same time. A take names a holder,
// which has one slot until it releases it, or until it has not been heard of for one
// period, the hold. Taking again renews: the hold begins again, no further slot is taken,
// and it is always allowed, so retries and heartbeats do no harm. A cost of 0 looks, 1
// takes, more than 1 is never allowed, and a negative cost releases, whatever the group
// of the hit gets, and also while the requests are 0, which deny all else; a holder
// without a slot releases nothing.
//
// A denial has no retry time: a slot may be released at any moment. It says when the
// first hold ends that makes room, see Decision.FreeAtLatest.
//
// A holder that has lapsed is remembered for one more hold, so that a release that comes
// too late is distinguished from one by someone who never held. It does not count.
//
// Each write of a state has a moment of its own, later than the one before, so that
// no two holds of a key end at the same moment. A give-back frees the slot only if the
// holder's end is the one that the take wrote: then no one has renewed since, and it is
// not the slot of a later take. So the clock of a key runs ahead of the store's, by one
// microsecond for each write beyond the first that comes in the same microsecond.

// MaxHolders bounds the requests of a concurrency: that many may hold at once.
const MaxHolders = 10_000

// maxDropped is the most holders that a take removes of those that lapsed a hold ago or
// more, so that no take pays for all of them. They only take room.
const maxDropped = 16

func concurrency() algorithm {
	return algorithm{
		name: "concurrency", maxRequests: MaxHolders, hasHolders: true,
		whyMaxRequests: " for a concurrency, which keeps each holder",
		decide:         (*Limit).decideConcurrency,
		charge:         (*Limit).chargeConcurrency,
		giveBack:       (*Limit).giveBackConcurrency,
		remaining:      func(l *Limit, s *State) int64 { return max(0, l.Capacity-s.Level) },
		mend:           (*Limit).mendConcurrency,
		numbers:        func(l *Limit) [4]int64 { return [4]int64{l.PeriodMicros} },
	}
}

func (l *Limit) decideConcurrency(s *State, clock int64, demand Demand) Decision {
	now := holdersNow(s, clock)
	held := s.Holders.count(now)
	d := Decision{At: now, Ahead: uint32(now - clock), Remaining: max(0, l.Capacity-held)}
	if held > 0 {
		d.ResetAfter = micros(s.Holders.lastEnd() - now)
	}
	switch {
	case demand.Cost < 0:
		d.Released = s.Holders.released(demand.Holder, now, l.PeriodMicros)
	case l.Capacity == 0, demand.Cost > 1, demand.Cost == 1 && demand.Holder == "":
		d.RetryAfter = Never
	case s.holds(demand.Holder, now):
		if demand.Cost > 0 {
			d.Renewal = s.Holders.renewal(demand.Holder, now, l.PeriodMicros)
		}
	case held+demand.Pending >= l.Capacity:
		d.RetryAfter = Unknown
		if end := s.Holders.endAfter(now, held+demand.Pending-l.Capacity); end != 0 {
			d.Wait = micros(end - now)
		}
	}
	return d
}

func (l *Limit) chargeConcurrency(s *State, clock int64, demand Demand) (wrote bool) {
	now := holdersNow(s, clock)
	switch {
	case demand.Cost < 0:
		return s.release(demand.Holder, clock, now, l.PeriodMicros)
	case demand.Holder == "":
		return false
	case s.Holders == nil:
		s.Holders = new(Holders)
	default:
		s.Holders.drop(now-l.PeriodMicros, maxDropped)
	}
	s.Holders.put(demand.Holder, now+l.PeriodMicros)
	s.Last, s.Level = now, s.Holders.count(now)
	s.keepHolders(l.PeriodMicros)
	return true
}

// release frees the slot of a holder, and reports whether it had one. One that has
// lapsed is forgotten.
func (s *State) release(holder string, clock, now, hold int64) bool {
	i := s.Holders.find(holder)
	if i < 0 {
		return false
	}
	hasLapsed := s.Holders.byEnd[i].end <= now
	s.Holders.remove(i, 1)
	if s.Holders.isEmpty() {
		s.Holders = nil
	}
	if hasLapsed {
		return false // which changes nothing that counts
	}
	if s.Level = s.Holders.count(now); s.Level > 0 {
		s.Last = now
	}
	if s.keepHolders(hold); s.Expires <= clock {
		s.clear() // from here on all moments are later by themselves
	}
	return true
}

func (l *Limit) giveBackConcurrency(s *State, clock int64, demand Demand, took Portion, _ []Portion) {
	now := holdersNow(s, clock)
	i := s.Holders.find(demand.Holder)
	if i < 0 {
		return
	}
	if end := s.Holders.byEnd[i].end; end == took.At+l.PeriodMicros && end > now {
		s.release(demand.Holder, clock, now, l.PeriodMicros)
	}
}

// mendConcurrency lets those who held at the last moment hold at clock, at most as long
// as one who takes at clock.
func (l *Limit) mendConcurrency(s *State, clock, _ int64) bool {
	if s.Holders != nil {
		s.Holders.cut(s.Last, clock+l.PeriodMicros)
	}
	if s.Holders.isEmpty() {
		s.Holders = nil
	}
	s.Last = clock
	s.keepHolders(l.PeriodMicros)
	return true
}
