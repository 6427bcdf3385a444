package config

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"unicode/utf8"

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
)

// String returns "allowed", "denied" or "shadowed".
func (r Result) String() string { return [...]string{"allowed", "denied", "shadowed"}[r] }

// Counts are how many descriptors got each result. None ever falls.
type Counts struct {
	Allowed, Denied, Shadowed atomic.Uint64
	// hits is nil before the first were added.
	hits atomic.Pointer[hitCounts]
}

func (c *Counts) add(r Result) {
	switch r {
	case Allowed:
		c.Allowed.Add(1)
	case Denied:
		c.Denied.Add(1)
	case Shadowed:
		c.Shadowed.Add(1)
	}
}

// Of returns the count of a result.
func (c *Counts) Of(r Result) uint64 {
	switch r {
	case Allowed:
		return c.Allowed.Load()
	case Denied:
		return c.Denied.Load()
	default:
		return c.Shadowed.Load()
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

	mu     sync.RWMutex
	values map[string]*Counts
	// room is for the values of all rules. It is nil once the rule has gone:
	// only requests that began with it are counted from then on, and they are
	// few.
	room *valueRoom
}

// valueRoom bounds the values that are counted by themselves, over all rules.
type valueRoom struct{ taken atomic.Int64 }

func (r *valueRoom) isFull() bool { return r != nil && r.taken.Load() >= MaxCountedValues }

// take takes the place of one value, if there is any.
func (r *valueRoom) take() bool {
	if r == nil {
		return true
	}
	if r.taken.Add(1) > MaxCountedValues {
		r.taken.Add(-1)
		return false
	}
	return true
}

const (
	// MaxRuleValues bounds the values of a rule that are counted by themselves.
	MaxRuleValues = 1000
	// MaxCountedValues bounds those of all rules: callers choose the values, and
	// each takes memory and a place in every scrape.
	MaxCountedValues = 50_000
	// MaxValueBytes is the length of the longest value that is counted by
	// itself.
	MaxValueBytes = 256
	// OtherValues is the value under which all others are counted.
	OtherValues = "other"
)

// Count counts the result of a descriptor that matched the rule, and returns where
// it is counted. It has these entries, at least one.
func (r *Rule) Count(result Result, entries []bucket.Entry) *Counts {
	c := r.countsOf(entries)
	c.add(result)
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

// of returns the counts of a value. If the value is too long, or there is no
// room for it, they are those of all others.
func (r *RuleCounts) of(value []byte) *Counts {
	fits := len(value) <= MaxValueBytes && utf8.Valid(value)
	r.mu.RLock()
	c := r.values[string(value)]
	if c == nil && (!fits || len(r.values) >= MaxRuleValues || r.room.isFull()) {
		c = r.values[OtherValues]
	}
	r.mu.RUnlock()
	switch {
	case c != nil:
		return c
	case fits:
		return r.create(string(value))
	default:
		return r.create(OtherValues)
	}
}

// create returns the counts of a value, new ones perhaps. If there is no room,
// they are those of all others.
func (r *RuleCounts) create(value string) *Counts {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.values[value] == nil && value != OtherValues && (len(r.values) >= MaxRuleValues || !r.room.take()) {
		value = OtherValues
	}
	c := r.values[value]
	if c == nil {
		if r.values == nil {
			r.values = make(map[string]*Counts)
		}
		c = new(Counts)
		r.values[value] = c
	}
	return c
}

// ValueCounts are the counts of one value.
type ValueCounts struct {
	Value string
	*Counts
}

// Values returns the counts of all values that were met, sorted by value.
func (r *RuleCounts) Values() []ValueCounts {
	r.mu.RLock()
	defer r.mu.RUnlock()
	all := make([]ValueCounts, 0, len(r.values))
	for value, c := range r.values {
		all = append(all, ValueCounts{value, c})
	}
	slices.SortFunc(all, func(a, b ValueCounts) int { return strings.Compare(a.Value, b.Value) })
	return all
}

// shareRoom makes the counts share the room for values with those of the rules
// before. Rules that are gone leave theirs.
func (r *Rules) shareRoom(before *Rules) {
	r.room = before.room
	kept := make(map[*RuleCounts]bool)
	for _, d := range r.sorted {
		for _, rule := range d.rules {
			if rule.Counts.room == before.room {
				kept[rule.Counts] = true
			} else {
				rule.Counts.room = before.room
			}
		}
	}
	for _, d := range before.sorted {
		for _, rule := range d.rules {
			if !kept[rule.Counts] {
				rule.Counts.leave()
			}
		}
	}
}

// leave gives back the room that the values take.
func (r *RuleCounts) leave() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.room == nil {
		return
	}
	n := len(r.values)
	if r.values[OtherValues] != nil {
		n--
	}
	r.room.taken.Add(int64(-n))
	r.room = nil
}
