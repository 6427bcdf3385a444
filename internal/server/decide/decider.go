package decide

import (
	"context"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config"
)

// Decider decides requests. All endpoints share one.
type Decider struct {
	Options
	overrides overrideCache
	calls     sync.Pool
}

// Options of a Decider.
type Options struct {
	Live  *config.Live
	Store bucket.Store
	// Refuses returns why this daemon must not decide anything, or nil.
	Refuses func() error
	Modes   Modes
	Bounds  Bounds
	// Unmatched counts descriptors without a rule. A rule counts its own.
	Unmatched prometheus.Counter
	// OwnLimits counts the decisions about descriptors that have a limit of their
	// own and no rule.
	OwnLimits Results
	// Hits says whether rules count hits too.
	Hits HitCounting
}

// New returns a decider.
func New(o Options) *Decider {
	d := &Decider{Options: o}
	d.calls.New = func() any { return d.NewCall() }
	return d
}

// errNoLimits is the answer while no limits could be loaded, since it is not known
// whether a request has one.
var errNoLimits = status.Error(codes.Unavailable, "no limits are loaded yet")

// Decide fills in the outcomes of a call, one for each descriptor, and counts
// them. Its error is the store's, or one of Match.
func (d *Decider) Decide(ctx context.Context, c *Call) error {
	if err := d.Match(c); err != nil {
		return err
	}
	if len(c.Hits) > 0 {
		if err := d.take(ctx, c); err != nil {
			return err
		}
	}
	d.count(c)
	return nil
}

// take asks the store for the hits of a call and gives each outcome its
// decisions.
func (d *Decider) take(ctx context.Context, c *Call) error {
	if err := d.Refuses(); err != nil {
		return err
	}
	c.decisions = append(c.decisions, make([]bucket.Decision, len(c.Hits))...)
	if c.chargesUse() {
		// Who says what was used does not wait long for the answer: Envoy gives up
		// after 20 ms by default. What was used is charged all the same, within the
		// store's own time.
		ctx = context.WithoutCancel(ctx)
	}
	if err := d.Store.Take(ctx, c.Hits, c.decisions); err != nil {
		return err
	}
	c.Denied = !bucket.GroupAllowed(c.Hits, c.decisions)
	rest := c.decisions
	for i := range c.Outcomes {
		n := len(c.Outcomes[i].Limits)
		c.Outcomes[i].Decisions, rest = rest[:n:n], rest[n:]
	}
	return nil
}

// chargesUse reports whether all hits are charged whatever they get.
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
	unmatched := 0
	rest := c.Hits
	for i := range c.Outcomes {
		o := &c.Outcomes[i]
		hits := rest[:len(o.Limits)]
		rest = rest[len(hits):]
		result := config.Denied
		switch {
		case o.Rule == nil && o.Own == nil:
			unmatched++
			continue
		case !o.IsOver():
			result = config.Allowed
		case o.isShadow(d.Modes):
			result = config.Shadowed
		}
		if o.Rule == nil {
			d.OwnLimits.add(result == config.Allowed)
			continue
		}
		counts := o.Rule.Count(result, c.Descriptors[i].Entries)
		if d.Hits.On {
			counts.AddHits(d.Hits.parts(o, hits, !c.Denied))
		}
	}
	if unmatched > 0 {
		d.Unmatched.Add(float64(unmatched))
	}
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
