// Package wire reads and appends encoded protobuf messages without messages in memory,
// which would cost more than a decision. It imports nothing of the project. It serves the
// daemon and the client, and changes when they need it to.
package wire
