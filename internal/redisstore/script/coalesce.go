package script

import (
	"bytes"
	"hash/maphash"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// SetHash prepares a group for Coalesce: equal groups have equal hashes, and
// others hardly ever. The seed keeps callers from choosing keys or costs whose
// groups share a hash.
func (g *Group) SetHash(seed maphash.Seed) {
	g.Hash = uint64(g.Mode)
	for i := range g.Hits {
		// The golden ratio of 2^64. It is odd, so that no bit of the hash so far
		// is lost.
		const mix = 0x9e3779b97f4a7c15
		h := &g.Hits[i]
		g.Hash = g.Hash*mix ^ maphash.Bytes(seed, h.Key) ^ maphash.Comparable(seed, h.Cost)
	}
}

// equal reports whether two groups ask for the same.
func (g *Group) equal(o *Group) bool { return g.Mode == o.Mode && EqualHits(g.Hits, o.Hits) }

// EqualHits reports whether these are the same hits in the same order. Places
// are not compared: they follow from the keys.
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

// Coalesce links equal groups into lines, so that the script gets each of them
// once, with their number. It returns the first group of each line in order of
// arrival, in the memory of groups. A give-back has a line to itself, since it
// names its own moments.
func (e *Encoder) Coalesce(groups []*Group) []*Group {
	e.lines.reset()
	lines := groups[:0]
	for _, g := range groups {
		g.Same = nil
		i, isNew := e.lines.find(g.Hash, func(i int) bool { return g.Mode != GiveBack && lines[i].equal(g) })
		if isNew {
			lines = append(lines, g)
			e.tails = append(e.tails, g)
			continue
		}
		e.tails[i].Same = g
		e.tails[i] = g
	}
	clear(e.tails)
	e.tails = e.tails[:0]
	return lines
}
