// Package gctuning makes the garbage collector run rarely in a process with much garbage
// and a small live heap, and gives memory back to the operating system. It imports
// nothing of the project.
package gctuning

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
)

const (
	// Percent is the least GOGC: the heap may grow by this share of its live bytes before
	// it is collected.
	Percent = 400
	// MaxGrowth is by how many bytes a heap with more than MinHeap live bytes grows after
	// Filling, and minPercent the least share of these by which it grows.
	MaxGrowth  = 3 * MinHeap
	minPercent = 50
	// MinHeap is the least size in bytes at which the heap is collected.
	MinHeap = 64 << 20
	// sparingPercent is the GOGC of Sparing while the heap is small, and
	// sparingRoom the bytes by which a large one grows before it is collected.
	sparingPercent = 100
	sparingRoom    = 48 << 20
)

// Tuner sets GOGC.
type Tuner struct {
	mu      sync.Mutex
	samples []metrics.Sample
	percent int  // the last GOGC that was set
	sparing int  // calls of Sparing that have not ended
	filling bool // Filling was called since the last collection
}

// Start keeps GOGC so that the heap grows to MinHeap, and by Percent at least,
// before it is collected. A small heap that may only grow by a factor would be collected
// all the time. GOGC is set again after each collection, as Uber does it ("How We Saved
// 70K Cores Across 30 Mission-Critical Services", 2021). GOMEMLIMIT is obeyed first.
// Start is called once in a process.
//
// In the row memory-256 of make bench this saves 10 to 16 % of the daemon's CPU
// against a GOGC of Percent. No fixed setting does as well with any heap: a GOGC of
// 1600 saves as much, and lets 64 MiB grow to more than 1 GiB; without GOGC and
// with a GOMEMLIMIT of 80 MiB the process needs 8 times the CPU once 64 MiB live.
func Start() *Tuner {
	t := &Tuner{}
	for _, name := range []string{"/gc/heap/live:bytes", "/gc/scan/stack:bytes", "/gc/scan/globals:bytes"} {
		t.samples = append(t.samples, metrics.Sample{Name: name})
	}
	runtime.SetFinalizer(&collected{t}, (*collected).again)
	t.tune()
	return t
}

// Sparing calls f, which leaves much garbage behind, with a GOGC of at most 100, and
// gives free memory back to the operating system afterwards. A large heap grows by
// 48 MiB before it is collected. It may be called concurrently.
func (t *Tuner) Sparing(f func()) {
	t.mu.Lock()
	t.sparing++
	t.set(t.percentNow()) // a collection begins if the heap is larger already
	t.mu.Unlock()
	defer func() {
		t.mu.Lock()
		t.sparing--
		t.mu.Unlock()
		debug.FreeOSMemory() // a collection, after which GOGC is set
	}()
	f()
}

// Filling says that much data is being created that stays. Until the second collection
// after that a large heap grows by MaxGrowth, since a process that is filled with
// hundreds of megabytes would otherwise take several times as much. It is not for
// permanent use: with 200 MB of live bytes it costs a busy daemon a tenth of its CPU.
func (t *Tuner) Filling() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.filling = true
	if percent := t.percentNow(); percent < t.percent-t.percent/10 {
		t.set(percent)
	}
}

func (t *Tuner) tune() {
	t.mu.Lock()
	defer t.mu.Unlock()
	percent := t.percentNow()
	t.filling = false
	// SetGCPercent stops the world, so small differences are ignored.
	if d := percent - t.percent; d < -t.percent/10 || d > t.percent/10 {
		t.set(percent)
	}
}

// percentNow returns the GOGC for the heap as the last collection left it. It is
// called with mu held.
func (t *Tuner) percentNow() int {
	metrics.Read(t.samples)
	live := t.samples[0].Value.Uint64()
	if t.sparing > 0 {
		return sparingPercentFor(live)
	}
	if t.filling && live >= MinHeap {
		return int(max(MaxGrowth*100/live, minPercent))
	}
	return percentFor(live, t.samples[1].Value.Uint64()+t.samples[2].Value.Uint64())
}

// set is called with mu held.
func (t *Tuner) set(percent int) {
	t.percent = percent
	debug.SetGCPercent(percent)
}

// collected is garbage whose finalizer runs after every collection.
type collected struct{ tuner *Tuner }

func (c *collected) again() {
	c.tuner.tune()
	runtime.SetFinalizer(c, (*collected).again)
}

// percentFor returns the GOGC with which a heap of this many live bytes, besides this
// many bytes of other roots, grows to MinHeap; at least Percent. live is 0 before the
// first collection.
func percentFor(live, roots uint64) int {
	// Go collects no heap of less than 4 MiB x GOGC / 100.
	const maxPercent = MinHeap / (4 << 20) * 100
	if live == 0 {
		return maxPercent
	}
	if live >= MinHeap {
		return Percent
	}
	return int(min(max((MinHeap-live)*100/(live+roots), Percent), maxPercent))
}

// sparingPercentFor returns the GOGC with which a heap of this many live bytes grows by
// sparingRoom, and by sparingPercent at most.
func sparingPercentFor(live uint64) int {
	return int(min(sparingRoom*100/max(live, 1)+1, sparingPercent))
}
