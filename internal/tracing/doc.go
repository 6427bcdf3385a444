// Package tracing makes the spans of OpenTelemetry that the daemon sends to a
// collector over OTLP. What holds requests up, or memory, is bounded: spans that
// wait for the collector, what they hold, and what is read of a caller's trace. It
// imports bucket and logthin, and OpenTelemetry's SDK, which nothing else of the
// daemon does.
package tracing
