package redisstore

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// part is what one call can decide of a request: all of it, or the hits of one
// hash tag on a cluster. It waits in the queue of a node, travels in a batch
// and comes back decided.
//
// Its memory is its own: whoever asked may be gone before the batch is back.
type part struct {
	group
	tag  int
	of   []int  // where each hit stands in the request
	text []byte // the hits' keys

	ctx      context.Context // the caller's
	deadline time.Time       // of the caller's wait
	standing atomic.Uint32
	// over has one element once nobody waits any more: the part is decided, or
	// group.err set, or it is left.
	over chan struct{}
	// why is why the part was left.
	why error
	// unknown is whether only the store knows what became of it.
	unknown bool
	// again is set by a trip whose node wants the part sent again.
	again bool

	// cause is why Redis did not decide, so that the fallback is asked; nil if
	// it did. Parts that are chosen from this one have it too.
	cause error
	// failed is why nobody decided; nil if somebody did.
	failed error
}

// The standings of a part. A part that is left belongs to its batch for good:
// its caller reads no decision of it.
const (
	waiting uint32 = iota
	sent           // only the store knows what becomes of it
	left
	decided
)

func newPart() *part { return &part{over: make(chan struct{}, 1)} }

// part returns an empty part for hits of a tag.
func (s *Store) part(m mode, tag int) *part {
	p := s.parts.Get().(*part)
	p.mode, p.tag = m, tag
	return p
}

// recycle takes back parts that nobody else looks at any more.
func (s *Store) recycle(parts []*part) {
	for _, p := range parts {
		clear(p.hits)
		p.group = group{hits: p.hits[:0], decisions: p.decisions[:0]}
		p.of, p.text = p.of[:0], p.text[:0]
		p.ctx, p.why, p.cause, p.failed = nil, nil, nil, nil
		p.unknown, p.again = false, false
		p.standing.Store(waiting)
		s.parts.Put(p)
	}
}

// replacement returns a part like p, which was left and still belongs to its
// batch.
func (s *Store) replacement(p *part) *part {
	fresh := s.part(p.mode, p.tag)
	for i, h := range p.hits {
		fresh.add("", h, p.of[i], bucket.Decision{})
	}
	return fresh
}

// add copies a hit, whose key in Redis begins with head.
func (p *part) add(head string, h bucket.Hit, of int, d bucket.Decision) {
	start := len(p.text)
	p.text = append(append(p.text, head...), h.Key...)
	h.Key = p.text[start:len(p.text):len(p.text)]
	p.hits = append(p.hits, h)
	p.of = append(p.of, of)
	p.decisions = append(p.decisions, d)
}

// send tells a batch that is about to go whether to take the part with it. It
// does not if the caller has gone.
func (p *part) send() bool {
	if err := p.ctx.Err(); err != nil {
		p.leave(err)
		return false
	}
	return p.standing.CompareAndSwap(waiting, sent)
}

// arrive ends the way of a part that is decided, unless it was left.
func (p *part) arrive() {
	if p.standing.CompareAndSwap(sent, decided) {
		p.over <- struct{}{}
	}
}

// leave ends the wait for a part that is not decided yet.
func (p *part) leave(why error) {
	for {
		was := p.standing.Load()
		if was == left || was == decided {
			return
		}
		if p.standing.CompareAndSwap(was, left) {
			p.why, p.unknown = why, was == sent
			p.over <- struct{}{}
			return
		}
	}
}

// expire leaves the part if its caller has no time left, within slack, or has
// gone.
func (p *part) expire(now time.Time, slack time.Duration) {
	if err := p.ctx.Err(); err != nil {
		p.leave(err)
	} else if p.deadline.Sub(now) <= slack {
		p.leave(errNoAnswer)
	}
}

// wait waits until the part is over, and returns why Redis did not decide.
func (p *part) wait() error {
	if rest := time.Until(p.deadline); rest < shortWait {
		t := time.NewTimer(rest)
		defer t.Stop()
		select {
		case <-p.over:
			return p.outcome()
		case <-t.C:
			p.leave(errNoAnswer)
		}
	}
	<-p.over
	return p.outcome()
}

func (p *part) outcome() error {
	if p.standing.Load() == left {
		return p.why
	}
	p.unknown = mayHaveRun(p.err)
	return p.err
}
