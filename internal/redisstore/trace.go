package redisstore

import (
	"time"

	"github.com/ratelimitd/ratelimitd/internal/redisstore/pipe"
)

// leg has the times of requests that were asked together: those of the slowest one.
type leg struct{ queued, asked time.Duration }

// start gives a request a trip.
func (l *leg) start(r *request) { r.Trip = &pipe.Trip{Queued: time.Now()} }

// stop adds the trip of a request whose wait is over to the leg, and what the leg grew
// by to the trace.
func (l *leg) stop(r *request) {
	t, trace := r.Trip, r.caller().traced
	var queued, asked time.Duration
	switch {
	case r.State() == pipe.Left || !r.IsLate() && t.Sent.IsZero():
		queued = time.Since(t.Queued)
	case r.IsLate():
		queued, asked = t.Sent.Sub(t.Queued), time.Since(t.Sent)
	default:
		queued, asked = t.Sent.Sub(t.Queued), t.Back.Sub(t.Sent)
		trace.AddBatch(t.Batch)
	}
	if queued > l.queued {
		trace.Queued += queued - l.queued
		l.queued = queued
	}
	if asked > l.asked {
		trace.Asked += asked - l.asked
		l.asked = asked
	}
}
