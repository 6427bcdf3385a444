// Package tracing makes the spans of OpenTelemetry that the daemon sends to a collector
// over OTLP. What could hold up requests or take memory is bounded: spans that wait for
// the collector, what they hold, and what is read of a caller's trace. It imports bucket
// and logthin, and OpenTelemetry's SDK, which otherwise only decisionlog/sink does.
package tracing
