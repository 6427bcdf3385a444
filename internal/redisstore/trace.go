package redisstore

import (
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/redisstore/script"
)

// trip is the way of a traced request to Redis and back. Like the request's decisions,
// the batch writes it and the caller reads it once the wait is over. If the request was
// abandoned, the caller reads only what was written before it was sent.
type trip struct {
	queued, sent, back time.Time
	batch              bucket.SpanRef
}

// leg has the times of requests that were asked together: those of the slowest one.
type leg struct{ queued, asked time.Duration }

// begin gives a request a trip.
func (l *leg) begin(r *request) { r.trip = &trip{queued: time.Now()} }

// end adds the trip of a request whose wait is over to the leg, and what the leg grew
// by to the trace.
func (l *leg) end(r *request) {
	t, trace := r.trip, r.caller().traced
	var queued, asked time.Duration
	switch r.by.state {
	case byRedis, commandFailed:
		queued, asked = t.sent.Sub(t.queued), t.back.Sub(t.sent)
		trace.AddBatch(t.batch)
	case unanswered:
		queued, asked = t.sent.Sub(t.queued), time.Since(t.sent)
	default:
		queued = time.Since(t.queued)
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

// tell reports a batch that is back, if it carried a traced request.
func (b *batch) tell(commands []*script.Command, start time.Time, took time.Duration) {
	var traced []*trip
	limits := 0
	for _, r := range b.requests {
		limits += len(r.Hits)
		if r.trip != nil {
			traced = append(traced, r.trip)
		}
	}
	if traced == nil {
		return
	}
	failed := false
	for _, c := range commands {
		failed = failed || c.Cmd.Err() != nil
	}
	span := b.store.onBatch(bucket.TracedBatch{
		Node: b.node.name(), Requests: len(b.requests), Commands: len(commands), Limits: limits, Start: start, Took: took, Failed: failed,
	})
	for _, t := range traced {
		t.back, t.batch = start.Add(took), span
	}
}
