package gctuning_test

import (
	"runtime"
	"runtime/metrics"
	"sync"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/gctuning"
)

// start starts the one tuner of the process. That of an earlier run of the tests
// would set GOGC too.
var start = sync.OnceValue(gctuning.Start)

func gogc() uint64 {
	s := []metrics.Sample{{Name: "/gc/gogc:percent"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

// collectUntil collects until GOGC is as wanted, since it is set a while after a
// collection.
func collectUntil(t *testing.T, what string, wanted func(percent uint64) bool) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for !wanted(gogc()) {
		if time.Now().After(deadline) {
			t.Fatalf("GOGC is %d; wanted: %s", gogc(), what)
		}
		runtime.GC()
		runtime.Gosched()
	}
}

var sink []byte

func TestHeapGrowsBeforeItIsCollected(t *testing.T) {
	// On one processor of Go, a busy machine holds up the collector and what makes
	// garbage alike. Else more is made during a collection, and counts as live.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	tuner := start()
	var before, after runtime.MemStats

	// The live heap is small: it is collected once in about MinHeap.
	collectUntil(t, "more than Percent", func(percent uint64) bool { return percent > 2*gctuning.Percent })
	const garbage = 16 * gctuning.MinHeap
	runtime.ReadMemStats(&before)
	for range garbage >> 14 {
		sink = make([]byte, 1<<14)
	}
	runtime.ReadMemStats(&after)
	if n := after.NumGC - before.NumGC; n < 8 || n > 32 {
		t.Errorf("%d collections of %d MiB; wanted: about 16", n, garbage>>20)
	}

	// The live heap is large: it may grow by about Percent. A GOGC that was set a
	// little higher meanwhile is left.
	kept := make([]byte, gctuning.MinHeap)
	collectUntil(t, "about Percent", func(percent uint64) bool { return percent >= gctuning.Percent && percent < gctuning.Percent*9/8 })
	runtime.KeepAlive(kept)

	// It is larger: it grows by Percent too, and while it is filled by about MaxGrowth.
	kept = make([]byte, 2*gctuning.MinHeap)
	for range 5 {
		runtime.GC()
	}
	collectUntil(t, "about Percent", func(percent uint64) bool { return percent >= gctuning.Percent && percent < gctuning.Percent*9/8 })
	collectUntil(t, "between a fourth and half of Percent while the heap is filled", func(uint64) bool {
		tuner.Filling()
		percent := gogc()
		return percent > gctuning.Percent/4 && percent < gctuning.Percent/2
	})
	collectUntil(t, "about Percent again", func(percent uint64) bool { return percent >= gctuning.Percent && percent < gctuning.Percent*9/8 })
	runtime.KeepAlive(kept)

	// And back.
	kept = nil
	collectUntil(t, "more than Percent", func(percent uint64) bool { return percent > 2*gctuning.Percent })

	// Collections during Sparing do not raise GOGC.
	tuner.Sparing(func() {
		for range 3 {
			runtime.GC()
		}
		tuner.Sparing(func() {})
		if got := gogc(); got > gctuning.Percent {
			t.Errorf("GOGC is %d while memory is spared", got)
		}
	})
	collectUntil(t, "more than Percent", func(percent uint64) bool { return percent > 2*gctuning.Percent })

	// A large heap grows by less than itself while memory is spared.
	large := make([]byte, 4*gctuning.MinHeap)
	tuner.Sparing(func() {
		collectUntil(t, "at most 25", func(percent uint64) bool { return percent <= 25 })
	})
	runtime.KeepAlive(large)
}
