// Package wire reads and appends protobuf messages in their bytes, without messages
// in memory, which would cost more than a decision. It imports nothing of the
// project.
package wire
