package assign

import (
	"slices"
	"unique"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// Held is an assignment in the form that decisions read. It never changes. The parts in
// few bytes are those that most assignments have.
type Held struct {
	base unique.Handle[common]
	// numbers are those of the base.
	numbers *ownNumbers
	// rare is what few assignments have, or nil.
	rare *rare
}

// common is the part of a base that is the same in many assignments.
type common struct {
	plan               string
	unlimited, blocked bool
}

// ownNumbers are the numbers of one limit, and those of the next or nil.
type ownNumbers struct {
	Numbers
	next *ownNumbers
}

// rare is the calendar of the base, which may say nothing, when the base was changed, and
// the temporary layers.
type rare struct {
	calendar unique.Handle[ownCalendar]
	at       int64
	layers   []Layer
}

// Hold returns what decisions read of a valid assignment, whose layers it shares.
func Hold(a *Assignment) Held {
	base := &a.Base
	h := Held{base: unique.Make(common{plan: base.Plan, unlimited: base.Unlimited, blocked: base.Blocked})}
	last := &h.numbers
	for _, n := range base.Numbers {
		n.Limit = unique.Make(n.Limit).Value() // so that all share the text
		*last = &ownNumbers{Numbers: n}
		last = &(*last).next
	}
	if base.Calendar != (Calendar{}) || len(a.Layers) > 0 {
		h.rare = &rare{calendar: unique.Make(newOwnCalendar(base.Calendar)), at: base.At, layers: a.Layers}
	}
	return h
}

// baseTerms returns what the base says.
func (h *Held) baseTerms() Terms {
	base := h.base.Value()
	t := Terms{Plan: base.plan, Unlimited: base.unlimited, Blocked: base.blocked}
	for n := h.numbers; n != nil; n = n.next {
		t.Numbers = append(t.Numbers, n.Numbers)
	}
	if h.rare != nil {
		t.Calendar = h.rare.calendar.Value().Calendar
	}
	return t
}

// layers returns the temporary layers, bottom first.
func (h *Held) layers() []Layer {
	if h.rare == nil {
		return nil
	}
	return h.rare.layers
}

// top returns the topmost layer in force that says something of a kind, or nil if no
// layer does. This and the methods below take the time in microseconds since the Unix
// epoch.
func (h *Held) top(now int64, says func(*Terms) bool) *Layer {
	layers := h.layers()
	for i := len(layers) - 1; i >= 0; i-- {
		if l := &layers[i]; !ended(l.Until, now) && says(&l.Terms) {
			return l
		}
	}
	return nil
}

func saysPlan(t *Terms) bool      { return t.Plan != "" }
func saysCalendar(t *Terms) bool  { return t.Calendar != (Calendar{}) }
func saysUnlimited(t *Terms) bool { return t.Unlimited }
func saysBlock(t *Terms) bool     { return t.Blocked }

// Plan returns the name of the plan in force, or "".
func (h *Held) Plan(now int64) string {
	if l := h.top(now, saysPlan); l != nil {
		return l.Plan
	}
	return h.base.Value().plan
}

// MayChangeLimits reports whether there may be numbers or a calendar for any limit. It is
// cheap.
func (h *Held) MayChangeLimits() bool { return h.numbers != nil || h.rare != nil }

// NumbersOf returns the numbers in force for the limit of that name, and whether there
// are any.
func (h *Held) NumbersOf(limit string, now int64) (Numbers, bool) {
	var found Numbers
	isLimit := func(n Numbers) bool {
		found = n
		return n.Limit == limit
	}
	if h.top(now, func(t *Terms) bool { return slices.ContainsFunc(t.Numbers, isLimit) }) != nil {
		return found, true
	}
	for n := h.numbers; n != nil; n = n.next {
		if n.Limit == limit {
			return n.Numbers, true
		}
	}
	return Numbers{}, false
}

// CalendarOf returns the calendar of a limit of its subject: as the assignment says, with
// the moment of that, or else the limit's own.
func (h *Held) CalendarOf(c bucket.Calendar, now int64) bucket.Calendar {
	if c.Unit == bucket.NoCalendar || h.rare == nil {
		return c
	}
	own, at := h.rare.calendar.Value(), h.rare.at
	if l := h.top(now, saysCalendar); l != nil {
		own, at = newOwnCalendar(l.Calendar), l.At
	}
	if moved := own.of(c); moved != c {
		return moved.MovedAt(at, now)
	}
	return c
}

// Frees reports whether it frees exactly its subject from limits.
func (h *Held) Frees(now int64) bool {
	return h.base.Value().unlimited || h.top(now, saysUnlimited) != nil
}

// blocks reports whether it blocks.
func (h *Held) blocks(now int64) bool {
	return h.base.Value().blocked || h.top(now, saysBlock) != nil
}

// BlockEnd returns when the block that is in force ends, in microseconds since the Unix
// epoch; 0: never.
func (h *Held) BlockEnd(now int64) int64 {
	if l := h.top(now, saysBlock); l != nil {
		return l.Until
	}
	return 0
}

// gives reports whether any part except the block is in force.
func (h *Held) gives(now int64) bool {
	base := h.base.Value()
	return base.plan != "" || base.unlimited || h.numbers != nil || h.top(now, (*Terms).HasMore) != nil ||
		h.rare != nil && h.rare.calendar.Value().Calendar != (Calendar{})
}

// isOver reports whether nothing of it is in force any more.
func (h *Held) isOver(now int64) bool { return !h.gives(now) && !h.blocks(now) }

// reachesLonger reports whether it may concern longer descriptors too, as blocks and plans
// do.
func (h *Held) reachesLonger() bool { return h.blocks(0) || h.Plan(0) != "" }
