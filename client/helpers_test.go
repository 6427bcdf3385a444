package client_test

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/ratelimitd/ratelimitd/client"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

// patience is how long a test waits for something that must happen. It is the
// timeout of clients whose calls are answered.
const patience = 30 * time.Second

const limits = `
domain: api
descriptors:
  - key: user
    rate_limit: {requests: 3, period: 1h}
  - key: named
    rate_limits:
      - {name: short, algorithm: sliding_window, requests: 2, period: 1m}
      - {name: long, algorithm: leaky_bucket, requests: 10, period: 1h, burst: 4}
  - key: window
    rate_limit: {algorithm: fixed_window, requests: 3, period: 365d}
  - key: none
    rate_limit: {requests: 0, period: 1h}
  - key: much
    rate_limit: {algorithm: gcra, requests: 1000000, period: 1h}
  - key: even
    rate_limit: {requests: 50, period: 1s}
  - key: slow
    rate_limit: {requests: 1, period: 1h}
`

// connect returns a client that the test closes.
func connect(t testing.TB, target string, options ...client.Option) *client.Client {
	t.Helper()
	c, err := client.New(target, append([]client.Option{client.Timeout(patience)}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func within(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not in time: %s", what)
		}
	}
}

func one(domain, key, value string) client.Request {
	return client.Request{Domain: domain, Descriptors: []client.Descriptor{{Entries: []client.Entry{client.E(key, value)}}}}
}

// script is a server whose answers a test writes.
type script struct {
	ratelimitv1.UnimplementedRateLimitServiceServer
	take   func(context.Context, *ratelimitv1.TakeRequest) (*ratelimitv1.TakeResponse, error)
	stream func(ratelimitv1.RateLimitService_TakeStreamServer) error

	mu   sync.Mutex
	seen []*ratelimitv1.TakeRequest
}

func (s *script) see(takes ...*ratelimitv1.TakeRequest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = append(s.seen, takes...)
}

func (s *script) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.seen)
}

func (s *script) Take(ctx context.Context, r *ratelimitv1.TakeRequest) (*ratelimitv1.TakeResponse, error) {
	if s.take == nil {
		return s.UnimplementedRateLimitServiceServer.Take(ctx, r)
	}
	s.see(r)
	return s.take(ctx, r)
}

func (s *script) TakeStream(stream ratelimitv1.RateLimitService_TakeStreamServer) error {
	if s.stream == nil {
		return s.UnimplementedRateLimitServiceServer.TakeStream(stream)
	}
	return s.stream(stream)
}

// serve runs a script. It returns its address, and a function that cuts its
// connections.
func serve(t testing.TB, s *script) (address string, cut func()) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer()
	ratelimitv1.RegisterRateLimitServiceServer(g, s)
	var served sync.WaitGroup
	served.Go(func() {
		if err := g.Serve(l); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			t.Error(err)
		}
	})
	cut = sync.OnceFunc(func() { g.Stop(); served.Wait() })
	t.Cleanup(cut)
	return l.Addr().String(), cut
}

// allowAll allows all requests of a stream.
func (s *script) allowAll(stream ratelimitv1.RateLimitService_TakeStreamServer) error {
	for {
		m, err := stream.Recv()
		if err != nil {
			return nil
		}
		if err := s.allowOne(stream, m); err != nil {
			return err
		}
	}
}

func (s *script) allowOne(stream streamServer, m *ratelimitv1.TakeStreamRequest) error {
	answer := new(ratelimitv1.TakeStreamResponse)
	for _, n := range m.GetTakes() {
		s.see(n.GetTake())
		answer.Results = append(answer.Results, allowed(n.GetNumber()))
	}
	return stream.Send(answer)
}

func allowed(number uint64) *ratelimitv1.NumberedResult {
	return &ratelimitv1.NumberedResult{Number: number, Result: &ratelimitv1.TakeResult{
		Result: &ratelimitv1.TakeResult_Response{Response: &ratelimitv1.TakeResponse{Allowed: true}},
	}}
}

type streamServer = ratelimitv1.RateLimitService_TakeStreamServer

func denied(retryAfter time.Duration) *ratelimitv1.TakeResponse {
	return &ratelimitv1.TakeResponse{
		DeniedBy:   new(uint32(0)),
		RetryAfter: durationpb.New(retryAfter),
		Limits:     []*ratelimitv1.Limit{{RetryAfter: durationpb.New(retryAfter)}},
	}
}
