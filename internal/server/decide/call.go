package decide

import (
	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config"
	"github.com/ratelimitd/ratelimitd/internal/server/accounts"
)

// Call is one request on its way through the decider. Its memory is used again
// after Release.
type Call struct {
	decider *Decider
	accounts.Charge
	Size int // of the message

	Domain      string
	HitsAddend  uint32
	Descriptors []Descriptor
	Outcomes    []Outcome
	found       *config.Domain // nil if no limits file has the domain

	Entries   []bucket.Entry // of all descriptors
	text      []byte         // subjects and keys
	Hits      []bucket.Hit
	decisions []bucket.Decision
	overrides []*bucket.Limit // of the descriptors that have one

	// MoreDescriptors counts the descriptors beyond the bounds, which are not read.
	MoreDescriptors int

	// matched is set by Match, and unmatched is its error.
	matched   bool
	unmatched error

	hasQuotas bool // one of them must be allowed
	Denied    bool
}

// NewCall returns an empty call.
func (d *Decider) NewCall() *Call { return &Call{decider: d} }

// Descriptor asks about a list of entries.
type Descriptor struct {
	Entries []bucket.Entry
	cost    int64
	// Own, if it is set, replaces the limits of the rule.
	Own Override
	// Hits, if HasHits, replace the hits of the request.
	Hits    uint64
	HasHits bool
	// Reports says that Hits are what was used: limits with bucket.PostpaidAuto
	// are charged for them in full.
	Reports bool
	// Refund gives the hits back instead of taking them.
	Refund bool
	// MoreEntries counts the entries beyond the bounds, which are not read.
	MoreEntries int
	// IsDoubtful marks one of several readings of a request. It may deny the
	// request, and never makes it pass.
	IsDoubtful bool
}

// Outcome is the answer to a descriptor.
type Outcome struct {
	// Rule is the rule that the descriptor matches, or nil.
	Rule *config.Rule
	// Limits are the limits that were asked: those of the rule that nothing
	// replaces, or the descriptor's own.
	Limits []*bucket.Limit
	// Own is the descriptor's own limit, or nil.
	Own *Override
	// Role is the role of all its hits.
	Role bucket.Role
	// Shadow is set if the rule lets the descriptor pass whatever its limits say.
	Shadow bool
	// Decisions are those of Limits, in their order.
	Decisions []bucket.Decision
}

// IsOver reports whether the descriptor is over a limit.
func (o *Outcome) IsOver() bool { return !bucket.Allowed(o.Decisions) }

// isLarge reports whether a call has grown far beyond what most requests need.
func (c *Call) isLarge() bool {
	const most = 64 // descriptors, hits
	return cap(c.Descriptors) > most || cap(c.Hits) > most || cap(c.Entries) > 4*most || cap(c.text) > 16<<10
}

// Call returns an empty call. Release ends its use.
func (d *Decider) Call() *Call { return d.calls.Get().(*Call) }

// Release ends the use of a call that Decider.Call returned.
func (c *Call) Release() {
	if c.Reset() {
		c.decider.calls.Put(c)
	}
}

// Reset makes a call empty for the next use of its memory. It reports false if the
// call should be dropped instead, since after a long request it would hold much
// memory for ever.
func (c *Call) Reset() bool {
	if c.isLarge() {
		return false
	}
	clear(c.Descriptors)
	clear(c.Outcomes)
	clear(c.Entries)
	clear(c.Hits)
	clear(c.overrides)
	*c = Call{
		decider:     c.decider,
		Descriptors: c.Descriptors[:0],
		Outcomes:    c.Outcomes[:0],
		Entries:     c.Entries[:0],
		text:        c.text[:0],
		Hits:        c.Hits[:0],
		decisions:   c.decisions[:0],
		overrides:   c.overrides[:0],
	}
	return true
}

// IsShadow reports whether an outcome of the call cannot deny it.
func (c *Call) IsShadow(o *Outcome) bool { return o.isShadow(c.decider.Modes) }

// IsQuota reports whether an outcome is one of the call's quotas.
func (c *Call) IsQuota(o *Outcome) bool { return o.isQuota(c.decider.Modes) }

// Decisive returns the limit that speaks for the descriptor, and its decision: the
// one with the longest retry time among those that denied, else the one with the
// fewest remaining. It returns nil if no limit applies.
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
		if best < 0 || SpeaksBefore(&o.Decisions[i], &o.Decisions[best]) {
			best = i
		}
	}
	return best
}

// SpeaksBefore reports whether a speaks for a descriptor rather than b: its retry
// time is longer, or as long and less remains.
func SpeaksBefore(a, b *bucket.Decision) bool {
	if a.RetryAfter == b.RetryAfter {
		return a.Remaining < b.Remaining
	}
	return isLonger(a.RetryAfter, b.RetryAfter)
}
