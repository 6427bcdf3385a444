package decide

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ratelimitd/ratelimitd/internal/assign"
	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/rules"
	"github.com/ratelimitd/ratelimitd/internal/config/rules/tally"
)

// Decider decides requests. All endpoints share one.
type Decider struct {
	Options
	overrides overrideCache
	calls     sync.Pool
	made      time.Time
}

// Options of a Decider.
type Options struct {
	Live  *rules.Live
	Store bucket.Store
	// Many is how Store decides several takes at a time; nil if it does not.
	Many ManyTaker
	// Refuses returns why this daemon must not decide anything, or nil.
	Refuses func() error
	// Loading returns why the assignments are not known yet, or nil. If Loading itself is
	// nil, they always are.
	Loading func() error
	Modes   Modes
	Bounds  Bounds
	// Assigned are the assignments in force; nil means none.
	Assigned *assign.Table
	// Now is the time by which assignments end, in microseconds since the Unix
	// epoch; nil means the wall clock.
	Now func() int64
	// UnknownDomains counts the descriptors of unknown domains. A domain counts its own
	// without a rule, and a rule those that match it.
	UnknownDomains *atomic.Uint64
	// OwnLimits counts the decisions about descriptors that have a limit of their
	// own and no rule.
	OwnLimits Results
	// Settlements counts takes with IDs and their settlements; nil means no count.
	Settlements *SettlementCounts
	// Hits says when a limit is near its end, and whether rules count hits too.
	Hits HitCounting
	// Tops says whether rules keep the subjects that had the most.
	Tops Tops
}

// ManyTaker decides several takes at a time, if they have the same node, which is not nil.
type ManyTaker interface {
	NodeOf(hits []bucket.Hit) any
	TakeMany(ctx context.Context, takes []bucket.Take)
}

// New returns a decider.
func New(o Options) *Decider {
	d := &Decider{Options: o, made: time.Now()}
	if d.Assigned == nil {
		d.Assigned = assign.NewTable()
	}
	if d.Now == nil {
		d.Now = func() int64 { return time.Now().UnixMicro() }
	}
	d.calls.New = func() any { return d.NewCall() }
	return d
}

// errNoLimits is the answer while no limits could be loaded, since it is not known
// whether a request has one.
var errNoLimits = errorOf(NotReady, "no limits are loaded yet")

// inForce returns the rules in force. Its error is the answer while there are none, or
// while it is not known who is blocked.
func (d *Decider) inForce() (*rules.Set, error) {
	set := d.Live.Rules()
	if set == nil {
		return nil, errNoLimits
	}
	if d.Loading == nil {
		return set, nil
	}
	err := d.Loading()
	if err == nil {
		return set, nil
	}
	if refusal := d.Refuses(); refusal != nil {
		return nil, refusal // such a daemon loads nothing
	}
	return nil, errorOf(NotReady, "%v", err)
}

// Decide fills in the outcomes of a call, one for each descriptor, and counts them. Its
// error is the store's, or one of Match.
func (d *Decider) Decide(ctx context.Context, c *Call) error {
	if err := d.Match(c); err != nil {
		return err
	}
	if len(c.Hits) > 0 {
		take := d.Store.Take
		if c.ID != "" {
			take = d.reserve(c)
		}
		if err := c.take(ctx, take); err != nil {
			return err
		}
	}
	return d.conclude(ctx, c)
}

// conclude counts a decided call. If its caller has disconnected, the slots that it newly
// took are freed instead: nobody would release them.
func (d *Decider) conclude(ctx context.Context, c *Call) error {
	if c.hasHolders && ctx.Err() != nil {
		d.giveBackHits(ctx, c, func(h *bucket.Hit) bool { return h.Holder != "" })
		return ctx.Err()
	}
	d.count(c)
	return nil
}

// storeMethod is Take or Check of a store.
type storeMethod = func(context.Context, []bucket.Hit, []bucket.Decision) error

// take decides the hits of a call with a method of the store, and gives each outcome
// its decisions.
func (c *Call) take(ctx context.Context, method storeMethod) error {
	if err := c.decider.Refuses(); err != nil {
		return err
	}
	c.makeDecisions()
	if c.chargesUse() {
		// A caller that reports what was used does not wait long for the answer: Envoy
		// gives up after 20 ms by default. The use is charged anyway, within the
		// store's own time.
		ctx = context.WithoutCancel(ctx)
	}
	var err error
	if c.hasRefusal {
		err = c.takeBesideRefusals(ctx, method)
	} else {
		err = method(ctx, c.Hits, c.decisions)
	}
	if err == nil {
		c.endTake()
	}
	return err
}

// endTake gives the call and its outcomes what the store decided.
func (c *Call) endTake() {
	c.Denied = !bucket.GroupAllowed(c.Hits, c.decisions)
	c.giveDecisions()
}

