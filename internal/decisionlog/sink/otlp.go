package sink

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"net/url"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlplog/otlploggrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlplog/otlploghttp"
	otellog "go.opentelemetry.io/otel/log"
	sdklog "go.opentelemetry.io/otel/sdk/log"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/trace"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// OTLPOptions are the options of an OTLP.
type OTLPOptions struct {
	// Endpoint is the collector's URL.
	Endpoint string
	// Protocol is grpc or http; empty leaves it to the environment.
	Protocol string
	// Environment returns a variable, as os.Getenv does. The SDK reads more of them.
	Environment func(name string) string
	Resource    *resource.Resource
	// Buffer is how many bytes may wait to be sent.
	Buffer int
	Counts Counts
	Log    *slog.Logger
}

// OTLP sends lines to a collector as logs: the line is the body, and its moment and
// trace are those of the log. Its methods may be called concurrently.
type OTLP struct {
	OTLPOptions
	queue    *queue
	exporter sdklog.Exporter
	logger   otellog.Logger
	records  records // of the goroutine that sends
	stopping context.Context
	stop     context.CancelFunc // ends what is being sent
	end      chan struct{}
	ended    chan struct{}
	losses   *losses
}

const (
	// exportWithin is how long a collector has to take lines.
	exportWithin = 10 * time.Second
	// The most lines and bytes that are sent together, except for a longer line.
	exportLines = 512
	exportBytes = 1 << 20
	// frameSize is the size of what precedes a waiting line: its moment, trace, span and
	// length.
	frameSize = 8 + 16 + 8 + 4
)

// NewOTLP starts to send lines. It does not wait for the collector.
func NewOTLP(ctx context.Context, o OTLPOptions) (*OTLP, error) {
	exporter, err := newLogExporter(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("decisions.otlp: %w", err)
	}
	s := &OTLP{OTLPOptions: o, queue: newQueue(o.Buffer), exporter: exporter, end: make(chan struct{}), ended: make(chan struct{})}
	s.stopping, s.stop = context.WithCancel(context.Background())
	provider := sdklog.NewLoggerProvider(sdklog.WithResource(o.Resource), sdklog.WithProcessor(&s.records), sdklog.WithAttributeValueLengthLimit(-1))
	s.logger = provider.Logger("github.com/ratelimitd/ratelimitd")
	s.losses = newLosses(o.Log, "decisions: the collector does not get all lines; requests are answered all the same")
	go s.run()
	return s, nil
}

// newLogExporter returns what sends logs. It does not connect before there are some.
func newLogExporter(ctx context.Context, o OTLPOptions) (sdklog.Exporter, error) {
	protocol := o.Protocol
	for _, name := range []string{"OTEL_EXPORTER_OTLP_LOGS_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"} {
		if protocol == "" {
			protocol = strings.TrimSpace(o.Environment(name))
		}
	}
	switch protocol {
	case "grpc":
		return otlploggrpc.New(ctx, otlploggrpc.WithEndpointURL(o.Endpoint))
	case "", "http", "http/protobuf":
		endpoint, err := url.JoinPath(o.Endpoint, "v1/logs")
		if err != nil {
			return nil, err
		}
		return otlploghttp.New(ctx, otlploghttp.WithEndpointURL(endpoint))
	}
	return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_PROTOCOL: found %q; allowed: grpc or http/protobuf", protocol)
}

// Write adds a line, which ends with a newline. It does not wait, and does not keep
// the line.
func (s *OTLP) Write(line []byte, at int64, span bucket.SpanRef) {
	line = line[:len(line)-1]
	var head [frameSize]byte
	frame := binary.LittleEndian.AppendUint64(head[:0], uint64(at))
	frame = append(append(frame, span.Trace[:]...), span.Span[:]...)
	frame = binary.LittleEndian.AppendUint32(frame, uint32(len(line)))
	if !s.queue.add(frame, line) {
		s.Counts.Dropped.Inc()
		s.logLoss("there is no room for more lines that wait to be sent")
	}
}

