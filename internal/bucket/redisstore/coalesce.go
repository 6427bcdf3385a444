package redisstore

import (
	"bytes"
	"hash/maphash"
)

// setHash prepares a group for coalesce: equal groups have equal hashes. The
// seed keeps callers from finding others.
func (g *group) setHash(seed maphash.Seed) {
	var h maphash.Hash
	h.SetSeed(seed)
	_ = h.WriteByte(byte(g.mode))
	for _, hit := range g.hits {
		_, _ = h.Write(hit.Key)
		maphash.WriteComparable(&h, hit.Limit)
		maphash.WriteComparable(&h, hit.Cost)
	}
	g.hash = h.Sum64()
}

// equal reports whether two groups ask for the same.
func (g *group) equal(o *group) bool {
	if g.mode != o.mode || len(g.hits) != len(o.hits) {
		return false
	}
	for i := range g.hits {
		a, b := &g.hits[i], &o.hits[i]
		if a.Limit != b.Limit || a.Cost != b.Cost || !bytes.Equal(a.Key, b.Key) {
			return false
		}
	}
	return true
}

// coalesce links equal groups, so that the script gets each line once with how
// many they are. It returns the first of each line in order of arrival, in the
// memory of groups. Give-backs stay alone: each names its own moments.
func (b *batch) coalesce(groups []*group) []*group {
	b.lines.reset()
	heads := groups[:0]
	for _, g := range groups {
		g.same = nil
		hash := g.hash
		i, isNew := b.lines.find(hash, func(i int) bool { return g.mode != giveBack && heads[i].equal(g) })
		if isNew {
			heads = append(heads, g)
			b.tails = append(b.tails, g)
			continue
		}
		b.tails[i].same = g
		b.tails[i] = g
	}
	clear(b.tails)
	b.tails = b.tails[:0]
	return heads
}
