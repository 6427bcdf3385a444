package server

import (
	"context"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config"
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

// results are the counters of what was allowed and what was denied.
type results struct{ allowed, denied prometheus.Counter }

func newResults(counter *prometheus.CounterVec) results {
	return results{counter.WithLabelValues("allowed"), counter.WithLabelValues("denied")}
}

func (r *results) add(allowed bool) {
	if allowed {
		r.allowed.Inc()
	} else {
		r.denied.Inc()
	}
}
