package assign

import "slices"

// IfNone, as a Change's IfMatch, allows the change only if nothing is in force.
const IfNone = "none"

// Change changes the parts of one assignment that it names, and leaves the others.
type Change struct {
	Subject
	// Remove are the parts to remove before others are set.
	Remove Parts
	// Set are parts to set, in this order. A Layer without an end sets these parts of the
	// base; one with an end becomes a layer on top. Each has its own By and Reason; the
	// store sets At.
	Set []Layer
	// Whole, if not nil, is what the assignment becomes; then nothing is in Set and
	// Remove. If Whole says nothing, the assignment is removed.
	Whole *Assignment
	// IfMatch is the ETag of the version that must be in force, or IfNone, or empty for
	// whatever is in force.
	IfMatch string
	// Undoes is the ID of the record that the change takes back, if any.
	Undoes string
	// By and Reason are those of the record, and of layers from which only parts were
	// removed.
	By, Reason string
}

// Outcome is the outcome of a Change.
type Outcome uint8

// Outcomes.
const (
	// Unknown: the store did not answer, so the change may be in force or not. Making
	// it again does no harm.
	Unknown Outcome = iota
	Created
	Replaced
	// Unchanged: the same parts with the same ends were in force, and the same reason or
	// none was given; or those to remove did not exist. Nothing was written.
	Unchanged
	// Deleted: nothing is left.
	Deleted
	// Conflict: IfMatch names another version.
	Conflict
	// Full: there is no room for more assignments.
	Full
	// TooManyNumbers: with the existing ones it would have more than MaxNumbers.
	TooManyNumbers
	// TooManyLayers: with the existing ones it would have more than MaxLayers.
	TooManyLayers
	// Failed: the store refused it, and nothing changed.
	Failed
)

// Sets reports whether a change sets any part.
func (c *Change) Sets() bool { return len(c.Set) > 0 || c.Whole != nil && !c.Whole.IsEmpty() }

// Apply returns what a change turns a stored assignment into, at a time in microseconds
// since the Unix epoch; held may be nil or have ended. It returns what is in force before
// and after, each nil for nothing, and the outcome. If after is new, it lacks its ETag and
// the time of the layers that the change made or changed: see Stamp. Apply cannot know
// about Full.
func (c *Change) Apply(held *Assignment, now int64) (before, after *Assignment, o Outcome) {
	before = held.InForce(now)
	if c.IfMatch == IfNone && before != nil || c.IfMatch != "" && c.IfMatch != IfNone && (before == nil || before.ETag != c.IfMatch) {
		return before, before, Conflict
	}
	if after = c.onto(held, now); after.IsEmpty() {
		after = nil
	}
	switch {
	case after == nil && before == nil:
		return nil, nil, Unchanged
	case after == nil:
		return before, nil, Deleted
	case len(after.Now().Numbers) > MaxNumbers:
		return before, before, TooManyNumbers
	case after.reliefs() > MaxLayers:
		return before, before, TooManyLayers
	case before == nil:
		return nil, after, Created
	case c.isNothingNew(before, after):
		return before, before, Unchanged
	}
	return before, after, Replaced
}

// onto returns a new assignment: what the change makes of one that is held.
func (c *Change) onto(held *Assignment, now int64) *Assignment {
	if c.Whole != nil {
		held = c.Whole
	}
	a := held.InForce(now)
	if a == nil {
		a = new(Assignment)
	}
	a.Subject, a.ETag = c.Subject, ""
	c.removeFrom(&a.Base, c.Remove)
	parts := c.Remove
	if parts.OfBase {
		parts = Parts{}
	}
	parts.Rest = parts.Rest || c.Remove.Temporary
	for i := range a.Layers {
		c.removeFrom(&a.Layers[i], parts)
	}
	for i := range c.Set {
		set := &c.Set[i]
		l := &a.Base
		switch {
		case ended(set.Until, now):
			continue
		case set.Until != 0:
			a.Layers = append(a.Layers, Layer{Until: set.Until})
			l = &a.Layers[len(a.Layers)-1]
		}
		l.put(&set.Terms)
		l.Reason, l.By, l.At = set.Reason, set.By, 0
	}
	a.normalize()
	return a
}

// removeFrom removes parts from a layer.
func (c *Change) removeFrom(l *Layer, parts Parts) {
	if l.remove(parts) {
		l.Reason, l.By, l.At = c.Reason, c.By, 0
	}
}

// reliefs returns how many temporary layers say something other than a block.
func (a *Assignment) reliefs() (n int) {
	for i := range a.Layers {
		if a.Layers[i].HasMore() {
			n++
		}
	}
	return n
}

// isNothingNew reports whether after says the same as before, and no other reason. Parts
// that are set again without a reason keep theirs.
func (c *Change) isNothingNew(before, after *Assignment) bool {
	same := func(a, b Layer) bool {
		return a.Terms.equal(&b.Terms) && a.Until == b.Until && (a.Reason == b.Reason || a.Reason == "" && c.Whole == nil)
	}
	return same(after.Base, before.Base) && slices.EqualFunc(after.Layers, before.Layers, same)
}
