// Package stream sends takes to daemons: on a stream to each of them, and in calls of
// their own where streams do not get through. It may import proto/wire and the API's
// generated code. It does not read requests and responses.
//
// A Pool opens a stream on each connection and hands them the takes in turn. A stream
// numbers its takes, sends those that wait in one message, and matches the answers by
// their numbers. Streams end when a daemon stops, asks the client to leave, hangs or
// refuses them. A take goes to another stream only while it is known that no daemon read
// it.
package stream

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

const (
	// refusedFor is how long streams are not tried after they did not get through, and
	// brieflyRefusedFor if one ever did: then it is likely that a daemon hangs or starts.
	refusedFor        = time.Minute
	brieflyRefusedFor = 5 * time.Second
	// suspectedFor is how long a connection gets no stream after one on which no answer
	// came in time, while there are others. Otherwise a daemon that hangs would cost
	// callers their whole timeout again and again, until gRPC notices.
	suspectedFor = 10 * time.Second
	// The pool looks for a connection without a stream: soon after a change, then less
	// and less often, but often enough to leave a connection that a daemon finds too old
	// before the daemon ends it.
	spreadFirst = 50 * time.Millisecond
	spreadLast  = 5 * time.Second
)

// Pool asks daemons in turn. Its methods may be called concurrently.
type Pool struct {
	options Options
	conn    *grpc.ClientConn
	made    time.Time
	alone   atomic.Uint64

	// ctx ends when the pool is closed, and so do the goroutines in running.
	ctx     context.Context
	end     context.CancelFunc
	running sync.WaitGroup

	// streams are those that get takes. The slice is never changed: a new one
	// replaces it, under mu.
	streams atomic.Pointer[[]*stream]
	turn    atomic.Uint32
	// refused is the time until which streams are not tried, in nanoseconds
	// since made.
	refused atomic.Int64
	// isPassed is set once an answer came on a stream.
	isPassed atomic.Bool

	mu sync.Mutex
	// suspected has the time at which a connection's stream was given up.
	suspected map[connection]time.Time
}

// Options are those of a pool. None has a default.
type Options struct {
	// Timeout is how long a call waits for its answer.
	Timeout time.Duration
	// Logger logs when streams are refused.
	Logger *slog.Logger
	// Now is the clock of refusals and suspicions.
	Now func() time.Time
	// Dial has the credentials, and options that override the pool's own.
	Dial []grpc.DialOption
}

// NewPool returns a pool for the daemon or daemons that target names, in the form
// that grpc.NewClient takes, or as a list of addresses with commas between them. It
// does not wait for a connection. Close the pool after use.
func NewPool(target string, o Options) (*Pool, error) {
	conn, err := dial(target, o.Dial)
	if err != nil {
		return nil, err
	}
	p := &Pool{options: o, conn: conn, made: o.Now(), suspected: make(map[connection]time.Time)}
	p.ctx, p.end = context.WithCancel(context.Background())
	p.streams.Store(new([]*stream))
	p.running.Go(p.spread)
	return p, nil
}

// Close ends the pool and waits for its goroutines. Takes that have no answer yet
// fail.
func (p *Pool) Close() error {
	p.mu.Lock()
	p.end() // under mu, so that no goroutine starts after this
	p.mu.Unlock()
	err := p.conn.Close()
	p.running.Wait()
	return err
}

// Streams returns how many streams are open.
func (p *Pool) Streams() int { return len(*p.streams.Load()) }

// Alone returns how many takes were sent in calls of their own.
func (p *Pool) Alone() uint64 { return p.alone.Load() }

// Ask sends a take, and waits for its answer until ctx ends or the timeout is over.
// It sends the take again only while it is known that no daemon read it.
func (p *Pool) Ask(ctx context.Context, k *Take) error {
	k.begin(p.options.Timeout)
	k.Trace = TraceparentOf(ctx)
	defer k.timer.Stop()
	// A message that is refused for its size ends its stream, and with it the
	// takes of others.
	if len(k.Request) > maxBytes {
		return p.askAlone(ctx, k)
	}
	const attempts = 4 // each on another stream: daemons may be stopping
	for range attempts {
		s := p.pick()
		if s == nil {
			return p.askAlone(ctx, k)
		}
		if err := s.ask(ctx, k); !errors.Is(err, errUndecided) {
			return err
		}
	}
	return errUndecided
}

// askAlone makes a call for one take.
func (p *Pool) askAlone(ctx context.Context, k *Take) error {
	p.alone.Add(1)
	ctx, cancel := context.WithDeadline(ctx, k.begun.Add(p.options.Timeout))
	defer cancel()
	// gRPC may still read the message after this call returned.
	method := ratelimitv1.RateLimitService_Take_FullMethodName
	switch {
	case k.IsSettlement:
		method = ratelimitv1.RateLimitService_Settle_FullMethodName
	case k.IsRelease: // a ReleaseRequest has the fields of a TakeRequest that it needs
		method = ratelimitv1.RateLimitService_Release_FullMethodName
	}
	answer, err := p.invoke(ctx, method, bytes.Clone(k.Request))
	if len(k.Request) > maxBytes && status.Code(err) == codes.ResourceExhausted {
		// The daemon's gRPC refused the message for its size. That is the
		// request's own fault: a long value must not pass by FailAllow.
		return status.Errorf(codes.InvalidArgument, "the request has %d bytes: %s", len(k.Request), status.Convert(err).Message())
	}
	k.Answer = answer
	return err
}

