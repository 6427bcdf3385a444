package assign

import (
	"time"
	"unique"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// Held is an assignment in force, in the form that decisions read. It never changes.
type Held struct {
	said unique.Handle[said]
	// own is what most assignments do not have, or nil.
	own *own
	// Until is when all parts end, in microseconds since the Unix epoch; 0: never.
	Until int64
}

// said is the part that is the same in many assignments.
type said struct {
	plan               string
	unlimited, blocked bool
}

// own is the part that few assignments share.
type own struct {
	numbers []ownNumbers
	// rare is nil for most: one more word here would cost each with numbers 16 bytes.
	rare *rare
}

// rare is the part that few of those have.
type rare struct {
	// ends are meaningless without hasEnds, which is set if they differ, and calendar
	// without hasCalendar.
	ends                 Ends
	calendar             unique.Handle[ownCalendar]
	hasEnds, hasCalendar bool
}

// ownNumbers are Numbers in fewer bytes.
type ownNumbers struct {
	limit                   unique.Handle[string]
	requests, period, burst int64
}

// Hold returns what decisions read of a valid assignment. It shares no memory with it.
func Hold(a *Assignment) Held {
	h := Held{said: unique.Make(said{plan: a.Plan, unlimited: a.Unlimited, blocked: a.Blocked})}
	until, together := a.Until()
	if a.Blocked && !a.HasMore() {
		until = a.BlockedUntil
	}
	hasOwnEnds := !together || a.Blocked && a.BlockedUntil != until
	if !hasOwnEnds {
		h.Until = until
	}
	hasCalendar := a.Calendar != (Calendar{})
	if !hasOwnEnds && len(a.Numbers) == 0 && !hasCalendar {
		return h
	}
	if len(a.Numbers) == 1 { // in one piece, since most with numbers have just one
		one := new(struct {
			own
			numbers [1]ownNumbers
		})
		h.own, one.own.numbers = &one.own, one.numbers[:]
	} else {
		h.own = &own{numbers: make([]ownNumbers, len(a.Numbers))}
	}
	for i, n := range a.Numbers {
		h.own.numbers[i] = ownNumbers{limit: unique.Make(n.Limit), requests: n.Requests, period: int64(n.Period), burst: n.Burst}
	}
	if hasOwnEnds || hasCalendar {
		h.own.rare = new(rare)
	}
	if hasCalendar {
		h.own.rare.calendar, h.own.rare.hasCalendar = unique.Make(newOwnCalendar(a.Calendar)), true
	}
	if hasOwnEnds {
		h.own.rare.ends, h.own.rare.hasEnds = a.Ends, true
		h.own.rare.ends.NumbersUntil = append([]int64(nil), a.NumbersUntil...)
	}
	return h
}

// terms returns the terms.
func (h *Held) terms() Terms {
	s := h.said.Value()
	t := Terms{Plan: s.plan, Unlimited: s.unlimited, Blocked: s.blocked}
	if h.HasNumbers() {
		t.Numbers = make([]Numbers, len(h.own.numbers))
		for i := range t.Numbers {
			t.Numbers[i] = h.own.numbers[i].numbers()
		}
	}
	if h.HasCalendar() {
		t.Calendar = h.own.rare.calendar.Value().said
	}
	return t
}

// endsOf returns the ends of the parts of these terms, which are those of h.
func (h *Held) endsOf(t Terms) Ends {
	if ends := h.ends(); ends != nil {
		return *ends
	}
	a := Assignment{Terms: t}
	a.EndRest(h.Until)
	if a.Blocked {
		a.BlockedUntil = h.Until
	}
	return a.Ends
}

// ends returns the ends of the parts if they differ, or nil.
func (h *Held) ends() *Ends {
	if h.own == nil || h.own.rare == nil || !h.own.rare.hasEnds {
		return nil
	}
	return &h.own.rare.ends
}

// mayEnd reports whether any part has an end.
func (h *Held) mayEnd() bool { return h.Until != 0 || h.ends() != nil }

// Plan returns the name of the plan, or "".
func (h *Held) Plan() string { return h.said.Value().plan }

// HasNumbers reports whether there are numbers for any limit.
func (h *Held) HasNumbers() bool { return h.own != nil && len(h.own.numbers) > 0 }

// HasCalendar reports whether it says where windows begin.
func (h *Held) HasCalendar() bool {
	return h.own != nil && h.own.rare != nil && h.own.rare.hasCalendar
}

// CalendarOf returns the calendar of a limit of its subject at a time, in microseconds
// since the Unix epoch: as the assignment says, or else the limit's own.
func (h *Held) CalendarOf(c bucket.Calendar, now int64) bucket.Calendar {
	if c.Unit == bucket.NoCalendar || !h.givesCalendar(now) {
		return c
	}
	own := h.own.rare.calendar.Value()
	return own.of(c)
}

// givesCalendar reports whether its calendar is in force at a time.
func (h *Held) givesCalendar(now int64) bool {
	if !h.HasCalendar() {
		return false
	}
	if ends := h.ends(); ends != nil {
		return !ended(ends.CalendarUntil, now)
	}
	return !ended(h.Until, now)
}

// BlockEnd returns when the block ends, in microseconds since the Unix epoch; 0: never.
func (h *Held) BlockEnd() int64 {
	if ends := h.ends(); ends != nil {
		return ends.BlockedUntil
	}
	return h.Until
}

// blocks reports whether it blocks at a time.
func (h *Held) blocks(now int64) bool {
	return h.said.Value().blocked && !ended(h.BlockEnd(), now)
}

// givesPlan reports whether its plan is in force at a time.
func (h *Held) givesPlan(now int64) bool {
	if h.Plan() == "" {
		return false
	}
	if ends := h.ends(); ends != nil {
		return !ended(ends.PlanUntil, now)
	}
	return !ended(h.Until, now)
}

// Frees reports whether it frees exactly its subject from limits at a time, in
// microseconds since the Unix epoch.
func (h *Held) Frees(now int64) bool {
	if !h.said.Value().unlimited {
		return false
	}
	if ends := h.ends(); ends != nil {
		return !ended(ends.UnlimitedUntil, now)
	}
	return !ended(h.Until, now)
}

// NumbersOf returns the numbers for the limit of that name, and whether any are in force
// at a time, in microseconds since the Unix epoch.
func (h *Held) NumbersOf(limit string, now int64) (Numbers, bool) {
	if h.own == nil {
		return Numbers{}, false
	}
	for i := range h.own.numbers {
		if n := &h.own.numbers[i]; n.limit.Value() == limit {
			return n.numbers(), !ended(h.numbersEnd(i), now)
		}
	}
	return Numbers{}, false
}

func (n *ownNumbers) numbers() Numbers {
	return Numbers{Limit: n.limit.Value(), Requests: n.requests, Period: time.Duration(n.period), Burst: n.burst}
}

// numbersEnd returns when the i-th numbers end.
func (h *Held) numbersEnd(i int) int64 {
	if ends := h.ends(); ends != nil {
		return ends.NumbersEnd(i)
	}
	return h.Until
}

// live reports whether any part except the block is in force.
func (h *Held) live(now int64) bool {
	if h.givesPlan(now) || h.Frees(now) || h.givesCalendar(now) {
		return true
	}
	if h.own == nil {
		return false
	}
	for i := range h.own.numbers {
		if !ended(h.numbersEnd(i), now) {
			return true
		}
	}
	return false
}

// isOver reports whether nothing of it is in force any more.
func (h *Held) isOver(now int64) bool { return !h.live(now) && !h.blocks(now) }
