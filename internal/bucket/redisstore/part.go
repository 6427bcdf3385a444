package redisstore

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/redisstore/script"
)

// part is what one call can decide of a request: all of it, or the hits of one
// hash tag on a cluster. It waits in the queue of a node, travels in a batch
// and comes back decided.
//
// The batch reads nothing that its caller may use again: whoever asked may be
// gone before the batch is back. Places, which it does not read, stay the
// caller's.
type part struct {
	script.Group
	tag  int
	of   []int  // where each hit stands in the request
	text []byte // the hits' keys
	// isWhole is whether it is a request's own, which has all of its hits.
	isWhole bool

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

func newPart() *part {
	p := new(part)
	p.init()
	return p
}

// init makes a part of a zero one.
func (p *part) init() { p.over = make(chan struct{}, 1) }

// part returns an empty part for hits of a tag.
func (s *Store) part(m script.Mode, tag int) *part {
	p := s.parts.Get().(*part)
	p.Mode, p.tag = m, tag
	return p
}

// recycle takes back parts that nobody else looks at any more. A request keeps
// its own.
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
	p.ctx, p.why, p.cause, p.failed = nil, nil, nil, nil
	p.unknown, p.again = false, false
	p.standing.Store(waiting)
}

// replacement returns a part like p, which was left and still belongs to its
// batch.
func (s *Store) replacement(p *part) *part {
	fresh := s.part(p.Mode, p.tag)
	fresh.isWhole = p.isWhole
	for i, h := range p.Hits {
		fresh.add(h, p.of[i], bucket.Decision{})
	}
	return fresh
}

// own copies a key, with a head before it, into the part's memory.
func (p *part) own(head string, key []byte) []byte {
	start := len(p.text)
	p.text = append(append(p.text, head...), key...)
	return p.text[start:len(p.text):len(p.text)]
}

// add copies a hit.
func (p *part) add(h bucket.Hit, of int, d bucket.Decision) {
	h.Key = p.own("", h.Key)
	p.Hits = append(p.Hits, h)
	p.of = append(p.of, of)
	p.Decisions = append(p.Decisions, d)
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

// wait waits until the part is over, and returns why Redis did not decide. now
// is the time, or that of a moment ago.
func (p *part) wait(now time.Time) error {
	if rest := p.deadline.Sub(now); rest < shortWait {
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
	p.unknown = mayHaveRun(p.Err)
	return p.Err
}
