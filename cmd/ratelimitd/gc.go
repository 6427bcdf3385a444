package main

import (
	"log/slog"
	"math"
	"os"

	"github.com/KimMachineGun/automemlimit/memlimit"

	"github.com/ratelimitd/ratelimitd/internal/gctuning"
)

// tuneGC tunes the garbage collector, unless GOGC is set, and gives it the limit of
// the container's memory, unless GOMEMLIMIT is set. It returns a function that
// spares memory while it runs another, or nil.
func tuneGC(log *slog.Logger) (sparing func(func())) {
	if os.Getenv("GOGC") == "" {
		sparing = gctuning.Start().Sparing
	}
	// Memory that is allocated during a collection goes beyond the limit.
	limit, err := memlimit.Set(memlimit.WithRatio(0.8))
	switch {
	case err != nil:
		log.Debug("the memory of the container is not known; the garbage collector goes by GOGC alone", "reason", err)
	case limit > 0 && limit < math.MaxInt64:
		log.Debug("the garbage collector keeps below the memory of the container", "limit_bytes", limit)
	}
	return sparing
}
