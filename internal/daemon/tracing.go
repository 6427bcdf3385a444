package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ratelimitd/ratelimitd/internal/config/settings"
	"github.com/ratelimitd/ratelimitd/internal/tracing"
)

// newTracer returns what makes spans, or nil if there are to be none.
func newTracer(ctx context.Context, version string, s settings.Tracing, metrics prometheus.Registerer, log *slog.Logger) (*tracing.Tracer, error) {
	if !s.Enabled {
		return nil, nil
	}
	o := tracingOptions(version, s)
	o.Metrics, o.Log = metrics, log
	t, err := tracing.New(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("tracing.enabled is true, and spans cannot be made: %w", err)
	}
	if t == nil {
		log.Info("tracing.enabled is true, and OTEL_SDK_DISABLED or OTEL_TRACES_EXPORTER turns spans off")
	}
	return t, nil
}

// tracingOptions returns the options of a tracer, except for its metrics and its log.
func tracingOptions(version string, s settings.Tracing) tracing.Options {
	protocol := map[settings.TracingProtocol]string{settings.TracingHTTP: tracing.ProtocolHTTP, settings.TracingGRPC: tracing.ProtocolGRPC}
	return tracing.Options{
		Endpoint:          s.Endpoint,
		Protocol:          protocol[s.Protocol],
		SampleRatio:       s.SampleRatio,
		Propagators:       s.Propagators,
		ServiceName:       s.ServiceName,
		ServiceNamespace:  s.ServiceNamespace,
		ServiceInstanceID: s.ServiceInstanceID,
		Version:           version,
		Values:            s.Values,
		Environment:       os.Getenv,
	}
}
