package redisstore

import (
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

// repeat writes the decisions as of now.
func (k *denial) repeat(now time.Time, decisions []bucket.Decision) {
	// A caller that waits for the retry time must then be allowed, so time counts
	// from when the reply came, not from when Redis decided.
	passed := max(0, now.Sub(k.received).Truncate(time.Microsecond))
	for i, d := range k.decisions {
		if d.RetryAfter > 0 {
			d.RetryAfter -= passed
		}
		d.ResetAfter = max(0, d.ResetAfter-passed)
		d.Wait = max(0, d.Wait-passed)
		d.Paused, d.PauseBegan = max(0, d.Paused-passed), false
		d.RememberedAt = d.At + passed.Microseconds()
		d.At, d.Seq = 0, 0 // nothing was taken that could be given back
		decisions[i] = d
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
