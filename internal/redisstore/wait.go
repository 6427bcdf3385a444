package redisstore

import "time"

// The statuses of a request say who may use its memory while its caller waits. The
// caller of an abandoned request reads none of its decisions, and the batch may still
// write decisions and Err.
const (
	waiting uint32 = iota
	sent           // only Redis knows its outcome
	abandoned
	decided
)

// depart reports whether the request goes with a batch that is about to be sent. It
// does not if its caller disconnected.
func (r *request) depart() bool {
	if err := r.ctx.Err(); err != nil {
		r.abandon(err)
		return false
	}
	if r.trip != nil {
		r.trip.sent = time.Now()
	}
	return r.status.CompareAndSwap(waiting, sent)
}

// abandon ends the wait for a request that is not decided yet.
func (r *request) abandon(cause error) {
	for {
		was := r.status.Load()
		if was == abandoned || was == decided {
			return
		}
		if r.status.CompareAndSwap(was, abandoned) {
			state := unasked
			if was == sent {
				state = unanswered
			}
			r.done <- decidedBy{state, cause}
			return
		}
	}
}

// expire abandons the request if its caller disconnected, or has no more time left than
// slack.
func (r *request) expire(now time.Time, slack time.Duration) {
	if err := r.ctx.Err(); err != nil {
		r.abandon(err)
	} else if r.deadline.Sub(now) <= slack {
		r.abandon(errNoAnswer)
	}
}

// wait waits until the request is done, and notes who decided it. now is the time, or
// that of a moment ago.
func (r *request) wait(now time.Time) {
	if rest := r.deadline.Sub(now); rest < shortWait {
		t := time.NewTimer(rest)
		defer t.Stop()
		select {
		case r.by = <-r.done:
			return
		case <-t.C:
			r.abandon(errNoAnswer)
		}
	}
	r.by = <-r.done
}
