package pipe

import (
	"context"
	"time"
)

// resendEvery is the pause before a request is sent once more.
const resendEvery = 5 * time.Millisecond

// deliver hands a request whose command has ended to its caller, or sends it again if
// Redis may then decide it. A caller who has left gets nothing.
func (w *wire) deliver(r *Request) {
	if r.mayResend() && !r.IsGone() {
		r.Err = nil
		w.resends.Go(func() { w.resend(r) })
		return
	}
	if !r.arrive() && !r.move(Abandoned, Returned) && w.OnLate != nil {
		w.OnLate(r)
	}
}

// resend sends again a request that a server could not decide, either because its slot is
// moving, or because its clock is outside of the windows of a limit by calendar. Alone, a
// request with one key goes to where that key is now, and one with limits by calendar has
// the windows that the script needs. One with several keys is sent until all of them are on
// one node, or until its caller has no time left.
func (w *wire) resend(r *Request) {
	ctx, cancel := context.WithDeadline(r.ctx, r.deadline)
	defer cancel()
	alone := w.alone(r)
	for {
		if alone.send(ctx); !r.mayResend() {
			w.deliver(r)
			return
		}
		r.Err = nil
		select {
		case <-time.After(resendEvery):
		case <-ctx.Done():
			r.expire(time.Now(), resendEvery)
			return
		}
	}
}
