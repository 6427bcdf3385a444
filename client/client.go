package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ratelimitd/ratelimitd/client/internal/stream"
	"github.com/ratelimitd/ratelimitd/client/internal/turns"
	"github.com/ratelimitd/ratelimitd/internal/bucket/memstore"
)

// ErrClosed is the error of a closed client's methods.
var ErrClosed = errors.New("client: it is closed")

// Client asks one or several daemons. Its methods may be called concurrently.
type Client struct {
	options options
	pool    *stream.Pool
	calls   sync.Pool
	stats   stats
	outage  outage
	made    time.Time
	lines   *turns.Lines
	queues  queues
	leases  *leases
	running sync.WaitGroup // goroutines that keep slots, ask ahead or give back

	// ctx ends when the client is closed, and ErrClosed is its cause.
	ctx context.Context
	end context.CancelCauseFunc

	mu    sync.Mutex
	local *memstore.Store // of FailLocal; nil until it is needed
}

// New returns a client of the daemon or daemons that target names, in the form
// that grpc.NewClient takes, or as a list of addresses with commas between them.
// New does not wait for a connection. Close the client after use.
func New(target string, list ...Option) (*Client, error) {
	o, err := newOptions(list)
	if err != nil {
		return nil, err
	}
	p, err := stream.NewPool(target, stream.Options{
		Timeout: o.timeout,
		Logger:  o.logger,
		Now:     time.Now,
		Dial:    append([]grpc.DialOption{grpc.WithTransportCredentials(o.credentials)}, o.dial...),
	})
	if err != nil {
		return nil, err
	}
	c := &Client{options: o, pool: p, made: time.Now()}
	c.leases = newLeases(c)
	c.calls.New = func() any { return &call{take: stream.NewTake()} }
	c.ctx, c.end = context.WithCancelCause(context.Background())
	c.lines = turns.New(c.ctx)
	return c, nil
}

// Close ends the client and waits for its goroutines. Requests that have no
// answer yet fail with ErrClosed. Slots that are still held are lost: Close frees them, and
// gives back what is left of leases, for which it waits no longer than the timeout.
func (c *Client) Close() error {
	c.endLeases()
	c.mu.Lock()
	if c.ctx.Err() != nil {
		c.mu.Unlock()
		return nil
	}
	c.end(ErrClosed)
	local := c.local
	c.mu.Unlock()
	c.running.Wait()
	err := c.pool.Close()
	if local != nil {
		err = errors.Join(err, local.Close())
	}
	return err
}

// call is a request in progress, with its decision. Calls are reused.
type call struct {
	take    *stream.Take
	result  *Result // nil if only allowed is wanted
	allowed bool
	// leasable is the daemon's answer if the request can be leased, or nil.
	leasable *Result
	key      []byte

	// Allow's request.
	request     Request
	descriptors [1]Descriptor
}

func (c *Client) release(k *call) {
	clear(k.descriptors[0].Entries)
	k.request, k.allowed, k.leasable = Request{}, false, nil
	c.calls.Put(k)
}

// Allow asks about one descriptor, at a cost of 1. It returns false and an error
// if the request is invalid, if ctx ended, or if the daemon did not decide and
// the client's choice is FailError.
func (c *Client) Allow(ctx context.Context, domain string, entries ...Entry) (bool, error) {
	k := c.calls.Get().(*call)
	k.descriptors[0].Entries = append(k.descriptors[0].Entries[:0], entries...)
	k.request = Request{Domain: domain, Descriptors: k.descriptors[:]}
	err := k.request.check()
	if err == nil {
		k.take.Request = appendTake(k.take.Request[:0], &k.request, true)
		err = c.decide(ctx, &k.request, k)
	}
	allowed := err == nil && k.allowed
	c.release(k)
	return allowed, err
}

// Take takes from all limits of a request, or from none. It returns either a
// Result or an error: if the request is invalid, if ctx ended, or if the daemon did not
// decide and the choice is FailError. A denial is not an error.
func (c *Client) Take(ctx context.Context, r Request) (*Result, error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	const usual = 96
	return c.takeAs(ctx, &r, appendTake(make([]byte, 0, usual), &r, true))
}

// takeAs is Take for a request whose bytes are made already; the result keeps
// them for GiveBack.
func (c *Client) takeAs(ctx context.Context, r *Request, take []byte) (*Result, error) {
	k := c.calls.Get().(*call)
	own := k.take.Request
	k.take.Request, k.result = take, new(Result)
	err := c.decide(ctx, r, k)
	result := k.result
	k.take.Request, k.result = own, nil
	c.release(k)
	if err != nil {
		return nil, err
	}
	result.client, result.take = c, take
	return result, nil
}

// decide asks the daemon, and decides by the failure choice if that fails.
func (c *Client) decide(ctx context.Context, r *Request, k *call) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	ask, isDecided, err := c.byLease(ctx, r, k)
	if isDecided {
		return nil
	}
	if err == nil {
		err = c.pool.Ask(ctx, k.take)
	}
	if err == nil {
		err = k.readResponse(k.take.Answer)
	}
	if err != nil && ask.holding != nil {
		reason := err
		if ctx.Err() != nil {
			reason = nil // that this caller has given up is no reason for others
		}
		ask.holding.Forgo(ask.Ask, c.leases.now(), reason)
	}
	switch {
	case err == nil:
		c.noteAnswer()
		c.learn(ask, r, k)
		if k.allowed {
			c.stats.allowed.Add(1)
		} else {
			c.stats.denied.Add(1)
		}
		return nil
	case c.ctx.Err() != nil:
		return ErrClosed
	case ctx.Err() != nil:
		return ctx.Err()
	case status.Code(err) == codes.InvalidArgument:
		return fmt.Errorf("client: %w", err)
	}
	result := k.result
	if result == nil {
		result = new(Result)
	}
	err = c.failed(r, result, err)
	k.allowed = result.Allowed
	return err
}

// GiveBack returns the cost of a take, as far as it still counts: never above
// full and never into another window. If the limits have changed since, it
// returns nothing, and the error has the code FailedPrecondition. After an error
// of another code it is unknown whether the give-back arrived.
//
// A give-back is sent once: a second one of the same Result does nothing, and so
// does one of a Result that charged nothing. With several daemons, the give-back
// of a Degraded take may find nothing to return: the daemon that decided it kept
// the charge to itself. What a lease allowed goes back into it, or nowhere once it has
// ended.
func (c *Client) GiveBack(ctx context.Context, taken *Result) error {
	if taken == nil || !taken.isCharged() || taken.isGivenBack.Swap(true) {
		return nil
	}
	if taken.lease.from != nil {
		taken.lease.holding.GiveBack(taken.lease.from, taken.lease.cost)
		return nil
	}
	if taken.local != nil {
		return c.giveBackLocally(taken.local)
	}
	if err := c.pool.GiveBack(ctx, appendGiveBack(nil, taken)); err != nil {
		c.stats.lostGiveBacks.Add(1)
		if c.ctx.Err() != nil {
			return ErrClosed
		}
		return fmt.Errorf("client: give back: %w", err)
	}
	return nil
}
