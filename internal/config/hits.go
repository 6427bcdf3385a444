package config

import (
	"slices"
	"strings"
	"sync/atomic"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// Hits are what descriptors that matched a rule cost, in the parts that
// envoyproxy/ratelimit's metrics have.
type Hits struct {
	// Within are the hits of descriptors that were within their limits.
	Within uint64
	// Over are the hits of the other descriptors that were beyond the limit, and
	// Fit are the rest of theirs, for which there was room.
	Over, Fit uint64
	// Near are the hits, of Within and Fit, by which a count came to stand near
	// its limit, and not beyond it.
	Near uint64
	// Shadowed are the hits, of Over and Fit, of descriptors that a rule in shadow
	// mode let pass.
	Shadowed uint64
}

// Total are the hits of all descriptors.
func (h Hits) Total() uint64 { return h.Within + h.Over + h.Fit }

// Plus returns the sum of both.
func (h Hits) Plus(other Hits) Hits {
	return Hits{h.Within + other.Within, h.Over + other.Over, h.Fit + other.Fit, h.Near + other.Near, h.Shadowed + other.Shadowed}
}

// hitCounts are sums of Hits. None ever falls.
type hitCounts struct{ within, over, fit, near, shadowed atomic.Uint64 }

// AddHits counts hits. Counts to which none were ever added take no memory for
// them.
func (c *Counts) AddHits(h Hits) {
	if h == (Hits{}) {
		return
	}
	sums := c.hits.Load()
	if sums == nil {
		c.hits.CompareAndSwap(nil, new(hitCounts)) // one for all that come now
		sums = c.hits.Load()
	}
	// Most add to one sum or two, and an addition of nothing costs as much.
	for _, part := range [...]struct {
		sum *atomic.Uint64
		n   uint64
	}{{&sums.within, h.Within}, {&sums.over, h.Over}, {&sums.fit, h.Fit}, {&sums.near, h.Near}, {&sums.shadowed, h.Shadowed}} {
		if part.n > 0 {
			part.sum.Add(part.n)
		}
	}
}

// HasHits reports whether any were added.
func (c *Counts) HasHits() bool { return c.hits.Load() != nil && c.Hits().Total() > 0 }

// Hits returns the sums of the hits that were added.
func (c *Counts) Hits() Hits {
	sums := c.hits.Load()
	if sums == nil {
		return Hits{}
	}
	return Hits{sums.within.Load(), sums.over.Load(), sums.fit.Load(), sums.near.Load(), sums.shadowed.Load()}
}

// Entries returns the entries that lead to the rule, as they are in the file: a
// value may be a pattern, or empty for any.
func (r *Rule) Entries() []bucket.Entry { return r.AppendEntries(nil) }

// AppendEntries appends them to dst.
func (r *Rule) AppendEntries(dst []bucket.Entry) []bucket.Entry { return r.node.appendPath(dst) }

// path returns the entries that lead to the descriptor, as they are in the file.
func (n *node) path() []bucket.Entry { return n.appendPath(nil) }

func (n *node) appendPath(dst []bucket.Entry) []bucket.Entry {
	begin := len(dst)
	for ; n != nil && n.up != nil; n = n.up {
		dst = append(dst, n.entry)
	}
	slices.Reverse(dst[begin:])
	return dst
}

// AppendEntriesOf appends to dst the entries of the descriptors that are counted
// under a value of the rule's Counts: those of the file, with the values that are
// counted by themselves, or RestOfValues, in their places.
func (r *Rule) AppendEntriesOf(dst []bucket.Entry, value string) []bucket.Entry {
	begin := len(dst)
	dst = r.AppendEntries(dst)
	entries := dst[begin:]
	switch {
	case r.DetailedMetric && value == RestOfValues:
		for i := range entries {
			entries[i].Value = value
		}
	case r.DetailedMetric && isOfEntry(value, entries[0].Key):
		splitEntries(entries, value)
	default: // also what was counted before a reload made the rule detailed
		entries[len(entries)-1].Value = value
	}
	return dst
}

// splitEntries is the reverse of appendEntries: it gives entries, whose keys are
// known, their values. What could be read in two ways was counted as one.
func splitEntries(entries []bucket.Entry, text string) {
	for i := range entries {
		text = strings.TrimPrefix(strings.TrimPrefix(text, entries[i].Key), "=")
		value, rest := text, ""
		if i+1 < len(entries) {
			if at := indexOfEntry(text, entries[i+1].Key); at >= 0 {
				value, rest = text[:at], text[at+1:]
			}
		}
		entries[i].Value, text = value, rest
	}
}

// indexOfEntry returns where "/key=" is in a text, or -1.
func indexOfEntry(text, key string) int {
	for at := 0; ; at++ {
		next := strings.IndexByte(text[at:], '/')
		if next < 0 {
			return -1
		}
		at += next
		if isOfEntry(text[at+1:], key) {
			return at
		}
	}
}

// isOfEntry reports whether a text begins with "key=".
func isOfEntry(text, key string) bool {
	rest, ok := strings.CutPrefix(text, key)
	return ok && strings.HasPrefix(rest, "=")
}
