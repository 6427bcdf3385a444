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

// Counts are what descriptors got; none ever falls.
type Counts struct {
	Allowed, Denied, Shadowed atomic.Uint64
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

// Tally counts what the descriptors that matched a rule got: those that are not
// counted by value in its own Counts, the others in one for each value.
//
// A rule that is again in the files of a later load, which is one with the
// same path in a domain of the same name, has the tally it had before. So what
// a request counts that began with the older rules is not lost.
type Tally struct {
	Counts

	mu     sync.RWMutex
	values map[string]*Counts
	// room is for the values of all rules. It is nil once the rule has gone: no
	// more is counted then than the requests that began with it do.
	room *valueRoom
}

// valueRoom is room for values that are counted by themselves.
type valueRoom struct{ taken atomic.Int64 }

func (r *valueRoom) isFull() bool { return r != nil && r.taken.Load() >= MaxTalliedValues }

// take takes the place of one value, if there is any.
func (r *valueRoom) take() bool {
	if r == nil {
		return true
	}
	if r.taken.Add(1) > MaxTalliedValues {
		r.taken.Add(-1)
		return false
	}
	return true
}

const (
	// MaxTallyValues is how many values of a rule are counted by themselves, at
	// most.
	MaxTallyValues = 1000
	// MaxTalliedValues is how many values of all rules are: callers choose them,
	// and each takes memory and a place in every scrape.
	MaxTalliedValues = 50_000
	// MaxTallyValue is how many bytes such a value has at most.
	MaxTallyValue = 256
	// OtherValues is what the rest is counted as.
	OtherValues = "other"
)

// Count counts what a descriptor got that has these entries, of which there is
// one at least, and matched the rule.
func (r *Rule) Count(result Result, entries []bucket.Entry) {
	switch {
	case r.DetailedMetric:
		var room [MaxTallyValue]byte
		r.Tally.of(appendEntries(room[:0], entries)).add(result)
	case r.ValueToMetric && entries[len(entries)-1].Value != "":
		var room [MaxTallyValue]byte
		value := entries[len(entries)-1].Value
		r.Tally.of(append(room[:0], value[:min(len(value), MaxTallyValue+1)]...)).add(result)
	default:
		r.Tally.add(result)
	}
}

// appendEntries appends "key=value/key=value", but not much more than a value
// may have.
func appendEntries(dst []byte, entries []bucket.Entry) []byte {
	for i := range entries {
		if i > 0 {
			dst = append(dst, '/')
		}
		for _, part := range [...]string{entries[i].Key, "=", entries[i].Value} {
			dst = append(dst, part[:min(len(part), MaxTallyValue+1)]...)
		}
		if len(dst) > MaxTallyValue {
			break
		}
	}
	return dst
}

// of returns the counts of a value, which are those of the others if it is too
// long, or one too many.
func (t *Tally) of(value []byte) *Counts {
	fits := len(value) <= MaxTallyValue && utf8.Valid(value)
	t.mu.RLock()
	c := t.values[string(value)]
	if c == nil && (!fits || len(t.values) >= MaxTallyValues || t.room.isFull()) {
		c = t.values[OtherValues]
	}
	t.mu.RUnlock()
	switch {
	case c != nil:
		return c
	case fits:
		return t.create(string(value))
	default:
		return t.create(OtherValues)
	}
}

// create returns the counts of a value, or of the others where there are
// enough values.
func (t *Tally) create(value string) *Counts {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.values[value] == nil && value != OtherValues && (len(t.values) >= MaxTallyValues || !t.room.take()) {
		value = OtherValues
	}
	c := t.values[value]
	if c == nil {
		if t.values == nil {
			t.values = make(map[string]*Counts)
		}
		c = new(Counts)
		t.values[value] = c
	}
	return c
}

// ValueCounts are the counts of one value.
type ValueCounts struct {
	Value string
	*Counts
}

// Values returns the counts of all values that were met, sorted.
func (t *Tally) Values() []ValueCounts {
	t.mu.RLock()
	defer t.mu.RUnlock()
	all := make([]ValueCounts, 0, len(t.values))
	for value, c := range t.values {
		all = append(all, ValueCounts{value, c})
	}
	slices.SortFunc(all, func(a, b ValueCounts) int { return strings.Compare(a.Value, b.Value) })
	return all
}

// shareRoom has the tallies share the room for values with those of the rules
// before, of which the ones that are gone leave theirs.
func (r *Rules) shareRoom(before *Rules) {
	r.room = before.room
	kept := make(map[*Tally]bool)
	for _, d := range r.sorted {
		for _, rule := range d.rules {
			if rule.Tally.room == before.room {
				kept[rule.Tally] = true
			} else {
				rule.Tally.room = before.room
			}
		}
	}
	for _, d := range before.sorted {
		for _, rule := range d.rules {
			if !kept[rule.Tally] {
				rule.Tally.leave()
			}
		}
	}
}

// leave frees the room that the values take.
func (t *Tally) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.room == nil {
		return
	}
	n := len(t.values)
	if t.values[OtherValues] != nil {
		n--
	}
	t.room.taken.Add(int64(-n))
	t.room = nil
}