// Release frees the slots that the holders in a TakeRequest have, which is not changed.
func (p *Pool) Release(ctx context.Context, request []byte) error {
	k := NewTake()
	k.Request, k.IsRelease = request, true
	return p.Ask(ctx, k)
}

// GiveBack sends a GiveBackRequest, once, and waits for its answer until ctx ends or
// the timeout is over.
func (p *Pool) GiveBack(ctx context.Context, request []byte) error {
	ctx, cancel := context.WithTimeout(ctx, p.options.Timeout)
	defer cancel()
	_, err := p.invoke(ctx, ratelimitv1.RateLimitService_GiveBack_FullMethodName, request)
	return err
}

func (p *Pool) invoke(ctx context.Context, method string, request []byte) ([]byte, error) {
	var answer message
	span := TraceparentOf(ctx)
	ctx = span.in(ctx)
	err := p.conn.Invoke(ctx, method, &message{request}, &answer, grpc.ForceCodecV2(codec{}))
	return answer.data, err
}

// pick returns the stream whose turn it is, or nil where streams do not get through.
func (p *Pool) pick() *stream {
	if streams := *p.streams.Load(); len(streams) > 0 {
		return streams[p.turn.Add(1)%uint32(len(streams))]
	}
	return p.firstStream()
}

// firstStream returns a stream that is about to open. A caller waits for it no longer
// than for an answer.
func (p *Pool) firstStream() *stream {
	if p.isRefused() {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if streams := *p.streams.Load(); len(streams) > 0 {
		return streams[0]
	}
	s := p.newStream()
	if p.ctx.Err() != nil {
		s.ended = true
		return s
	}
	p.streams.Store(&[]*stream{s})
	p.running.Go(func() { s.run(nil) })
	return s
}

// hears reports whether answers came on one of the streams.
func (p *Pool) hears() bool {
	return slices.ContainsFunc(*p.streams.Load(), func(s *stream) bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.answers > 0
	})
}

// age is how long ago the pool was made.
func (p *Pool) age() time.Duration { return p.options.Now().Sub(p.made) }

func (p *Pool) isRefused() bool {
	until := p.refused.Load()
	return until != 0 && int64(p.age()) < until
}

// refuse sends each take in a call of its own for a while.
func (p *Pool) refuse(why string) {
	if p.isRefused() {
		return
	}
	length := refusedFor
	if p.isPassed.Load() {
		length = brieflyRefusedFor
	}
	p.refused.Store(int64(p.age() + length))
	p.options.Logger.Info("streams do not pass; each request is a call", slog.String("why", why), slog.Duration("for", length))
}

// suspect keeps new streams off a connection for a while.
func (p *Pool) suspect(at connection) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for other, since := range p.suspected {
		if p.options.Now().Sub(since) > suspectedFor {
			delete(p.suspected, other)
		}
	}
	p.suspected[at] = p.options.Now()
}

// drop removes a stream from those that get takes.
func (p *Pool) drop(s *stream) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if streams := *p.streams.Load(); slices.Contains(streams, s) {
		rest := slices.DeleteFunc(slices.Clone(streams), func(other *stream) bool { return other == s })
		p.streams.Store(&rest)
	}
}

// add lets one more stream get takes. It returns false if its connection has a stream
// already or is suspected, or if there is no other by now: the next take opens the first
// one, unless streams have been refused. Streams on older connections to the same daemon
// retire: the daemon asked the client to leave those.
func (p *Pool) add(s *stream) (isNew bool) {
	at := s.place()
	var replaced []*stream
	p.mu.Lock()
	others := *p.streams.Load()
	if since, ok := p.suspected[at]; len(others) == 0 || ok && p.options.Now().Sub(since) < suspectedFor {
		p.mu.Unlock()
		return false
	}
	streams := []*stream{s}
	for _, other := range others {
		switch place := other.place(); {
		case place == at || place == connection{}:
			p.mu.Unlock()
			return false
		case place.daemon == at.daemon:
			replaced = append(replaced, other)
		default:
			streams = append(streams, other)
		}
	}
	p.streams.Store(&streams)
	p.mu.Unlock()
	for _, other := range replaced {
		other.retire()
	}
	return true
}

// spread opens streams until each connection has one: gRPC gives each new stream to the
// next connection, so it is done when one comes up that has a stream already.
func (p *Pool) spread() {
	pause := spreadFirst
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-p.ctx.Done():
			return
		}
		pause = min(2*pause, spreadLast)
		if len(*p.streams.Load()) > 0 && p.openNext() {
			pause = spreadFirst
		}
		timer.Reset(pause)
	}
}

// openNext opens one more stream, and reports whether it is of use.
func (p *Pool) openNext() bool {
	s := p.newStream()
	rpc, err := s.open()
	if err != nil || !p.add(s) {
		s.cancel()
		return false
	}
	p.running.Go(func() { s.run(rpc) })
	return true
}