// giveDecisions gives each outcome the decisions of its limits.
func (c *Call) giveDecisions() {
	for i := range c.Outcomes {
		o := &c.Outcomes[i]
		end := o.First + len(o.Hits)
		o.Decisions = c.decisions[o.First:end:end]
	}
}

// makeDecisions makes a decision for each hit.
func (c *Call) makeDecisions() {
	c.decisions = append(c.decisions[:0], make([]bucket.Decision, len(c.Hits))...)
}

// chargesUse reports whether all hits are charged even if they are denied.
func (c *Call) chargesUse() bool {
	for i := range c.Hits {
		if h := &c.Hits[i]; !h.Limit.ChargedAnyway(h.Cost) {
			return false
		}
	}
	return true
}

// count counts the outcome of each descriptor of a decided call.
func (d *Decider) count(c *Call) {
	unknown, isPeek := uint64(0), len(c.Hits) > 0 && !c.Denied
	for i := range c.Outcomes {
		o := &c.Outcomes[i]
		result := c.ResultOf(o)
		for j := range o.Hits {
			isPeek = isPeek && o.Hits[j].Cost == 0
		}
		switch {
		case o.Rule != nil:
		case o.Own != nil:
			d.OwnLimits.add(result == tally.Allowed)
			continue
		case c.found != nil:
			c.found.WithoutRule.Add(result)
			continue
		default:
			unknown++
			continue
		}
		if result == tally.Allowed && len(o.Hits) > 0 && c.Descriptors[i].cost == 0 {
			result = tally.Peeked
		}
		counts := o.Rule.Count(result, o.Subject)
		used := d.countLimits(o, c.Denied)
		d.Tops.add(o.Rule, o.Subject, c.Began, result == tally.Denied, used)
		if d.Hits.On {
			counts.AddHits(d.Hits.parts(o, !c.Denied))
		}
	}
	c.IsPeek = isPeek
	if c.ID != "" {
		d.countReserved(c)
	}
	if unknown > 0 {
		d.UnknownDomains.Add(unknown)
	}
}

// ResultOf returns the result of an outcome of the decided call: tally.Allowed, Denied
// or Shadowed.
func (c *Call) ResultOf(o *Outcome) tally.Result {
	switch {
	case !o.IsOver():
		return tally.Allowed
	case c.IsShadow(o):
		return tally.Shadowed
	}
	return tally.Denied
}

// countLimits counts what each limit of an outcome with a rule said. It returns the
// cost that was charged to at least one limit.
func (d *Decider) countLimits(o *Outcome, denied bool) (used int64) {
	for j := range o.Hits {
		h, decision := &o.Hits[j], &o.Decisions[j]
		counts := o.Rule.Counts.Limit(o.LimitName(j), j)
		// No limit is higher.
		cost := min(h.Cost, bucket.MaxRequests)
		charged := bucket.Due(h, decision, !denied)
		if h.Holder != "" && charged {
			countHolder(counts, h, decision)
		}
		if cost < 0 {
			if charged && h.Holder == "" {
				counts.Refunded.Add(uint64(min(-h.Cost, bucket.MaxRequests)))
			}
			continue
		}
		counts.Add(d.limitResult(o, j, charged), cost)
		if charged && decision.Renewal == bucket.NotRenewed {
			used = max(used, cost)
		}
	}
	return used
}

// LimitName returns the name of limit j of the outcome, as in metrics.
func (o *Outcome) LimitName(j int) string {
	if o.Own != nil {
		return tally.OverrideLimit
	}
	return tally.LimitName(o.Limits[j])
}

// LimitResult returns what limit j of an outcome of the decided call said.
func (c *Call) LimitResult(o *Outcome, j int) tally.LimitResult {
	return c.decider.limitResult(o, j, bucket.Due(&o.Hits[j], &o.Decisions[j], !c.Denied))
}

// limitResult returns what limit j of an outcome said; charged is whether its hit was.
func (d *Decider) limitResult(o *Outcome, j int, charged bool) tally.LimitResult {
	h, decision := &o.Hits[j], &o.Decisions[j]
	switch {
	case decision.Allowed():
		switch {
		case h.Cost == 0:
			return tally.LimitPeeked
		case !charged:
			return tally.LimitDeniedByOther
		case d.Hits.isNear(h.Limit, decision):
			return tally.LimitNear
		}
		return tally.LimitAllowed
	case charged && h.Cost > 0:
		return tally.LimitOver
	case o.isShadow(d.Modes) || !o.Enforces(j):
		return tally.LimitShadowed
	}
	return tally.LimitDenied
}

// Results count decisions that allow and decisions that deny.
type Results struct{ allowed, denied prometheus.Counter }

// NewResults returns the counters of a metric with the label result.
func NewResults(counter *prometheus.CounterVec) Results {
	return Results{counter.WithLabelValues("allowed"), counter.WithLabelValues("denied")}
}

func (r *Results) add(allowed bool) {
	if allowed {
		r.allowed.Inc()
	} else {
		r.denied.Inc()
	}
}
