package assign

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// Terms are the parts that a layer says, of these: a plan, the numbers of each limit, a
// calendar, unlimited, a block.
type Terms struct {
	// Plan applies to the rules with plans that the subject matches, or that are below
	// one that it matches.
	Plan string `json:"plan,omitempty"`
	// Numbers replace those of the limits of that name, of the rule that exactly this
	// subject matches. They are sorted by the limit's name, and none is named twice. Each
	// is a part.
	Numbers []Numbers `json:"numbers,omitempty"`
	// Calendar is for the limits by calendar of the rule that exactly this subject
	// matches.
	Calendar Calendar `json:"calendar,omitzero"`
	// Unlimited frees exactly this subject from the limits of its rule.
	Unlimited bool `json:"unlimited,omitempty"`
	// Blocked denies every descriptor that begins with the subject.
	Blocked bool `json:"blocked,omitempty"`
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
	// BlockFor is 0 for the limit's own.
	BlockFor time.Duration `json:"block_for,omitempty"`
}

// In returns the spec of a limit with these numbers in place of its own.
func (n *Numbers) In(spec bucket.Spec) bucket.Spec {
	spec.Requests, spec.Burst = n.Requests, n.Burst
	spec.Period = cmp.Or(n.Period, spec.Period)
	spec.BlockFor = cmp.Or(n.BlockFor, spec.BlockFor)
	return spec
}

// Parts names parts of an assignment.
type Parts struct {
	Plan, Calendar, Unlimited, Block bool
	// Numbers are those of all limits, and Limits name limits.
	Numbers bool
	Limits  []string
	// Rest is everything except blocks, in the base and in all layers.
	Rest bool
	// Temporary is all temporary layers, except the blocks in them.
	Temporary bool
	// OfBase keeps the others in temporary layers: what was said anew without an end
	// takes nothing from what lies on top.
	OfBase bool
}

// AllParts returns all parts of an assignment.
func AllParts() Parts { return Parts{Block: true, Rest: true} }

// IsNone reports whether p names no part.
func (p *Parts) IsNone() bool {
	return !p.Plan && !p.Calendar && !p.Unlimited && !p.Block && !p.Numbers && !p.Rest && !p.Temporary && len(p.Limits) == 0
}

// HasMore reports whether the terms say more than a block.
func (t *Terms) HasMore() bool {
	return t.Plan != "" || t.Unlimited || len(t.Numbers) > 0 || t.Calendar != (Calendar{})
}

// IsEmpty reports whether the terms say nothing.
func (t *Terms) IsEmpty() bool { return !t.Blocked && !t.HasMore() }

// equal reports whether two terms say the same.
func (t *Terms) equal(o *Terms) bool {
	return t.Plan == o.Plan && t.Calendar == o.Calendar && t.Unlimited == o.Unlimited && t.Blocked == o.Blocked && slices.Equal(t.Numbers, o.Numbers)
}

// parts returns the parts that t says.
func (t *Terms) parts() Parts {
	p := t.switches()
	p.Plan, p.Calendar = t.Plan != "", t.Calendar != (Calendar{})
	for _, n := range t.Numbers {
		p.Limits = append(p.Limits, n.Limit)
	}
	return p
}

// switches returns the parts that t says and that are never said otherwise.
func (t *Terms) switches() Parts { return Parts{Unlimited: t.Unlimited, Block: t.Blocked} }

// put adds the parts that o says, in place of those that t says.
func (t *Terms) put(o *Terms) {
	t.remove(o.parts())
	t.Plan = cmp.Or(o.Plan, t.Plan)
	t.Calendar = cmp.Or(o.Calendar, t.Calendar)
	t.Unlimited = t.Unlimited || o.Unlimited
	t.Blocked = t.Blocked || o.Blocked
	if len(o.Numbers) > 0 {
		t.Numbers = slices.Concat(t.Numbers, o.Numbers)
		slices.SortFunc(t.Numbers, func(a, b Numbers) int { return strings.Compare(a.Limit, b.Limit) })
	}
}

// remove removes parts, and reports whether t said any of them. It does not change what
// Numbers shares with other terms.
func (t *Terms) remove(p Parts) bool {
	old := *t
	if p.Plan || p.Rest {
		t.Plan = ""
	}
	if p.Calendar || p.Rest {
		t.Calendar = Calendar{}
	}
	if p.Unlimited || p.Rest {
		t.Unlimited = false
	}
	if p.Block {
		t.Blocked = false
	}
	t.Numbers = nil
	for _, n := range old.Numbers {
		if !p.Numbers && !p.Rest && !slices.Contains(p.Limits, n.Limit) {
			t.Numbers = append(t.Numbers, n)
		}
	}
	return !t.equal(&old)
}
