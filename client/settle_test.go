package client_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/ratelimitd/ratelimitd/client"
	"github.com/ratelimitd/ratelimitd/client/internal/daemontest"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

// settler answers settlements, on a stream or in calls of their own, and keeps them and
// the takes.
type settler struct {
	daemontest.Script
	mu      sync.Mutex
	takes   []*ratelimitv1.TakeRequest
	settled []*ratelimitv1.SettleRequest
}

var settledAnswer = &ratelimitv1.SettleResponse{Settled: true, Degraded: true, Limits: []*ratelimitv1.SettledLimit{
	{DescriptorIndex: 1, Name: "minute", Algorithm: ratelimitv1.Algorithm_ALGORITHM_GCRA, Settled: true,
		Returned: 1 << 40, Added: 3, Takes: 2, Remaining: 1 << 50, ResetAfter: durationpb.New(1500 * time.Millisecond)},
	{Name: "day"},
}}

func (s *settler) settle(r *ratelimitv1.SettleRequest) (*ratelimitv1.SettleResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settled = append(s.settled, r)
	return settledAnswer, nil
}

// newSettler returns a server with streams, or without.
func newSettler(streams bool) *settler {
	s := new(settler)
	s.OnSettle = s.settle
	s.OnTake = func(_ context.Context, r *ratelimitv1.TakeRequest) (*ratelimitv1.TakeResponse, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.takes = append(s.takes, r)
		return &ratelimitv1.TakeResponse{Allowed: true}, nil
	}
	if !streams {
		return s
	}
	s.OnStream = func(stream daemontest.Stream) error {
		for {
			m, err := stream.Recv()
			if err != nil {
				return nil
			}
			for _, one := range m.GetTakes() {
				result := &ratelimitv1.TakeResult{Result: &ratelimitv1.TakeResult_Response{Response: &ratelimitv1.TakeResponse{Allowed: true}}}
				if r := one.GetSettle(); r != nil {
					answer, _ := s.settle(r)
					result.Result = &ratelimitv1.TakeResult_Settled{Settled: answer}
				} else if _, err := s.OnTake(stream.Context(), one.GetTake()); err != nil {
					return err
				}
				if err := stream.Send(&ratelimitv1.TakeStreamResponse{Results: []*ratelimitv1.NumberedResult{{Number: one.GetNumber(), Result: result}}}); err != nil {
					return err
				}
			}
		}
	}
	return s
}

// last returns the last settlement that came.
func (s *settler) last(t *testing.T) *ratelimitv1.SettleRequest {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.settled) == 0 {
		t.Fatal("no settlement came")
	}
	return s.settled[len(s.settled)-1]
}

func wantProto(t *testing.T, got, want proto.Message) {
	t.Helper()
	if !proto.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

func TestSettlementsAreSentAndRead(t *testing.T) {
	t.Parallel()
	for name, streams := range map[string]bool{"streams": true, "calls": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSettler(streams)
			c := connect(t, s.Serve(t))
			user, calls := []client.Entry{client.E("user", "x")}, []client.Entry{client.E("calls", "x")}
			numbers := &client.Numbers{Requests: 5, Period: time.Minute}
			taken, err := c.Take(within(t), client.Request{
				Domain: "llm", ID: "one", SettleWithin: 90 * time.Second,
				Descriptors: []client.Descriptor{{Entries: user, Cost: 4000, Numbers: numbers}, {Entries: calls}, {Entries: calls, Cost: 1}, {Entries: user, Peek: true}},
			})
			if err != nil {
				t.Fatal(err)
			}
			wireUser, wireCalls := []*ratelimitv1.Entry{{Key: "user", Value: "x"}}, []*ratelimitv1.Entry{{Key: "calls", Value: "x"}}
			wireNumbers := &ratelimitv1.Numbers{Requests: 5, Period: durationpb.New(time.Minute)}
			wantProto(t, s.takes[0], &ratelimitv1.TakeRequest{
				Domain: "llm", Id: "one", SettleWithin: durationpb.New(90 * time.Second), Descriptors: []*ratelimitv1.Descriptor{
					{Entries: wireUser, Cost: new(uint64(4000)), Numbers: wireNumbers}, {Entries: wireCalls}, {Entries: wireCalls, Cost: new(uint64(1))}, {Entries: wireUser, Cost: new(uint64(0))},
				},
			})
			for _, used := range []uint64{812, 0} {
				got, err := taken.Settle(within(t), used)
				if err != nil {
					t.Fatal(err)
				}
				wantProto(t, s.last(t), &ratelimitv1.SettleRequest{Domain: "llm", Id: "one", Descriptors: []*ratelimitv1.Descriptor{
					{Entries: wireUser, Cost: &used, Numbers: wireNumbers}, {Entries: wireCalls}, {Entries: wireCalls, Cost: &used}, {Entries: wireUser},
				}})
				if !got.Settled || !got.Degraded || len(got.Limits) != 2 || got.Limits[1] != (client.SettledLimit{Name: "day"}) || got.Limits[0] != (client.SettledLimit{
					Descriptor: 1, Name: "minute", Algorithm: client.GCRA, Settled: true, Returned: 1 << 40, Added: 3, Takes: 2, Remaining: 1 << 50, ResetAfter: 1500 * time.Millisecond,
				}) {
					t.Errorf("got %+v", got)
				}
			}
			if _, err := c.Settle(within(t), client.SettleRequest{
				Domain: "llm", ID: "one", Descriptors: []client.Used{{Entries: user, Numbers: numbers}, {Entries: calls, Keep: true}, {Entries: user, Cost: 7}},
			}); err != nil {
				t.Fatal(err)
			}
			wantProto(t, s.last(t), &ratelimitv1.SettleRequest{Domain: "llm", Id: "one", Descriptors: []*ratelimitv1.Descriptor{
				{Entries: wireUser, Cost: new(uint64(0)), Numbers: wireNumbers}, {Entries: wireCalls}, {Entries: wireUser, Cost: new(uint64(7))},
			}})
			// A take after it is a take again.
			if ok, err := c.Allow(within(t), "llm", user...); !ok || err != nil {
				t.Error(ok, err)
			}
			if n := c.Stats().LostSettlements; n != 0 {
				t.Errorf("%d settlements were lost", n)
			}
		})
	}
}

