package tracing

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/ratelimitd/ratelimitd/internal/logthin"
)

// queue holds the spans that wait for the collector, and counts what becomes of each: the
// SDK's own processor, to which it hands them, drops spans silently if the collector is
// slow. A span takes its place when it begins, so that there are never more than the
// queue's size, however many requests are open, and those for which there is no place
// cost hardly anything.
type queue struct {
	sdktrace.SpanProcessor
	exporter sdktrace.SpanExporter
	size     int64
	taken    atomic.Int64 // places, including those of spans at the exporter

	exported, dropped, failed prometheus.Counter
	log                       *slog.Logger
	lines, drops              logthin.Thinner
}

func newQueue(e sdktrace.SpanExporter, p pace, metrics prometheus.Registerer, log *slog.Logger) *queue {
	spans := promauto.With(metrics).NewCounterVec(prometheus.CounterOpts{
		Name: "ratelimitd_trace_spans_total",
		Help: "Spans of sampled requests, and of their batches to Redis, by what became of them.",
	}, []string{"result"})
	q := &queue{
		exporter: e, size: int64(p.queue), log: log,
		exported: spans.WithLabelValues("exported"), dropped: spans.WithLabelValues("dropped"), failed: spans.WithLabelValues("failed"),
	}
	q.SpanProcessor = sdktrace.NewBatchSpanProcessor(counted{q},
		sdktrace.WithMaxQueueSize(p.queue), sdktrace.WithMaxExportBatchSize(p.batch), sdktrace.WithBatchTimeout(p.delay))
	return q
}

// take takes a place for a span that begins, or counts the span as dropped. It never
// waits.
func (q *queue) take() bool {
	if q.taken.Add(1) > q.size {
		q.taken.Add(-1)
		q.dropped.Inc()
		q.logDrop()
		return false
	}
	return true
}

// failureLogEvery is how often it is logged that the collector does not take spans.
const failureLogEvery = time.Minute

// logDrop logs that a span is dropped, while the collector does not accept those that
// wait: an export that hangs has no error for a long time.
func (q *queue) logDrop() {
	if unlogged, due := q.drops.Due(time.Now(), failureLogEvery); due {
		q.log.Warn("traces: spans are dropped, since the collector does not accept those that wait; requests are still answered", "waiting", q.size, "unlogged_before", unlogged)
	}
}

func (q *queue) logFailure(err error) {
	if unlogged, due := q.lines.Due(time.Now(), failureLogEvery); due {
		// The collector's answer is in it, whatever that may be.
		q.log.Warn("traces: spans are lost; requests are still answered", "error", Cut(err.Error()), "unlogged_before", unlogged)
	}
}

// counted is the exporter of a queue.
type counted struct{ *queue }

// ExportSpans implements sdktrace.SpanExporter.
func (c counted) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	err := c.exporter.ExportSpans(ctx, spans)
	n := len(spans)
	c.taken.Add(-int64(n))
	if err != nil {
		c.failed.Add(float64(n))
		c.logFailure(err)
		return nil // it is reported
	}
	c.exported.Add(float64(n))
	return nil
}

// Shutdown implements sdktrace.SpanExporter.
func (c counted) Shutdown(ctx context.Context) error { return c.exporter.Shutdown(ctx) }
