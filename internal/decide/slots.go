package decide

import (
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// Slot is what a decided call has of one limit. The zero Slot has nothing.
type Slot struct {
	// Taken identifies the take or the renewal, for a give-back, which frees the slot if
	// nobody has renewed it since.
	Taken Taken
	// Hold is how long the slot is held from Taken on.
	Hold time.Duration
	// id tells the state of the limit and the holder from others.
	id uint64
	// isNew is set if the holder did not have the slot before the call.
	isNew bool
}

// ends is when the hold ends, on the key's own clock.
func (s *Slot) ends() int64 { return s.Taken.At + s.Hold.Microseconds() }

// AppendSlots appends what the decided call has of each limit of descriptor i.
func (c *Call) AppendSlots(dst []Slot, i int) []Slot {
	o := &c.Outcomes[i]
	for j := range o.Hits {
		s := Slot{Hold: c.HeldFor(o, j)}
		if s.Hold > 0 {
			h, d := &o.Hits[j], &o.Decisions[j]
			s.Taken = Taken{d.At, TakenBy(h) ^ uint64(d.Share)}
			if d.Degraded {
				s.Taken.At = -s.Taken.At
			}
			s.id, s.isNew = xxhash.Sum64(h.Key)^xxhash.Sum64String(h.Holder), d.Renewal == bucket.NotRenewed
		}
		dst = append(dst, s)
	}
	return dst
}

// HasSlots reports whether the decided call has a slot for descriptor i.
func (c *Call) HasSlots(i int) bool {
	o := &c.Outcomes[i]
	for j := range o.Hits {
		if c.HeldFor(o, j) > 0 {
			return true
		}
	}
	return false
}

// WereFreed reports whether one of the slots that a call had was free when a later one had
// it again, although its hold had not ended: somebody released it, or reset its limit.
func WereFreed(before, after []Slot) bool {
	return slices.ContainsFunc(after, func(now Slot) bool {
		return now.isNew && now.Taken.At > 0 && slices.ContainsFunc(before, func(old Slot) bool {
			return old.Taken.At > 0 && old.id == now.id && now.Taken.At < old.ends()
		})
	})
}

// NewOnly returns the slots without those that were renewed.
func NewOnly(slots []Slot) []Slot {
	only := slices.Clone(slots)
	for i := range only {
		if !only[i].isNew {
			only[i] = Slot{}
		}
	}
	return only
}
