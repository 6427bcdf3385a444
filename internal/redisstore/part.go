package redisstore

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/redisstore/script"
)

// part is what one command can decide of a request: all of it, or on a cluster
// the hits of one hash tag. It waits in the queue of a node, travels in a batch
// and comes back decided.
//
// A batch reads only memory of its parts: their callers may be gone, and use
// their own memory for something else, before the batch is back. The exception
// is Place, which a batch does not read.
type part struct {
	script.Group
	tag  int
	of   []int  // for each hit, its index in the request
	text []byte // the hits' keys
	// isWhole is whether this is the part of a request that has all of its hits,
	// which the request keeps.
	isWhole bool

	ctx      context.Context // the caller's
	deadline time.Time       // of the caller's wait
	status   atomic.Uint32
	// done gets the outcome when the wait is over: the part is decided, or its
	// command has failed, or it is abandoned.
	done    chan outcome
	outcome outcome
	// trip is nil unless the request is traced.
	trip *trip
}

// The statuses of a part say who may use its memory while its caller waits. An
// abandoned part belongs to its batch for good: its caller reads no decision of
// it, and the batch may still write decisions and Err.
const (
	waiting uint32 = iota
	sent           // only Redis knows what becomes of it
	abandoned
	decided
)

func newPart() *part { return &part{done: make(chan outcome, 1)} }

// part returns an empty part for hits of a tag.
func (s *Store) part(m script.Mode, tag int) *part {
	p := s.parts.Get().(*part)
	p.Mode, p.tag = m, tag
	return p
}

// recycle takes back parts that nobody else looks at any more. A request keeps
// its whole part.
func (s *Store) recycle(parts []*part) {
	for _, p := range parts {
		if !p.isWhole {
			p.reset()
			s.parts.Put(p)
		}
	}
}

// reset empties a part that nobody else looks at any more.
func (p *part) reset() {
	clear(p.Hits)
	p.Group = script.Group{Hits: p.Hits[:0], Decisions: p.Decisions[:0]}
	p.tag, p.of, p.text, p.isWhole = 0, p.of[:0], p.text[:0], false
	p.ctx, p.outcome, p.trip = nil, outcome{}, nil
	p.status.Store(waiting)
}

// replacement returns a part like p, which was abandoned and still belongs to
// its batch.
func (s *Store) replacement(p *part) *part {
	fresh := s.part(p.Mode, p.tag)
	fresh.isWhole, fresh.outcome = p.isWhole, p.outcome
	for i, h := range p.Hits {
		fresh.add(h, p.of[i], bucket.Decision{})
	}
	return fresh
}

// copyKey copies head and key into the part's memory, and returns the copy.
func (p *part) copyKey(head string, key []byte) []byte {
	start := len(p.text)
	p.text = append(append(p.text, head...), key...)
	return p.text[start:len(p.text):len(p.text)]
}

// add copies a hit, with its index in the request and its decision so far.
func (p *part) add(h bucket.Hit, of int, d bucket.Decision) {
	h.Key = p.copyKey("", h.Key)
	p.Hits = append(p.Hits, h)
	p.of = append(p.of, of)
	p.Decisions = append(p.Decisions, d)
}

// send reports whether a batch that is about to go takes the part with it. It
// does not if the caller has gone.
func (p *part) send() bool {
	if err := p.ctx.Err(); err != nil {
		p.abandon(err)
		return false
	}
	if p.trip != nil {
		p.trip.sent = time.Now()
	}
	return p.status.CompareAndSwap(waiting, sent)
}

// finish ends the wait for a part whose command has ended, unless it was
// abandoned.
func (p *part) finish() {
	if p.status.CompareAndSwap(sent, decided) {
		p.done <- commandEnded(p.Err)
	}
}

// abandon ends the wait for a part that is not decided yet.
func (p *part) abandon(cause error) {
	for {
		was := p.status.Load()
		if was == abandoned || was == decided {
			return
		}
		if p.status.CompareAndSwap(was, abandoned) {
			state := unasked
			if was == sent {
				state = unanswered
			}
			p.done <- outcome{state, cause}
			return
		}
	}
}

// expire abandons the part if its caller has gone, or has no more time left than
// slack.
func (p *part) expire(now time.Time, slack time.Duration) {
	if err := p.ctx.Err(); err != nil {
		p.abandon(err)
	} else if p.deadline.Sub(now) <= slack {
		p.abandon(errNoAnswer)
	}
}

// wait waits until the part is done, and takes over its outcome. now is the time,
// or that of a moment ago.
func (p *part) wait(now time.Time) {
	if rest := p.deadline.Sub(now); rest < shortWait {
		t := time.NewTimer(rest)
		defer t.Stop()
		select {
		case p.outcome = <-p.done:
			return
		case <-t.C:
			p.abandon(errNoAnswer)
		}
	}
	p.outcome = <-p.done
}
