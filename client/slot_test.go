package client_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/ratelimitd/ratelimitd/client"
	"github.com/ratelimitd/ratelimitd/client/internal/daemontest"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

// job asks for a slot of a tenant.
var job = client.Request{Domain: "api", Descriptors: []client.Descriptor{{Entries: []client.Entry{client.E("tenant", "x")}, HolderKey: "job"}}}

// held is the answer to a take that got its slot.
func held(hold time.Duration) *ratelimitv1.TakeResult {
	return &ratelimitv1.TakeResult{Result: &ratelimitv1.TakeResult_Response{Response: &ratelimitv1.TakeResponse{
		Allowed: true, Limits: []*ratelimitv1.Limit{{Allowed: true, HeldFor: durationpb.New(hold), TakenAt: 1}},
	}}}
}

// asked passes on what comes on a stream, and answers by a function.
func asked(all chan<- *ratelimitv1.NumberedTake, answer func(*ratelimitv1.NumberedTake) *ratelimitv1.TakeResult) func(daemontest.Stream) error {
	return func(stream daemontest.Stream) error {
		for {
			m, err := stream.Recv()
			if err != nil {
				return nil
			}
			for _, n := range m.GetTakes() {
				all <- n
				result := answer(n)
				if result == nil {
					continue
				}
				if err := daemontest.Answer(stream, &ratelimitv1.TakeStreamRequest{Takes: []*ratelimitv1.NumberedTake{n}}, result); err != nil {
					return err
				}
			}
		}
	}
}

func holderOf(n *ratelimitv1.NumberedTake) string {
	entries := n.GetTake().GetDescriptors()[0].GetEntries()
	return entries[len(entries)-1].GetValue()
}

// A stream without room for more slots leaves their renewal to the client.
func TestSlotThatCannotBeBound(t *testing.T) {
	t.Parallel()
	all := make(chan *ratelimitv1.NumberedTake, 100)
	s := new(daemontest.Script)
	s.OnStream = asked(all, func(n *ratelimitv1.NumberedTake) *ratelimitv1.TakeResult {
		if n.GetBind() {
			return &ratelimitv1.TakeResult{Result: &ratelimitv1.TakeResult_Error{Error: &ratelimitv1.Error{Code: uint32(codes.ResourceExhausted)}}}
		}
		return held(3 * time.Second) // a shorter one may lapse on a busy machine
	})
	c := connect(t, s.Serve(t))
	slot, err := c.Acquire(within(t), job)
	if err != nil {
		t.Fatal(err)
	}
	first := <-all
	for i := range 5 { // a try to bind it, and a take without
		var n *ratelimitv1.NumberedTake
		select {
		case n = <-all:
		case <-slot.Lost():
			t.Fatalf("it is lost after %d requests: %v", i, slot.Err())
		}
		if holderOf(n) != holderOf(first) || holderOf(n) == "" || n.GetBind() == (i%2 == 0) || n.GetRelease() {
			t.Errorf("request %d is %v", i, n)
		}
	}
	if !slot.IsHeld() {
		t.Error("it is not held")
	}
	slot.Release()
}

// A take that nobody waits for any more is released behind it, on the same stream.
func TestSlotWhoseTakeIsCancelled(t *testing.T) {
	t.Parallel()
	all := make(chan *ratelimitv1.NumberedTake, 10)
	s := new(daemontest.Script)
	s.OnStream = asked(all, func(*ratelimitv1.NumberedTake) *ratelimitv1.TakeResult { return nil })
	c := connect(t, s.Serve(t))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() {
		_, err := c.Acquire(ctx, job)
		ended <- err
	}()
	take := <-all
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("it ends with %v", err)
	}
	release := <-all
	if !take.GetBind() || take.GetRelease() || !release.GetRelease() || release.GetBind() || holderOf(release) != holderOf(take) {
		t.Errorf("the take is %v, and the release %v", take, release)
	}
}

