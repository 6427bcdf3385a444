package daemon

import (
	"log/slog"
	"math"
	"os"
	"runtime/debug"

	"github.com/KimMachineGun/automemlimit/memlimit"

	"github.com/ratelimitd/ratelimitd/internal/config/settings"
	"github.com/ratelimitd/ratelimitd/internal/gctuning"
)

// tuneGC tunes the garbage collector, unless GOGC is set, and gives it the limit of
// the container's memory, unless GOMEMLIMIT is set. It returns nil if GOGC is set.
func tuneGC(log *slog.Logger) (tuner *gctuning.Tuner) {
	if os.Getenv("GOGC") == "" {
		tuner = gctuning.Start()
	}
	// Memory that is allocated during a collection goes beyond the limit.
	limit, err := memlimit.Set(memlimit.WithRatio(0.8))
	switch {
	case err != nil:
		log.Debug("the memory of the container is not known; the garbage collector goes by GOGC alone", "reason", err)
	case limit > 0 && limit < math.MaxInt64:
		log.Debug("the garbage collector keeps below the memory of the container", "limit_bytes", limit)
	}
	return tuner
}

// requestMemory returns the bytes for all requests. Unless they are set, they are a
// share of the process's limit, which is GOMEMLIMIT or the one of tuneGC.
func requestMemory(s settings.Settings) int64 {
	const share = 5
	limit := debug.SetMemoryLimit(-1)
	if s.RequestMemory != 0 || limit == math.MaxInt64 {
		return int64(s.RequestMemory)
	}
	return max(limit/share, 16<<20)
}

// topMemory returns how many bytes the subjects that had the most may take: as many as
// the settings say, but no more than a small part of what the process may use.
func topMemory(t settings.Top) int64 {
	const share = 8
	return min(t.Memory, debug.SetMemoryLimit(-1)/share)
}

// memoryBytes returns how many bytes the memory store may take.
func memoryBytes(m settings.Memory) int64 {
	const eachKey = 256 // with a key of typical length
	if m.MaxBytes != 0 {
		return int64(m.MaxBytes)
	}
	return min(eachKey*m.MaxKeys, debug.SetMemoryLimit(-1)/5*2)
}
