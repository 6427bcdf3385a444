package redisstore

import (
	"context"
	"hash/maphash"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/fallback"
	"github.com/ratelimitd/ratelimitd/internal/redisstore/script"
)

// request is a Take, Check or GiveBack on its way. It waits in the queue of a node, is
// sent in a batch and comes back decided. On a cluster, a request whose hits have
// several hash tags is not sent itself: its pieces are, one for each tag.
//
// A batch reads only memory of its requests: their callers may disconnect, and use
// their own memory for something else, before the batch is back. The exception is
// Place, which a batch does not read. So an abandoned request belongs to its batch for
// good, and whoever waited for it goes on with a replacement.
type request struct {
	script.Group
	tag  int    // of all hits, unless isSpread
	text []byte // the hits' keys and holders
	// merged has, for each hit of the caller, its index in Hits; it is empty for a
	// piece.
	merged []int
	// isSpread says whether the hits have several hash tags on a cluster.
	isSpread bool
	// whole is the request of which this is a piece, and of has, for each hit, its
	// index there. Both are nil if this is not a piece.
	whole *request
	of    []int

	ctx      context.Context // the caller's
	start    time.Time
	deadline time.Time // of the wait for Redis
	status   atomic.Uint32
	// done gets who decided when the wait is over: Redis has decided, or the command
	// has failed, or the request was abandoned.
	done chan decidedBy
	by   decidedBy
	// question is what the memory of denials was asked first.
	question question
	// degraded is why Redis did not decide some of the hits.
	degraded fallback.Degraded
	// late are those of the request's pieces, or the request that this one replaces, that
	// were abandoned and may yet take slots. fate is what becomes of these slots, see
	// late.go.
	late []*request
	fate atomic.Uint32
	// traced receives how the request was decided, and trip has the times; both are nil
	// unless the request is traced.
	traced *bucket.Trace
	trip   *trip
}

func newRequest() *request { return &request{done: make(chan decidedBy, 1)} }

// begin returns a request for hits; end ends its use.
func (s *Store) begin(ctx context.Context, m script.Mode, hits []bucket.Hit) *request {
	r := s.requests.Get().(*request)
	r.Mode, r.ctx, r.start = m, ctx, time.Now()
	r.deadline = r.start.Add(s.timeoutFor(ctx, r.start))
	if s.onBatch != nil {
		r.traced = bucket.TraceOf(ctx)
	}
	r.Hits, r.merged = bucket.Merge(r.Hits, r.merged, hits)
	r.Decisions = append(r.Decisions, make([]bucket.Decision, len(r.Hits))...)
	for i := range r.Hits {
		h := &r.Hits[i]
		tag := s.tags.Of(h.Place)
		h.Key, h.Holder = r.copyKey(s.heads[tag], h.Key), r.copyHolder(h.Holder)
		r.Hashes = append(r.Hashes, maphash.Bytes(s.seed, h.Key))
		switch {
		case !s.isCluster:
		case i == 0:
			r.tag = tag
		case tag != r.tag:
			r.isSpread = true
		}
	}
	return r
}

// caller returns the request that has all hits of the caller: the whole, or itself.
func (r *request) caller() *request {
	if r.whole != nil {
		return r.whole
	}
	return r
}

// timeoutFor returns how long Redis has to answer a caller: no more than four fifths of
// the caller's time, so that the fallback can still decide in the last fifth.
func (s *Store) timeoutFor(ctx context.Context, now time.Time) time.Duration {
	end, ok := ctx.Deadline()
	if !ok {
		return s.timeout
	}
	return min(s.timeout, end.Sub(now)/5*4)
}

// end writes the decision of each of the caller's hits, and ends the use of a request.
func (s *Store) end(r *request, decisions []bucket.Decision) {
	for i, j := range r.merged {
		decisions[i] = r.Decisions[j]
	}
	s.recycle(r)
}

// piece returns an empty piece of a request for the hits of a tag.
func (s *Store) piece(whole *request, m script.Mode, tag int) *request {
	p := s.requests.Get().(*request)
	p.Mode, p.tag, p.whole, p.ctx = m, tag, whole, whole.ctx
	return p
}

// copyHit copies hit i of another request, with a decision. of is the hit's index in
// the whole.
func (r *request) copyHit(from *request, i, of int, d bucket.Decision) {
	h := from.Hits[i]
	h.Key, h.Holder = r.copyKey("", h.Key), r.copyHolder(h.Holder)
	r.Hits = append(r.Hits, h)
	r.Hashes = append(r.Hashes, from.Hashes[i])
	r.Decisions = append(r.Decisions, d)
	r.of = append(r.of, of)
	if from.Named != nil {
		r.CopyNamed(&from.Group, i)
	}
}

// copyKey copies head and key into the request's memory, and returns the copy.
func (r *request) copyKey(head string, key []byte) []byte {
	start := len(r.text)
	r.text = append(append(r.text, head...), key...)
	return r.text[start:len(r.text):len(r.text)]
}

// copyHolder is copyKey for the name of a holder.
func (r *request) copyHolder(holder string) string {
	if holder == "" {
		return ""
	}
	start := len(r.text)
	r.text = append(r.text, holder...)
	return unsafe.String(&r.text[start], len(holder))
}

// replacement returns a request like r, which was abandoned and still belongs to its
// batch.
func (s *Store) replacement(r *request) *request {
	fresh := s.requests.Get().(*request)
	fresh.Mode, fresh.tag, fresh.whole, fresh.isSpread = r.Mode, r.tag, r.whole, r.isSpread
	for i := range r.Hits {
		of := i
		if r.whole != nil {
			of = r.of[i]
		}
		fresh.copyHit(r, i, of, bucket.Decision{}) // the batch may still write those of r
	}
	fresh.merged = append(fresh.merged, r.merged...)
	fresh.ctx, fresh.start, fresh.deadline = r.ctx, r.start, r.deadline
	fresh.by, fresh.question, fresh.degraded, fresh.traced = r.by, r.question, r.degraded, r.traced
	return fresh
}

// recycle takes back a request that nobody else looks at any more.
func (s *Store) recycle(r *request) {
	clear(r.Hits)
	r.Group = script.Group{Hits: r.Hits[:0], Hashes: r.Hashes[:0], Decisions: r.Decisions[:0]}
	r.tag, r.text, r.merged, r.isSpread = 0, r.text[:0], r.merged[:0], false
	r.whole, r.of, r.ctx = nil, r.of[:0], nil
	r.by, r.question, r.degraded, r.traced, r.trip = decidedBy{}, question{}, fallback.Degraded{}, nil, nil
	r.late = nil
	r.fate.Store(lateOpen)
	r.status.Store(waiting)
	s.requests.Put(r)
}
