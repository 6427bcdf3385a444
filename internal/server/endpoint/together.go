package endpoint

import (
	"context"
	"slices"

	"github.com/ratelimitd/ratelimitd/internal/decide"
	"github.com/ratelimitd/ratelimitd/internal/server/accounts"
)

// maxJoined is the most that the hits of a call may take, in bytes, if it is answered together
// with others.
const maxJoined = 32 << 10

// AnswerTogether answers takes of one caller as Answer does, by one question to the store.
// errs, which has an element for each, gets how each ended: with decide.ErrAlone if it is
// for Answer to answer.
func (e *Endpoint) AnswerTogether(ctx context.Context, calls []*decide.Call, errs []error) {
	of, bytes := make([]int, 0, len(calls)), int64(0) // the indexes of those that join
	for i, c := range calls {
		errs[i] = decide.ErrAlone // Answer says what is wrong
		if e.admit(ctx, c, nil) != nil {
			continue
		}
		hits := c.HitBytes()
		if hits > maxJoined {
			continue
		}
		if !c.HitsCharged {
			bytes += hits
		}
		of = append(of, i)
	}
	if bytes > 0 { // before the hits are made
		account := accounts.OfRequest(ctx)
		if account.HoldDeciding(ctx, bytes) != nil {
			return // some may have room alone
		}
		defer account.ReleaseDeciding(bytes)
	}
	of = slices.DeleteFunc(of, func(i int) bool { return e.match(calls[i]) != nil || !e.Decider.JoinsOthers(calls[i]) })
	if len(of) == 0 {
		return
	}
	joined := make([]*decide.Call, len(of))
	for n, i := range of {
		joined[n] = calls[i]
	}
	ended := make([]error, len(joined))
	e.Decider.DecideTogether(ctx, joined, ended)
	answers := e.Answers(joined[0].Began)
	defer answers.End()
	for i, c := range joined {
		if ended[i] == decide.ErrAlone {
			continue
		}
		a := answer{call: c, result: resultOf(c)}
		errs[of[i]] = e.end(ctx, &a, ended[i])
		answers.add(&a)
	}
}
