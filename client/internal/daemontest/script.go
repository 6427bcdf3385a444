// Package daemontest runs servers whose answers a test writes. Only tests import it. For
// the real daemon there is guardtest.
package daemontest

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

// Script is a server whose answers a test writes. A method without a function is
// unimplemented.
type Script struct {
	ratelimitv1.UnimplementedRateLimitServiceServer
	OnTake     func(context.Context, *ratelimitv1.TakeRequest) (*ratelimitv1.TakeResponse, error)
	OnStream   func(Stream) error
	OnGiveBack func(*ratelimitv1.GiveBackRequest) (*ratelimitv1.GiveBackResponse, error)
	OnSettle   func(*ratelimitv1.SettleRequest) (*ratelimitv1.SettleResponse, error)

	mu   sync.Mutex
	seen int
}

// Stream is the server's side of a stream of takes.
type Stream = ratelimitv1.RateLimitService_TakeStreamServer

// Serve runs the script until the test ends, and returns its address.
func (s *Script) Serve(t testing.TB) string {
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
	t.Cleanup(func() { g.Stop(); served.Wait() })
	return l.Addr().String()
}

// Take answers by OnTake.
func (s *Script) Take(ctx context.Context, r *ratelimitv1.TakeRequest) (*ratelimitv1.TakeResponse, error) {
	if s.OnTake == nil {
		return s.UnimplementedRateLimitServiceServer.Take(ctx, r)
	}
	s.See(1)
	return s.OnTake(ctx, r)
}

// TakeStream answers by OnStream.
func (s *Script) TakeStream(stream Stream) error {
	if s.OnStream == nil {
		return s.UnimplementedRateLimitServiceServer.TakeStream(stream)
	}
	return s.OnStream(stream)
}

// GiveBack answers by OnGiveBack.
func (s *Script) GiveBack(ctx context.Context, r *ratelimitv1.GiveBackRequest) (*ratelimitv1.GiveBackResponse, error) {
	if s.OnGiveBack == nil {
		return s.UnimplementedRateLimitServiceServer.GiveBack(ctx, r)
	}
	return s.OnGiveBack(r)
}

// Settle answers by OnSettle.
func (s *Script) Settle(ctx context.Context, r *ratelimitv1.SettleRequest) (*ratelimitv1.SettleResponse, error) {
	if s.OnSettle == nil {
		return s.UnimplementedRateLimitServiceServer.Settle(ctx, r)
	}
	return s.OnSettle(r)
}

// See counts takes that arrived on a stream. Take counts its own.
func (s *Script) See(takes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen += takes
}

// Seen returns how many takes arrived.
func (s *Script) Seen() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen
}

// AllowAll allows all takes of a stream.
func (s *Script) AllowAll(stream Stream) error {
	for {
		m, err := stream.Recv()
		if err != nil {
			return nil
		}
		if err := s.Allow(stream, m); err != nil {
			return err
		}
	}
}

// Allow allows the takes of one message.
func (s *Script) Allow(stream Stream, m *ratelimitv1.TakeStreamRequest) error {
	s.See(len(m.GetTakes()))
	return Answer(stream, m, &ratelimitv1.TakeResult{
		Result: &ratelimitv1.TakeResult_Response{Response: &ratelimitv1.TakeResponse{Allowed: true}},
	})
}

// ReadAll reads all takes of a stream, and answers none.
func (s *Script) ReadAll(stream Stream) error {
	for {
		m, err := stream.Recv()
		if err != nil {
			return nil
		}
		s.See(len(m.GetTakes()))
	}
}

// Answer gives each take of a message the same result.
func Answer(stream Stream, m *ratelimitv1.TakeStreamRequest, result *ratelimitv1.TakeResult) error {
	answer := new(ratelimitv1.TakeStreamResponse)
	for _, n := range m.GetTakes() {
		answer.Results = append(answer.Results, &ratelimitv1.NumberedResult{Number: n.GetNumber(), Result: result})
	}
	return stream.Send(answer)
}

// Denied returns the response of a limit that denies, with this retry time.
func Denied(retryAfter time.Duration) *ratelimitv1.TakeResponse {
	return &ratelimitv1.TakeResponse{
		DeniedBy:   new(uint32(0)),
		RetryAfter: durationpb.New(retryAfter),
		Limits:     []*ratelimitv1.Limit{{RetryAfter: durationpb.New(retryAfter)}},
	}
}

// UnusedAddress returns an address on which nothing listens.
func UnusedAddress(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
