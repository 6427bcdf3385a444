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

// answerTogether answers items while the store waits: most of them by one question to it, if
// it takes several at a time, and each of the others by alone, at the same time. ended gets
// those of one question.
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
	errs := make([]error, len(joined))
	if !a.tryTogether(ctx, calls, errs) {
		for _, it := range joined {
			it.call, it.err = takeCall{}, status.Error(codes.Internal, "internal error")
		}
		ended(joined...)
		return
	}
	together := joined[:0]
	for i, it := range joined {
		if errs[i] == decide.ErrAlone {
			others.Go(func() { alone(it) })
			continue
		}
		it.err = errs[i]
		together = append(together, it)
	}
	ended(together...)
}

// mayJoin reports whether an item may be answered together with others.
func (a *API) mayJoin(it *item) bool {
	if a.Decider.TakeMany == nil || it.err != nil || it.isSettlement || it.binds || it.releases {
		return false
	}
	return a.Tracer == nil || !tracing.IsSampled(it.traceparent)
}

// tryTogether answers calls together. It reports false after a panic, which fails all.
func (a *API) tryTogether(ctx context.Context, calls []*decide.Call, errs []error) (ok bool) {
	defer func() {
		if p := recover(); p != nil {
			a.Panics.Add(p)
		}
	}()
	a.AnswerTogether(ctx, calls, errs)
	return true
}
