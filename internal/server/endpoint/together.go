package endpoint

import (
	"context"
	"slices"
	"sync"

	"github.com/ratelimitd/ratelimitd/internal/decide"
	"github.com/ratelimitd/ratelimitd/internal/server/overload"
)

// maxJoined is the most that the hits of a call may take, in bytes, if it is answered together
// with others.
const maxJoined = 32 << 10

// AnswerTogether answers takes of one caller as Answer does, by one question to each node of
// the store. ended is called for those of each node: with their indexes, and how each ended,
// decide.ErrAlone if it is for Answer to answer; or with no errors after a panic. It may be
// called by several goroutines.
func (e *Endpoint) AnswerTogether(ctx context.Context, calls []*decide.Call, ended func(of []int, errs []error)) {
	all, alone, bytes := make([]int, 0, len(calls)), make([]int, 0), int64(0)
	for i, c := range calls {
		hits := int64(0)
		isAdmitted := e.Admit(ctx, c, nil) == nil // otherwise Answer says why
		if isAdmitted {
			hits = c.HitBytes()
		}
		if !isAdmitted || hits > maxJoined {
			alone = append(alone, i)
			continue
		}
		if !c.HitsCharged {
			bytes += hits
		}
		all = append(all, i)
	}
	if bytes > 0 { // before the hits are made
		conn := overload.Of(ctx)
		if conn.Reserve(bytes) != nil {
			alone, all = append(alone, all...), nil // some may have room
		} else {
			defer conn.Add(-bytes)
		}
	}
	groups, more := e.byNode(calls, all)
	if alone = append(alone, more...); len(alone) > 0 {
		ended(alone, slices.Repeat([]error{decide.ErrAlone}, len(alone)))
	}
	var others sync.WaitGroup
	defer others.Wait()
	for n, of := range groups {
		if n == len(groups)-1 {
			ended(of, e.answerGroup(ctx, calls, of))
		} else {
			others.Go(func() { ended(of, e.answerGroup(ctx, calls, of)) })
		}
	}
}

// byNode matches the calls with the indexes of, and groups these by nodes. The others are to
// be answered alone.
func (e *Endpoint) byNode(calls []*decide.Call, of []int) (groups [][]int, alone []int) {
	var nodes []any
	for _, i := range of {
		var node any
		if e.match(calls[i]) == nil {
			node = e.Decider.NodeOf(calls[i])
		}
		if node == nil {
			alone = append(alone, i)
			continue
		}
		n := slices.Index(nodes, node)
		if n < 0 {
			n = len(nodes)
			nodes, groups = append(nodes, node), append(groups, nil)
		}
		groups[n] = append(groups[n], i)
	}
	return groups, alone
}

// answerGroup answers the calls with the indexes of. After a panic it returns nil.
func (e *Endpoint) answerGroup(ctx context.Context, calls []*decide.Call, of []int) (errs []error) {
	defer func() {
		if p := recover(); p != nil {
			e.Panics.Add(p)
			errs = nil
		}
	}()
	joined := make([]*decide.Call, len(of))
	for n, i := range of {
		joined[n] = calls[i]
	}
	errs = make([]error, len(joined))
	e.Decider.DecideTogether(ctx, joined, errs)
	answers := e.Answers(joined[0].Began)
	defer answers.End()
	for i, c := range joined {
		if errs[i] == decide.ErrAlone {
			continue
		}
		a := answer{call: c, result: resultOf(c)}
		errs[i] = e.end(ctx, &a, errs[i])
		answers.add(&a)
	}
	return errs
}
