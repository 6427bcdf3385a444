package buckettest

import (
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// pause is when all of a key is denied.
type pause struct{ began, until int64 }

// hasPauses reports whether pauses matter to the hit.
func hasPauses(h bucket.Hit) bool { return h.Limit.BlockFor > 0 && h.Limit.Requests > 0 }

// deny makes a decision that of a key in a pause, if it is in one at clock.
func (o *Oracle) deny(h bucket.Hit, clock int64, d *bucket.Decision) {
	p, known := o.pauses[string(h.Key)]
	if !known || !hasPauses(h) || clock >= p.until {
		return
	}
	d.Paused = time.Duration(p.until-clock) * time.Microsecond
	d.Remaining = 0
	d.ResetAfter = max(d.ResetAfter, d.Paused)
	if h.Cost >= 0 && d.RetryAfter != bucket.Never {
		d.RetryAfter = max(d.RetryAfter, d.Paused)
	}
}

// startPause starts the pause of a hit that was denied, if nothing but its limit denied it,
// now, and if something was charged since its last pause.
func (o *Oracle) startPause(h bucket.Hit, clock int64, d *bucket.Decision) {
	_, known := o.pauses[string(h.Key)]
	if known || !hasPauses(h) || h.Cost <= 0 || d.Allowed() || d.RetryAfter == bucket.Never {
		return
	}
	o.pauses[string(h.Key)] = pause{clock, clock + h.Limit.BlockFor.Microseconds()}
	d.PauseBegan = true
	o.deny(h, clock, d)
}

// endPause is called when the hit is charged: a pause that is over may be followed by
// another.
func (o *Oracle) endPause(h bucket.Hit, clock int64) {
	if h.Cost > 0 && clock >= o.pauses[string(h.Key)].until {
		delete(o.pauses, string(h.Key))
	}
}

// movePause moves to clock a pause that a wrong clock began, and reports whether it did.
func (o *Oracle) movePause(h bucket.Hit, clock int64) bool {
	p := o.pauses[string(h.Key)]
	if !hasPauses(h) || p.began <= clock+maxSkew {
		return false
	}
	o.pauses[string(h.Key)] = pause{clock, clock + p.until - p.began}
	return true
}

// writes is called when the hit's limit writes: one without pauses ends them.
func (o *Oracle) writes(h bucket.Hit) {
	if h.Limit.BlockFor == 0 {
		delete(o.pauses, string(h.Key))
	}
}
