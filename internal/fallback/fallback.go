// Package fallback decides hits that a store could not decide. It imports bucket
// alone.
//
// Each limit chooses how (bucket.FailureMode), or else the daemon does. local
// decides in this process, by this daemon's share of the limit. allow and deny
// decide without any state. error hands the store's failure to the caller. Every
// decision is marked as degraded.
package fallback

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// Options of a Fallback.
type Options struct {
	// Mode is the mode of limits that choose none; never bucket.FailureDefault.
	Mode bucket.FailureMode
	// Local decides the hits of mode local. The Fallback owns and closes it. Its
	// states stay until they expire, so that a store that comes and goes does not
	// grant a fresh share each time.
	Local bucket.Store
	// Replicas returns how many daemons share the limits, at least 1. It is
	// called at each decision. When the number changes, hits on the old shares
	// count on the new ones too, but are not given back to them.
	Replicas func() int
	// Metrics is where the counters are registered; nil means nowhere.
	Metrics prometheus.Registerer
}

// Fallback decides in place of a store. Its methods may be called concurrently.
type Fallback struct {
	mode     bucket.FailureMode
	local    bucket.Store
	replicas func() int
	counters counters
	groups   sync.Pool
	// shares holds, in its high half, how many daemons shared the limits at the
	// last decision, and in its low half the number of their shares, which
	// changes whenever the high half does.
	shares atomic.Uint64
}

// New returns a Fallback. It panics if o.Metrics has its counters already.
func New(o Options) *Fallback {
	f := &Fallback{
		mode:     o.Mode,
		local:    o.Local,
		replicas: o.Replicas,
		counters: newCounters(o.Metrics),
		groups:   sync.Pool{New: func() any { return new(group) }},
	}
	f.shares.Store(uint64(rand.Uint32() | 1)) // odd, so that it is never 0
	return f
}

// Close closes the local store. Nothing may be called after it.
func (f *Fallback) Close() error { return f.local.Close() }

var errLength = errors.New("fallback: as many decisions as hits are needed")

// Take decides a group like the Take of a bucket.Store, after that store failed
// with cause. If the outcome of the store is unknown, the group may be charged
// twice: there and here. If a limit is to fail with its store, Take charges nothing
// and its error wraps cause; but a limit whose hit is Aside allows instead.
func (f *Fallback) Take(ctx context.Context, hits []bucket.Hit, decisions []bucket.Decision, cause error) error {
	return f.Reserve(ctx, bucket.Reservation{}, hits, decisions, cause)
}

// Reserve is Take for a caller who may have named the take: with an ID, local limits have
// bills.
func (f *Fallback) Reserve(ctx context.Context, r bucket.Reservation, hits []bucket.Hit, decisions []bucket.Decision, cause error) error {
	by := f.local.Take
	if r.ID != "" {
		by = func(ctx context.Context, hits []bucket.Hit, decisions []bucket.Decision) error {
			return f.local.Reserve(ctx, r, hits, decisions)
		}
	}
	g, err := f.newGroup(hits, decisions, cause)
	if err != nil {
		return err
	}
	defer f.release(g)
	if bucket.GroupAllowed(g.hits, g.decisions) {
		g.settleQuotas()
		err = g.decide(ctx, by, anyHit)
	} else {
		// The group is denied, whatever the local limits decide.
		err = errors.Join(
			g.decide(ctx, by, chargedAnyway),
			g.decide(ctx, f.local.Check, notChargedAnyway),
		)
	}
	g.scatter(decisions)
	return err
}

// Check decides as Take does and charges nothing, like the Check of a
// bucket.Store.
func (f *Fallback) Check(ctx context.Context, hits []bucket.Hit, decisions []bucket.Decision, cause error) error {
	g, err := f.newGroup(hits, decisions, cause)
	if err != nil {
		return err
	}
	defer f.release(g)
	err = g.decide(ctx, f.local.Check, anyHit)
	g.scatter(decisions)
	return err
}

// GiveBack takes back what a Take here, with these decisions, charged for these
// hits. Only local limits are charged. It gives back nothing if their shares have
// changed since: it is unknown how much of the charge still counts. What another
// daemon took is not here either.
func (f *Fallback) GiveBack(ctx context.Context, hits []bucket.Hit, decisions []bucket.Decision) error {
	if len(hits) != len(decisions) {
		return errLength
	}
	g := f.groups.Get().(*group)
	defer f.release(g)
	g.merge(hits)
	for i, j := range g.of {
		g.decisions[j] = decisions[i]
	}
	f.share(g)
	// Hits that the local store did not charge must not go there: without the
	// rest of the group they may seem to be allowed, and so charged.
	allowed := bucket.GroupAllowed(g.hits, g.decisions)
	g.choose(func(h *bucket.Hit, d *bucket.Decision) bool {
		return d.Share == g.number && bucket.Charged(h, d, allowed)
	})
	for i := range g.chosen {
		g.chosen[i].Role = bucket.Aside // each was charged, whatever the others got
	}
	if len(g.chosen) == 0 {
		return nil
	}
	if err := f.local.GiveBack(ctx, g.chosen, g.chosenDecisions); err != nil {
		return fmt.Errorf("fallback: %w", err)
	}
	for i, j := range g.chosenOf {
		g.decisions[j] = g.chosenDecisions[i]
	}
	g.scatter(decisions)
	return nil
}

