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

// queue holds the spans that wait for the collector, no more than its size, and
// counts what becomes of each: the SDK's own processor, which it hands them to,
// drops spans without a word where the collector is slow.
type queue struct {
	sdktrace.SpanProcessor
	exporter sdktrace.SpanExporter
	size     int64
	waiting  atomic.Int64 // those at the exporter are among them

	exported, dropped, failed prometheus.Counter
	log                       *slog.Logger
	lines                     logthin.Thinner
}

func newQueue(e sdktrace.SpanExporter, size int, metrics prometheus.Registerer, log *slog.Logger) *queue {
	spans := promauto.With(metrics).NewCounterVec(prometheus.CounterOpts{
		Name: "ratelimitd_trace_spans_total",
		Help: "Spans of sampled requests, and of their batches to Redis, by what became of them.",
	}, []string{"result"})
	q := &queue{
		exporter: e, size: int64(size), log: log,
		exported: spans.WithLabelValues("exported"), dropped: spans.WithLabelValues("dropped"), failed: spans.WithLabelValues("failed"),
	}
	q.SpanProcessor = sdktrace.NewBatchSpanProcessor(counted{q}, sdktrace.WithMaxQueueSize(size))
	return q
}

// OnEnd implements sdktrace.SpanProcessor. It never waits.
func (q *queue) OnEnd(s sdktrace.ReadOnlySpan) {
	if q.waiting.Add(1) > q.size {
		q.waiting.Add(-1)
		q.dropped.Inc()
		return
	}
	q.SpanProcessor.OnEnd(s)
}

// failureLogEvery is how often it is logged that the collector does not take spans.
const failureLogEvery = time.Minute

func (q *queue) logFailure(err error) {
	if unlogged, due := q.lines.Due(time.Now(), failureLogEvery); due {
		q.log.Warn("traces: spans are lost; requests are answered all the same", "error", err, "unlogged_before", unlogged)
	}
}

// counted is the exporter of a queue.
type counted struct{ *queue }

// ExportSpans implements sdktrace.SpanExporter.
func (c counted) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	err := c.exporter.ExportSpans(ctx, spans)
	n := len(spans)
	c.waiting.Add(-int64(n))
	if err != nil {
		c.failed.Add(float64(n))
		c.logFailure(err)
		return nil // it is told
	}
	c.exported.Add(float64(n))
	return nil
}

// Shutdown implements sdktrace.SpanExporter.
func (c counted) Shutdown(ctx context.Context) error { return c.exporter.Shutdown(ctx) }
