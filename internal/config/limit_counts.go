package config

import (
	"slices"
	"sync/atomic"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// LimitResult is what one limit of a descriptor said of it.
type LimitResult uint8

// Limit results. Each hit of a limit has one.
const (
	// LimitAllowed: it was charged, and the limit is not near its end.
	LimitAllowed LimitResult = iota
	// LimitNear: it was charged, and the limit is near its end then.
	LimitNear
	// LimitOver: it was used before it was asked for, the limit had no room for it, and
	// it was charged all the same.
	LimitOver
	// LimitDenied: this limit had no room.
	LimitDenied
	// LimitDeniedByOther: this limit had room, and something else of the request had
	// none, so that nothing was charged.
	LimitDeniedByOther
	// LimitShadowed: this limit had no room, and is not in force for the descriptor.
	LimitShadowed
	// LimitPeeked: it had room, and nothing was asked of it.
	LimitPeeked

	// LimitResults is how many there are.
	LimitResults = iota
)

var limitResults = [LimitResults]string{"allowed", "near", "over", "denied", "denied_by_other", "shadowed", "peeked"}

// String returns the word for it in labels: "allowed", "near", "over", "denied",
// "denied_by_other", "shadowed" or "peeked".
func (r LimitResult) String() string { return limitResults[r] }

// LimitCounts count what one limit of a rule said. None ever falls.
type LimitCounts struct {
	// Name is that of the limit, or what stands for it where it has none.
	Name string
	// Decisions are by LimitResult, and Cost is what was asked for in all of these.
	Decisions, Cost [LimitResults]atomic.Uint64
	// Refunded and GivenBack are the cost that was asked back: by takes of a negative
	// cost, and by give-backs of earlier takes.
	Refunded, GivenBack atomic.Uint64
}

// Add counts a decision about a cost of at least 0.
func (c *LimitCounts) Add(r LimitResult, cost int64) {
	c.Decisions[r].Add(1)
	if cost > 0 {
		c.Cost[r].Add(uint64(cost))
	}
}

// Limit returns the counts of the limit of that name. near is about where it stands
// among those of the rule. Of a limit that a reload took from the rule the counts are
// nobody's: a request that began before may still ask for them, and what it counts must
// not bring the series back.
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
	if r.rule != nil && !r.rule.hasLimit(name) {
		return c
	}
	// Readers may have the old list. The new one has a variable of its own: if the address
	// of all were kept, each call would allocate it.
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

// Names of what stands where a rule has no limit of its own.
const (
	// OverrideLimit is a limit that a request brings.
	OverrideLimit = "override"
	// BlockedLimit denies whom an assignment blocks.
	BlockedLimit = "blocked"
	// UnmatchedLimit denies what no rule is for.
	UnmatchedLimit = "unmatched"
)

// LimitName returns the name of a limit, or what stands for it where it has none: its
// algorithm.
func LimitName(l *bucket.Limit) string {
	if l.Name == "" {
		return l.Algorithm.String()
	}
	return l.Name
}

// hasLimit reports whether a name is that of a limit of the rule, or of what can stand
// in the place of one.
func (r *Rule) hasLimit(name string) bool {
	return name == OverrideLimit || name == BlockedLimit ||
		slices.ContainsFunc(r.Limits, func(l *bucket.Limit) bool { return LimitName(l) == name })
}

// goOnFor has the counts be those of a rule after a reload, and forgets those of limits
// that it does not have.
func (r *RuleCounts) goOnFor(rule *Rule) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rule = rule
	if all := r.Limits(); len(all) > 0 {
		kept := slices.DeleteFunc(slices.Clone(all), func(c *LimitCounts) bool { return !rule.hasLimit(c.Name) })
		r.limits.Store(&kept)
	}
}

// Limits returns the counts of all limits that were asked, in the order in which
// they first were. The list must not be changed.
func (r *RuleCounts) Limits() []*LimitCounts {
	if list := r.limits.Load(); list != nil {
		return *list
	}
	return nil
}
