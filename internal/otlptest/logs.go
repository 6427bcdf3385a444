package otlptest

import (
	"context"
	"encoding/hex"
	"slices"

	logcollectorpb "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	logpb "go.opentelemetry.io/proto/otlp/logs/v1"
)

// Log is a log as it came.
type Log struct {
	*logpb.LogRecord
	// Resource has the attributes of its resource.
	Resource map[string]any
	// OverGRPC is whether it came so, or over HTTP.
	OverGRPC bool
}

// Logs returns the logs that came.
func (c *Collector) Logs() []Log {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.logs)
}

// Text is the body of a log that is text.
func (l Log) Text() string { return l.GetBody().GetStringValue() }

// TraceHex is the trace's identifier as a traceparent has it.
func (l Log) TraceHex() string { return hex.EncodeToString(l.GetTraceId()) }

// logsOver is the service for logs over gRPC.
type logsOver struct {
	logcollectorpb.UnimplementedLogsServiceServer
	of *Collector
}

// Export implements the service of OTLP.
func (s logsOver) Export(_ context.Context, r *logcollectorpb.ExportLogsServiceRequest) (*logcollectorpb.ExportLogsServiceResponse, error) {
	s.of.keepLogs(r, true)
	return new(logcollectorpb.ExportLogsServiceResponse), nil
}

func (c *Collector) keepLogs(r *logcollectorpb.ExportLogsServiceRequest, overGRPC bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, of := range r.GetResourceLogs() {
		resource := attributes(of.GetResource().GetAttributes())
		for _, scope := range of.GetScopeLogs() {
			for _, l := range scope.GetLogRecords() {
				c.logs = append(c.logs, Log{LogRecord: l, Resource: resource, OverGRPC: overGRPC})
			}
		}
	}
}
