// Package gctuning has the garbage collector run seldom in a process whose
// requests leave garbage behind, next to little that lives.
package gctuning

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
)

const (
	// Percent is how much garbage may gather, of what lives.
	Percent = 400
	// MinHeap is to how many bytes the heap grows at least before it is
	// collected.
	MinHeap = 64 << 20
)

// Tuner sets GOGC.
type Tuner struct {
	mu      sync.Mutex
	samples []metrics.Sample
	percent int // set last
	sparing int // calls of Sparing that have not ended
}

// Start keeps GOGC at what Percent and MinHeap say. To find what lives costs the
// same, however little is freed by it, so that a small heap that is allowed but
// a multiple of itself is collected all the time. After each collection GOGC is
// set anew, as Uber describes it in "How We Saved 70K Cores Across 30
// Mission-Critical Services" (2021). GOMEMLIMIT goes before both. Start is called
// once in a process.
func Start() *Tuner {
	t := &Tuner{}
	for _, name := range []string{"/gc/heap/live:bytes", "/gc/scan/stack:bytes", "/gc/scan/globals:bytes"} {
		t.samples = append(t.samples, metrics.Sample{Name: name})
	}
	runtime.SetFinalizer(&collected{t}, (*collected).again)
	t.tune()
	return t
}

// Sparing calls f, which leaves much garbage behind, with little of it gathering
// meanwhile, and gives free memory back to the operating system afterwards. It
// may be called concurrently.
func (t *Tuner) Sparing(f func()) {
	const percent = 100
	t.mu.Lock()
	t.sparing++
	t.percent = percent
	debug.SetGCPercent(percent)
	t.mu.Unlock()
	defer func() {
		t.mu.Lock()
		t.sparing--
		t.mu.Unlock()
		debug.FreeOSMemory() // a collection, after which GOGC is set
	}()
	f()
}

func (t *Tuner) tune() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.sparing > 0 {
		return
	}
	metrics.Read(t.samples)
	percent := percentFor(t.samples[0].Value.Uint64(), t.samples[1].Value.Uint64()+t.samples[2].Value.Uint64())
	// To set it stops the world, which a small difference is not worth.
	if d := percent - t.percent; d < -t.percent/10 || d > t.percent/10 {
		t.percent = percent
		debug.SetGCPercent(percent)
	}
}

// collected is garbage, which every collection finds.
type collected struct{ tuner *Tuner }

func (c *collected) again() {
	c.tuner.tune()
	runtime.SetFinalizer(c, (*collected).again)
}

// percentFor returns the GOGC by which the heap grows to MinHeap bytes where so
// many live in it and so many in other roots, but at least Percent. What lives
// is not known before the first collection.
func percentFor(live, roots uint64) int {
	// Go collects no heap of less than 4 MiB x GOGC / 100.
	const most = MinHeap / (4 << 20) * 100
	if live == 0 {
		return most
	}
	if live >= MinHeap {
		return Percent
	}
	return int(min(max((MinHeap-live)*100/(live+roots), Percent), most))
}
