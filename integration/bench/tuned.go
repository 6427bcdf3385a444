package main

import wire "github.com/ratelimitd/ratelimitd/internal/server"

// How the daemon runs gRPC, for the bare server that is tuned like it.
const (
	streamWorkers    = wire.StreamWorkers
	streamWindow     = wire.StreamWindow
	connectionWindow = wire.ConnectionWindow
)
