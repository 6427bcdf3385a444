package main

import (
	"log/slog"
	"os"

	"github.com/KimMachineGun/automemlimit/memlimit"

	"github.com/ratelimitd/ratelimitd/internal/gctuning"
)

// tuneGC sets how much garbage may gather, unless GOGC says so, and has less of
// it gather the nearer the process comes to the memory that its container may
// use, unless GOMEMLIMIT says how much that is.
func tuneGC(log *slog.Logger) {
	if os.Getenv("GOGC") == "" {
		gctuning.Start()
	}
	limit, err := memlimit.Set(memlimit.WithRatio(0.9))
	switch {
	case err != nil:
		log.Debug("the memory of the container is not known; the garbage collector goes by GOGC alone", "reason", err)
	case limit > 0:
		log.Debug("the garbage collector keeps below the memory of the container", "limit_bytes", limit)
	}
}
