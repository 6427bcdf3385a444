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

// Bounds limit the size of a request.
type Bounds struct {
	// Descriptors is per request, Entries per descriptor, and Bytes for all text of a
	// request.
	Descriptors, Entries, Bytes int
	// Takes is per message that has several takes.
	Takes int
	// SettleWithin is how long a take with an ID can be settled at most; 0 means
	// bucket.MaxReservation.
	SettleWithin time.Duration
}

// Results count decisions that allow and decisions that deny.
type Results struct{ allowed, denied prometheus.Counter }

// NewResults returns the counters of a metric with the label result.
func NewResults(counter *prometheus.CounterVec) Results {
	return Results{allowed: counter.WithLabelValues("allowed"), denied: counter.WithLabelValues("denied")}
}

func (r *Results) add(allowed bool) {
	if allowed {
		r.allowed.Inc()
	} else {
		r.denied.Inc()
	}
}

// SettlementCounts count takes that can be settled, and settlements.
type SettlementCounts struct {
	// Reserved are takes with an ID that charged something.
	Reserved prometheus.Counter
	// Settled and Unknown are settlements that found what the ID had charged, and those
	// that did not. Shared are those of Settled whose ID several takes had.
	Settled, Unknown, Shared prometheus.Counter
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

// Clock returns the time since the decider was made. It never goes back.
func (d *Decider) Clock() time.Duration { return time.Since(d.made) }

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

// DeniesUnmatched reports whether descriptors of a domain that have no rule are
// denied.
func (d *Decider) DeniesUnmatched(domain *rules.Domain) bool {
	if domain.Unmatched == rules.UnmatchedDefault {
		return d.Modes.DenyUnmatched
	}
	return domain.Unmatched == rules.DenyUnmatched
}
