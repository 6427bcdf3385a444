package redisstore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// batchLog keeps the batches that a store tells of, and names them by their number,
// from 1.
type batchLog struct {
	mu      sync.Mutex
	batches []bucket.TracedBatch
}

func (l *batchLog) add(b bucket.TracedBatch) bucket.SpanRef {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.batches = append(l.batches, b)
	return bucket.SpanRef{Span: [8]byte{byte(len(l.batches))}}
}

func (l *batchLog) all() []bucket.TracedBatch {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.batches
}

func (l *batchLog) in(o *testOptions) { o.OnBatch = l.add }

// traced returns a context for a take, and what the store tells of it.
func traced() (context.Context, *bucket.Trace) {
	trace := new(bucket.Trace)
	return tracedContext{context.Background(), trace}, trace
}

type tracedContext struct {
	context.Context
	trace *bucket.Trace
}

func (c tracedContext) Trace() *bucket.Trace { return c.trace }

func TestTracedTakesAreToldOfTheirBatch(t *testing.T) {
	t.Parallel()
	var log batchLog
	r := newRig(t, log.in)
	l := daily(t, 1)
	r.proxy.Hold("|user=first#")
	first := r.beginHeld(hit(l, "first", 1))
	var others []<-chan outcome
	var traces []*bucket.Trace
	for i := range 5 {
		ctx := context.Background()
		if i%2 == 0 {
			var trace *bucket.Trace
			ctx, trace = traced()
			traces = append(traces, trace)
		}
		others = append(others, r.begin(ctx, hit(l, fmt.Sprint(i), 1), hit(l, fmt.Sprint(i, "b"), 1)))
	}
	r.waitForQueue(len(others))
	r.proxy.Heal(t)
	for _, done := range append(others, first) {
		if o := <-done; !o.decided() {
			t.Errorf("a take got %+v", o)
		}
	}
	// Earlier batches carried no traced request.
	batches := log.all()
	if len(batches) != 1 {
		t.Fatalf("%d batches are told of: %+v", len(batches), batches)
	}
	if b := batches[0]; b.Node != "redis" || b.Requests != 5 || b.Commands != 1 || b.Limits != 10 || b.Failed || b.Took <= 0 || b.Start.IsZero() {
		t.Errorf("the batch is %+v", b)
	}
	for _, trace := range traces {
		if len(trace.Batches) != 1 || trace.Batches[0].Span[0] != 1 || trace.Queued <= 0 || trace.Asked <= 0 {
			t.Errorf("a take is told %+v", trace)
		}
		if trace.Degraded != "" || trace.Known {
			t.Errorf("a take is told %+v", trace)
		}
	}
}

func TestTracedTakeIsToldWhyRedisDidNotDecide(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, want string
		batches    int // at least, and at most one: a take and its batch may time out together
		spoil      func(*rig)
	}{
		{"no answer", "timeout", 0, func(r *rig) { r.proxy.Hold("evalsha") }},
		{"connection lost", "unreachable", 1, func(r *rig) { r.proxy.CutAfter("evalsha") }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var log batchLog
			r := newRig(t, func(o *testOptions) {
				log.in(o)
				o.Timeout = time.Second
			})
			c.spoil(r)
			ctx, trace := traced()
			if o := r.take(ctx, hit(daily(t, 5), "x", 1)); !o.degraded() {
				t.Fatalf("the take got %+v", o)
			}
			if trace.Degraded != c.want || trace.Asked <= 0 || len(trace.Batches) < c.batches || len(trace.Batches) > 1 {
				t.Errorf("it is told %+v", trace)
			}
			for _, b := range log.all() {
				if c.batches > 0 && !b.Failed {
					t.Errorf("the batch is %+v", b)
				}
			}
		})
	}
}

// Callers that leave while their batch is away read nothing that it still writes.
func TestTracedCallersMayLeaveAtAnyMoment(t *testing.T) {
	t.Parallel()
	var log batchLog
	r := newRig(t, log.in)
	l := daily(t, 1e6)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 200 {
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rand.IntN(2_000_000)))
				trace := new(bucket.Trace)
				r.take(tracedContext{ctx, trace}, hit(l, "x", 1))
				cancel()
				if trace.Queued < 0 || trace.Asked < 0 {
					t.Errorf("it is told %+v", trace)
				}
			}
		})
	}
	all.Wait()
}
