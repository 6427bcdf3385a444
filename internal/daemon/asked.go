package daemon

import (
	"context"
	"log/slog"
	"sync/atomic"

	"github.com/ratelimitd/ratelimitd/internal/fleet"
	"github.com/ratelimitd/ratelimitd/internal/top"
)

// asked is how daemons ask each other who had the most.
type asked struct {
	line *fleet.Line
	// answer is that of the server, which is made later.
	answer atomic.Pointer[func(top.Question) (top.Answer, bool)]
}

// newAsked returns nil without Redis: there are no others then.
func newAsked(e *engine, a *assignments, log *slog.Logger) *asked {
	if e.redis == nil {
		return nil
	}
	t := new(asked)
	// The connection of assignments, since no request waits for it.
	t.line = fleet.NewLine(a.redis, fleet.LineOptions{ID: e.fleet.ID(), Daemons: e.daemonIDs, Answer: t.reply, Log: log})
	return t
}

// asker returns others; nil without Redis.
func (t *asked) asker() func(context.Context, top.Question, func(top.Answer)) ([]string, error) {
	if t == nil {
		return nil
	}
	return t.others
}

// answerWith sets what answers the questions of others.
func (t *asked) answerWith(answer func(top.Question) (top.Answer, bool)) {
	if t != nil {
		t.answer.Store(&answer)
	}
}

// run listens for questions until ctx ends.
func (t *asked) run(ctx context.Context) {
	if t != nil {
		t.line.Run(ctx)
	}
}

// reply answers another daemon's question, with nothing if this one does not know.
func (t *asked) reply(question []byte) []byte {
	q, err := top.DecodeQuestion(question)
	answer := t.answer.Load()
	if err != nil || answer == nil {
		return nil
	}
	found, known := (*answer)(q)
	if !known {
		return nil
	}
	return found.Encode()
}

// others asks all other daemons, and calls take with each answer. Those whose answer
// cannot be read count as pending.
func (t *asked) others(ctx context.Context, q top.Question, take func(top.Answer)) (pending []string, _ error) {
	var broken []string
	pending, err := t.line.Ask(ctx, q.Encode(), func(daemon string, text []byte) {
		if a, err := top.DecodeAnswer(text); err == nil {
			take(a)
		} else {
			broken = append(broken, daemon)
		}
	})
	return append(pending, broken...), err
}
