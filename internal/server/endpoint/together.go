package endpoint

import (
	"context"

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
	joined, of, bytes := make([]*decide.Call, 0, len(calls)), make([]int, 0, len(calls)), int64(0)
	for i, c := range calls {
		errs[i] = decide.ErrAlone
		if e.admit(ctx, c, nil) != nil || e.match(c) != nil || !e.Decider.JoinsOthers(c) {
			continue // Answer says why
		}
		hits := c.HitBytes()
		if hits > maxJoined {
			continue
		}
		joined, of = append(joined, c), append(of, i)
		if !c.HitsCharged {
			bytes += hits
		}
	}
	if len(joined) == 0 {
		return
	}
	account := accounts.OfRequest(ctx)
	if account.HoldDeciding(ctx, bytes) != nil {
		return // alone, some may still have room
	}
	defer account.ReleaseDeciding(bytes)
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
