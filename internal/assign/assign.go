// Package assign keeps what is said at run time about customers: who has which
// plan, numbers of its own, no limit, or a block. Every daemon holds all of it in
// memory, in a Table, so that a decision reads it without asking anybody; a Store
// keeps it for restarts, tells other daemons of changes, and records who made
// them. It imports bucket alone; the stores are packages below it.
package assign

import (
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// Subject is whom an assignment is for: the descriptors of a domain that are, or
// begin with, these entries.
type Subject struct {
	Domain  string         `json:"domain"`
	Entries []bucket.Entry `json:"entries"`
}

// Terms are what an assignment says. Unlimited and a plan exclude each other, and so
// do unlimited and numbers. A block stands beside any of them: while it lasts it goes
// before them, and they are there when it ends.
type Terms struct {
	// Plan is for the rules with plans that the subject matches, or that are below
	// one that it matches.
	Plan string `json:"plan,omitempty"`
	// Numbers take the place of those of the limits of that name, of the rule that
	// the very subject matches. They are sorted by the limit's name, and none is
	// named twice.
	Numbers []Numbers `json:"numbers,omitempty"`
	// Unlimited frees the very subject from the limits of its rule.
	Unlimited bool `json:"unlimited,omitempty"`
	// Blocked denies every descriptor that begins with the subject.
	Blocked bool `json:"blocked,omitempty"`
	// BlockedUntil is when the block ends by itself, in microseconds since the Unix
	// epoch; 0: never.
	BlockedUntil int64 `json:"blocked_until,omitempty"`
}

// Numbers are those of one limit.
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

// Assignment is what holds for a subject, and who said so.
type Assignment struct {
	Subject
	Terms
	// Until is when all but the block ends by itself, in microseconds since the Unix
	// epoch; 0: never.
	Until  int64  `json:"until,omitempty"`
	Reason string `json:"reason,omitempty"`
	// By is who made it.
	By string `json:"by,omitempty"`
	// At is when, on the store's clock, in microseconds since the Unix epoch.
	At int64 `json:"at,omitempty"`
	// ETag names this version of it. The store sets it.
	ETag string `json:"-"`
}

// Bounds of an assignment.
const (
	// MaxEntries bounds the entries of a subject.
	MaxEntries = 16
	// MaxSubject bounds the bytes of a subject's domain, keys and values together.
	MaxSubject = 1024
	// MaxText bounds the bytes of a reason, of a plan's name, and of who made it.
	MaxText = 256
	// MaxNumbers bounds the limits that one assignment names.
	MaxNumbers = 16
)

// NumbersOf returns the numbers for the limit of that name, or nil.
func (t *Terms) NumbersOf(limit string) *Numbers {
	for i := range t.Numbers {
		if t.Numbers[i].Limit == limit {
			return &t.Numbers[i]
		}
	}
	return nil
}

// HasMore reports whether the terms say more than a block.
func (t *Terms) HasMore() bool { return t.Plan != "" || t.Unlimited || len(t.Numbers) > 0 }

// blocks reports whether the terms block at a moment.
func (t *Terms) blocks(now int64) bool { return t.Blocked && !ended(t.BlockedUntil, now) }

// EndOfBlockAlone makes the end of an assignment that only blocks the end of the block,
// unless that has one: people say until of either.
func (a *Assignment) EndOfBlockAlone() {
	if a.Blocked && !a.HasMore() && a.BlockedUntil == 0 {
		a.Until, a.BlockedUntil = 0, a.Until
	}
}

// Ends returns when nothing of an assignment is left, in microseconds since the Unix
// epoch; 0: never.
func (a *Assignment) Ends() int64 {
	switch {
	case !a.Blocked:
		return a.Until
	case !a.HasMore():
		return a.BlockedUntil
	case a.Until == 0 || a.BlockedUntil == 0:
		return 0
	}
	return max(a.Until, a.BlockedUntil)
}

// WithBlockOf returns a with the block of another assignment in place of its own.
// other may be nil, which blocks nobody.
func (a Assignment) WithBlockOf(other *Assignment) Assignment {
	a.Blocked, a.BlockedUntil = false, 0
	if other != nil {
		a.Blocked, a.BlockedUntil = other.Blocked, other.BlockedUntil
	}
	return a
}

// InForce returns what is left of an assignment at a moment, in microseconds since the
// Unix epoch, or nil. a may be nil.
func (a *Assignment) InForce(now int64) *Assignment {
	if a == nil || a.Ended(now) {
		return nil
	}
	left := *a
	if a.Blocked && !a.blocks(now) {
		left.Blocked, left.BlockedUntil = false, 0
	}
	if ended(a.Until, now) {
		left.Plan, left.Numbers, left.Unlimited, left.Until = "", nil, false, 0
	}
	return &left
}