// Settle settles, like the Settle of a bucket.Store, what the ID has charged here. What
// is known was charged to local limits, and is marked as degraded.
func (f *Fallback) Settle(ctx context.Context, id string, hits []bucket.Hit, settled []bucket.Settled) error {
	if len(hits) != len(settled) {
		return errLength
	}
	g := f.groups.Get().(*group)
	defer f.release(g)
	g.merge(hits)
	f.share(g)
	g.choose(anyHit)
	chosen := make([]bucket.Settled, len(g.chosen))
	if err := f.local.Settle(ctx, id, g.chosen, chosen); err != nil {
		return fmt.Errorf("fallback: %w", err)
	}
	all := make([]bucket.Settled, len(g.hits))
	for i, j := range g.chosenOf {
		all[j] = chosen[i]
		all[j].Degraded = true
	}
	for i, j := range g.of {
		settled[i] = all[j]
	}
	return nil
}

// Locate fills in what would decide about a hit here.
func (f *Fallback) Locate(h *bucket.Hit, l *bucket.Location) {
	l.OnFailure = f.modeOf(h)
	if l.OnFailure == bucket.FailLocal {
		l.Daemons = max(1, f.replicas())
		l.Share = h.Limit.Share(l.Daemons)
	}
}

// Forget forgets the local states of these keys: a limit that was reset is
// full for this daemon too when it decides alone.
func (f *Fallback) Forget(keys []string) { f.local.Forget(keys) }

// newGroup returns the group of the hits, with the decisions of the modes allow and
// deny; local limits decide later. It fails with cause if a limit is to fail with
// its store. release ends the use of the group.
func (f *Fallback) newGroup(hits []bucket.Hit, decisions []bucket.Decision, cause error) (*group, error) {
	if len(hits) != len(decisions) {
		return nil, errLength
	}
	for i := range hits {
		if f.Fails(&hits[i]) {
			return nil, fmt.Errorf("a limit is to fail with its store: %w", cause)
		}
	}
	g := f.groups.Get().(*group)
	g.merge(hits)
	f.share(g)
	for i, h := range g.hits {
		switch f.modeOf(&h) {
		case bucket.FailAllow:
			g.decisions[i] = allow(h)
		case bucket.FailDeny:
			g.decisions[i] = deny(h)
		}
	}
	return g, nil
}

func (f *Fallback) release(g *group) {
	g.clear()
	f.groups.Put(g)
}

// share finds the shares of the limits of the group's local hits.
func (f *Fallback) share(g *group) {
	n, number := f.sharing()
	g.number = number
	for i, h := range g.hits {
		if f.modeOf(&h) == bucket.FailLocal {
			g.shares[i] = h.Limit.Share(n)
		}
	}
}

// Fails reports whether a group with this hit fails with its store.
func (f *Fallback) Fails(h *bucket.Hit) bool { return f.modeOf(h) == bucket.FailError }

// sharing returns how many daemons share the limits, and the number of their
// shares.
func (f *Fallback) sharing() (n int, number uint32) {
	n = f.replicas()
	for {
		last := f.shares.Load()
		if last>>32 == uint64(uint32(n)) {
			return n, uint32(last)
		}
		number = uint32(last) + 2 // odd as the one before
		if f.shares.CompareAndSwap(last, uint64(uint32(n))<<32|uint64(number)) {
			return n, number
		}
	}
}

// modeOf returns the mode that decides a hit. An invalid mode counts as FailError, the
// safe one. A hit Aside does not fail its group: FailError counts as FailAllow for it.
func (f *Fallback) modeOf(h *bucket.Hit) bucket.FailureMode {
	m := h.Limit.OnStoreFailure
	if m == bucket.FailureDefault {
		m = f.mode
	}
	switch m {
	case bucket.FailLocal, bucket.FailAllow, bucket.FailDeny:
		return m
	}
	if h.Role == bucket.Aside {
		return bucket.FailAllow
	}
	return bucket.FailError
}
