package server

import (
	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config"
	"github.com/ratelimitd/ratelimitd/internal/server/accounts"
)

// call is one request on its way through the decider; its memory is used again
// after release.
type call struct {
	decider *decider
	accounts.Charge
	size int // of the message

	domain      string
	hitsAddend  uint32
	descriptors []descriptor
	outcomes    []outcome
	found       *config.Domain // that of the name domain; nil if there is none

	entries   []bucket.Entry // of all descriptors
	text      []byte         // subjects and keys
	hits      []bucket.Hit
	decisions []bucket.Decision
	overrides []*bucket.Limit // of the descriptors that have one

	// moreDescriptors counts those beyond the bounds, which are not read.
	moreDescriptors int

	// matched is whether match was called, and unmatched its error.
	matched   bool
	unmatched error

	hasQuotas bool // of which one must be allowed
	denied    bool
}

// newCall returns a call with memory for what most have, in one piece: after a
// wait for the store none of it is in the processor's caches, and each page that
// it is spread over costs as much again.
func (d *decider) newCall() *call {
	const (
		few      = 2
		entries  = 4
		textSize = 256
	)
	m := &struct {
		call
		descriptors [few]descriptor
		outcomes    [few]outcome
		entries     [entries]bucket.Entry
		hits        [few]bucket.Hit
		decisions   [few]bucket.Decision
		text        [textSize]byte
	}{}
	m.call = call{
		decider:     d,
		descriptors: m.descriptors[:0],
		outcomes:    m.outcomes[:0],
		entries:     m.entries[:0],
		hits:        m.hits[:0],
		decisions:   m.decisions[:0],
		text:        m.text[:0],
	}
	return &m.call
}

// descriptor asks about a list of entries.
type descriptor struct {
	entries []bucket.Entry
	cost    int64
	// own is a limit that goes before the rule's, if it is set.
	own override
	// hits, if hasHits, go before those of the request.
	hits    uint64
	hasHits bool
	// refund turns the hits around.
	refund bool
	// moreEntries counts those beyond the bounds, which are not read.
	moreEntries int
	// isDoubtful is one of several readings of a request: it may deny it, and
	// gains nothing for it.
	isDoubtful bool
}

// outcome is what a descriptor gets.
type outcome struct {
	// rule is nil when none applies.
	rule *config.Rule
	// limits are those that were asked: the rule's but for those that others
	// replace, or the descriptor's own.
	limits []*bucket.Limit
	// own is what the descriptor asked for if limits are its own, else nil.
	own *override
	// role is that of all its hits.
	role bucket.Role
	// shadow is whether the rule is to pass whatever its limits say.
	shadow bool
	// decisions are those of limits, in their order.
	decisions []bucket.Decision
}

// isOver reports whether the descriptor is over a limit.
func (o *outcome) isOver() bool { return !bucket.Allowed(o.decisions) }

// isLarge reports whether a call has grown far beyond what most requests need.
func (c *call) isLarge() bool {
	const most = 64 // descriptors, hits
	return cap(c.descriptors) > most || cap(c.hits) > most || cap(c.entries) > 4*most || cap(c.text) > 16<<10
}

// call returns an empty call, for its release to end its use.
func (d *decider) call() *call { return d.calls.Get().(*call) }

// release ends the use of a call that the decider's call returned.
func (c *call) release() {
	if c.reset() {
		c.decider.calls.Put(c)
	}
}

// reset makes a call empty for the next use of its memory. It reports false
// where there should be none: one that was used for a long request would hold
// its memory for ever.
func (c *call) reset() bool {
	if c.isLarge() {
		return false
	}
	clear(c.descriptors)
	clear(c.outcomes)
	clear(c.entries)
	clear(c.hits)
	clear(c.overrides)
	*c = call{
		decider:     c.decider,
		descriptors: c.descriptors[:0],
		outcomes:    c.outcomes[:0],
		entries:     c.entries[:0],
		text:        c.text[:0],
		hits:        c.hits[:0],
		decisions:   c.decisions[:0],
		overrides:   c.overrides[:0],
	}
	return true
}

// isShadow reports whether an outcome of the call cannot deny it.
func (c *call) isShadow(o *outcome) bool { return o.isShadow(c.decider.modes) }

// isQuota reports whether an outcome is one of the call's quotas.
func (c *call) isQuota(o *outcome) bool { return o.isQuota(c.decider.modes) }

// decisive returns the limit that speaks for the descriptor: of those that
// denied the one with the longest retry time, else the one with the fewest
// remaining. It returns nil where no limit applies.
func (o *outcome) decisive() (*bucket.Limit, bucket.Decision) {
	best := o.decisiveIndex()
	if best < 0 {
		return nil, bucket.Decision{}
	}
	return o.limits[best], o.decisions[best]
}

// decisiveIndex is the index of that limit, or -1.
func (o *outcome) decisiveIndex() int {
	best := -1
	for i := range o.decisions {
		if best < 0 || speaksBefore(&o.decisions[i], &o.decisions[best]) {
			best = i
		}
	}
	return best
}

func speaksBefore(a, b *bucket.Decision) bool {
	if a.RetryAfter == b.RetryAfter {
		return a.Remaining < b.Remaining
	}
	return isLonger(a.RetryAfter, b.RetryAfter)
}
