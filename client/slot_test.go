package client_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

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

// next returns the next request, unless the slot is lost before.
func next(t *testing.T, all <-chan *ratelimitv1.NumberedTake, slot *client.Slot) *ratelimitv1.NumberedTake {
	t.Helper()
	select {
	case n := <-all:
		return n
	case <-slot.Lost():
		t.Fatalf("the slot is lost: %v", slot.Err())
		return nil
	}
}

// The client renews a slot by the same take, also when an answer does not come, and frees it
// in the end.
func TestSlotIsRenewed(t *testing.T) {
	t.Parallel()
	const hold = 12 * time.Second // a shorter one may lapse on a busy machine
	all := make(chan *ratelimitv1.NumberedTake, 100)
	s := new(daemontest.Script)
	var asks atomic.Int32
	s.OnStream = asked(all, func(n *ratelimitv1.NumberedTake) *ratelimitv1.TakeResult {
		switch {
		case n.GetRelease():
			return &ratelimitv1.TakeResult{Result: &ratelimitv1.TakeResult_Released{Released: new(ratelimitv1.ReleaseResponse)}}
		case asks.Add(1) == 3:
			return nil
		}
		return held(hold)
	})
	c := connect(t, s.Serve(t), client.Timeout(hold/8))
	slot, err := c.Acquire(within(t), job)
	if err != nil {
		t.Fatal(err)
	}
	first, began := <-all, time.Now()
	for i := range 3 {
		if n := next(t, all, slot); holderOf(n) != holderOf(first) || holderOf(n) == "" || n.GetRelease() {
			t.Errorf("renewal %d is %v", i, n)
		}
		if i == 0 && time.Since(began) < hold/5 {
			t.Errorf("it is renewed after %v", time.Since(began))
		}
	}
	if !slot.IsHeld() || slot.Degraded() {
		t.Errorf("held %t, degraded %t", slot.IsHeld(), slot.Degraded())
	}
	slot.Release()
	if n := <-all; !n.GetRelease() || holderOf(n) != holderOf(first) {
		t.Errorf("the release is %v", n)
	}
}

// What a take may have got that no one waits for any more is released behind it.
func TestSlotWhoseTakeIsCancelled(t *testing.T) {
	t.Parallel()
	all := make(chan *ratelimitv1.NumberedTake, 10)
	s := new(daemontest.Script)
	s.OnStream = asked(all, func(n *ratelimitv1.NumberedTake) *ratelimitv1.TakeResult {
		if n.GetRelease() {
			return &ratelimitv1.TakeResult{Result: &ratelimitv1.TakeResult_Released{Released: new(ratelimitv1.ReleaseResponse)}}
		}
		return nil
	})
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
	if release := <-all; take.GetRelease() || !release.GetRelease() || holderOf(release) != holderOf(take) {
		t.Errorf("the take is %v, and the release %v", take, release)
	}
}

// The same job asks again after it gave up. What it then has is not freed by its first try.
func TestSlotOfANamedHolderIsNotFreedByAnEarlierTry(t *testing.T) {
	t.Parallel()
	all := make(chan *ratelimitv1.NumberedTake, 10)
	var takes atomic.Int32
	s := new(daemontest.Script)
	s.OnStream = asked(all, func(n *ratelimitv1.NumberedTake) *ratelimitv1.TakeResult {
		switch {
		case n.GetRelease():
			return &ratelimitv1.TakeResult{Result: &ratelimitv1.TakeResult_Released{Released: new(ratelimitv1.ReleaseResponse)}}
		case takes.Add(1) == 1:
			return nil
		}
		return held(time.Minute)
	})
	c := connect(t, s.Serve(t))
	named := job
	named.Holder = "job-17"
	ctx, cancel := context.WithCancel(context.Background())
	go func() { <-all; cancel() }()
	if _, err := c.Acquire(ctx, named); !errors.Is(err, context.Canceled) {
		t.Fatalf("the first try ends with %v", err)
	}
	slot, err := c.Acquire(within(t), named)
	if err != nil {
		t.Fatal(err)
	}
	slot.Release()
	if take, release := <-all, <-all; take.GetRelease() || !release.GetRelease() || len(all) > 0 {
		t.Errorf("the take is %v, the release %v, and %d come after them", take, release, len(all))
	}
}

// A take that is let through since its answer is late may have got a slot.
func TestSlotOfALateAnswerIsReleased(t *testing.T) {
	t.Parallel()
	all := make(chan *ratelimitv1.NumberedTake, 10)
	s := new(daemontest.Script)
	s.OnStream = asked(all, func(*ratelimitv1.NumberedTake) *ratelimitv1.TakeResult { return nil })
	c := connect(t, s.Serve(t), client.Timeout(300*time.Millisecond), client.OnFailure(client.FailAllow()))
	slot, _, err := c.TryAcquire(within(t), job)
	if err != nil || slot == nil || !slot.Degraded() {
		t.Fatalf("got %v, %v", slot, err)
	}
	// The silent stream is given up, so the release is a call of its own.
	before := c.Stats().Alone
	slot.Release()
	if n := c.Stats().Alone - before; n != 1 || len(all) != 1 {
		t.Errorf("%d calls are made, and %d messages sent", n, len(all))
	}
}

// A daemon that hangs, or has lost its store, renews nothing. The holder of a slot of it is
// notified when its hold has ended and others may get it.
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
			c := connect(t, s.Serve(t), client.Timeout(time.Minute), client.OnFailure(client.FailError()))
			slot, err := c.Acquire(within(t), job)
			if err != nil {
				t.Fatal(err)
			}
			select {
			case <-slot.Lost():
			case <-time.After(time.Minute / 2): // before the answer that it waits for is too late
				t.Errorf("the hold has ended, and it has the error %v", slot.Err())
			}
		})
	}
}

// Each slot has a holder of its own, unless it is given; and only the one of that name is lost.
func TestSlotsHaveHoldersOfTheirOwn(t *testing.T) {
	t.Parallel()
	all := make(chan *ratelimitv1.NumberedTake, 100)
	s := new(daemontest.Script)
	var lost atomic.Pointer[string] // whose renewals are denied
	s.OnStream = asked(all, func(n *ratelimitv1.NumberedTake) *ratelimitv1.TakeResult {
		if holder := lost.Load(); holder != nil && *holder == holderOf(n) {
			return &ratelimitv1.TakeResult{Result: &ratelimitv1.TakeResult_Response{Response: daemontest.Denied(time.Second)}}
		}
		return held(3 * time.Second)
	})
	c := connect(t, s.Serve(t))
	named := job
	named.Holder = "job-17"
	var slots []*client.Slot
	var holders []string
	for _, r := range []client.Request{job, job, named} {
		slot, err := c.Acquire(within(t), r)
		if err != nil {
			t.Fatal(err)
		}
		slots, holders = append(slots, slot), append(holders, holderOf(<-all))
	}
	if a, b := holders[0], holders[1]; a == b || len(a) < 20 || len(a) > 64 || holders[2] != "job-17" {
		t.Errorf("the holders are %q", holders)
	}
	lost.Store(&holders[1])
	ctx, cancel := slots[1].Context(context.Background())
	defer cancel()
	<-ctx.Done()
	if !errors.Is(context.Cause(ctx), client.ErrSlotLost) || slots[1].IsHeld() || slots[0].Err() != nil || slots[2].Err() != nil {
		t.Errorf("the errors are %v, %v, %v", slots[0].Err(), context.Cause(ctx), slots[2].Err())
	}
}
