package gctuning

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// lookEvery is how often it is looked whether there is memory to give back.
	lookEvery = time.Second
	// quietBytes is how much a process that does little allocates meanwhile.
	quietBytes = 32 << 20
	// grownBytes is by how much the process has grown, at least, since memory was
	// given back the last time, if it was not busy meanwhile.
	grownBytes = 48 << 20
	// smallBytes is what a process has that keeps all.
	smallBytes = MinHeap + 16<<20
	// triesAfter is how often memory is given back after that: what was busy may
	// hold on to some for a moment.
	triesAfter = 2
)

// GiveBack gives memory back to the operating system when much was needed for a
// while and little is done since, until the context ends: garbage is collected
// when more is allocated, and a process that is quiet again would keep it.
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
	floor     uint64 // what the process had when it was the last time
	allocated uint64 // in all, at the last look
	tries     int    // that are left
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

// mapped is what the process has of the system's memory.
func mapped() uint64 {
	return read("/memory/classes/total:bytes") - read("/memory/classes/heap/released:bytes")
}

func allocated() uint64 { return read("/gc/heap/allocs:bytes") }

func read(name string) uint64 {
	s := []metrics.Sample{{Name: name}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}
