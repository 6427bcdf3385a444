package transport

// How gRPC runs, as measured with many small calls on few cores
// (docs/performance.md). A server that is compared with the daemon runs the
// same way.
const (
	// StreamWorkers is how many goroutines wait for gRPC calls: a call that
	// finds one need not grow a new stack. More calls than that get goroutines
	// of their own, so it is more than wait for Redis at a time as a rule.
	StreamWorkers = 512
	// StreamWindow and ConnectionWindow are how many bytes callers may send
	// ahead on one call and on a connection. Windows of a fixed size need no
	// ping after what is received to measure by, which a lone caller's process
	// would have to answer as often as it asks.
	StreamWindow     = 64 << 10
	ConnectionWindow = 1 << 20
)
