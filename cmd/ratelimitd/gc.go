package main

import (
	"log/slog"
	"math"
	"os"

	"github.com/KimMachineGun/automemlimit/memlimit"

	"github.com/ratelimitd/ratelimitd/internal/gctuning"
)

// tuneGC sets how much garbage may gather, unless GOGC says so, and has less of
// it gather the nearer the process comes to the memory that its container may
// use, unless GOMEMLIMIT says how much that is. It returns what spares memory
// while limits are loaded, or nil.
func tuneGC(log *slog.Logger) (sparing func(func())) {
	if os.Getenv("GOGC") == "" {
		sparing = gctuning.Start().Sparing
	}
	// What is allocated while garbage is collected goes beyond the limit.
	limit, err := memlimit.Set(memlimit.WithRatio(0.8))
	switch {
	case err != nil:
		log.Debug("the memory of the container is not known; the garbage collector goes by GOGC alone", "reason", err)
	case limit > 0 && limit < math.MaxInt64:
		log.Debug("the garbage collector keeps below the memory of the container", "limit_bytes", limit)
	}
	return sparing
}
