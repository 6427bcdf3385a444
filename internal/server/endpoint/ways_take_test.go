package endpoint_test

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/server/servertest"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

// takeWay asks in the daemon's own messages.
type takeWay struct {
	send func(ctx context.Context, r *ratelimitv1.TakeRequest) (*ratelimitv1.TakeResponse, error)
	back func(ctx context.Context, r *ratelimitv1.GiveBackRequest) error
}

// overGRPC returns a way that gives back by an RPC.
func overGRPC(d *servertest.Daemon, send func(ctx context.Context, r *ratelimitv1.TakeRequest) (*ratelimitv1.TakeResponse, error)) way {
	return takeWay{send, func(ctx context.Context, r *ratelimitv1.GiveBackRequest) error {
		_, err := d.API().GiveBack(ctx, r)
		return err
	}}
}

func openTake(d *servertest.Daemon) way {
	api := d.API()
	return overGRPC(d, func(ctx context.Context, r *ratelimitv1.TakeRequest) (*ratelimitv1.TakeResponse, error) {
		return api.Take(ctx, r)
	})
}

// openTakeMany asks between two other takes, which have no limit.
func openTakeMany(d *servertest.Daemon) way {
	api, other := d.API(), &ratelimitv1.TakeRequest{Domain: "nobody", Descriptors: []*ratelimitv1.Descriptor{{}}}
	return overGRPC(d, func(ctx context.Context, r *ratelimitv1.TakeRequest) (*ratelimitv1.TakeResponse, error) {
		many, err := api.TakeMany(ctx, &ratelimitv1.TakeManyRequest{Takes: []*ratelimitv1.TakeRequest{other, r, other}})
		if err != nil {
			return nil, err
		}
		return ofResult(many.GetResults()[1])
	})
}

func ofResult(r *ratelimitv1.TakeResult) (*ratelimitv1.TakeResponse, error) {
	if e := r.GetError(); e != nil {
		return nil, status.Error(codes.Code(e.GetCode()), e.GetMessage())
	}
	return r.GetResponse(), nil
}

func openHTTPTake(d *servertest.Daemon) way {
	return takeWay{
		func(ctx context.Context, r *ratelimitv1.TakeRequest) (*ratelimitv1.TakeResponse, error) {
			response := new(ratelimitv1.TakeResponse)
			return response, postMessage(d, ctx, "/v1/take", r, response)
		},
		func(ctx context.Context, r *ratelimitv1.GiveBackRequest) error {
			return postMessage(d, ctx, "/v1/give-back", r, new(ratelimitv1.GiveBackResponse))
		},
	}
}

// openTakeStream asks on one stream for all callers.
func openTakeStream(d *servertest.Daemon) way {
	s := d.Stream()
	var mu sync.Mutex
	waiting, last := map[uint64]chan *ratelimitv1.TakeResult{}, uint64(0)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			r, err := s.Recv()
			if err != nil {
				return
			}
			for _, n := range r.GetResults() {
				mu.Lock()
				waiting[n.GetNumber()] <- n.GetResult()
				delete(waiting, n.GetNumber())
				mu.Unlock()
			}
		}
	}()
	return overGRPC(d, func(ctx context.Context, r *ratelimitv1.TakeRequest) (*ratelimitv1.TakeResponse, error) {
		answer := make(chan *ratelimitv1.TakeResult, 1)
		mu.Lock()
		last++
		waiting[last] = answer
		err := s.Send(servertest.Numbered(last, r))
		mu.Unlock()
		if err != nil {
			return nil, err
		}
		select {
		case result := <-answer:
			return ofResult(result)
		case <-ended:
			return nil, errors.New("the stream has ended")
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	})
}

func (t takeWay) take(ctx context.Context, descriptors []asked) ([]bucket.Decision, error) {
	response, err := t.send(ctx, takeOf(descriptors))
	if err != nil {
		return nil, err
	}
	var decisions []bucket.Decision
	for _, l := range response.GetLimits() {
		d := bucket.Decision{
			Remaining: int64(l.GetRemaining()), RetryAfter: l.GetRetryAfter().AsDuration(),
			ResetAfter: l.GetResetAfter().AsDuration(), Wait: l.GetWait().AsDuration(), At: l.GetTakenAt(),
			Paused: l.GetPausedFor().AsDuration(),
		}
		if !l.GetAllowed() && l.GetRetryAfter() == nil {
			d.RetryAfter = bucket.Never
		}
		if d.Allowed() != l.GetAllowed() {
			return nil, fmt.Errorf("a limit belies itself: %v", l)
		}
		decisions = append(decisions, d)
	}
	if response.GetAllowed() != (response.DeniedBy == nil) {
		return nil, fmt.Errorf("denied by nothing, or allowed: %v", response)
	}
	return decisions, nil
}

func (t takeWay) giveBack(ctx context.Context, descriptors []asked, takenAt []int64) error {
	return t.back(ctx, &ratelimitv1.GiveBackRequest{Take: takeOf(descriptors), TakenAt: takenAt})
}
