// Package fallback answers for hits that a store could not decide.
//
// What answers is each limit's own choice (bucket.FailureMode), or the
// daemon's where the limit makes none: local decides in this process, on this
// daemon's share of the limit; allow and deny say the same to everybody; error
// hands the store's failure to the caller. Every answer is marked as degraded.
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
	// Mode is that of limits that name none; never bucket.FailureDefault.
	Mode bucket.FailureMode
	// Local decides the hits of mode local. The Fallback owns and closes it.
	// What it remembers lives until it expires by itself, so that a store
	// that comes and goes grants no fresh share each time.
	Local bucket.Store
	// Replicas returns how many daemons share the limits, at least 1. It is
	// asked at each decision; what was taken from a share counts on in a
	// larger or smaller one, but is not given back to it.
	Replicas func() int
	// Metrics takes the counter of answers; nil for none.
	Metrics prometheus.Registerer
}

// Fallback answers in the place of a store. Its methods may be called
// concurrently.
type Fallback struct {
	mode     bucket.FailureMode
	local    bucket.Store
	replicas func() int
	answers  answers
	groups   sync.Pool
	// shares holds how many daemons shared the limits when that was asked last,
	// and in its low half the number of their shares, which is another one
	// whenever that many is.
	shares atomic.Uint64
}

// New returns a Fallback. It panics when the metrics have its counter already.
func New(o Options) *Fallback {
	f := &Fallback{
		mode:     o.Mode,
		local:    o.Local,
		replicas: o.Replicas,
		answers:  newAnswers(o.Metrics),
		groups:   sync.Pool{New: func() any { return new(group) }},
	}
	f.shares.Store(uint64(rand.Uint32() | 1)) // odd, so that it is never 0
	return f
}

// Close closes the local store. Nothing may be called after it.
func (f *Fallback) Close() error { return f.local.Close() }

var errLength = errors.New("fallback: as many decisions as hits are needed")

// Take decides a group like the Take of a bucket.Store, after one failed with
// cause; what that one charged, if its outcome is unknown, is charged here once
// more. If any of the limits is to fail with its store, nothing is charged
// here, and the error wraps cause. Limits that have no say, of hits Aside, allow
// instead.
func (f *Fallback) Take(ctx context.Context, hits []bucket.Hit, decisions []bucket.Decision, cause error) error {
	g, err := f.begin(hits, decisions, cause)
	if err != nil {
		return err
	}
	defer f.end(g)
	if bucket.GroupAllowed(g.hits, g.decisions) {
		g.settleQuotas()
		err = g.decide(ctx, f.local.Take, anyHit)
	} else {
		// Denied, whatever the local limits say.
		err = errors.Join(
			g.decide(ctx, f.local.Take, chargedAnyway),
			g.decide(ctx, f.local.Check, notChargedAnyway),
		)
	}
	g.scatter(decisions)
	return err
}

// Check is Take that charges nothing, like the Check of a bucket.Store.
func (f *Fallback) Check(ctx context.Context, hits []bucket.Hit, decisions []bucket.Decision, cause error) error {
	g, err := f.begin(hits, decisions, cause)
	if err != nil {
		return err
	}
	defer f.end(g)
	err = g.decide(ctx, f.local.Check, anyHit)
	g.scatter(decisions)
	return err
}

// GiveBack returns what a Take here with these decisions charged for these
// hits: to local limits only, for nothing else is charged, and only while their
// shares are those that it charged. What was refilled since is not known if
// there were others in between, and what another daemon took is not here.
func (f *Fallback) GiveBack(ctx context.Context, hits []bucket.Hit, decisions []bucket.Decision) error {
	if len(hits) != len(decisions) {
		return errLength
	}
	g := f.groups.Get().(*group)
	defer f.end(g)
	g.merge(hits)
	for i, j := range g.of {
		g.decisions[j] = decisions[i]
	}
	f.share(g)
	// The local store must not hear of hits that it did not charge: it sees a
	// part of the group, which may be allowed where the group was not.
	allowed := bucket.GroupAllowed(g.hits, g.decisions)
	g.choose(func(h *bucket.Hit, d *bucket.Decision) bool {
		return d.Share == g.number && bucket.Charged(h, d, allowed)
	})
	for i := range g.chosen {
		g.chosen[i].Role = bucket.Aside // each was charged, whatever the others say
	}
	if len(g.chosen) == 0 {
		return nil
	}
	if err := f.local.GiveBack(ctx, g.chosen, g.chosenDecisions); err != nil {
		return fmt.Errorf("fallback: %w", err)
	}
	return nil
}

// begin returns the group of the hits with what their limits say to each by
// themselves; local ones say nothing yet. It fails with cause where a limit is
// to fail. After it, end ends the group's use.
func (f *Fallback) begin(hits []bucket.Hit, decisions []bucket.Decision, cause error) (*group, error) {
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

func (f *Fallback) end(g *group) {
	g.clear()
	f.groups.Put(g)
}

// share finds the limits that the group's local hits are decided by.
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

// modeOf is the mode that answers for a hit. What is no mode fails: it must
// not pass for one that decides. But a hit without a say in its group does not
// fail it either.
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
