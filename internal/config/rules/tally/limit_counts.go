package tally

import (
	"slices"
	"sync/atomic"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// LimitResult is the result of one limit for a descriptor.
type LimitResult uint8

// Limit results. Each hit of a limit has one.
const (
	// LimitAllowed: it was charged, and the limit is not nearly used up.
	LimitAllowed LimitResult = iota
	// LimitNear: it was charged, and the limit is now nearly used up.
	LimitNear
	// LimitOver: it had been used before asking, the limit had no room for it, and it was
	// charged all the same.
	LimitOver
	// LimitDenied: this limit had no room.
	LimitDenied
	// LimitDeniedByOther: this limit had room, but something else in the request had
	// none, so nothing was charged.
	LimitDeniedByOther
	// LimitShadowed: this limit had no room and is not in force for the descriptor.
	LimitShadowed
	// LimitPeeked: it had room, and nothing was asked of it.
	LimitPeeked

	// LimitResults is the number of results.
	LimitResults = iota
)

var limitResults = [LimitResults]string{"allowed", "near", "over", "denied", "denied_by_other", "shadowed", "peeked"}

// String returns the word used for it in labels: "allowed", "near", "over", "denied",
// "denied_by_other", "shadowed" or "peeked".
func (r LimitResult) String() string { return limitResults[r] }

// LimitCounts counts the results of one limit of a rule. The counts never decrease.
type LimitCounts struct {
	// Name is the name of the limit, or what stands in for it if it has none.
	Name string
	of   [LimitResults]resultCounts
	// Refunded and GivenBack are the costs that were returned: by takes with a negative
	// cost, and by give-backs of earlier takes.
	Refunded, GivenBack Cost
	// Returned and Added are the costs by which settlements made the charges of earlier
	// takes less, and more.
	Returned, Added Cost
	// Pauses are those that denials began, see bucket.Pause, and ShadowedPauses those of
	// them that deny nobody.
	Pauses, ShadowedPauses atomic.Uint64
	// holders is nil until the first holder takes or releases.
	holders atomic.Pointer[HolderCounts]
}

// HolderCounts count what becomes of the slots of a limit with holders, besides those that
// are newly taken.
type HolderCounts struct {
	// Renewed and RenewedSoon are takes by who has a slot, see bucket.Renewal.
	Renewed, RenewedSoon atomic.Uint64
	// Released are releases by what they found, a bucket.Released.
	Released [bucket.ReleasedTooLate + 1]atomic.Uint64
}

// Holders returns the counts of holders.
func (c *LimitCounts) Holders() *HolderCounts {
	if h := c.holders.Load(); h != nil {
		return h
	}
	c.holders.CompareAndSwap(nil, new(HolderCounts))
	return c.holders.Load()
}

// HasHolders reports whether any holder was counted.
func (c *LimitCounts) HasHolders() bool { return c.holders.Load() != nil }

// resultCounts count the decisions of one result. Most have a cost of 1: these are
// counted by one addition.
type resultCounts struct {
	ones, others atomic.Uint64
	costOfOthers Cost
}

// Add counts a decision about a cost of at least 0.
func (c *LimitCounts) Add(r LimitResult, cost int64) {
	of := &c.of[r]
	switch cost {
	case 1:
		of.ones.Add(1)
		return
	case 0:
	default:
		of.costOfOthers.Add(uint64(cost))
	}
	of.others.Add(1)
}

// Decisions returns the number of decisions with a result.
func (c *LimitCounts) Decisions(r LimitResult) uint64 {
	return c.of[r].ones.Load() + c.of[r].others.Load()
}

// Cost returns the total cost asked for in decisions with a result.
func (c *LimitCounts) Cost(r LimitResult) uint64 {
	return c.of[r].ones.Load() + c.of[r].costOfOthers.Load()
}

// Limit returns the counts of the limit of that name. near is roughly its position among
// those of the rule. The counts returned for a limit that a reload removed from the rule
// are not shown: a request that started earlier may still ask for them, and what it
// counts must not bring the series back.
func (r *RuleCounts) Limit(name string, near int) *LimitCounts {
	all := r.Limits()
	if near < len(all) && all[near].Name == name {
		return all[near]
	}
	if c := find(all, name); c != nil {
		return c
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	all = r.Limits()
	if c := find(all, name); c != nil {
		return c
	}
	c := &LimitCounts{Name: name}
	if r.inForce != nil && !hasLimit(*r.inForce, name) {
		return c
	}
	// Readers may have the old list. The new one has its own variable: taking the address
	// of all would make every call allocate it.
	more := append(slices.Clone(all), c)
	r.limits.Store(&more)
	return c
}

func find(all []*LimitCounts, name string) *LimitCounts {
	for _, c := range all {
		if c.Name == name {
			return c
		}
	}
	return nil
}

// Names used where a rule has no limit of its own.
const (
	// OverrideLimit is a limit that a request brings.
	OverrideLimit = "override"
	// BlockedLimit denies subjects that an assignment blocks.
	BlockedLimit = "blocked"
	// UnmatchedLimit denies descriptors without a rule.
	UnmatchedLimit = "unmatched"
)

// LimitName returns the name of a limit or, if it has none, its algorithm.
func LimitName(l *bucket.Limit) string {
	if l.Name == "" {
		return l.Algorithm.String()
	}
	return l.Name
}

// hasLimit reports whether a name belongs to a limit of a rule, or to something that can
// replace one.
func hasLimit(limits []*bucket.Limit, name string) bool {
	return name == OverrideLimit || name == BlockedLimit ||
		slices.ContainsFunc(limits, func(l *bucket.Limit) bool { return LimitName(l) == name })
}

// keepLimits drops the counts of limits that the rule does not have. r.mu is held.
func (r *RuleCounts) keepLimits() {
	if all := r.Limits(); len(all) > 0 {
		kept := slices.DeleteFunc(slices.Clone(all), func(c *LimitCounts) bool { return !hasLimit(*r.inForce, c.Name) })
		r.limits.Store(&kept)
	}
}

// Limits returns the counts of all limits that were asked, in the order in which they
// were first asked. The list must not be changed.
func (r *RuleCounts) Limits() []*LimitCounts {
	if list := r.limits.Load(); list != nil {
		return *list
	}
	return nil
}
