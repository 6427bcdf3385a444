package tally

import (
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"
)

const (
	// MaxRuleValues bounds the individually counted values of a rule.
	MaxRuleValues = 1000
	// MaxCountedValues bounds those of all rules: callers choose the values, and each
	// takes memory, and more of it during a scrape.
	MaxCountedValues = 10_000
	// MaxValueBytes is the length of the longest value that is counted individually.
	MaxValueBytes = 256
	// RestOfValues stands for the values that are not counted individually. It is not
	// valid UTF-8, so it neither occurs in a limits file nor is counted individually.
	RestOfValues = "\xff"
)

// idleAfter is the least time for which a value keeps its place without being seen, once
// others find none: so made-up values do not keep out forever those that matter, which
// stay once they have a place. top finds the most frequent of all.
const idleAfter = 10 * time.Minute

// Room bounds what all rules have in metrics. Its methods, and those of RuleCounts that use
// it, may be called concurrently.
type Room struct {
	taken atomic.Int64 // individually counted values
	rules atomic.Int64 // rules with metrics of their own
}

// NewRoom returns an empty Room.
func NewRoom() *Room { return new(Room) }

func (r *Room) isFull() bool { return r != nil && r.taken.Load() >= MaxCountedValues }

// take takes the place of one value, if any is left.
func (r *Room) take() bool {
	if r == nil {
		return true
	}
	if r.taken.Add(1) > MaxCountedValues {
		r.taken.Add(-1)
		return false
	}
	return true
}

// keptValue is an individually counted value.
type keptValue struct {
	Counts
	// seen is its total when dropIdle last checked.
	seen uint64
}

// Value returns the counts of a value. If the value is too long, or there is no room for
// it, they are those of the rest.
func (r *RuleCounts) Value(value []byte) *Counts {
	fits := len(value) <= MaxValueBytes && utf8.Valid(value)
	r.mu.RLock()
	c := r.values[string(value)]
	isFull := len(r.values) >= MaxRuleValues || r.room.isFull()
	r.mu.RUnlock()
	switch {
	case c != nil:
		return &c.Counts
	case !fits:
		return r.others()
	case !isFull:
		if c := r.create(string(value)); c != nil {
			return c
		}
	}
	if !r.isShort.Load() {
		r.isShort.Store(true)
	}
	return r.others()
}

// dropIdle drops values that were not seen for idleAfter, if others found no place
// meanwhile. Their counts go with their series, as do those of a removed rule: if they
// moved to the rest, the rate of the rest would jump, and with it that of the rule. Calls
// must not overlap.
func (r *RuleCounts) dropIdle(now time.Duration) {
	if now < r.nextCheck {
		return
	}
	r.nextCheck = now + idleAfter
	r.mu.Lock()
	defer r.mu.Unlock()
	isShort := r.isShort.Swap(false) || r.room.isFull()
	for value, c := range r.values {
		total := c.Total()
		if isShort && total == c.seen && r.room != nil {
			delete(r.values, value)
			r.room.taken.Add(-1)
		}
		c.seen = total
	}
}

// create returns the counts of a value, possibly new ones, or nil if there is no room.
func (r *RuleCounts) create(value string) *Counts {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.values[value]
	if c == nil {
		if len(r.values) >= MaxRuleValues || !r.room.take() {
			return nil
		}
		if r.values == nil {
			r.values = make(map[string]*keptValue)
		}
		c = new(keptValue)
		r.values[value] = c
	}
	return &c.Counts
}

// others returns the counts of the rest.
func (r *RuleCounts) others() *Counts {
	if c := r.rest.Load(); c != nil {
		return c
	}
	r.rest.CompareAndSwap(nil, new(Counts))
	return r.rest.Load()
}

// ValueCounts are the counts of one value, or of the rest.
type ValueCounts struct {
	// Value is RestOfValues for the rest.
	Value string
	*Counts
}

// Values returns the counts of all values seen, sorted by value, with the rest last.
func (r *RuleCounts) Values() []ValueCounts {
	r.mu.RLock()
	defer r.mu.RUnlock()
	rest := r.rest.Load()
	if len(r.values) == 0 && rest == nil {
		return nil // as for most rules
	}
	all := make([]ValueCounts, 0, len(r.values)+1)
	for value, c := range r.values {
		all = append(all, ValueCounts{value, &c.Counts})
	}
	slices.SortFunc(all, func(a, b ValueCounts) int { return strings.Compare(a.Value, b.Value) })
	if rest != nil {
		all = append(all, ValueCounts{RestOfValues, rest})
	}
	return all
}
