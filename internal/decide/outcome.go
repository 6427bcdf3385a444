package decide

import (
	"slices"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/rules"
	"github.com/ratelimitd/ratelimitd/internal/config/rules/tally"
)

// Outcome is the answer to a descriptor.
type Outcome struct {
	// Rule is the rule that the descriptor matches, or nil. If that has plans, it is
	// the plan in force.
	Rule *rules.Rule
	// Refusal is why the descriptor is denied whatever its rule says.
	Refusal Refusal
	// until is when a block ends, in microseconds since the Unix epoch; 0: never.
	until int64
	// freed says that an assignment makes the descriptor unlimited.
	freed bool
	// Entries are those of the descriptor, with what its addresses are counted by in their
	// place.
	Entries []bucket.Entry
	// networks has, for each entry, the address or network by which it is counted, or "".
	// It is nil if there are none.
	networks []string
	// Subject are the entries that name whom the limits are about: Entries,
	// without the value of the last one if that names a holder.
	Subject []bucket.Entry
	// Limits are the limits that were asked: those of the rule that nothing
	// replaces, or the descriptor's own.
	Limits []*bucket.Limit
	// Own is the descriptor's own limit, or nil.
	Own *Override
	// Role is the role of all its hits.
	Role bucket.Role
	// Shadow is set if the rule lets the descriptor pass whatever its limits say.
	Shadow bool
	// Hits are the hits on Limits, in their order, once the call is matched, and
	// Decisions are theirs, once it is decided. Both are parts of the call's.
	Hits      []bucket.Hit
	Decisions []bucket.Decision
	// First is the index of its first hit among those of the call.
	First int
	// unenforced has a bit for each of Limits that is not enforced for this descriptor.
	// Only the first rules.MaxUnenforced limits can have one.
	unenforced uint64
}

// Refusal is why a descriptor is denied whatever its rule says.
type Refusal uint8

// Refusals.
const (
	NotRefused Refusal = iota
	// Blocked: an assignment blocks it.
	Blocked
	// Unmatched: no rule matches it, or the rule lacks its plan, and its domain denies
	// such descriptors.
	Unmatched
)

// IsOver reports whether the descriptor is over a limit that is enforced for it.
func (o *Outcome) IsOver() bool {
	for i := range o.Decisions {
		if !o.Decisions[i].Allowed() && o.Enforces(i) {
			return true
		}
	}
	return false
}

// Enforces reports whether limit i of the outcome is in force for the descriptor. It
// can then deny it, unless the rule or the daemon is in shadow mode.
func (o *Outcome) Enforces(i int) bool {
	return o.unenforced == 0 || i >= rules.MaxUnenforced || o.unenforced&(1<<i) == 0
}

// IsUnlimited reports whether a rule or an assignment says that the descriptor has
// no limit.
func (o *Outcome) IsUnlimited() bool {
	return o.Own == nil && o.Refusal == NotRefused && (o.freed || o.Rule != nil && o.Rule.Unlimited)
}

// IsFreed reports whether an assignment says that the descriptor has no limit.
func (o *Outcome) IsFreed() bool { return o.freed && o.Own == nil && o.Refusal == NotRefused }

// IsRuled reports whether a rule decides, rather than the descriptor's own limit.
func (o *Outcome) IsRuled() bool { return o.Rule != nil && o.Own == nil }

// isShadow reports whether the outcome cannot deny the call.
func (o *Outcome) isShadow(m Modes) bool { return o.Shadow || m.Shadow }

// isQuota reports whether the outcome is one of the call's quotas.
func (o *Outcome) isQuota(m Modes) bool {
	if o.Refusal != NotRefused {
		return false
	}
	return m.Quota || o.IsRuled() && o.Rule.QuotaMode
}

// hasHolder reports whether the last entry of the outcome's descriptor names a holder.
func (o *Outcome) hasHolder() bool { return o.Rule != nil && o.Rule.HasHolders }

// LimitName returns the name of limit j of the outcome, as in metrics.
func (o *Outcome) LimitName(j int) string {
	if o.Own != nil {
		return tally.OverrideLimit
	}
	return tally.LimitName(o.Limits[j])
}

// Decisive returns the limit that speaks for the descriptor, and its decision: the one
// with the longest retry time among those that denied, else the one with the fewest
// remaining. It ignores limits that are not enforced for the descriptor. It returns nil
// if no limit applies.
func (o *Outcome) Decisive() (*bucket.Limit, bucket.Decision) {
	best := o.decisiveIndex()
	if best < 0 {
		return nil, bucket.Decision{}
	}
	return o.Limits[best], o.Decisions[best]
}

// decisiveIndex is the index of that limit, or -1.
func (o *Outcome) decisiveIndex() int {
	best := -1
	for i := range o.Decisions {
		if !o.Enforces(i) {
			continue
		}
		if best < 0 || SpeaksBefore(&o.Decisions[i], &o.Decisions[best]) {
			best = i
		}
	}
	return best
}

// SpeaksBefore reports whether a speaks for a descriptor rather than b: its retry time
// is longer, or equal and less remains.
func SpeaksBefore(a, b *bucket.Decision) bool {
	if a.RetryAfter == b.RetryAfter {
		return a.Remaining < b.Remaining
	}
	return bucket.IsLonger(a.RetryAfter, b.RetryAfter)
}

// Source is where the numbers of a limit come from.
type Source uint8

// The sources.
const (
	FromFile Source = iota + 1
	FromAssignment
	FromRequest
)

// Source returns where the numbers of a limit of the outcome come from.
func (o *Outcome) Source(l *bucket.Limit) Source {
	switch {
	case o.Own != nil:
		return FromRequest
	case o.Rule != nil && slices.Contains(o.Rule.Limits, l):
		return FromFile
	}
	return FromAssignment
}
