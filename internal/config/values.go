package config

import (
	"slices"
	"strings"
	"sync/atomic"
	"unicode/utf8"

	"github.com/ratelimitd/ratelimitd/internal/top"
)

const (
	// MaxRuleValues bounds the values of a rule that are counted by themselves.
	MaxRuleValues = 1000
	// MaxCountedValues bounds those of all rules: callers choose the values, and
	// each takes memory and a place in every scrape.
	MaxCountedValues = 50_000
	// MaxValueBytes is the length of the longest value that is counted by
	// itself.
	MaxValueBytes = 256
	// RestOfValues stands for the values that are not counted by themselves. It is no
	// UTF-8, so it is neither in a limits file nor counted by itself.
	RestOfValues = "\xff"
)

// valueRoom bounds the values that are counted by themselves, over all rules.
type valueRoom struct {
	taken atomic.Int64
	// offers is for the sketches of what is not kept.
	offers *top.Budget
}

func newValueRoom() *valueRoom { return &valueRoom{offers: top.NewBudget(maxOfferBytes)} }

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

// keptValue is a value that is counted by itself.
type keptValue struct {
	Counts
	// seen is what it had counted when it was last compared with others, and score how
	// frequent it was then.
	seen, score uint64
}

// total is how many descriptors were counted.
func (c *Counts) total() uint64 {
	return c.Allowed.Load() + c.Denied.Load() + c.Shadowed.Load() + c.Peeked.Load()
}

// of returns the counts of a value. If the value is too long, or there is no room for
// it, they are those of the rest.
func (r *RuleCounts) of(value []byte) *Counts {
	fits := len(value) <= MaxValueBytes && utf8.Valid(value)
	r.mu.RLock()
	c := r.values[string(value)]
	isFull := len(r.values) >= MaxRuleValues || r.room.isFull()
	room := r.room
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
	if room != nil {
		r.offers.add(room, value)
	}
	return r.others()
}

// create returns the counts of a value, new ones perhaps, or nil if there is no room.
func (r *RuleCounts) create(value string) *Counts {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.values[value]
	if c == nil {
		if len(r.values) >= MaxRuleValues || !r.room.take() {
			return nil
		}
		c = r.keep(value)
	}
	return &c.Counts
}

// keep has a value be counted by itself. r.mu is held.
func (r *RuleCounts) keep(value string) *keptValue {
	if r.values == nil {
		r.values = make(map[string]*keptValue)
	}
	c := new(keptValue)
	r.values[value] = c
	return c
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

// Values returns the counts of all values that were met, sorted by value; the rest is
// the last.
func (r *RuleCounts) Values() []ValueCounts { return r.AppendValues(nil) }

// AppendValues appends them to dst.
func (r *RuleCounts) AppendValues(dst []ValueCounts) []ValueCounts {
	r.mu.RLock()
	defer r.mu.RUnlock()
	rest := r.rest.Load()
	if len(r.values) == 0 && rest == nil {
		return dst // of most rules
	}
	begin := len(dst)
	dst = slices.Grow(dst, len(r.values)+1)
	for value, c := range r.values {
		dst = append(dst, ValueCounts{value, &c.Counts})
	}
	slices.SortFunc(dst[begin:], func(a, b ValueCounts) int { return strings.Compare(a.Value, b.Value) })
	if rest != nil {
		dst = append(dst, ValueCounts{RestOfValues, rest})
	}
	return dst
}