func TestWrongSettlementsAreErrors(t *testing.T) {
	t.Parallel()
	c := connect(t, newSettler(true).Serve(t))
	x := []client.Entry{client.E("user", "x")}
	take := func(r client.Request) *client.Result {
		t.Helper()
		taken, err := c.Take(within(t), r)
		if err != nil {
			t.Fatal(err)
		}
		return taken
	}
	for want, result := range map[string]*client.Result{
		"the take has no ID":                   take(client.Request{Domain: "llm", Descriptors: []client.Descriptor{{Entries: x, Cost: 5}}}),
		"no descriptor of the take has a Cost": take(client.Request{Domain: "llm", ID: "one", Descriptors: []client.Descriptor{{Entries: x}, {Entries: x, Peek: true}}}),
		"the result is not that of a take":     new(client.Result),
	} {
		if got, err := result.Settle(within(t), 1); got != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, %v, want %q", got, err, want)
		}
	}
	for want, r := range map[string]client.SettleRequest{
		"domain: found":           {ID: "one", Descriptors: []client.Used{{Entries: x}}},
		"id is empty":             {Domain: "llm", Descriptors: []client.Used{{Entries: x}}},
		"id: found":               {Domain: "llm", ID: "\xff", Descriptors: []client.Used{{Entries: x}}},
		"descriptors[0].entries":  {Domain: "llm", ID: "one", Descriptors: []client.Used{{}}},
		`entries[0].key: found "`: {Domain: "llm", ID: "one", Descriptors: []client.Used{{Entries: []client.Entry{client.E("\xff", "")}}}},
	} {
		if got, err := c.Settle(within(t), r); got != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, %v, want %q", got, err, want)
		}
	}
	for want, r := range map[string]client.Request{
		"settle_within: found 1m0s": {Domain: "llm", SettleWithin: time.Minute, Descriptors: []client.Descriptor{{Entries: x}}},
		"settle_within: found -1ns": {Domain: "llm", ID: "one", SettleWithin: -1, Descriptors: []client.Descriptor{{Entries: x}}},
		"id: found":                 {Domain: "llm", ID: "\xff", Descriptors: []client.Descriptor{{Entries: x}}},
	} {
		if got, err := c.Take(within(t), r); got != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, %v, want %q", got, err, want)
		}
	}
}

// A settlement without an answer is an error, and counted: it may be sent again.
func TestLostSettlementsAreErrors(t *testing.T) {
	t.Parallel()
	c := connect(t, silent().Serve(t), client.Timeout(20*time.Millisecond))
	r := client.SettleRequest{Domain: "llm", ID: "one", Descriptors: []client.Used{{Entries: []client.Entry{client.E("user", "x")}}}}
	if got, err := c.Settle(within(t), r); got != nil || status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("got %v, %v", got, err)
	}
	if n := c.Stats().LostSettlements; n != 1 {
		t.Errorf("%d settlements were lost, want 1", n)
	}
}

// What FailLocal took is settled in this process, and given back once.
func TestLocalTakesAreSettledHere(t *testing.T) {
	t.Parallel()
	local := client.FailLocal(client.Limit{Algorithm: client.FixedWindow, Requests: 100, Period: time.Hour})
	c := connect(t, daemontest.UnusedAddress(t), client.OnFailure(local))
	r := client.Request{Domain: "llm", ID: "one", Descriptors: []client.Descriptor{{Entries: []client.Entry{client.E("user", "x")}, Cost: 50}}}
	taken, err := c.Take(within(t), r)
	if err != nil || taken.Failure == nil {
		t.Fatalf("got %+v, %v", taken, err)
	}
	for _, want := range []struct{ used, returned, added, remaining uint64 }{{20, 30, 0, 80}, {20, 0, 0, 80}, {130, 0, 110, 0}, {10, 120, 0, 90}} {
		got, err := taken.Settle(within(t), want.used)
		if err != nil || !got.Settled || !got.Degraded || len(got.Limits) != 1 {
			t.Fatalf("got %+v, %v", got, err)
		}
		if l := got.Limits[0]; l.Returned != want.returned || l.Added != want.added || l.Remaining != want.remaining || l.Algorithm != client.FixedWindow {
			t.Errorf("to %d: %+v, want %+v", want.used, l, want)
		}
	}
	if err := c.GiveBack(within(t), taken); err != nil {
		t.Fatal(err)
	}
	if got, err := taken.Settle(within(t), 0); err != nil || got.Settled {
		t.Errorf("after it was given back: %+v, %v", got, err)
	}
	if again, err := c.Take(within(t), r); err != nil || again.Limits[0].Remaining != 50 {
		t.Errorf("another take gets %+v, %v", again, err)
	}
}
