package redisstore

import (
	"context"
	"hash/maphash"
	"sync"
	"time"
	"unsafe"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/fallback"
	"github.com/ratelimitd/ratelimitd/internal/redisstore/pipe"
	"github.com/ratelimitd/ratelimitd/internal/redisstore/script"
)

// request is a Take, Check, GiveBack or Settle. On a cluster, one whose hits have several
// hash tags is not sent itself: its pieces are, one for each tag.
type request struct {
	// The part that is sent has keys and holders in memory of its own, so that a caller
	// who disconnects may use his for something else before a batch is back.
	*pipe.Request
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

	ctx             context.Context // the caller's
	start, deadline time.Time       // of the wait for Redis
	// skipped is why Redis is not to be asked; nil if it is.
	skipped error
	// err is why it was not decided, once asked; nil if Redis or the fallback did.
	err error
	// question is what the memory of denials was asked first.
	question question
	// degraded is why Redis did not decide some of the hits.
	degraded fallback.Degraded
	// late are the requests that were sent for this one or its pieces, and that were
	// abandoned and may yet take slots.
	late []*pipe.Request
	// isGivenBack says whether some of it was taken and given back.
	isGivenBack bool
	// traced receives how the request was decided; nil unless it is traced.
	traced *bucket.Trace
}

// requests makes requests, in the memory of earlier ones.
type requests struct {
	keyspace
	timeout  time.Duration // of Redis
	isTraced bool          // whether requests may be
	pool     sync.Pool     // of *request
}

func (rs *requests) get() *request {
	if r, _ := rs.pool.Get().(*request); r != nil {
		return r
	}
	return &request{Request: pipe.NewRequest()}
}

// newRequest returns a request for hits; finish ends its use.
func (rs *requests) newRequest(ctx context.Context, m script.Mode, hits []bucket.Hit) *request {
	r := rs.get()
	r.Mode, r.ctx, r.start = m, ctx, time.Now()
	r.deadline = r.start.Add(rs.timeoutFor(ctx, r.start))
	if rs.isTraced {
		r.traced = bucket.TraceOf(ctx)
	}
	r.Hits, r.merged = bucket.Merge(r.Hits, r.merged, hits)
	r.Decisions = append(r.Decisions, make([]bucket.Decision, len(r.Hits))...)
	for i := range r.Hits {
		h := &r.Hits[i]
		tag := rs.tags.Of(h.Place)
		h.Key, h.Holder = r.copyKey(rs.heads[tag], h.Key), r.copyHolder(h.Holder)
		r.Hashes = append(r.Hashes, maphash.Bytes(rs.seed, h.Key))
		switch {
		case !rs.isCluster:
		case i == 0:
			r.Tag = tag
		case tag != r.Tag:
			r.isSpread = true
		}
	}
	return r
}

// timeoutFor returns how long Redis has to answer a caller: no more than four fifths of
// the caller's time, so that the fallback can still decide in the last fifth.
func (rs *requests) timeoutFor(ctx context.Context, now time.Time) time.Duration {
	end, ok := ctx.Deadline()
	if !ok {
		return rs.timeout
	}
	return min(rs.timeout, end.Sub(now)/5*4)
}

// finish writes the decision of each of the caller's hits, and ends the use of a request.
func (rs *requests) finish(r *request, decisions []bucket.Decision) {
	for i, j := range r.merged {
		decisions[i] = r.Decisions[j]
	}
	rs.recycle(r)
}

// recycle takes back a request that is no longer in use.
func (rs *requests) recycle(r *request) {
	r.Reset()
	*r = request{Request: r.Request, text: r.text[:0], merged: r.merged[:0], of: r.of[:0]}
	rs.pool.Put(r)
}

// caller returns the request that has all hits of the caller: the whole, or itself.
func (r *request) caller() *request {
	if r.whole != nil {
		return r.whole
	}
	return r
}

// copyHit copies hit i of another request, with a decision.
func (r *request) copyHit(from *script.Group, i int, d bucket.Decision) {
	h := from.Hits[i]
	h.Key, h.Holder = r.copyKey("", h.Key), r.copyHolder(h.Holder)
	r.Hits = append(r.Hits, h)
	r.Hashes = append(r.Hashes, from.Hashes[i])
	r.Decisions = append(r.Decisions, d)
	r.CopyNamed(from, i)
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

// replace gives a request whose wait is over without a reply another part to go on with,
// since the one that was sent belongs to its batch for good. It returns that one.
func (r *request) replace() (gone *pipe.Request) {
	gone = r.Request
	r.Request, r.text = pipe.NewRequest(), nil
	r.Mode, r.Tag = gone.Mode, gone.Tag
	for i := range gone.Hits {
		r.copyHit(&gone.Group, i, bucket.Decision{}) // the batch may still write those of gone
	}
	r.Fail(gone.Cause)
	return gone
}
