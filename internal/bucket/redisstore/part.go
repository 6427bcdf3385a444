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
	standing atomic.Uint32
	answered chan struct{} // has one element once group is decided or err set
	timer    *time.Timer

	// cause is why Redis did not decide, so that the fallback is asked; nil if
	// it did. Parts that are chosen from this one have it too.
	cause error
	// failed is why nobody decided; nil if somebody did.
	failed error
}

// The standings of a part. A caller that gives up makes it left, whatever it
// was, and never touches its decisions again.
const (
	waiting uint32 = iota
	sent           // what becomes of it is known to the store only, until it is answered
	left
)

func newPart() *part {
	p := &part{answered: make(chan struct{}, 1), timer: time.NewTimer(time.Hour)}
	p.timer.Stop()
	return p
}

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
		p.ctx, p.cause, p.failed = nil, nil, nil
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

// answer ends the way of a part that is decided, or not, which err says.
func (p *part) answer(err error) {
	if err != nil {
		p.err = err
	}
	p.answered <- struct{}{}
}

// send tells a batch that is about to go whether to take the part with it. It
// does not if the caller has gone.
func (p *part) send() bool {
	if !p.standing.CompareAndSwap(waiting, sent) {
		return false
	}
	if err := p.ctx.Err(); err != nil {
		p.answer(err)
		return false
	}
	return true
}

// wait waits for the answer until the deadline, and no longer than the caller.
// unknown is whether the part was sent and only the store knows its outcome.
func (p *part) wait(ctx context.Context, deadline time.Time) (err error, unknown bool) {
	select {
	case <-p.answered:
		return p.err, false
	default:
	}
	p.timer.Reset(time.Until(deadline))
	defer p.timer.Stop()
	select {
	case <-p.answered:
		return p.err, false
	case <-ctx.Done():
		err = ctx.Err()
	case <-p.timer.C:
		err = errNoAnswer
	}
	return err, p.standing.Swap(left) == sent
}
