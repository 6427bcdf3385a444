package redisstore

import (
	"bytes"
	"time"
	"unsafe"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/redisstore/script"
)

// denial is a group that was denied.
type denial struct {
	question
	hits      []bucket.Hit
	decisions []bucket.Decision
	received  time.Time // when the reply came
	until     time.Time // when the denial ends at the latest
}

// copyFrom copies the hits, without their places, and the decisions.
func (k *denial) copyFrom(r *script.Group) {
	size := 0
	for i := range r.Hits {
		size += len(r.Hits[i].Key)
	}
	text := make([]byte, 0, size)
	k.hits = make([]bucket.Hit, len(r.Hits))
	for i := range r.Hits {
		h := &r.Hits[i]
		start := len(text)
		text = append(text, h.Key...)
		k.hits[i] = bucket.Hit{Limit: h.Limit, Key: text[start:len(text):len(text)], Cost: h.Cost, Role: h.Role}
	}
	k.decisions = append([]bucket.Decision(nil), r.Decisions...)
}

// covers reports whether hits are denied too: they are those of the denial, or cost more
// where it denied a cost.
func (k *denial) covers(hits []bucket.Hit) bool {
	if len(hits) != len(k.hits) {
		return false
	}
	for i := range hits {
		h, denied := &hits[i], &k.hits[i]
		if h.Limit != denied.Limit || h.Role != denied.Role || h.Holder != "" || !bytes.Equal(h.Key, denied.Key) {
			return false
		}
		isMore := h.Cost > denied.Cost && denied.Cost > 0 && !k.decisions[i].Allowed()
		if h.Cost != denied.Cost && !isMore {
			return false
		}
	}
	return true
}

// repeat writes the decisions on a request that the denial covers, as of now.
func (k *denial) repeat(now time.Time, r *script.Group) {
	// A caller that waits as long as it is told must then be allowed, so time counts
	// from when the reply came, not from when Redis decided.
	passed := max(0, now.Sub(k.received).Truncate(time.Microsecond))
	for i, d := range k.decisions {
		switch {
		case d.RetryAfter <= 0:
		case r.Hits[i].Cost > r.Hits[i].Limit.Capacity:
			d.RetryAfter = bucket.Never
		default:
			d.RetryAfter -= passed
		}
		d.ResetAfter = max(0, d.ResetAfter-passed)
		d.Wait = max(0, d.Wait-passed)
		d.RememberedAt = d.At + passed.Microseconds()
		d.At, d.Seq = 0, 0 // nothing was taken that could be given back
		r.Decisions[i] = d
	}
}

// size is about how many bytes the denial keeps alive. That includes its limits: this
// denial alone may keep a limit that a request brought.
func (k *denial) size() int {
	const (
		limit    = unsafe.Sizeof(bucket.Limit{}) + 256 // with its texts
		mapEntry = 64                                  // of a map that has just grown
		each     = limit + unsafe.Sizeof(bucket.Hit{}) + unsafe.Sizeof(bucket.Decision{})
	)
	n := int(unsafe.Sizeof(*k)+mapEntry) + len(k.hits)*int(each)
	for i := range k.hits {
		n += len(k.hits[i].Key)
	}
	return n
}