// Close sends what waits, for at most closeWithin, and drops what is left then.
func (s *OTLP) Close() {
	s.queue.close()
	close(s.end)
	late := time.AfterFunc(closeWithin, s.stop)
	<-s.ended
	late.Stop()
	s.stop()
	_ = s.exporter.Shutdown(s.stopping) // which has nothing left
	s.losses.close()
}

// run sends until the end.
func (s *OTLP) run() {
	defer close(s.ended)
	s.queue.serve(s.end, s.flush)
}

// flush sends what waits.
func (s *OTLP) flush() {
	b := s.queue.take()
	bytes := 0
	for rest := b.text; len(rest) > 0; {
		at := int64(binary.LittleEndian.Uint64(rest))
		span := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID(rest[8:24]), SpanID: trace.SpanID(rest[24:32]), TraceFlags: trace.FlagsSampled})
		n := frameSize + int(binary.LittleEndian.Uint32(rest[32:]))
		s.emit(at, span, string(rest[frameSize:n]))
		rest, bytes = rest[n:], bytes+n
		if len(s.records) == exportLines || bytes >= exportBytes || len(rest) == 0 {
			s.export()
			bytes = 0
		}
	}
	s.queue.done(b)
}

// emit makes a log of a line, which the provider hands to records.
func (s *OTLP) emit(at int64, span trace.SpanContext, line string) {
	var r otellog.Record
	r.SetTimestamp(time.UnixMicro(at))
	r.SetSeverity(otellog.SeverityInfo)
	r.SetEventName("ratelimit.decision")
	r.SetBody(attribute.StringValue(line))
	ctx := context.Background()
	if span.HasTraceID() {
		ctx = trace.ContextWithSpanContext(ctx, span)
	}
	s.logger.Emit(ctx, r)
}

// export sends the records.
func (s *OTLP) export() {
	ctx, cancel := context.WithTimeout(s.stopping, exportWithin)
	defer cancel()
	refused := 0
	if err := s.exporter.Export(ctx, s.records); err != nil {
		if refused = refusedOf(len(s.records), err); refused > 0 {
			s.logLoss(err.Error())
		}
	}
	s.Counts.Failed.Add(float64(refused))
	s.Counts.Written.Add(float64(len(s.records) - refused))
	clear(s.records)
	s.records = s.records[:0]
}

// refusedOf returns how many of n logs did not arrive, by the error of an exporter: all,
// or those that the collector refused while it took others. If none were refused, the
// error is only a warning.
func refusedOf(n int, err error) int {
	if several, ok := err.(interface{ Unwrap() []error }); ok { // of which one is enough
		for _, one := range several.Unwrap() {
			n = min(n, refusedOf(n, one))
		}
		return n
	}
	// The exporters do not export the type of this error. It ends with the number, after
	// whatever the collector said.
	text, isPart := strings.CutPrefix(err.Error(), "OTLP partial success: ")
	text, isLogs := strings.CutSuffix(text, " logs rejected)")
	if !isPart || !isLogs {
		return n
	}
	refused, err := strconv.ParseInt(text[strings.LastIndexByte(text, '(')+1:], 10, 64)
	if err != nil {
		return n
	}
	return int(min(max(refused, 0), int64(n)))
}

func (s *OTLP) logLoss(why string) {
	const maxText = 256 // the collector's answer is in it, whatever that may be
	s.losses.report(why[:min(len(why), maxText)])
}

// records gathers the logs that a provider makes.
type records []sdklog.Record

var _ sdklog.Processor = (*records)(nil)

// Enabled implements sdklog.Processor.
func (*records) Enabled(context.Context, sdklog.EnabledParameters) bool { return true }

// OnEmit implements sdklog.Processor.
func (r *records) OnEmit(_ context.Context, record *sdklog.Record) error {
	*r = append(*r, *record)
	return nil
}

// Shutdown implements sdklog.Processor.
func (*records) Shutdown(context.Context) error { return nil }

// ForceFlush implements sdklog.Processor.
func (*records) ForceFlush(context.Context) error { return nil }
