package takeapi

import (
	"context"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ratelimitd/ratelimitd/internal/decide"
	"github.com/ratelimitd/ratelimitd/internal/tracing"
)

// maxTogether is how many takes the store is asked about at once: none is answered before
// all of them are.
const maxTogether = 64

// answerTogether answers items of a store that waits for something else. It joins those
// that it can into one question to each node, and answers each of the others by alone, at
// the same time. ended gets the items of one question; several goroutines may call it.
func (a *API) answerTogether(ctx context.Context, items []*item, alone func(*item), ended func(...*item)) {
	if len(items) == 1 {
		alone(items[0])
		return
	}
	var others sync.WaitGroup
	defer others.Wait()
	joined, calls := make([]*item, 0, len(items)), make([]*decide.Call, 0, len(items))
	for _, it := range items {
		if a.mayJoin(it) {
			joined, calls = append(joined, it), append(calls, it.call.Call)
		} else {
			others.Go(func() { alone(it) })
		}
	}
	if len(joined) == 0 {
		return
	}
	answered := func(of []int, errs []error) {
		together := make([]*item, 0, len(of))
		for n, i := range of {
			it := joined[i]
			switch {
			case errs == nil:
				it.call, it.err = takeCall{}, status.Error(codes.Internal, "internal error")
			case errs[n] == decide.ErrAlone:
				others.Go(func() { alone(it) })
				continue
			default:
				it.err = errs[n]
			}
			together = append(together, it)
		}
		ended(together...)
	}
	if !a.tryTogether(ctx, calls, answered) {
		all := make([]int, len(joined))
		for i := range all {
			all[i] = i
		}
		answered(all, nil)
	}
}

// mayJoin reports whether an item may be answered together with others.
func (a *API) mayJoin(it *item) bool {
	if a.Decider.Many == nil || it.err != nil || it.isSettlement || it.releases {
		return false
	}
	return a.Tracer == nil || !tracing.IsSampled(it.traceparent)
}

// tryTogether answers calls together. It reports false after a panic before any is answered.
func (a *API) tryTogether(ctx context.Context, calls []*decide.Call, answered func([]int, []error)) (ok bool) {
	defer func() {
		if p := recover(); p != nil {
			a.Panics.Add(p)
		}
	}()
	a.AnswerTogether(ctx, calls, answered)
	return true
}
