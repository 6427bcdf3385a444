package bucket

// Pause is when all of a key is denied: from Began on, up to Until. The first denial of a
// limit with BlockFor starts it, the one denial that writes; it is over by the clock alone,
// however much is asked meanwhile. Another starts only after a cost was charged again, so
// that nobody is kept out by asking.
//
// What was counted goes on beside it. Limits without BlockFor look at no pause.
type Pause struct{ Began, Until int64 }

// deny makes d say what a pause does, if it lasts at clock: nothing remains, and a cost
// that is no refund is denied.
func (p *Pause) deny(clock, cost int64, d *Decision) {
	left := micros(p.Until - clock)
	if left <= 0 {
		return
	}
	d.Paused, d.Remaining = left, 0
	d.ResetAfter = max(d.ResetAfter, left)
	if cost >= 0 && d.RetryAfter != Never {
		d.RetryAfter = max(d.RetryAfter, left)
	}
}

// mend moves to clock the beginning of a pause that lies further ahead than skew, and
// reports whether it did.
func (p *Pause) mend(clock, skew int64) bool {
	if p.Began-clock <= skew {
		return false
	}
	p.Began, p.Until = clock, clock+p.Until-p.Began
	return true
}

// dropPause forgets the pause of a state that a limit without BlockFor writes.
func (l *Limit) dropPause(s *State) {
	if l.BlockFor == 0 {
		s.Pause = Pause{}
	}
}

// StartsPause reports whether a hit that by itself got d starts a pause, if a cost was
// charged since the last one. It does if it takes, and is denied for what was charged: not
// by a pause, and not because its cost exceeds the capacity.
func (h *Hit) StartsPause(d *Decision) bool {
	return h.Limit.BlockFor > 0 && h.Cost > 0 && d.RetryAfter > 0 && d.Paused == 0
}

// StartPause starts a pause at clock if the hit, which by itself got d, starts one, and
// makes d say what the pause does.
func (s *State) StartPause(h *Hit, clock int64, d *Decision) {
	if !h.StartsPause(d) || s.Pause != (Pause{}) {
		return
	}
	s.Pause = Pause{Began: clock, Until: clock + h.Limit.BlockFor.Microseconds()}
	d.PauseBegan = true
	s.Pause.deny(clock, h.Cost, d)
}

// KeptUntil is the moment from which nothing of the state matters; 0 if nothing was
// written.
func (s *State) KeptUntil() int64 { return max(s.Expires, s.Pause.Until) }
