package decide

import (
	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config"
	"github.com/ratelimitd/ratelimitd/internal/server/accounts"
)

// Call is one request on its way through the decider; its memory is used again
// after release.
type Call struct {
	decider *Decider
	accounts.Charge
	Size int // of the message

	Domain      string
	HitsAddend  uint32
	Descriptors []Descriptor
	Outcomes    []Outcome
	found       *config.Domain // that of the name domain; nil if there is none

	Entries   []bucket.Entry // of all descriptors
	text      []byte         // subjects and keys
	Hits      []bucket.Hit
	decisions []bucket.Decision
	overrides []*bucket.Limit // of the descriptors that have one

	// MoreDescriptors counts those beyond the bounds, which are not read.
	MoreDescriptors int

	// matched is whether Match was called, and unmatched its error.
	matched   bool
	unmatched error

	hasQuotas bool // of which one must be allowed
	Denied    bool
}

// NewCall returns a call with memory for what most have, in one piece: after a
// wait for the store none of it is in the processor's caches, and each page that
// it is spread over costs as much again.
func (d *Decider) NewCall() *Call {
	const (
		few      = 2
		entries  = 4
		textSize = 256
	)
	m := &struct {
		Call
		descriptors [few]Descriptor
		outcomes    [few]Outcome
		entries     [entries]bucket.Entry
		hits        [few]bucket.Hit
		decisions   [few]bucket.Decision
		text        [textSize]byte
	}{}
	m.Call = Call{
		decider:     d,
		Descriptors: m.descriptors[:0],
		Outcomes:    m.outcomes[:0],
		Entries:     m.entries[:0],
		Hits:        m.hits[:0],
		decisions:   m.decisions[:0],
		text:        m.text[:0],
	}
	return &m.Call
}

// Descriptor asks about a list of entries.
type Descriptor struct {
	Entries []bucket.Entry
	cost    int64
	// Own is a limit that goes before the rule's, if it is set.
	Own Override
	// hits, if hasHits, go before those of the request.
	Hits    uint64
	HasHits bool
	// Refund turns the hits around.
	Refund bool
	// MoreEntries counts those beyond the bounds, which are not read.
	MoreEntries int
	// IsDoubtful is one of several readings of a request: it may deny it, and
	// gains nothing for it.
	IsDoubtful bool
}

// Outcome is what a descriptor gets.
type Outcome struct {
	// Rule is nil when none applies.
	Rule *config.Rule
	// Limits are those that were asked: the rule's but for those that others
	// replace, or the descriptor's own.
	Limits []*bucket.Limit
	// Own is what the descriptor asked for if limits are its own, else nil.
	Own *Override
	// Role is that of all its hits.
	Role bucket.Role
	// Shadow is whether the rule is to pass whatever its limits say.
	Shadow bool
	// Decisions are those of limits, in their order.
	Decisions []bucket.Decision
}

// IsOver reports whether the descriptor is over a limit.
func (o *Outcome) IsOver() bool { return !bucket.Allowed(o.Decisions) }

// isLarge reports whether a call has grown far beyond what most requests need.
func (c *Call) isLarge() bool {
	const most = 64 // descriptors, hits
	return cap(c.Descriptors) > most || cap(c.Hits) > most || cap(c.Entries) > 4*most || cap(c.text) > 16<<10
}

// Call returns an empty call, for its release to end its use.
func (d *Decider) Call() *Call { return d.calls.Get().(*Call) }

// Release ends the use of a call that the decider's call returned.
func (c *Call) Release() {
	if c.Reset() {
		c.decider.calls.Put(c)
	}
}

// Reset makes a call empty for the next use of its memory. It reports false
// where there should be none: one that was used for a long request would hold
// its memory for ever.
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

// Decisive returns the limit that speaks for the descriptor: of those that
// denied the one with the longest retry time, else the one with the fewest
// remaining. It returns nil where no limit applies.
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

// SpeaksBefore reports whether a says more about when to come back than b: its
// retry time is longer, or as long and less remains.
func SpeaksBefore(a, b *bucket.Decision) bool {
	if a.RetryAfter == b.RetryAfter {
		return a.Remaining < b.Remaining
	}
	return isLonger(a.RetryAfter, b.RetryAfter)
}
