package redisstore

import (
	"cmp"
	"context"
	"errors"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/redis/go-redis/v9"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/fallback"
	"github.com/ratelimitd/ratelimitd/internal/redisconn"
	"github.com/ratelimitd/ratelimitd/internal/redisstore/pipe"
	"github.com/ratelimitd/ratelimitd/internal/redisstore/script"
)

// backend gets requests decided: by Redis, or else by the fallback.
type backend struct {
	requests
	pipe     *pipe.Pipe
	fallback *fallback.Fallback // nil: none
	races    prometheus.Counter
	returns  sync.WaitGroup // of slots that were taken too late
}

func newBackend(conn *redisconn.Conn, o *Options) *backend {
	b := &backend{
		requests: requests{keyspace: newKeyspace(conn, o.HashTags), timeout: conn.Timeout(), isTraced: o.OnBatch != nil},
		fallback: o.Fallback,
		races: promauto.With(o.Metrics).NewCounter(prometheus.CounterOpts{
			Name: "ratelimitd_redis_races_total",
			Help: "Requests over several hash tags of a cluster that were allowed by the check and then not by every take; what they had taken was given back.",
		}),
	}
	b.pipe = pipe.New(conn, pipe.Options{
		Tags:         b.tags,
		Batch:        o.Batch,
		MaxClockSkew: cmp.Or(o.MaxClockSkew, bucket.DefaultMaxClockSkew),
		Probe:        b.ping,
		OnLate:       b.giveBackLate,
		Metrics:      o.Metrics,
		Log:          o.log(),
		OnBatch:      o.OnBatch,
		Clock:        o.Clock,
		OwnClock:     o.ownClock(),
	})
	return b
}

// close decides or fails what waits, and ends what runs in the background.
func (b *backend) close() {
	b.pipe.Close()
	b.returns.Wait()
}

// ask gets requests decided, and returns the first error. now is the time, or that of a
// moment ago.
func (b *backend) ask(ctx context.Context, now, deadline time.Time, requests ...*request) error {
	var together leg
	mayLead := len(requests) == 1 && deadline.Sub(now) >= b.timeout
	for _, r := range requests {
		if r.skipped != nil {
			r.Fail(r.skipped)
			continue
		}
		if r.caller().traced != nil {
			together.start(r)
		}
		b.pipe.Send(ctx, deadline, r.Request, mayLead)
	}
	for i, r := range requests {
		if r.skipped != nil {
			continue
		}
		if i > 0 {
			now = time.Now()
		}
		b.pipe.Wait(r.Request, now)
		if r.Trip != nil {
			together.stop(r)
		}
		if r.IsGone() {
			if gone := r.replace(); mayTakeLate(gone) {
				caller := r.caller()
				caller.late = append(caller.late, gone)
			}
		}
	}
	var first error
	for _, r := range requests {
		if r.State() != pipe.Decided {
			r.err = b.fallBack(ctx, r)
		}
		if first == nil {
			first = r.err
		}
	}
	return first
}

// fallBack lets the fallback decide what Redis did not, if the caller still waits. It
// returns why it was not decided, or nil.
func (b *backend) fallBack(ctx context.Context, r *request) error {
	if b.fallback == nil {
		return r.Cause
	}
	switch {
	case r.Mode == script.Pause:
		return r.Cause
	case r.Mode == script.GiveBack && r.Cause == errTakenElsewhere:
		return b.fallback.GiveBack(ctx, r.Hits, r.Decisions)
	case r.Mode == script.GiveBack:
		return r.Cause // it was taken from Redis
	case r.Mode == script.Settle:
		return b.settleLocally(ctx, r)
	case ctx.Err() != nil:
		return ctx.Err()
	}
	if r.whole != nil {
		b.restoreQuotas(r)
	}
	caller, reason := r.caller(), reasonOf(r.Cause)
	b.fallback.Add(&caller.degraded, r.Hits, reason)
	if caller.traced != nil && caller.traced.Degraded == "" {
		caller.traced.Degraded = string(reason)
	}
	if r.Mode == script.Check {
		return b.fallback.Check(ctx, r.Hits, r.Decisions, r.Cause)
	}
	if n := r.Named; n != nil {
		return b.fallback.Reserve(ctx, bucket.Reservation{ID: n.ID, Lasts: n.Lasts}, r.Hits, r.Decisions, r.Cause)
	}
	return b.fallback.Take(ctx, r.Hits, r.Decisions, r.Cause)
}

// restoreQuotas undoes putQuotasAside for hits that fail with their store: they
// fail the request, whatever their check said.
func (b *backend) restoreQuotas(piece *request) {
	for i, j := range piece.of {
		if h := &piece.whole.Hits[j]; h.Role > bucket.Enforced && b.fallback.Fails(h) {
			piece.Hits[i].Role = h.Role
		}
	}
}

// settleLocally settles what the fallback took for the ID of r. What Redis did not settle
// gets what that did. It returns the cause, if Redis did not decide, unless all hits were
// settled.
func (b *backend) settleLocally(ctx context.Context, r *request) error {
	local := make([]bucket.Settled, len(r.Hits))
	if err := b.fallback.Settle(ctx, r.Named.ID, r.Hits, local); err != nil {
		return err
	}
	for i := range local {
		if done := &r.Named.Settled[i]; local[i].IsKnown && !done.IsKnown {
			*done = local[i]
		}
	}
	if slices.ContainsFunc(r.Named.Settled, func(done bucket.Settled) bool { return !done.IsKnown }) {
		return r.Cause
	}
	return nil
}

// countDegraded counts a decided request if the fallback decided some of it, and
// if the caller still waits.
func (b *backend) countDegraded(r *request) {
	if r.degraded.Any() && r.ctx.Err() == nil {
		b.fallback.Count(&r.degraded)
	}
}

// errTakenElsewhere is the cause of a give-back of what the fallback took.
var errTakenElsewhere = errors.New("redis: what was taken was not taken from Redis")

// reasonOf returns the label for an error of Redis, the network or the pipe.
func reasonOf(err error) fallback.Reason {
	var answer redis.Error
	var network net.Error
	switch {
	case errors.Is(err, pipe.ErrBreakerOpen):
		return fallback.BreakerOpen
	case errors.Is(err, pipe.ErrQueueFull):
		return fallback.QueueFull
	case errors.Is(err, script.ErrUnreadable):
		return fallback.Unreadable
	case errors.As(err, &answer):
		return fallback.Refused
	case errors.Is(err, pipe.ErrNoAnswer), errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded),
		errors.As(err, &network) && network.Timeout():
		return fallback.Timeout
	}
	return fallback.Unreachable
}
