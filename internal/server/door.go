package server

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ratelimitd/ratelimitd/internal/config/settings"
	"github.com/ratelimitd/ratelimitd/internal/server/decide"
)

// messageBound is the size of the largest message that can hold text of so
// many bytes within the other bounds; larger ones are refused unread. Messages
// of a stream are read up to 16 KiB of requests, whatever the bounds of one.
func messageBound(b decide.Bounds) int {
	const (
		overhead = 16 // of an entry or descriptor: tags and lengths
		numbers  = 48 // of a descriptor: its own limit and hits
	)
	return max(32<<10, b.Bytes+b.Descriptors*(overhead*(b.Entries+1)+numbers)+1024)
}

// door is what all ways to ask have in common: each reads its requests into a
// call, has it answered here, and writes what came of it. A protocol on a port
// has a door of its own, which counts its requests.
type door struct {
	decider *decide.Decider
	bounds  decide.Bounds
	refunds bool
	// storeWaits is that of Options.
	storeWaits bool
	failures   *failureLog
	panics     *panicLog
	requests   *requestCounts
	// headers are those of responses that tell about limits.
	headers *settings.Headers
	// answerBound is no less than the bytes of a response to a call that was
	// matched.
	answerBound func(*decide.Call) int
}

// answer decides a call that was read from the wire.
func (d *door) answer(ctx context.Context, c *decide.Call) error {
	return d.do(ctx, c, func() error {
		if err := d.decider.Match(c); err != nil {
			return err
		}
		if d.answerBound(c) > answerMost {
			return errAnswerTooLong
		}
		return d.decider.Decide(ctx, c)
	})
}

// giveBack returns what a call took that was read again.
func (d *door) giveBack(ctx context.Context, c *decide.Call, takenAt []int64, takenBy []uint64) error {
	return d.do(ctx, c, func() error {
		if !d.refunds {
			return status.Error(codes.PermissionDenied, "give-backs are not taken here (setting api.refunds)")
		}
		if len(takenBy) != 0 && len(takenBy) != len(takenAt) {
			return decide.Invalid("taken_by: found %d beside %d of taken_at; allowed: as many, or none", len(takenBy), len(takenAt))
		}
		const most = 1 << 53
		all := make([]decide.Taken, len(takenAt))
		for i, at := range takenAt {
			if at < -most || at > most {
				return decide.Invalid("taken_at[%d]: found %d; allowed: what a take's response says", i, at)
			}
			all[i].At = at
			if len(takenBy) != 0 {
				all[i].By = takenBy[i]
			}
		}
		return d.decider.GiveBack(ctx, c, all)
	})
}

// do does what is asked with a call that can be meant, and counts what came of
// it.
func (d *door) do(ctx context.Context, c *decide.Call, asked func() error) error {
	code := codes.Internal // which a panic becomes
	defer func() { d.requests.add(code) }()
	err := c.Check(d.refunds)
	if err == nil {
		err = asked()
	}
	err = d.told(ctx, err)
	code = status.Code(err)
	return err
}

// told returns an error as the caller is told of it, and logs it.
func (d *door) told(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	err = asStatus(ctx, err)
	d.failures.log(err)
	return err
}

// asStatus turns the store's errors into what a client can act on.
func asStatus(ctx context.Context, err error) error {
	if _, ok := status.FromError(err); ok {
		return err
	}
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return status.Error(codes.Canceled, "the caller has gone")
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		// What the caller's own clock tells it at this moment too.
		return status.Errorf(codes.DeadlineExceeded, "the store did not decide before the caller's deadline: %v", err)
	}
	return status.Errorf(codes.Unavailable, "the store did not decide: %v", err)
}
