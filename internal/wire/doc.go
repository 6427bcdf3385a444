// Package wire reads and appends protobuf messages in their bytes, without
// messages in memory in between, which would cost more than all that decides. It
// imports nothing of the daemon.
package wire
