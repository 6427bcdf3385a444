package replay

import (
	"github.com/cespare/xxhash/v2"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/decide"
	"github.com/ratelimitd/ratelimitd/internal/decisionlog"
)

// maxRefused bounds the takes that a side remembers, about 40 bytes each. A give-back
// follows its take soon.
const maxRefused = 1 << 18

// refusedTakes are the last takes of which a give-back would give nothing, by hash. A
// hash collision only costs a give-back.
type refusedTakes struct {
	known map[uint64]bool
	ring  []uint64
	hand  int
}

func takeHash(h *bucket.Hit, at int64) uint64 {
	return xxhash.Sum64(h.Key) ^ uint64(at)*0x9e3779b97f4a7c15
}

// add remembers the takes of a call that was denied.
func (r *refusedTakes) add(c *decide.Call, l *decisionlog.Line) {
	for i := range c.Outcomes {
		o := &c.Outcomes[i]
		for j := range o.Hits {
			h := &o.Hits[j]
			if h.Cost <= 0 || bucket.Due(h, &o.Decisions[j], false) {
				continue
			}
			at := l.At
			if recorded := recordedLimit(&l.Descriptors[i], o, j); recorded != nil && recorded.At != 0 {
				at = recorded.At
			}
			r.put(takeHash(h, at))
		}
	}
}

func (r *refusedTakes) put(hash uint64) {
	if r.known == nil {
		r.known = make(map[uint64]bool)
	}
	if r.known[hash] {
		return
	}
	if len(r.ring) < maxRefused {
		r.ring = append(r.ring, hash)
	} else {
		delete(r.known, r.ring[r.hand])
		r.ring[r.hand] = hash
		r.hand = (r.hand + 1) % maxRefused
	}
	r.known[hash] = true
}

// has reports whether the take of a hit at a given time was refused.
func (r *refusedTakes) has(h *bucket.Hit, at int64) bool { return r.known[takeHash(h, at)] }
