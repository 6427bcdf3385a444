package bucket

// concurrency admits at most its requests at the same time. Whoever takes names a holder,
// which has one slot until it releases it, or until it has not been heard of for one
// period, the hold. Taking again renews: the hold begins again, no further slot is taken,
// and it is always allowed, so retries and heartbeats do no harm. A cost of 0 looks, 1
// takes, more than 1 is never allowed, and a negative cost releases, whatever the group
// of the hit gets, and also while the requests are 0, which deny all else; a holder
// without a slot releases nothing.
//
// A denial has no retry time: a slot may be released at any moment, so the end of the
// first hold says little.
//
// Each write of a state has a moment of its own, later than the one before, so that
// no two holds of a key end at the same moment. A give-back frees the slot only if the
// holder's end is the one that the take wrote: then nobody has renewed since, and it is
// not the slot of a later take. So the clock of a key runs ahead of the store's, by one
// microsecond for each write beyond the first that comes in the same microsecond.
//
// It is not listed yet: no limits file and no API knows it, see Algorithms.

// MaxHolders bounds the requests of a concurrency: that many may hold at once.
const MaxHolders = 10_000

// maxDropped is the most lapsed holders that a take removes, so that no take pays for
// all that lapsed. They do not count; they only take room.
const maxDropped = 16

func concurrency() algorithm {
	return algorithm{
		name: "concurrency", maxRequests: MaxHolders, hasHolders: true, isUnlisted: true,
		whyMaxRequests: " for a concurrency, which keeps each holder",
		decide:         (*Limit).decideConcurrency,
		charge:         (*Limit).chargeConcurrency,
		giveBack:       (*Limit).giveBackConcurrency,
		remaining:      func(l *Limit, s *State) int64 { return max(0, l.Capacity-s.Holders.count(s.Last)) },
		mend:           (*Limit).mendConcurrency,
		numbers:        func(l *Limit) [4]int64 { return [4]int64{l.PeriodMicros} },
	}
}

// holdersNow returns the key's now: a moment later than all its writes.
func holdersNow(s *State, clock int64) int64 {
	if clock >= s.Expires {
		return clock
	}
	return max(clock, s.Last+1)
}

func (l *Limit) decideConcurrency(s *State, clock int64, demand Demand) Decision {
	now := holdersNow(s, clock)
	held := s.Holders.count(now)
	d := Decision{At: now, Remaining: max(0, l.Capacity-held)}
	if clock < s.Expires {
		d.ResetAfter = micros(s.Expires - clock)
	}
	switch {
	case demand.Cost < 0:
	case l.Capacity == 0, demand.Cost > 1, demand.Cost == 1 && demand.Holder == "":
		d.RetryAfter = Never
	case s.holds(demand.Holder, now):
		if demand.Cost > 0 {
			d.At = 0 // a renewal takes nothing that could be given back
		}
	case held+demand.Pending >= l.Capacity:
		d.RetryAfter = Unknown
	}
	return d
}

// holds reports whether a holder has a slot at now.
func (s *State) holds(holder string, now int64) bool {
	i := s.Holders.find(holder)
	return i >= 0 && s.Holders.byEnd[i].end > now
}

func (l *Limit) chargeConcurrency(s *State, clock int64, demand Demand) (wrote bool) {
	now := holdersNow(s, clock)
	switch {
	case demand.Cost < 0:
		return s.release(demand.Holder, clock, now)
	case demand.Holder == "":
		return false
	case s.Holders == nil:
		s.Holders = new(Holders)
	default:
		s.Holders.drop(now, maxDropped)
	}
	s.Holders.put(demand.Holder, now+l.PeriodMicros)
	s.Last, s.Expires = now, s.Holders.lastEnd()
	return true
}

// release frees the slot of a holder, and reports whether it had one.
func (s *State) release(holder string, clock, now int64) bool {
	if !s.holds(holder, now) {
		return false
	}
	s.Holders.remove(s.Holders.find(holder), 1)
	switch {
	case s.Holders.count(now) > 0:
		s.Last, s.Expires = now, s.Holders.lastEnd()
	case clock > s.Last:
		s.clear() // from here on all moments are later by themselves
	default:
		s.Holders, s.Expires = nil, s.Last+1
	}
	return true
}

func (l *Limit) giveBackConcurrency(s *State, clock int64, demand Demand, took, _ Portion) {
	if i := s.Holders.find(demand.Holder); i >= 0 && s.Holders.byEnd[i].end == took.At+l.PeriodMicros {
		s.release(demand.Holder, clock, holdersNow(s, clock))
	}
}

// mendConcurrency lets those who held at the last moment hold at clock, at most as long
// as one who takes at clock.
func (l *Limit) mendConcurrency(s *State, clock, _ int64) bool {
	s.Expires = clock + 1
	if s.Holders != nil {
		s.Holders.cut(s.Last, clock+l.PeriodMicros)
		s.Expires = max(s.Expires, s.Holders.lastEnd())
	}
	s.Last = clock
	return true
}
