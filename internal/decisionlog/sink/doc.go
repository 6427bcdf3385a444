// Package sink takes the lines of the log of decisions to where they are kept: a file
// with rotation, standard output, or a collector over OTLP. Writing a line never blocks:
// what does not fit in the bytes that may wait is dropped, and all that is dropped or
// fails is counted. It imports decisionlog, bucket, logthin, lumberjack and
// OpenTelemetry's SDK.
package sink
