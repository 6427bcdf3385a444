package bucket

import (
	"context"
	"time"
)

// Trace is what a store reports about one traced Take. It belongs to the goroutine of that
// Take. A store in memory leaves it empty.
type Trace struct {
	// Queued is how long the take waited until it was sent, and Asked how long the answer
	// took then. Of several hash tags that were asked at the same time the slowest
	// counts; those that were asked one after the other are added up.
	Queued, Asked time.Duration
	// Batches name the batches that the take travelled in, at most MaxTraceBatches.
	Batches []SpanRef
	// Degraded is why the store did not decide some of it, or empty.
	Degraded string
	// Known is whether it was denied because the store had just denied the same.
	Known bool
}

// MaxTraceBatches bounds the batches of a Trace. A take over many hash tags of a
// cluster travels in as many.
const MaxTraceBatches = 16

// SpanRef names a span where traces are kept. The zero SpanRef names none.
type SpanRef struct {
	Trace [16]byte
	Span  [8]byte
}

// TracedBatch is what a store sent together with a traced take.
type TracedBatch struct {
	// Node is the name of the node that was asked.
	Node string
	// Requests are the requests, or on a cluster their pieces, in Commands; they ask Limits.
	Requests, Commands, Limits int
	// Start is when it was sent, and Took how long the replies took.
	Start time.Time
	Took  time.Duration
	// Failed is whether a command had no reply, or an error as its reply.
	Failed bool
}

// Traced is a context with a Trace. The context itself is one, rather than holding a
// value, since a request that is not traced would search its whole context for that
// value, which costs more than the rest of tracing does.
type Traced interface {
	context.Context
	Trace() *Trace
}

// TraceOf returns the trace of a Take with this very context, or nil.
func TraceOf(ctx context.Context) *Trace {
	if t, ok := ctx.(Traced); ok {
		return t.Trace()
	}
	return nil
}

// AddBatch notes a batch, unless ref is zero or there are already as many as there may
// be.
func (t *Trace) AddBatch(ref SpanRef) {
	if ref != (SpanRef{}) && len(t.Batches) < MaxTraceBatches {
		t.Batches = append(t.Batches, ref)
	}
}
