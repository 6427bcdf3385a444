package client_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/ratelimitd/ratelimitd/client"
	"github.com/ratelimitd/ratelimitd/client/internal/daemontest"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

func TestWaitDecidesByTheFailureChoice(t *testing.T) {
	t.Parallel()
	address := daemontest.UnusedAddress(t)
	local := client.FailLocal(client.Limit{Algorithm: client.TokenBucket, Requests: 1000, Period: time.Second, Burst: 1})
	for _, row := range []struct {
		choice client.Failure
		times  int
		check  func(*client.Result, error) bool
	}{
		{client.FailAllow(), 1, func(got *client.Result, err error) bool { return err == nil && got.Allowed && got.Failure != nil }},
		{client.FailDeny(), 1, func(_ *client.Result, err error) bool { return errors.Is(err, client.ErrDenied) }},
		{client.FailError(), 1, func(_ *client.Result, err error) bool { return err != nil }},
		{local, 5, func(got *client.Result, err error) bool { return err == nil && got.Allowed }},
	} {
		t.Run(row.choice.String(), func(t *testing.T) {
			t.Parallel()
			c := connect(t, address, client.OnFailure(row.choice))
			for range row.times {
				if got, err := c.Wait(within(t), one("api", "user", "x")); !row.check(got, err) {
					t.Errorf("found %+v, %v", got, err)
				}
			}
		})
	}
}

// Limits that do not count the request do not hold it.
func TestWaitHoldsForTheLongestOfTheLimitsThatCount(t *testing.T) {
	t.Parallel()
	const told = 40 * time.Millisecond
	limit := func(descriptor uint32, wait time.Duration) *ratelimitv1.Limit {
		return &ratelimitv1.Limit{
			DescriptorIndex: descriptor, Algorithm: ratelimitv1.Algorithm_ALGORITHM_LEAKY_BUCKET,
			Allowed: true, Wait: durationpb.New(wait), TakenAt: 1,
		}
	}
	shadow, over, peek := limit(0, time.Hour), limit(0, time.Hour), limit(1, time.Hour)
	shadow.Shadow, over.Allowed, peek.TakenAt = true, false, 0
	s := new(daemontest.Script)
	s.OnTake = func(context.Context, *ratelimitv1.TakeRequest) (*ratelimitv1.TakeResponse, error) {
		return &ratelimitv1.TakeResponse{Allowed: true, Limits: []*ratelimitv1.Limit{
			limit(0, told/2), shadow, limit(0, told), over, limit(0, 0), peek,
		}}, nil
	}
	address := s.Serve(t)
	c := connect(t, address)
	r := one("api", "user", "x")
	r.Descriptors = append(r.Descriptors, client.Descriptor{Entries: r.Descriptors[0].Entries, Peek: true})
	begin := time.Now()
	if _, err := c.Wait(within(t), r); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begin); took < told {
		t.Errorf("it took %v, and was told %v", took, told)
	}
}
