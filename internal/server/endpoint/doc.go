// Package endpoint is what all APIs have in common: it checks a request and its
// caller's rights, has it decided, counts it, and reports and logs its failure; it
// reads and writes gRPC messages in their bytes, and HTTP bodies in JSON; and it
// describes requests in spans. It knows no API. It imports decide, bucket, durations,
// overload, access, settings, record, tracing, transport, logthin and headers.
package endpoint