// A renewal that gets no answer in time does not free the slot: its holder still has it, and
// asks again.
func TestSlotWhoseRenewalIsLate(t *testing.T) {
	t.Parallel()
	all := make(chan *ratelimitv1.NumberedTake, 10)
	s := new(daemontest.Script)
	var streams atomic.Int32
	s.OnStream = func(stream daemontest.Stream) error {
		if streams.Add(1) > 1 {
			return asked(all, func(*ratelimitv1.NumberedTake) *ratelimitv1.TakeResult { return nil })(stream)
		}
		m, err := stream.Recv()
		if err != nil {
			return nil
		}
		if err := daemontest.Answer(stream, m, held(time.Minute)); err != nil {
			return err
		}
		return status.Error(codes.Unavailable, "it restarts")
	}
	c := connect(t, s.Serve(t), client.Timeout(time.Second))
	if _, err := c.Acquire(within(t), job); err != nil {
		t.Fatal(err)
	}
	renewal, next := <-all, <-all
	if !renewal.GetBind() || renewal.GetRelease() || next.GetRelease() && !next.GetBind() {
		t.Errorf("the renewal is %v, and what follows %v", renewal, next)
	}
}

// A daemon that hangs, or has lost its store, renews nothing. Whoever has a slot of it is
// told before its hold can have ended and others get it.
func TestSlotWhoseDaemonIsSilent(t *testing.T) {
	t.Parallel()
	const hold = 5 * time.Second
	for name, after := range map[string]*ratelimitv1.TakeResult{
		"no answer": nil,
		"no store": {Result: &ratelimitv1.TakeResult_Response{Response: &ratelimitv1.TakeResponse{
			Allowed: true, Degraded: true, Limits: []*ratelimitv1.Limit{{Allowed: true}},
		}}},
		"others have all": {Result: &ratelimitv1.TakeResult_Response{Response: daemontest.Denied(time.Second)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var asks atomic.Int32
			s := new(daemontest.Script)
			s.OnStream = asked(make(chan *ratelimitv1.NumberedTake, 1000), func(*ratelimitv1.NumberedTake) *ratelimitv1.TakeResult {
				if asks.Add(1) == 1 {
					return held(hold)
				}
				return after
			})
			c := connect(t, s.Serve(t), client.Timeout(4*time.Second), client.OnFailure(client.FailError()))
			began := time.Now()
			slot, err := c.Acquire(within(t), job)
			if err != nil {
				t.Fatal(err)
			}
			select {
			case <-slot.Lost():
			case <-time.After(time.Until(began.Add(hold + time.Second))):
				t.Errorf("the hold has ended, and it has the error %v", slot.Err())
			}
		})
	}
}

// Each slot has a holder of its own, unless it is given; and only the one of that name is lost.
func TestSlotsHaveHoldersOfTheirOwn(t *testing.T) {
	t.Parallel()
	all := make(chan *ratelimitv1.NumberedTake, 10)
	s := new(daemontest.Script)
	lose := make(chan uint64, 1)
	s.OnStream = func(stream daemontest.Stream) error {
		return asked(all, func(n *ratelimitv1.NumberedTake) *ratelimitv1.TakeResult {
			if n.GetRelease() { // a sign to lose another
				_ = stream.Send(&ratelimitv1.TakeStreamResponse{Lost: []uint64{<-lose, 1 << 40}})
				return &ratelimitv1.TakeResult{Result: &ratelimitv1.TakeResult_Released{Released: new(ratelimitv1.ReleaseResponse)}}
			}
			return held(time.Hour)
		})(stream)
	}
	c := connect(t, s.Serve(t))
	named := job
	named.Holder = "job-17"
	var slots []*client.Slot
	var takes []*ratelimitv1.NumberedTake
	for _, r := range []client.Request{job, job, named} {
		slot, err := c.Acquire(within(t), r)
		if err != nil {
			t.Fatal(err)
		}
		slots, takes = append(slots, slot), append(takes, <-all)
	}
	if a, b := holderOf(takes[0]), holderOf(takes[1]); a == b || len(a) < 20 || len(a) > 64 || holderOf(takes[2]) != "job-17" {
		t.Errorf("the holders are %q, %q and %q", a, b, holderOf(takes[2]))
	}
	lose <- takes[1].GetNumber()
	close(lose) // what is released when the client is closed loses nothing
	slots[0].Release()
	<-slots[1].Lost()
	ctx, cancel := slots[1].Context(context.Background())
	defer cancel()
	<-ctx.Done()
	if !errors.Is(context.Cause(ctx), client.ErrSlotLost) || slots[1].IsHeld() || slots[0].Err() != nil || slots[2].Err() != nil {
		t.Errorf("the errors are %v, %v, %v", slots[0].Err(), context.Cause(ctx), slots[2].Err())
	}
}
