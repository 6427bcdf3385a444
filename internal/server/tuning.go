package server

// How the process runs, as measured with many small calls on few cores
// (docs/performance.md). A server that is compared with the daemon runs the
// same way.
const (
	// StreamWorkers is how many goroutines wait for gRPC calls: a call that
	// finds one need not grow a new stack. More calls than that get goroutines
	// of their own.
	StreamWorkers = 128
	// GCPercent is GOGC where the environment does not set it: requests leave
	// garbage behind, next to little that lives.
	GCPercent = 400
)
