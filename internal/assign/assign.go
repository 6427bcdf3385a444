// Package assign keeps what is said at run time about customers: who has which plan,
// their own numbers, a billing day, no limit, or a block. Every daemon holds all of it in
// memory, in a Table, so that a decision reads it without asking anyone; a Store keeps it
// across restarts, follows what other daemons change, and records who made each change.
// It imports only bucket and zone; the stores are packages below it.
package assign

import (
	"slices"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// Subject is what an assignment applies to: the descriptors of a domain that are, or
// begin with, these entries.
type Subject struct {
	Domain  string         `json:"domain"`
	Entries []bucket.Entry `json:"entries"`
}

// Layer is what was said at one time: the base, or a temporary layer on top of it.
type Layer struct {
	Terms
	// Until is when a temporary layer ends, in microseconds since the Unix epoch, on the
	// store's clock. It is 0 for the base, which has no end.
	Until int64 `json:"until,omitempty"`
	// Reason is that of the last change of the layer, empty if it gave none.
	Reason string `json:"reason,omitempty"`
	// By is who changed the layer last.
	By string `json:"by,omitempty"`
	// At is when, in microseconds since the Unix epoch, on the store's clock. The store
	// sets it.
	At int64 `json:"at,omitempty"`
}

// Assignment is a base without an end, and temporary layers on top of it. Of each part,
// in force is what the topmost layer that says it and has not ended says, or else the
// base. In the end a block comes before unlimited, and that before the numbers of a limit;
// the plan is for limits without numbers, and the calendar is apart from all these.
type Assignment struct {
	Subject
	// Base may say nothing if there are layers.
	Base Layer `json:"base,omitzero"`
	// Layers have the bottom first. Each has an end and says something.
	Layers []Layer `json:"layers,omitempty"`
	// ETag identifies this version. The store sets it, and keeps it beside the rest.
	ETag string `json:"-"`
}

// Bounds of an assignment.
const (
	// MaxEntries bounds the entries of a subject.
	MaxEntries = 16
	// MaxSubject bounds the bytes of a subject's domain, keys and values together.
	MaxSubject = 1024
	// MaxText bounds the bytes of a reason, of a plan's name, and of the maker's name.
	MaxText = 256
	// MaxNumbers bounds the limits that one assignment names, in all its layers.
	MaxNumbers = 16
	// MaxLayers bounds the temporary layers that say something other than a block. A
	// block always has room.
	MaxLayers = 8
)

// InForce returns a without the layers that have ended by now, in microseconds since the
// Unix epoch, or nil if nothing is left. a may be nil.
func (a *Assignment) InForce(now int64) *Assignment {
	if a == nil {
		return nil
	}
	left := *a
	left.Layers = nil
	for i := range a.Layers {
		if !ended(a.Layers[i].Until, now) {
			left.Layers = append(left.Layers, a.Layers[i])
		}
	}
	if left.IsEmpty() {
		return nil
	}
	return &left
}

// ended reports whether what has this end has ended by now.
func ended(until, now int64) bool { return until != 0 && until <= now }

// IsEmpty reports whether an assignment says nothing.
func (a *Assignment) IsEmpty() bool { return a.Base.IsEmpty() && len(a.Layers) == 0 }

// Now returns the parts in force of a result of InForce, each from the topmost layer that
// says it.
func (a *Assignment) Now() Terms {
	var now Terms
	now.put(&a.Base.Terms)
	for i := range a.Layers {
		now.put(&a.Layers[i].Terms)
	}
	return now
}

// Stamp sets the ETag, and the time of the layers that were changed by a change at that
// time, in microseconds since the Unix epoch: those that have none yet.
func (a *Assignment) Stamp(etag string, at int64) {
	a.ETag = etag
	if !a.Base.IsEmpty() && a.Base.At == 0 {
		a.Base.At = at
	}
	for i := range a.Layers {
		if a.Layers[i].At == 0 {
			a.Layers[i].At = at
		}
	}
}

// normalize drops what could never be in force again: a part that a higher layer says too
// and not for a shorter time, and of several blocks, or several times unlimited, all but
// the one that lasts longest.
func (a *Assignment) normalize() {
	if a.Base.IsEmpty() {
		a.Base = Layer{}
	}
	for i := range a.Layers {
		l := &a.Layers[i]
		l.remove(a.Base.switches())
		for j := range a.Layers {
			switch other := &a.Layers[j]; {
			case j > i && other.Until >= l.Until:
				l.remove(other.parts())
			case j < i && other.Until > l.Until:
				l.remove(other.switches())
			}
		}
	}
	a.Layers = slices.DeleteFunc(a.Layers, func(l Layer) bool { return l.IsEmpty() })
	if len(a.Layers) == 0 {
		a.Layers = nil
	}
}
