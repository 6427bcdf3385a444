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

	// ctx ends with the client, and with it all that running waits for.
	ctx     context.Context
	end     context.CancelFunc
	running sync.WaitGroup

	// lanes are the streams that take requests. The slice is replaced, under
	// mu, never changed.
	lanes atomic.Pointer[[]*lane]
	turn  atomic.Uint32
	// refused is until when streams are not tried, in nanoseconds since made.
	refused atomic.Int64

	lines lines

	mu       sync.Mutex
	isClosed bool
	// suspected are connections that a lane was given up on, and since when.
	suspected map[connection]time.Time
	local     *memstore.Store
}

// New returns a client of the daemon or daemons that target names, as
// grpc.NewClient takes it, or as a list of addresses with commas between them.
// It does not wait for a connection. Close ends it.
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
	c.lanes.Store(new([]*lane))
	c.lines.byKey = make(map[string]*line)
	c.suspected = make(map[connection]time.Time)
	c.running.Go(c.spread)
	return c, nil
}

// connecting is how a client connects unless its DialOptions say otherwise.
func connecting() []grpc.DialOption {
	const (
		window = 1 << 20 // bytes of answers that a daemon may send ahead
		most   = 8 << 20 // bytes of one, which is more than a daemon sends
	)
	retry := backoff.DefaultConfig
	retry.BaseDelay, retry.MaxDelay = 100*time.Millisecond, 5*time.Second
	return []grpc.DialOption{
		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig": [{"round_robin": {}}]}`),
		// A daemon that is back is found soon, and one that is silently gone is
		// missed before the kernel would.
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: retry, MinConnectTimeout: 5 * time.Second}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 5 * time.Second}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(most)),
		// What may have been decided is not sent again, whatever a resolver's
		// service config says.
		grpc.WithDisableRetry(),
		// Windows that do not grow need no ping after each answer to measure by.
		grpc.WithStaticStreamWindowSize(window),
		grpc.WithStaticConnWindowSize(window),
	}
}

// Close ends the client and waits until nothing of it runs. Requests that have
// no answer yet fail with ErrClosed.
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

// Allow asks about one descriptor, at a cost of 1. Its error is not nil, and it
// does not allow, if the request cannot be meant, if ctx ended, or if the
// daemon did not decide and the client's choice is FailError.
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

// Take asks all limits of a request, and takes from all of them or from none.
// The Result is nil where the error is not: if the request cannot be meant, if
// ctx ended, or if the daemon did not decide and the choice is FailError.
func (c *Client) Take(ctx context.Context, r Request) (*Result, error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	const usual = 96
	return c.takeAs(ctx, &r, appendTake(make([]byte, 0, usual), &r, true))
}

// takeAs is Take of a request in its bytes, which the result keeps.
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

// decide asks the daemon, or who decides in its place.
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

// ask sends a request until it is known to have been read, once.
func (c *Client) ask(ctx context.Context, k *call) error {
	k.begin(c.options.timeout)
	defer k.timer.Stop()
	// What may be refused for its size must not end a stream that others are on.
	if len(k.take) > maxBytes {
		return c.askAlone(ctx, k)
	}
	const attempts = 4 // each on another stream, as daemons stop
	for range attempts {
		l := c.pick()
		if l == nil {
			return c.askAlone(ctx, k)
		}
		if err := l.ask(ctx, k); !errors.Is(err, errUndecided) {
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
	// A copy, for gRPC may still hold it when the caller has gone.
	request, answer := message{bytes.Clone(k.take)}, message{}
	err := c.invoke(ctx, ratelimitv1.RateLimitService_Take_FullMethodName, &request, &answer)
	switch {
	case err == nil:
		return k.readResponse(answer.data)
	case len(k.take) > maxBytes && status.Code(err) == codes.ResourceExhausted:
		// So gRPC refuses unread what is over the daemon's bounds by far. That
		// is the request's own fault: a long value must not pass by FailAllow.
		return status.Errorf(codes.InvalidArgument, "the request has %d bytes: %s", len(k.take), status.Convert(err).Message())
	}
	return err
}

func (c *Client) invoke(ctx context.Context, method string, request, answer *message) error {
	return c.conn.Invoke(ctx, method, request, answer, grpc.ForceCodecV2(codec{}))
}

// GiveBack returns what a take charged, as far as it still counts: never above
// full, never into another window, and nothing if the limits have changed since,
// which is an error of the code FailedPrecondition. It is sent once: a second
// give-back of a result does nothing, nor does that of one that charged nothing.
// What a daemon decided without its store (Degraded) it keeps to itself, and
// returns while as many daemons share the limits; so with several daemons a
// give-back of that may find nothing to return. Whether it arrived is not known
// if the error has another code.
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
