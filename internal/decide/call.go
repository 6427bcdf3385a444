package decide

import (
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
	subjects    []bucket.Entry // of the outcomes whose last entry names a holder, or that have networks
	networks    []string       // by which addresses are counted
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
	// HitsCharged is set once HitBytes are charged.
	HitsCharged bool

	Domain     string
	HitsAddend uint32
	// ID names the take, so that it can be settled within SettleWithin, or what a
	// settlement settles. Owner is the name of the caller, if callers have names: IDs and
	// holders are its own.
	ID, Owner       string
	SettleWithin    time.Duration
	HasSettleWithin bool
	// Lease is how many units of each descriptor the caller would have, and Granted how many
	// a decided call took in place of its cost; 0 means no more than that.
	Lease   uint64
	Granted int64
	// IsSettlement is set on a call that settles. Then Settled is what that did.
	IsSettlement bool
	Settled      []Settled

	rulesOfDomain *rules.Domain // nil if no limits have the domain
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
	plainCost              int64 // of each descriptor, if Granted is not 0
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

// Settled is what a settlement did to a limit of the call.
type Settled struct {
	// Descriptor and Limit are indexes: of the descriptor, and of the limit among those
	// of its outcome.
	Descriptor, Limit int
	bucket.Settled
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

// Call returns an empty call that began at a reading of Clock. Release ends its use.
func (d *Decider) Call(began time.Duration) *Call {
	c := d.calls.Get().(*Call)
	c.Began = began
	return c
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
	clear(c.networks)
	clear(c.Hits)
	clear(c.overrides)
	c.Descriptors, c.Outcomes, c.Entries, c.subjects = c.Descriptors[:0], c.Outcomes[:0], c.Entries[:0], c.subjects[:0]
	c.networks = c.networks[:0]
	c.text, c.Hits, c.decisions, c.overrides = c.text[:0], c.Hits[:0], c.decisions[:0], c.overrides[:0]
	c.use = use{}
	return true
}

// isLarge reports whether a call has grown far beyond what most requests need.
func (c *Call) isLarge() bool {
	const maxKept = 64 // descriptors, hits
	return cap(c.Descriptors) > maxKept || cap(c.Hits) > maxKept || cap(c.Entries) > 4*maxKept || cap(c.text) > 16<<10
}

// IsFull reports whether the call has as many descriptors as the bounds allow. If so,
// it counts one more, which is not read: a request costs no more memory than the bounds
// allow, and Check can still say how many descriptors it had.
func (c *Call) IsFull() bool {
	if len(c.Descriptors) < c.decider.Bounds.Descriptors {
		return false
	}
	c.MoreDescriptors++
	return true
}

// IsFullOf is IsFull for the entries of a descriptor that is being read. They begin at
// start.
func (c *Call) IsFullOf(asked *Descriptor, start int) bool {
	if len(c.Entries)-start < c.decider.Bounds.Entries {
		return false
	}
	asked.MoreEntries++
	return true
}

// AddDescriptor adds a descriptor that was read, whose entries begin at start.
func (c *Call) AddDescriptor(asked Descriptor, start int) {
	asked.Entries = c.Entries[start:]
	c.Descriptors = append(c.Descriptors, asked)
}

// SettleEntries gives each descriptor its part of the entries once all are read, since
// appending may have moved them.
func (c *Call) SettleEntries() {
	rest := c.Entries
	for i := range c.Descriptors {
		n := len(c.Descriptors[i].Entries)
		c.Descriptors[i].Entries, rest = rest[:n:n], rest[n:]
	}
}

// StoreID is the ID as the store knows it.
func (c *Call) StoreID() string { return c.owned(c.ID) }

// owned returns an ID or a holder as the store knows it: callers with names have their own,
// so that none settles or releases what another took. No name has a slash.
func (c *Call) owned(name string) string {
	if c.Owner == "" {
		return name
	}
	return c.Owner + "/" + name
}

// Cost is what the descriptor of a checked call takes: 0 is a peek, less is a refund.
func (asked *Descriptor) Cost() int64 { return asked.cost }

// limit returns a limit as it applies to the descriptor.
func (asked *Descriptor) limit(l *bucket.Limit) *bucket.Limit {
	if asked.Reports {
		return l.Reported()
	}
	return l
}

// Holds estimates the bytes of the message, its entries, keys and decisions.
func (c *Call) Holds() int64 { return int64(4*c.Size + 512*(len(c.Descriptors)-1)) }

// What a hit takes until a store that waits has decided it, in bytes beside the text of its
// key: in the call, on its way to the store, there once more for each hash tag, and once more
// with the fallback if there is no answer. To settle it takes the bills as well.
const (
	hitBytes    = 1300
	settleBytes = 1800
	keyCopies   = 4
	// freeHits are part of what any call is charged for.
	freeHits = 4
)

// HitBytes estimates how many bytes the hits of a checked call take while a store that waits
// decides it, by the rule of its domain that has the most limits; 0 for few hits.
func (c *Call) HitBytes() int64 {
	rules := c.decider.Live.Rules()
	if rules == nil || len(c.Descriptors)*rules.MaxLimits() <= freeHits {
		return 0
	}
	domain := rules.Domain(c.Domain)
	if domain == nil {
		return 0
	}
	hits := len(c.Descriptors) * domain.MaxLimits()
	if hits <= freeHits {
		return 0
	}
	each := hitBytes
	if c.IsSettlement {
		each = settleBytes
	}
	return int64(hits*each + keyCopies*domain.MaxLimits()*c.textSize)
}
