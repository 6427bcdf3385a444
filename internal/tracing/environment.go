package tracing

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// environment has those OpenTelemetry variables that the SDK for Go leaves to the
// program. The SDK reads the others itself.
type environment struct{ get func(name string) string }

// isOff reports whether a variable turns traces off.
func (e environment) isOff() (bool, error) {
	if strings.EqualFold(strings.TrimSpace(e.get("OTEL_SDK_DISABLED")), "true") {
		return true, nil
	}
	const name = "OTEL_TRACES_EXPORTER"
	switch exporter := strings.TrimSpace(e.get(name)); exporter {
	case "", "otlp":
		return false, nil
	case "none":
		return true, nil
	default:
		return false, fmt.Errorf("%s: found %q; allowed: otlp or none", name, Cut(exporter))
	}
}

// protocol returns the protocol of OTLP.
func (e environment) protocol() (string, error) {
	for _, name := range []string{"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"} {
		switch protocol := strings.TrimSpace(e.get(name)); protocol {
		case "":
		case ProtocolHTTP, ProtocolGRPC:
			return protocol, nil
		default:
			return "", fmt.Errorf("%s: found %q; allowed: %s", name, Cut(protocol), allowed(ProtocolGRPC, ProtocolHTTP))
		}
	}
	return ProtocolHTTP, nil
}

// propagators returns those with the names, or else those of the environment, or else
// all.
func (e environment) propagators(names []string) ([]propagator, error) {
	if len(names) == 0 {
		names = []string{"tracecontext", "b3"}
		if text := strings.TrimSpace(e.get("OTEL_PROPAGATORS")); text != "" {
			names = strings.Split(text, ",")
		}
	}
	return newPropagators(names)
}

// ratio returns the share of the requests without a parent that the sampler of the
// environment takes, if that lets the parent decide for the others; otherwise it is
// negative.
func (e environment) ratio() float64 {
	const left = -1
	switch strings.ToLower(strings.TrimSpace(e.get("OTEL_TRACES_SAMPLER"))) {
	case "", "parentbased_always_on":
		return 1
	case "parentbased_always_off":
		return 0
	case "parentbased_traceidratio":
		// The SDK reports an argument that it cannot read.
		ratio, err := strconv.ParseFloat(strings.TrimSpace(e.get("OTEL_TRACES_SAMPLER_ARG")), 64)
		if err == nil && ratio >= 0 && ratio <= 1 {
			return ratio
		}
	}
	return left
}

// The spans that may wait for the collector: the SDK's default, and the most.
const (
	defaultQueueSize = sdktrace.DefaultMaxQueueSize
	maxQueueSize     = 1 << 16
)

// pace says how spans are sent.
type pace struct {
	queue, batch int           // spans that there may be, and that are sent together
	delay        time.Duration // that a batch waits for more
}

// pace reads what the SDK would read too, but accept as it is: without a delay it takes a
// whole processor, and with huge batches more memory than there is.
func (e environment) pace() pace {
	number := func(name string, usual, maxValue int) int {
		n, err := strconv.Atoi(strings.TrimSpace(e.get(name)))
		if err != nil || n < 1 {
			n = usual
		}
		return min(n, maxValue)
	}
	queue := number("OTEL_BSP_MAX_QUEUE_SIZE", defaultQueueSize, maxQueueSize)
	return pace{
		queue: queue,
		batch: number("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", sdktrace.DefaultMaxExportBatchSize, queue),
		delay: time.Duration(number("OTEL_BSP_SCHEDULE_DELAY", sdktrace.DefaultScheduleDelay, int(time.Hour/time.Millisecond))) * time.Millisecond,
	}
}

// newExporter returns what sends spans. It does not connect before there are some.
func newExporter(ctx context.Context, o Options, e environment) (sdktrace.SpanExporter, error) {
	protocol := o.Protocol
	if protocol == "" {
		var err error
		if protocol, err = e.protocol(); err != nil {
			return nil, err
		}
	}
	if protocol == ProtocolGRPC {
		var options []otlptracegrpc.Option
		if o.Endpoint != "" {
			options = append(options, otlptracegrpc.WithEndpointURL(o.Endpoint))
		}
		return otlptracegrpc.New(ctx, options...)
	}
	var options []otlptracehttp.Option
	if o.Endpoint != "" {
		// Read like OTEL_EXPORTER_OTLP_ENDPOINT.
		endpoint, err := url.JoinPath(o.Endpoint, "v1/traces")
		if err != nil {
			return nil, err
		}
		options = append(options, otlptracehttp.WithEndpointURL(endpoint))
	}
	return otlptracehttp.New(ctx, options...)
}

// NewResource says what the daemon is, in spans and in logs.
func NewResource(ctx context.Context, o Options) (*resource.Resource, error) {
	var given []attribute.KeyValue
	for _, name := range []struct{ key, value string }{
		{"service.name", o.ServiceName}, {"service.namespace", o.ServiceNamespace}, {"service.instance.id", o.ServiceInstanceID},
	} {
		if name.value != "" {
			given = append(given, attribute.String(name.key, name.value))
		}
	}
	r, err := resource.New(ctx,
		resource.WithTelemetrySDK(),
		resource.WithAttributes(
			attribute.String("service.name", "ratelimitd"),
			attribute.String("service.version", o.Version),
			attribute.String("service.instance.id", uuid.NewString()),
		),
		resource.WithFromEnv(),
		resource.WithAttributes(given...),
	)
	if err != nil {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	return r, nil
}
