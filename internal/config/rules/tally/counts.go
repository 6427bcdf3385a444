package tally

import "sync/atomic"

// Result is what a descriptor that matched a rule got.
type Result uint8

// Results.
const (
	Allowed Result = iota
	Denied
	// Shadowed descriptors were let pass by a limit in shadow mode that would otherwise
	// have denied them.
	Shadowed
	// Peeked descriptors had room and asked for nothing. They are not Allowed.
	Peeked
)

var results = [...]string{"allowed", "denied", "shadowed", "peeked"}

// String returns "allowed", "denied", "shadowed" or "peeked".
func (r Result) String() string { return results[r] }

// Counts are the numbers of descriptors with each result. They never decrease.
type Counts struct {
	of [len(results)]atomic.Uint64
	// hits is nil until the first are added.
	hits atomic.Pointer[hitCounts]
}

// Add counts a result.
func (c *Counts) Add(r Result) { c.of[r].Add(1) }

// Of returns the count of a result.
func (c *Counts) Of(r Result) uint64 { return c.of[r].Load() }

// Total returns the number of descriptors that were counted.
func (c *Counts) Total() (n uint64) {
	for i := range c.of {
		n += c.of[i].Load()
	}
	return n
}
