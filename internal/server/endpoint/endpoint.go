package endpoint

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ratelimitd/ratelimitd/internal/access"
	"github.com/ratelimitd/ratelimitd/internal/config/settings"
	"github.com/ratelimitd/ratelimitd/internal/decide"
	"github.com/ratelimitd/ratelimitd/internal/server/overload"
	"github.com/ratelimitd/ratelimitd/internal/server/record"
	"github.com/ratelimitd/ratelimitd/internal/tracing"
)

// Endpoint is an API on a port. The API reads its requests into a call, has it
// answered here, and writes the answer.
type Endpoint struct {
	// Name is the API's name in metrics and in the log of decisions.
	Name    string
	Decider *decide.Decider
	Bounds  decide.Bounds
	Refunds bool
	// Callers, if set, are those who may ask.
	Callers *access.LiveCallers
	// RemoteStore reports whether another process decides for the store, so that
	// many requests have to ask it at the same time.
	RemoteStore bool
	Failures    *FailureLog
	Panics      *PanicLog
	Requests    *RequestCounts
	// Durations are how long requests took.
	Durations prometheus.Histogram
	// Errors, if set, count requests that failed.
	Errors *ErrorCounts
	// Headers configures the response headers about limits.
	Headers *settings.Headers
	// Tracer makes spans; nil makes none.
	Tracer *tracing.Tracer
	// Recorder writes the log of decisions; nil writes none.
	Recorder *record.Recorder
	// AnswerBound returns no less than the bytes of the response to a matched call.
	AnswerBound func(*decide.Call) int
}

// GiveBack says what a call took earlier and now gives back: the moments in its
// response, and the fingerprints beside them, if there were any.
type GiveBack struct {
	TakenAt []int64
	TakenBy []uint64
}

// Answer decides a call that was read from the wire, if it is valid and its caller has
// the right to ask. If back is not nil, it gives back what the call took earlier. It
// counts the result and its time, and records it.
func (e *Endpoint) Answer(ctx context.Context, c *decide.Call, back *GiveBack) error {
	answers := e.Answers(c.Began)
	defer answers.End()
	return answers.Answer(ctx, c, back)
}

// Answers answers several calls that began together, one after the other, and counts them
// together at their end: to read the clock and to count each of them would cost a few
// percent of a decision.
type Answers struct {
	*Endpoint
	began   time.Duration
	results [results]int
	failed  int
}

// Answers returns what answers calls that began at a reading of the decider's clock.
func (e *Endpoint) Answers(began time.Duration) Answers { return Answers{Endpoint: e, began: began} }

// End counts the calls that were answered, and their time.
func (n *Answers) End() {
	all := n.failed
	for result, answered := range n.results {
		if answered > 0 {
			n.Requests.Answered(Result(result), answered)
			all += answered
		}
	}
	if all > 0 {
		took := (n.Decider.Clock() - n.began).Seconds()
		for range all {
			n.Durations.Observe(took)
		}
	}
}

// Answer is Endpoint.Answer, but for the counts.
func (n *Answers) Answer(ctx context.Context, c *decide.Call, back *GiveBack) error {
	e := n.Endpoint
	a := answer{call: c, back: back, code: codes.Internal} // stays so after a panic
	defer n.add(&a)
	err := e.Admit(ctx, c, back)
	if err == nil && e.RemoteStore && !c.HitsCharged {
		if bytes := c.HitBytes(); bytes > 0 {
			conn := overload.Of(ctx)
			if err = conn.Reserve(bytes); err == nil {
				defer conn.Add(-bytes)
			}
		}
	}
	switch {
	case err != nil:
	case back != nil:
		a.result, err = ResultGivenBack, e.giveBack(ctx, c, back)
	case c.IsSettlement:
		a.result, err = ResultSettled, e.settle(ctx, c)
	default:
		if err = e.match(c); err == nil {
			err = e.Decider.Decide(ctx, c)
			a.result = resultOf(c)
		}
	}
	return e.end(ctx, &a, err)
}

// Admit returns why a call is not to be decided, or nil. It comes before Match, since holders
// belong to the caller whom it finds.
func (e *Endpoint) Admit(ctx context.Context, c *decide.Call, back *GiveBack) error {
	refunds := e.Refunds
	if e.Callers != nil {
		caller, err := e.authorize(ctx, c, back)
		if err != nil {
			return err
		}
		refunds = refunds && caller.May(access.Refund)
	}
	return c.Check(refunds)
}

