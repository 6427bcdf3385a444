package redisstore

import (
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// trip is the way of a traced part to Redis and back. As the part's decisions, it
// is written by the batch and read by the caller once the wait is over; of a part
// that was abandoned the caller reads what was written before it was sent.
type trip struct {
	queued, sent, back time.Time
	batch              bucket.SpanRef
}

// leg has the times of parts that were asked together: those of the slowest.
type leg struct{ queued, asked time.Duration }

// begin has the part tell of its trip.
func (l *leg) begin(p *part) { p.trip = &trip{queued: time.Now()} }

// end adds the trip of a part whose wait is over to the leg, and its batch to the
// trace.
func (l *leg) end(p *part, trace *bucket.Trace) {
	t := p.trip
	switch p.outcome.state {
	case byRedis, commandFailed:
		l.add(t.sent.Sub(t.queued), t.back.Sub(t.sent))
		trace.AddBatch(t.batch)
	case unanswered:
		l.add(t.sent.Sub(t.queued), time.Since(t.sent))
	default:
		l.add(time.Since(t.queued), 0)
	}
}

func (l *leg) add(queued, asked time.Duration) {
	l.queued, l.asked = max(l.queued, queued), max(l.asked, asked)
}

// addTo adds the leg to the trace of its request.
func (l *leg) addTo(trace *bucket.Trace) {
	trace.Queued += l.queued
	trace.Asked += l.asked
}

// tellBatch tells of a batch that is back, if it carried a traced part.
func (s *Store) tellBatch(n *node, commands []*command, parts []*part, start time.Time, took time.Duration) {
	var traced []*trip
	limits := 0
	for _, p := range parts {
		limits += len(p.Hits)
		if p.trip != nil {
			traced = append(traced, p.trip)
		}
	}
	if traced == nil {
		return
	}
	failed := false
	for _, c := range commands {
		failed = failed || c.cmd.Err() != nil
	}
	batch := s.onBatch(bucket.TracedBatch{
		Node: n.name(), Requests: len(parts), Commands: len(commands), Limits: limits, Start: start, Took: took, Failed: failed,
	})
	for _, t := range traced {
		t.back, t.batch = start.Add(took), batch
	}
}
