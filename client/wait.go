package client

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/ratelimitd/ratelimitd/client/internal/turns"
)

var (
	// ErrNever is the error of Wait if waiting cannot help: the cost is more than the
	// limit's capacity.
	ErrNever = errors.New("client: it can never be allowed")
	// ErrTooLate is the error of Wait if ctx would end before the wait does. It
	// is a context.DeadlineExceeded.
	ErrTooLate = fmt.Errorf("client: the wait would end too late: %w", context.DeadlineExceeded)
	// ErrDenied is the error of Wait if FailDeny denied, or a limit of requests in flight:
	// then no one knows how long to wait.
	ErrDenied = errors.New("client: denied")
)

// Wait asks until the request is allowed, and sleeps in between for as long as
// the answer says. It then holds a request that a leaky_bucket allowed, for the
// longest Wait of the limits that count it, so that requests leave evenly. It
// gives up at once, with ErrTooLate, when ctx has a deadline that comes before the wait
// would end, with ErrNever when waiting cannot help, and with ErrDenied when no one knows
// how long to wait. Other errors are those of Take.
//
// Wait gives back a request that was allowed and that it did not hold to the end,
// even when ctx has ended: it may then take the client's timeout longer. If the
// give-back fails, as it does once the client is closed, the request counts;
// Stats has it among LostGiveBacks.
//
// Requests of a process that wait for the same descriptors stand in a line: the
// first of them sleeps until its moment, the others until it is their turn. A
// request that had to stand in line before it asked sleeps up to a quarter of a
// token's time longer the first time, so that lines of other processes, which
// sleep until the same moment, have their turns too.
func (c *Client) Wait(ctx context.Context, r Request) (*Result, error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	const usual = 96
	costs := r.costs()
	take := appendTake(make([]byte, 0, usual), &r, true)
	key := appendTake(make([]byte, 0, usual), &r, false)
	var result *Result
	err := c.lines.Wait(ctx, string(key), costs, func() (turns.Answer, error) {
		var err error
		if result, err = c.takeAs(ctx, &r, take); err != nil {
			return turns.Answer{}, err
		}
		return result.answer(costs)
	})
	if err == nil {
		return result, nil
	}
	if result != nil && result.Allowed {
		_ = c.GiveBack(context.WithoutCancel(ctx), result) // Stats counts a lost one
	}
	if errors.Is(err, turns.ErrTooLate) {
		err = ErrTooLate
	}
	return nil, err
}

// costs returns the cost of each descriptor.
func (r *Request) costs() turns.Costs {
	costs := make(turns.Costs, len(r.Descriptors))
	for i := range r.Descriptors {
		if d := &r.Descriptors[i]; !d.Peek {
			costs[i] = max(1, d.Cost)
		}
	}
	return costs
}

// answer returns what a line of waiters with these costs needs of the result. It returns
// an error if waiting cannot help.
func (r *Result) answer(costs turns.Costs) (turns.Answer, error) {
	switch {
	case r.Allowed:
		return turns.Answer{Allowed: true, More: r.more(costs), Hold: r.hold(costs)}, nil
	case r.RetryAfter == Never:
		return turns.Answer{}, ErrNever
	case r.RetryAfter == RetryUnknown:
		return turns.Answer{}, fmt.Errorf("%w: it is not known when a request in flight ends", ErrDenied)
	case r.RetryAfter == 0:
		return turns.Answer{}, fmt.Errorf("%w: %w", ErrDenied, r.Failure)
	}
	denial := turns.Answer{RetryAfter: r.RetryAfter}
	if l := r.Denier(); l != nil {
		denial.Descriptor, denial.Drain = l.Descriptor, l.Wait
		if l.Algorithm.IsBucket() && l.Requests > 0 {
			denial.TokenTime = l.Period / time.Duration(min(l.Requests, math.MaxInt64))
		}
	}
	return denial, nil
}

// more returns how many more requests of these costs would be allowed.
func (r *Result) more(costs turns.Costs) int {
	more := uint64(math.MaxInt32)
	for i := range r.Limits {
		l := &r.Limits[i]
		if cost := costs.Of(l.Descriptor); cost > 0 && !l.Shadow {
			more = min(more, l.Remaining/cost)
		}
	}
	return int(more)
}

// hold returns the longest Wait of the limits that count the request.
func (r *Result) hold(costs turns.Costs) time.Duration {
	hold := time.Duration(0)
	for i := range r.Limits {
		if l := &r.Limits[i]; l.Allowed && !l.Shadow && costs.Of(l.Descriptor) > 0 {
			hold = max(hold, l.Wait)
		}
	}
	return hold
}
