// Package assign keeps what is said at run time about customers: who has which plan,
// their own numbers, a billing day, no limit, or a block. Every daemon holds all of it in memory, in a
// Table, so that a decision reads it without asking anyone; a Store keeps it across
// restarts, tells other daemons of changes, and records who made them. It imports only
// bucket and zone; the stores are packages below it.
package assign

import (
	"cmp"
	"iter"
	"slices"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// Subject is what an assignment applies to: the descriptors of a domain that are, or
// begin with, these entries.
type Subject struct {
	Domain  string         `json:"domain"`
	Entries []bucket.Entry `json:"entries"`
}

// Terms are what an assignment says, as parts whose ends are Ends. Of the parts that have
// not ended, in force is the block, or else unlimited, or else the numbers of each limit,
// with the plan for limits without numbers, and the calendar.
type Terms struct {
	// Plan applies to the rules with plans that the subject matches, or that are below
	// one that it matches.
	Plan string
	// Numbers replace those of the limits of that name, of the rule that exactly this
	// subject matches. They are sorted by the limit's name, and none is named twice. Each
	// is a part.
	Numbers []Numbers
	// Calendar is for the limits by calendar of the rule that exactly this subject
	// matches.
	Calendar Calendar
	// Unlimited frees exactly this subject from the limits of its rule.
	Unlimited bool
	// Blocked denies every descriptor that begins with the subject.
	Blocked bool
}

// Ends are when the parts of an assignment end automatically, in microseconds since the
// Unix epoch; 0: never.
type Ends struct {
	PlanUntil int64
	// NumbersUntil holds the ends of Terms.Numbers, in the same order; empty if no
	// numbers have an end.
	NumbersUntil   []int64
	CalendarUntil  int64
	UnlimitedUntil int64
	BlockedUntil   int64
}

// Numbers are the numbers of one limit.
type Numbers struct {
	// Limit is the limit's name; it may be empty.
	Limit string `json:"limit,omitempty"`
	// Requests is 0 to bucket.MaxRequests; 0 denies always.
	Requests int64 `json:"requests"`
	// Period is 0 for the limit's own.
	Period time.Duration `json:"period,omitempty"`
	// Burst is a bucket's capacity; 0 means as many as Requests.
	Burst int64 `json:"burst,omitempty"`
}

// Assignment is what applies to a subject, and who said so.
type Assignment struct {
	Subject
	Terms
	Ends
	// Reason is that of the last change, empty if it gave none.
	Reason string
	// By is who changed it last.
	By string
	// At is when, on the store's clock, in microseconds since the Unix epoch.
	At int64
	// ETag identifies this version of it. The store sets it.
	ETag string
}

// Bounds of an assignment.
const (
	// MaxEntries bounds the entries of a subject.
	MaxEntries = 16
	// MaxSubject bounds the bytes of a subject's domain, keys and values together.
	MaxSubject = 1024
	// MaxText bounds the bytes of a reason, of a plan's name, and of the maker's name.
	MaxText = 256
	// MaxNumbers bounds the limits that one assignment names.
	MaxNumbers = 16
)

// HasMore reports whether the terms say more than a block.
func (t *Terms) HasMore() bool {
	return t.Plan != "" || t.Unlimited || len(t.Numbers) > 0 || t.Calendar != (Calendar{})
}

// NumbersEnd returns when the i-th numbers end, in microseconds since the Unix epoch; 0:
// never.
func (e *Ends) NumbersEnd(i int) int64 {
	if i < len(e.NumbersUntil) {
		return e.NumbersUntil[i]
	}
	return 0
}

// equal reports whether two canonical ends are the same.
func (e *Ends) equal(o *Ends) bool {
	return e.PlanUntil == o.PlanUntil && e.UnlimitedUntil == o.UnlimitedUntil && e.BlockedUntil == o.BlockedUntil &&
		e.CalendarUntil == o.CalendarUntil && slices.Equal(e.NumbersUntil, o.NumbersUntil)
}

// EndRest gives an end, in microseconds since the Unix epoch, to all parts that have
// none, except a block beside other parts: a block is meant to last until someone ends
// it.
func (a *Assignment) EndRest(until int64) {
	if a.Blocked && !a.HasMore() {
		a.BlockedUntil = cmp.Or(a.BlockedUntil, until)
		return
	}
	if a.Plan != "" {
		a.PlanUntil = cmp.Or(a.PlanUntil, until)
	}
	if a.Unlimited {
		a.UnlimitedUntil = cmp.Or(a.UnlimitedUntil, until)
	}
	if a.Calendar != (Calendar{}) {
		a.CalendarUntil = cmp.Or(a.CalendarUntil, until)
	}
	if until != 0 && len(a.Numbers) > 0 {
		ends := make([]int64, len(a.Numbers))
		for i := range ends {
			ends[i] = cmp.Or(a.NumbersEnd(i), until)
		}
		a.NumbersUntil = ends
	}
}

// Until returns when all parts except the block end, and whether they end together.
// Without such parts it returns 0.
func (a *Assignment) Until() (until int64, together bool) {
	together = true
	first := true
	for end := range a.endsBesideBlock() {
		together = together && (first || end == until)
		until, first = end, false
	}
	if !together {
		return 0, false
	}
	return until, true
}

// endsBesideBlock yields the end of each part except the block.
func (a *Assignment) endsBesideBlock() iter.Seq[int64] {
	return func(yield func(int64) bool) {
		if a.Plan != "" && !yield(a.PlanUntil) || a.Unlimited && !yield(a.UnlimitedUntil) ||
			a.Calendar != (Calendar{}) && !yield(a.CalendarUntil) {
			return
		}
		for i := range a.Numbers {
			if !yield(a.NumbersEnd(i)) {
				return
			}
		}
	}
}

// LastEnd returns when nothing of an assignment is left, in microseconds since the Unix
// epoch; 0: never.
func (a *Assignment) LastEnd() int64 {
	last := int64(0)
	if a.Blocked {
		if last = a.BlockedUntil; last == 0 {
			return 0
		}
	}
	for end := range a.endsBesideBlock() {
		if end == 0 {
			return 0
		}
		last = max(last, end)
	}
	return last
}

// InForce returns what is left of an assignment at a moment, in microseconds since the
// Unix epoch, or nil. a may be nil.
func (a *Assignment) InForce(now int64) *Assignment {
	if a == nil {
		return nil
	}
	left := *a
	if ended(a.PlanUntil, now) {
		left.Plan, left.PlanUntil = "", 0
	}
	if ended(a.UnlimitedUntil, now) {
		left.Unlimited, left.UnlimitedUntil = false, 0
	}
	if ended(a.CalendarUntil, now) {
		left.Calendar, left.CalendarUntil = Calendar{}, 0
	}
	if ended(a.BlockedUntil, now) {
		left.Blocked, left.BlockedUntil = false, 0
	}
	if slices.ContainsFunc(a.NumbersUntil, func(until int64) bool { return ended(until, now) }) {
		left.Numbers, left.NumbersUntil = nil, nil
		for i, n := range a.Numbers {
			if until := a.NumbersEnd(i); !ended(until, now) {
				left.Numbers, left.NumbersUntil = append(left.Numbers, n), append(left.NumbersUntil, until)
			}
		}
		left.NumbersUntil = someEnds(left.NumbersUntil)
	}
	if !left.Blocked && !left.HasMore() {
		return nil
	}
	return &left
}

// someEnds returns ends, or nil if all are 0.
func someEnds(ends []int64) []int64 {
	if slices.ContainsFunc(ends, func(until int64) bool { return until != 0 }) {
		return ends
	}
	return nil
}
