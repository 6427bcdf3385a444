package main

// How the daemon runs gRPC, for the bare server that is tuned like it.
const (
	// streamWorkers is how many goroutines wait for calls.
	streamWorkers = 128
	// gcPercent is GOGC.
	gcPercent = 400
)
