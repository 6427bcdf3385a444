package reload

import "runtime"

// Yield lets waiting requests go first. Go would let a load run for 10 ms at a time,
// which they would feel on a single processor.
func Yield() { runtime.Gosched() }
