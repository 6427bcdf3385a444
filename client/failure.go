package client

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/memstore"
)

// Failure is the choice of how to decide a request that the daemon did not
// decide. The zero Failure makes no choice.
type Failure struct {
	mode  bucket.FailureMode
	limit *bucket.Limit
	err   error
}

// FailAllow allows the request.
func FailAllow() Failure { return Failure{mode: bucket.FailAllow} }

// FailDeny denies the request.
func FailDeny() Failure { return Failure{mode: bucket.FailDeny} }

// FailError returns an error to the caller.
func FailError() Failure { return Failure{mode: bucket.FailError} }

// FailLocal decides in this process: it holds each descriptor to the limit.
// Invalid numbers are an error of New, or of the request.
func FailLocal(l Limit) Failure {
	limit, err := bucket.NewLimit(bucket.Spec{
		Algorithm: bucket.Algorithm(l.Algorithm),
		Requests:  int64(min(l.Requests, math.MaxInt64)),
		Period:    l.Period,
		Burst:     int64(min(l.Burst, math.MaxInt64)),
	})
	if err == nil && limit.Algorithm.HasHolders() { // descriptors name no holders here
		err = &bucket.SpecError{Field: "algorithm", Found: limit.Algorithm.String(), Allowed: fmt.Sprint(slices.DeleteFunc(bucket.Algorithms(), bucket.Algorithm.HasHolders))}
	}
	return Failure{mode: bucket.FailLocal, limit: limit, err: err}
}

// Limit is the limit of FailLocal.
type Limit struct {
	Algorithm Algorithm
	// Requests per Period, at most 2^52; 0 denies always.
	Requests uint64
	// Period is 1 ms to 366 days, in whole milliseconds.
	Period time.Duration
	// Burst is the capacity of a bucket; Requests if it is 0. Only for
	// TokenBucket, GCRA and LeakyBucket.
	Burst uint64
}

// String names the choice: allow, deny, error or local.
func (f Failure) String() string {
	if f.mode == bucket.FailureDefault {
		return "none"
	}
	return f.mode.String()
}

func (f Failure) or(other Failure) Failure {
	if f.mode == bucket.FailureDefault {
		return other
	}
	return f
}

// Err returns which number of FailLocal's limit is invalid, or nil.
func (f Failure) Err() error {
	if f.err == nil {
		return nil
	}
	return fmt.Errorf("the limit of FailLocal: %w", f.err)
}

// localKeys is how many keys FailLocal remembers. Further keys evict others.
const localKeys = 1 << 16

// localTake is a charge of FailLocal.
type localTake struct {
	hits      []bucket.Hit
	decisions []bucket.Decision
	id        string // of the take, or empty
	hasCost   []bool // for each hit, whether a settlement is about it
}

// localStore returns the store of FailLocal. The first call makes it.
func (c *Client) localStore() (*memstore.Store, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx.Err() != nil {
		return nil, ErrClosed
	}
	if c.local == nil {
		c.local = memstore.New(memstore.Options{MaxKeys: localKeys, WhenFull: memstore.Evict})
	}
	return c.local, nil
}

// failed decides a request that the daemon did not decide, because of cause. It
// fills in the result.
func (c *Client) failed(r *Request, result *Result, cause error) error {
	choice := r.OnFailure.or(c.options.failure)
	c.noteFailure(choice, cause)
	*result = Result{DeniedBy: -1, Degraded: true, Failure: cause}
	switch choice.mode {
	case bucket.FailAllow:
		c.stats.failedAllowed.Add(1)
		result.Allowed = true
	case bucket.FailDeny:
		c.stats.failedDenied.Add(1)
	case bucket.FailLocal:
		c.stats.failedLocal.Add(1)
		return c.decideLocally(r, result, choice.limit)
	default:
		c.stats.failedError.Add(1)
		return fmt.Errorf("client: no decision: %w", cause)
	}
	return nil
}

func (c *Client) decideLocally(r *Request, result *Result, limit *bucket.Limit) error {
	store, err := c.localStore()
	if err != nil {
		return err
	}
	t := &localTake{decisions: make([]bucket.Decision, len(r.Descriptors)), id: r.ID}
	for i := range r.Descriptors {
		t.hits = append(t.hits, localHit(r.Domain, &r.Descriptors[i], limit))
		t.hasCost = append(t.hasCost, r.Descriptors[i].Cost > 0)
	}
	if r.ID == "" {
		err = store.Take(context.Background(), t.hits, t.decisions)
	} else {
		reserved := bucket.Reservation{ID: r.ID, Lasts: min(cmp.Or(r.SettleWithin, time.Hour), bucket.MaxReservation)}
		err = store.Reserve(context.Background(), reserved, t.hits, t.decisions)
	}
	if err != nil {
		return fmt.Errorf("client: %w", err)
	}
	result.Allowed = bucket.GroupAllowed(t.hits, t.decisions)
	for i := range t.decisions {
		d := &t.decisions[i]
		result.Limits = append(result.Limits, Limited{
			Descriptor: i,
			Algorithm:  Algorithm(limit.Algorithm),
			Requests:   uint64(limit.Requests),
			Period:     limit.Period,
			Capacity:   uint64(limit.Capacity),
			Remaining:  uint64(d.Remaining),
			Allowed:    d.Allowed(),
			RetryAfter: d.RetryAfter,
			ResetAfter: d.ResetAfter,
			Wait:       d.Wait,
		})
		if !d.Allowed() && (result.DeniedBy < 0 || bucket.IsLonger(d.RetryAfter, result.RetryAfter)) {
			result.DeniedBy, result.RetryAfter = i, d.RetryAfter
		}
	}
	result.local = t
	return nil
}

func localHit(domain string, d *Descriptor, limit *bucket.Limit) bucket.Hit {
	entries := make([]bucket.Entry, len(d.Entries))
	for i, e := range d.Entries {
		entries[i] = bucket.Entry{Key: e.Key, Value: e.Value}
	}
	cost := int64(min(max(d.Cost, 1), bucket.MaxCost))
	if d.Peek {
		cost = 0
	}
	return bucket.Hit{
		Limit: limit,
		Key:   limit.AppendKey(nil, bucket.AppendSubject(nil, domain, entries)),
		Cost:  cost,
	}
}

// giveBackLocally returns a charge of FailLocal.
func (c *Client) giveBackLocally(t *localTake) error {
	store, err := c.localStore()
	if err != nil {
		return err
	}
	if t.id == "" {
		err = store.GiveBack(context.Background(), t.hits, t.decisions)
	} else if bucket.GroupAllowed(t.hits, t.decisions) { // or nothing was charged
		undone := slices.Clone(t.hits)
		for i := range undone {
			undone[i].Cost = -undone[i].Cost
		}
		err = store.Settle(context.Background(), t.id, undone, make([]bucket.Settled, len(undone)))
	}
	if err != nil {
		return fmt.Errorf("client: %w", err)
	}
	return nil
}
