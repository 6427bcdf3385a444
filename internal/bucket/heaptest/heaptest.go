// Package heaptest measures how much of the heap something holds, for tests. It
// imports nothing of the project.
package heaptest

import "runtime"

// InUse returns the bytes of the heap that are reachable. A test that compares two
// of them must not run in parallel with others, and must keep what it measures
// alive (runtime.KeepAlive).
func InUse() int64 {
	runtime.GC()
	runtime.GC() // frees what a sync.Pool kept over the first collection
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
