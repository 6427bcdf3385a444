package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/ratelimitd/ratelimitd/internal/bucket/memstore"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

// Client asks one or several daemons. Its methods may be called concurrently.
type Client struct {
	options options
	conn    *grpc.ClientConn
	calls   sync.Pool
	stats   stats
	outage  outage
	made    time.Time

	// ctx ends when the client is closed, and so do the goroutines of running.
	ctx     context.Context
	end     context.CancelFunc
	running sync.WaitGroup

	// streams take requests. The slice is never changed: a new one takes its
	// place, under mu.
	streams atomic.Pointer[[]*stream]
	turn    atomic.Uint32
	// refused is the time until which streams are not tried, in nanoseconds
	// since made.
	refused atomic.Int64

	lines lines

	mu       sync.Mutex
	isClosed bool
	// suspected has the time at which a stream of a connection was given up.
	suspected map[connection]time.Time
	local     *memstore.Store
}

// New returns a client of the daemon or daemons that target names, in the form
// that grpc.NewClient takes, or as a list of addresses with commas between them.
// New does not wait for a connection. Close the client after use.
func New(target string, list ...Option) (*Client, error) {
	o, err := newOptions(list)
	if err != nil {
		return nil, err
	}
	dial := append(connecting(), grpc.WithTransportCredentials(o.credentials))
	if strings.Contains(target, ",") && !strings.Contains(target, "://") {
		builder, err := newAddressList(target)
		if err != nil {
			return nil, err
		}
		dial = append(dial, grpc.WithResolvers(builder))
		target = builder.Scheme() + ":///" + target
	}
	conn, err := grpc.NewClient(target, append(dial, o.dial...)...)
	if err != nil {
		return nil, fmt.Errorf("client: target %q: %w", target, err)
	}
	c := &Client{options: o, conn: conn, made: time.Now()}
	c.calls.New = func() any { return newCall() }
	c.ctx, c.end = context.WithCancel(context.Background())
	c.streams.Store(new([]*stream))
	c.lines.byKey = make(map[string]*line)
	c.suspected = make(map[connection]time.Time)
	c.running.Go(c.spread)
	return c, nil
}

// connecting returns the default dial options; the user's DialOptions override
// them.
func connecting() []grpc.DialOption {
	const (
		window = 1 << 20 // bytes of answers that a daemon may send ahead
		most   = 8 << 20 // bytes of one answer; a daemon sends fewer
	)
	retry := backoff.DefaultConfig
	retry.BaseDelay, retry.MaxDelay = 100*time.Millisecond, 5*time.Second
	return []grpc.DialOption{
		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig": [{"round_robin": {}}]}`),
		// The client soon finds a daemon that is back, and misses one that is
		// silently gone sooner than the kernel would.
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: retry, MinConnectTimeout: 5 * time.Second}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 5 * time.Second}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(most)),
		// A resolver's service config could turn retries on, but a request that
		// may have been decided must not be sent again.
		grpc.WithDisableRetry(),
		// For windows that grow, gRPC would send a ping after each answer.
		grpc.WithStaticStreamWindowSize(window),
		grpc.WithStaticConnWindowSize(window),
	}
}

// Close ends the client and waits for its goroutines. Requests that have no
// answer yet fail with ErrClosed.
func (c *Client) Close() error {
	c.mu.Lock()
	if c.isClosed {
		c.mu.Unlock()
		return nil
	}
	c.isClosed = true
	c.end()
	local := c.local
	c.mu.Unlock()
	err := c.conn.Close()
	c.running.Wait()
	if local != nil {
		err = errors.Join(err, local.Close())
	}
	return err
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
		k.take = appendTake(k.take[:0], &k.request, true)
		err = c.decide(ctx, &k.request, k)
	}
	allowed := err == nil && k.allowed
	c.release(k)
	return allowed, err
}

// Take takes from all limits of a request, or from none. It returns either a
// Result or an error: if the request is invalid, if ctx ended, or if the daemon
// did not decide and the choice is FailError. A denial is no error.
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
	own := k.take
	k.take, k.result = take, new(Result)
	err := c.decide(ctx, r, k)
	result := k.result
	k.take, k.result = own, nil
	c.release(k)
	if err != nil {
		return nil, err
	}
	result.take = take
	return result, nil
}

// decide asks the daemon, and decides by the failure choice if that fails.
func (c *Client) decide(ctx context.Context, r *Request, k *call) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	err := c.ask(ctx, k)
	switch {
	case err == nil:
		c.noteAnswer()
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

// ask sends a request, and again only while it is known to be unread.
func (c *Client) ask(ctx context.Context, k *call) error {
	k.begin(c.options.timeout)
	defer k.timer.Stop()
	// A message that is refused for its size ends its stream, and with it the
	// requests of others.
	if len(k.take) > maxBytes {
		return c.askAlone(ctx, k)
	}
	const attempts = 4 // each on another stream: daemons may be stopping
	for range attempts {
		s := c.pick()
		if s == nil {
			return c.askAlone(ctx, k)
		}
		if err := s.ask(ctx, k); !errors.Is(err, errUndecided) {
			return err
		}
	}
	return errUndecided
}

// askAlone makes a call for one request.
func (c *Client) askAlone(ctx context.Context, k *call) error {
	c.stats.alone.Add(1)
	ctx, cancel := context.WithDeadline(ctx, k.begun.Add(c.options.timeout))
	defer cancel()
	// gRPC may still read the message after this call returned.
	request, answer := message{bytes.Clone(k.take)}, message{}
	err := c.invoke(ctx, ratelimitv1.RateLimitService_Take_FullMethodName, &request, &answer)
	switch {
	case err == nil:
		return k.readResponse(answer.data)
	case len(k.take) > maxBytes && status.Code(err) == codes.ResourceExhausted:
		// The daemon's gRPC refused the message for its size. That is the
		// request's own fault: a long value must not pass by FailAllow.
		return status.Errorf(codes.InvalidArgument, "the request has %d bytes: %s", len(k.take), status.Convert(err).Message())
	}
	return err
}

func (c *Client) invoke(ctx context.Context, method string, request, answer *message) error {
	return c.conn.Invoke(ctx, method, request, answer, grpc.ForceCodecV2(codec{}))
}

// GiveBack returns the cost of a take, as far as it still counts: never above
// full and never into another window. If the limits have changed since, it
// returns nothing, and the error has the code FailedPrecondition. After an error
// of another code it is unknown whether the give-back arrived.
//
// A give-back is sent once: a second one of the same Result does nothing, and so
// does one of a Result that charged nothing. With several daemons, the give-back
// of a Degraded take may find nothing to return: the daemon that decided it kept
// the charge to itself.
func (c *Client) GiveBack(ctx context.Context, taken *Result) error {
	if taken == nil || !taken.isCharged() || taken.isGivenBack.Swap(true) {
		return nil
	}
	if taken.local != nil {
		return c.giveBackLocally(taken.local)
	}
	ctx, cancel := context.WithTimeout(ctx, c.options.timeout)
	defer cancel()
	request := message{appendGiveBack(nil, taken)}
	var answer message
	if err := c.invoke(ctx, ratelimitv1.RateLimitService_GiveBack_FullMethodName, &request, &answer); err != nil {
		c.stats.lostGiveBacks.Add(1)
		if c.ctx.Err() != nil {
			return ErrClosed
		}
		return fmt.Errorf("client: give back: %w", err)
	}
	return nil
}
