package config

import (
	"sync"
	"sync/atomic"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// Result is what a descriptor that matched a rule got.
type Result uint8

// Results.
const (
	Allowed Result = iota
	Denied
	// Shadowed descriptors were let pass by a limit in shadow mode that would
	// else have denied them.
	Shadowed
	// Peeked descriptors had room, and asked for nothing.
	Peeked
)

// String returns "allowed", "denied", "shadowed" or "peeked".
func (r Result) String() string { return [...]string{"allowed", "denied", "shadowed", "peeked"}[r] }

// Counts are how many descriptors got each result. None ever falls.
type Counts struct {
	Allowed, Denied, Shadowed atomic.Uint64
	// Peeked are the descriptors that were asked about without taking anything, and
	// had room. They are not in Allowed.
	Peeked atomic.Uint64
	// hits is nil before the first were added.
	hits atomic.Pointer[hitCounts]
}

// Add counts a result.
func (c *Counts) Add(r Result) {
	switch r {
	case Allowed:
		c.Allowed.Add(1)
	case Denied:
		c.Denied.Add(1)
	case Shadowed:
		c.Shadowed.Add(1)
	case Peeked:
		c.Peeked.Add(1)
	}
}

// IsZero reports whether nothing was counted yet.
func (c *Counts) IsZero() bool { return c.total() == 0 }

// Of returns the count of a result.
func (c *Counts) Of(r Result) uint64 {
	switch r {
	case Allowed:
		return c.Allowed.Load()
	case Denied:
		return c.Denied.Load()
	case Shadowed:
		return c.Shadowed.Load()
	default:
		return c.Peeked.Load()
	}
}

// RuleCounts counts the results of the descriptors that matched a rule. Its own
// Counts have those that are not counted by value; each value has Counts for
// itself.
//
// A later load keeps the counts of a rule that is still there: one with the same
// path in a domain of the same name. So a request that began with the older
// rules is counted too.
type RuleCounts struct {
	Counts

	// path is that of the rule, once somebody asked for it.
	path atomic.Pointer[string]

	// limits has the counts of the limits by their names, those that were asked.
	limits atomic.Pointer[[]*LimitCounts]
	tops   tops

	// mu guards what follows, but for rest and offers.
	mu sync.RWMutex
	// rule is the one that has the counts since a reload; nil before the first.
	rule   *Rule
	values map[string]*keptValue
	rest   atomic.Pointer[Counts] // of all values that are not kept; nil before the first
	offers offers
	// room is for the values of all rules. It is nil once the rule has gone:
	// only requests that began with it are counted from then on, and they are
	// few.
	room *valueRoom
}

// Count counts the result of a descriptor that matched the rule, and returns where
// it is counted. It has these entries, at least one.
func (r *Rule) Count(result Result, entries []bucket.Entry) *Counts {
	c := r.countsOf(entries)
	c.Add(result)
	return c
}

// countsOf returns the counts of a descriptor with these entries.
func (r *Rule) countsOf(entries []bucket.Entry) *Counts {
	switch {
	case r.DetailedMetric:
		var room [MaxValueBytes]byte
		return r.Counts.of(appendEntries(room[:0], entries))
	case r.ValueToMetric && entries[len(entries)-1].Value != "":
		var room [MaxValueBytes]byte
		value := entries[len(entries)-1].Value
		return r.Counts.of(append(room[:0], value[:min(len(value), MaxValueBytes+1)]...))
	default:
		return &r.Counts.Counts
	}
}

// appendEntries appends "key=value/key=value". It stops soon after the length of
// the longest value that is counted by itself.
func appendEntries(dst []byte, entries []bucket.Entry) []byte {
	for i := range entries {
		if i > 0 {
			dst = append(dst, '/')
		}
		for _, part := range [...]string{entries[i].Key, "=", entries[i].Value} {
			dst = append(dst, part[:min(len(part), MaxValueBytes+1)]...)
		}
		if len(dst) > MaxValueBytes {
			break
		}
	}
	return dst
}

// shareRoom makes the counts share the room for values with those of the rules
// before. Rules that are gone leave theirs.
func (r *Rules) shareRoom(before *Rules) {
	r.room = before.room
	kept := make(map[*RuleCounts]bool)
	for _, d := range r.sorted {
		yield()
		for _, rule := range d.rules {
			if rule.Counts.room == before.room {
				kept[rule.Counts] = true
			} else {
				rule.Counts.room = before.room
			}
		}
	}
	for _, d := range before.sorted {
		yield()
		for _, rule := range d.rules {
			if !kept[rule.Counts] {
				rule.Counts.leave()
			}
		}
	}
}

// leave gives back the room that values, offers and tops take.
func (r *RuleCounts) leave() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.room == nil {
		return
	}
	r.room.taken.Add(int64(-len(r.values)))
	r.room = nil
	r.closeTops()
	r.offers.close()
}
