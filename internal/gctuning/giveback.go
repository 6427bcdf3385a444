package gctuning

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// lookEvery is how often GiveBack looks at the process.
	lookEvery = time.Second
	// quietBytes is the most that a quiet process allocates between two looks.
	quietBytes = 32 << 20
	// grownBytes is how much a quiet process must have grown before memory is given back
	// again.
	grownBytes = 48 << 20
	// smallBytes is the size below which a process keeps its memory.
	smallBytes = MinHeap + 16<<20
	// triesAfter is how often memory is given back once the process is quiet: at
	// first, requests that have just ended may still hold some.
	triesAfter = 4
)

// GiveBack gives memory back to the operating system when the process needed much and has
// been quiet since, until ctx ends. Go collects garbage only when more is allocated, so a
// quiet process would keep it.
func GiveBack(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	var g giver
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if g.isDue(mapped(), allocated()) {
				debug.FreeOSMemory()
				g.floor = mapped()
			}
		}
	}
}

// giver decides when memory is given back.
type giver struct {
	floor     uint64 // the size of the process after memory was last given back
	allocated uint64 // bytes since the start, at the last look
	tries     int    // how often memory is still to be given back
}

func (g *giver) isDue(mapped, allocated uint64) bool {
	isQuiet := allocated-g.allocated < quietBytes
	g.allocated = allocated
	g.floor = min(g.floor, mapped)
	if !isQuiet || mapped > g.floor+grownBytes {
		g.tries = triesAfter
	}
	if !isQuiet || mapped < smallBytes || g.tries == 0 {
		return false
	}
	g.tries--
	return true
}

// mapped returns the bytes that the process has from the operating system.
func mapped() uint64 {
	return read("/memory/classes/total:bytes") - read("/memory/classes/heap/released:bytes")
}

// allocated returns the bytes that were allocated since the start.
func allocated() uint64 { return read("/gc/heap/allocs:bytes") }

func read(name string) uint64 {
	s := []metrics.Sample{{Name: name}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}
