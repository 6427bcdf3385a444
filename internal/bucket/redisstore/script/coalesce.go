package script

import (
	"bytes"
	"hash/maphash"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// SetHash prepares a group for coalesce: equal groups have equal hashes, and
// others hardly ever. The seed keeps callers from finding those, by their keys
// or by their costs.
func (g *Group) SetHash(seed maphash.Seed) {
	g.Hash = uint64(g.Mode)
	for i := range g.Hits {
		// Odd, so that no hash of what came before is lost.
		const mix = 0x9e3779b97f4a7c15
		h := &g.Hits[i]
		g.Hash = g.Hash*mix ^ maphash.Bytes(seed, h.Key) ^ maphash.Comparable(seed, h.Cost)
	}
}

// equal reports whether two groups ask for the same.
func (g *Group) equal(o *Group) bool { return g.Mode == o.Mode && EqualHits(g.Hits, o.Hits) }

// EqualHits reports whether these are the same hits in the same order.
func EqualHits(as, bs []bucket.Hit) bool {
	if len(as) != len(bs) {
		return false
	}
	for i := range as {
		a, b := &as[i], &bs[i]
		if a.Limit != b.Limit || a.Cost != b.Cost || a.Role != b.Role || !bytes.Equal(a.Key, b.Key) {
			return false
		}
	}
	return true
}

// Coalesce links equal groups, so that the script gets each line once with how
// many they are. It returns the first of each line in order of arrival, in the
// memory of groups. Give-backs stay alone: each names its own moments.
func (b *Batch) Coalesce(groups []*Group) []*Group {
	b.lines.reset()
	heads := groups[:0]
	for _, g := range groups {
		g.Same = nil
		i, isNew := b.lines.find(g.Hash, func(i int) bool { return g.Mode != GiveBack && heads[i].equal(g) })
		if isNew {
			heads = append(heads, g)
			b.tails = append(b.tails, g)
			continue
		}
		b.tails[i].Same = g
		b.tails[i] = g
	}
	clear(b.tails)
	b.tails = b.tails[:0]
	return heads
}
