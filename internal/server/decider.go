// Package server is the wire: Envoy's rate-limit RPC over gRPC, the same over
// HTTP, and the admin port. All protobuf types stay in it.
//
// A request is read top-down: a door (envoy.go, http.go) converts it to
// descriptors, the decider finds their rules, asks the store for all their
// limits at once, and the door converts the outcomes back.
package server

import (
	"context"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config"
	"github.com/ratelimitd/ratelimitd/internal/server/accounts"
)

// decider decides requests. Every endpoint asks the same one.
type decider struct {
	deciderOptions
	overrides overrideCache
	calls     sync.Pool
}

// deciderOptions are those of a decider.
type deciderOptions struct {
	live  *config.Live
	store bucket.Store
	// refuses returns why nothing must be decided, or nil.
	refuses func() error
	modes   modes
	bounds  Bounds
	// unmatched counts descriptors without a rule; those with one are counted
	// by the rule's tally.
	unmatched prometheus.Counter
	// ownLimits counts what descriptors got that have a limit of their own and
	// no rule.
	ownLimits results
}

func newDecider(o deciderOptions) *decider {
	d := &decider{deciderOptions: o}
	d.calls.New = func() any { return d.newCall() }
	return d
}

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

// errNoLimits is the answer while no limits could be loaded: whether there is
// one for a request is not known.
var errNoLimits = status.Error(codes.Unavailable, "no limits are loaded yet")

// decide fills in the outcomes of a call, one per descriptor, and counts them.
// Its error is the store's, or one of matchOnce.
func (d *decider) decide(ctx context.Context, c *call) error {
	if err := d.matchOnce(c); err != nil {
		return err
	}
	if len(c.hits) > 0 {
		if err := d.take(ctx, c); err != nil {
			return err
		}
	}
	d.count(c)
	return nil
}

// matchOnce is match of a call that may have been matched before.
func (d *decider) matchOnce(c *call) error {
	if !c.matched {
		c.matched, c.unmatched = true, d.match(c)
	}
	return c.unmatched
}

// match finds the limits of each descriptor, and what to ask of the store. Its
// error is errNoLimits, or says what is wrong with a descriptor's own limit.
func (d *decider) match(c *call) error {
	rules := d.live.Rules()
	if rules == nil {
		return errNoLimits
	}
	domain := rules.Domain(c.domain)
	c.found = domain
	hasModes := d.modes != modes{}
	for i := range c.descriptors {
		c.outcomes = append(c.outcomes, outcome{})
		o := &c.outcomes[i]
		if domain != nil {
			o.rule = domain.Match(c.descriptors[i].entries)
			if o.rule != nil {
				o.limits = o.rule.Limits
			}
			if c.descriptors[i].own.set {
				if err := c.override(domain, o, i); err != nil {
					return err
				}
			}
			hasModes = hasModes || o.hasMode()
		}
	}
	if hasModes {
		c.replace()
		c.giveRoles(d.modes)
	}
	for i := range c.outcomes {
		c.ask(domain, i)
	}
	c.settleQuotas()
	return nil
}

// take asks the store for the hits of a call and gives each outcome its
// decisions.
func (d *decider) take(ctx context.Context, c *call) error {
	if err := d.refuses(); err != nil {
		return err
	}
	c.decisions = append(c.decisions, make([]bucket.Decision, len(c.hits))...)
	if err := d.store.Take(ctx, c.hits, c.decisions); err != nil {
		return err
	}
	c.denied = !bucket.GroupAllowed(c.hits, c.decisions)
	rest := c.decisions
	for i := range c.outcomes {
		n := len(c.outcomes[i].limits)
		c.outcomes[i].decisions, rest = rest[:n:n], rest[n:]
	}
	return nil
}

// count counts what each descriptor of a decided call got.
func (d *decider) count(c *call) {
	unmatched := 0
	for i := range c.outcomes {
		o := &c.outcomes[i]
		allowed := !o.isOver()
		switch {
		case o.rule == nil && o.own == nil:
			unmatched++
		case o.rule == nil:
			d.ownLimits.add(allowed)
		case allowed:
			o.rule.Count(config.Allowed, c.descriptors[i].entries)
		case o.isShadow(d.modes):
			o.rule.Count(config.Shadowed, c.descriptors[i].entries)
		default:
			o.rule.Count(config.Denied, c.descriptors[i].entries)
		}
	}
	if unmatched > 0 {
		d.unmatched.Add(float64(unmatched))
	}
}

// ask adds the hits of the limits of outcome i.
func (c *call) ask(domain *config.Domain, i int) {
	o, d := &c.outcomes[i], &c.descriptors[i]
	if len(o.limits) == 0 {
		return
	}
	entries := d.entries
	start := len(c.text)
	if o.own == nil && o.rule.ShareThreshold {
		entries = slices.Clone(entries)
		entries[len(entries)-1].Value = o.rule.Pattern
		c.text = bucket.AppendSharedSubject(c.text, c.domain, entries)
	} else {
		c.text = bucket.AppendSubject(c.text, c.domain, entries)
	}
	subject := c.text[start:len(c.text):len(c.text)]
	place := subject
	if value, ok := domain.Place(entries); ok {
		start := len(c.text)
		c.text = append(c.text, value...)
		place = c.text[start:len(c.text):len(c.text)]
	}
	for _, l := range o.limits {
		start := len(c.text)
		c.text = l.AppendKey(c.text, subject)
		c.hits = append(c.hits, bucket.Hit{Limit: l, Key: c.text[start:len(c.text):len(c.text)], Place: place, Cost: d.cost, Role: o.role})
	}
}

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