// match matches a call whose answer is not too long.
func (e *Endpoint) match(c *decide.Call) error {
	if err := e.Decider.Match(c); err != nil {
		return err
	}
	if e.AnswerBound(c) > MaxAnswer {
		return ErrAnswerTooLong
	}
	return nil
}

// answer is the answer to a call.
type answer struct {
	call   *decide.Call
	back   *GiveBack
	code   codes.Code
	result Result
	span   *tracing.Span
}

// end describes and records an answer, and returns err as a status.
func (e *Endpoint) end(ctx context.Context, a *answer, err error) error {
	err = e.toStatus(ctx, err)
	a.code = status.Code(err)
	if e.Tracer != nil {
		if a.span = tracing.SpanOf(ctx); a.span != nil && !a.span.IsPart() {
			e.describe(a.span, a.call, a.code)
		}
	}
	if e.Recorder != nil {
		r := record.Request{Call: a.call, Code: a.code}
		if a.back != nil {
			r.IsGivenBack, r.TakenAt = true, a.back.TakenAt
		}
		e.record(&r, a.span)
	}
	return err
}

// add adds an answer to those that End counts. One with a span has a time of its own, beside
// its trace.
func (n *Answers) add(a *answer) {
	switch {
	case a.span != nil:
		n.Durations.(prometheus.ExemplarObserver).ObserveWithExemplar((n.Decider.Clock() - a.call.Began).Seconds(), prometheus.Labels{"trace_id": a.span.TraceID()})
		if a.code == codes.OK {
			n.Requests.Answered(a.result, 1)
		} else {
			n.Requests.Failed(a.code)
		}
	case a.code == codes.OK:
		n.results[a.result]++
	default:
		n.Requests.Failed(a.code)
		n.failed++
	}
}

func (e *Endpoint) giveBack(ctx context.Context, c *decide.Call, back *GiveBack) error {
	if n := len(back.TakenBy); n != 0 && n != len(back.TakenAt) {
		return Invalid("taken_by: found %d beside %d of taken_at; allowed: as many, or none", n, len(back.TakenAt))
	}
	const maxMoment = 1 << 53
	all := make([]decide.Taken, len(back.TakenAt))
	for i, at := range back.TakenAt {
		if at < -maxMoment || at > maxMoment {
			return Invalid("taken_at[%d]: found %d; allowed: what a take's response says", i, at)
		}
		all[i].At = at
		if len(back.TakenBy) != 0 {
			all[i].By = back.TakenBy[i]
		}
	}
	return e.Decider.GiveBack(ctx, c, all, e.Refunds)
}

// settle settles what takes with the call's ID charged.
func (e *Endpoint) settle(ctx context.Context, c *decide.Call) error {
	if err := e.match(c); err != nil {
		return err
	}
	return e.Decider.Settle(ctx, c)
}

// record writes a request to the log of decisions.
func (e *Endpoint) record(q *record.Request, span *tracing.Span) {
	q.API = e.Name
	if span != nil {
		q.TraceID, q.Span = span.TraceID(), span.Ref()
	}
	e.Recorder.Record(q)
}

// toStatus returns the status that the caller gets for an error, and logs it.
func (e *Endpoint) toStatus(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	err = Status(err)
	_, isStatus := status.FromError(err)
	if !isStatus {
		err = storeStatus(ctx, err)
	}
	if e.Errors != nil {
		e.Errors.add(err, !isStatus)
	}
	e.Failures.log(err)
	return err
}

// MessageBound returns the size of the largest message that can hold this many bytes of
// text within the other bounds; larger ones are refused unread. It is at least 32 KiB,
// since messages of a stream may have 16 KiB of requests, whatever the bounds of one.
func MessageBound(b decide.Bounds) int {
	const (
		overhead = 16 // of an entry or descriptor: tags and lengths
		numbers  = 48 // of a descriptor: its own limit and hits
	)
	return max(32<<10, b.Bytes+b.Descriptors*(overhead*(b.Entries+1)+numbers)+1024)
}
