package decide

import (
	"slices"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/assign"
	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/rules"
)

// Call is one request on its way through the decider. Its memory is used again
// after Release.
type Call struct {
	decider *Decider

	Descriptors []Descriptor
	Outcomes    []Outcome
	Entries     []bucket.Entry // of all descriptors
	subjects    []bucket.Entry // of the outcomes whose last entry names a holder
	text        []byte         // subjects and keys
	Hits        []bucket.Hit
	decisions   []bucket.Decision
	overrides   []*bucket.Limit // of the descriptors that have one

	use
}

// use is what a call is, beside its lists. Reset clears it in place, which is cheaper
// than to write a whole call.
type use struct {
	Size     int // of the message
	textSize int // of the domain, the ID and the entries, once checked
	// HitsCharged is set where somebody has charged HitBytes already.
	HitsCharged bool

	Domain     string
	HitsAddend uint32
	// ID names the take, so that it can be settled within SettleWithin, or what a
	// settlement settles. Owner is the name of the caller, if callers have names.
	ID, Owner       string
	SettleWithin    time.Duration
	HasSettleWithin bool
	// IsSettlement is set on a call that settles. Then Settled is what that did.
	IsSettlement bool
	Settled      []Settled

	found *rules.Domain // nil if no limits have the domain
	// Rules are those that the call was matched with, or nil.
	Rules *rules.Set

	// Inspects is set on a call that looks at subjects: it need not name holders.
	Inspects bool
	// Releases is set on a call that only frees the slots of its holders: of its
	// descriptors those count that have a rule with holders, and whatever they say of
	// costs and numbers does not.
	Releases bool

	// MoreDescriptors counts the descriptors beyond the bounds, which are not read.
	MoreDescriptors int

	// Began is when its first byte was read, or a little later, by Decider.Clock.
	Began time.Duration

	isMatched  bool
	matchError error

	// hasReplacing and hasRoles say that one of the rules replaces limits of others, or
	// gives its hits a role. Most calls have neither, and skip the search for them.
	hasReplacing, hasRoles bool
	hasQuotas              bool // one of them must be allowed
	hasRefusal             bool // one of the outcomes is refused
	hasHolders             bool // one of the hits has a holder
	onlyReleases           bool // refunds are not taken, except those that release a slot
	Denied                 bool
	// IsPeek is set on a call that passed and whose hits all cost 0.
	IsPeek bool
}

// usualCall is a call with room for most requests: one allocation instead of some ten.
// A garbage collection empties the pools of calls, so with a store that waits many
// calls are made again.
type usualCall struct {
	Call
	descriptors [2]Descriptor
	outcomes    [2]Outcome
	entries     [4]bucket.Entry
	text        [256]byte
	hits        [3]bucket.Hit
	decisions   [3]bucket.Decision
}

// NewCall returns an empty call.
func (d *Decider) NewCall() *Call {
	c := new(usualCall)
	c.Call = Call{
		decider:     d,
		Descriptors: c.descriptors[:0],
		Outcomes:    c.outcomes[:0],
		Entries:     c.entries[:0],
		text:        c.text[:0],
		Hits:        c.hits[:0],
		decisions:   c.decisions[:0],
	}
	return &c.Call
}

// Descriptor is one list of entries of a call, and how it is charged.
type Descriptor struct {
	Entries []bucket.Entry
	cost    int64
	// Own, if it is set, replaces the limits of the rule.
	Own Override
	// HitsAddend, if HasHitsAddend, replaces that of the call.
	HitsAddend    uint64
	HasHitsAddend bool
	// Reports says that HitsAddend is what was used: limits with bucket.PostpaidAuto
	// are charged for them in full.
	Reports bool
	// Refund gives HitsAddend back instead of taking it.
	Refund bool
	// MoreEntries counts the entries beyond the bounds, which are not read.
	MoreEntries int
	// Found, if it is not nil, is what is assigned to the descriptor, in place of what
	// Options.Assigned says: a replay knows it from the log.
	Found *assign.Found
	// IsDoubtful marks one of several readings of a request. It may deny the
	// request, and never makes it pass.
	IsDoubtful bool
}

// of returns a limit as it applies to the descriptor.
func (d *Descriptor) of(l *bucket.Limit) *bucket.Limit {
	if d.Reports {
		return l.Reported()
	}
	return l
}

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
	// Subject are the entries that name whom the limits are about: those of the
	// descriptor, without the value of the last one if that names a holder.
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

// isLarge reports whether a call has grown far beyond what most requests need.
func (c *Call) isLarge() bool {
	const maxKept = 64 // descriptors, hits
	return cap(c.Descriptors) > maxKept || cap(c.Hits) > maxKept || cap(c.Entries) > 4*maxKept || cap(c.text) > 16<<10
}

// Call returns an empty call that began at a reading of Clock. Release ends its use.
func (d *Decider) Call(began time.Duration) *Call {
	c := d.calls.Get().(*Call)
	c.Began = began
	return c
}

// Clock returns the time since the decider was made. It never goes back.
func (d *Decider) Clock() time.Duration { return time.Since(d.made) }

// IsDegraded reports whether the store did not decide all of the call, or did not settle it.
func (c *Call) IsDegraded() bool {
	return slices.ContainsFunc(c.Settled, func(s Settled) bool { return s.Degraded }) || slices.ContainsFunc(c.Outcomes, func(o Outcome) bool {
		return slices.ContainsFunc(o.Decisions, func(d bucket.Decision) bool { return d.Degraded })
	})
}

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
	clear(c.subjects)
	clear(c.Hits)
	clear(c.overrides)
	c.Descriptors, c.Outcomes, c.Entries, c.subjects = c.Descriptors[:0], c.Outcomes[:0], c.Entries[:0], c.subjects[:0]
	c.text, c.Hits, c.decisions, c.overrides = c.text[:0], c.Hits[:0], c.decisions[:0], c.overrides[:0]
	c.use = use{}
	return true
}

// IsShadow reports whether an outcome of the call cannot deny it.
func (c *Call) IsShadow(o *Outcome) bool { return o.isShadow(c.decider.Modes) }

// IsQuota reports whether an outcome is one of the call's quotas.
func (c *Call) IsQuota(o *Outcome) bool { return o.isQuota(c.decider.Modes) }

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
