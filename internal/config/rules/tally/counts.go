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
	// Peeked descriptors had room and asked for nothing.
	Peeked
)

// String returns "allowed", "denied", "shadowed" or "peeked".
func (r Result) String() string { return [...]string{"allowed", "denied", "shadowed", "peeked"}[r] }

// Counts are the numbers of descriptors with each result. They never decrease.
type Counts struct {
	Allowed, Denied, Shadowed atomic.Uint64
	// Peeked counts the descriptors that were asked about without taking anything and had
	// room. They are not in Allowed.
	Peeked atomic.Uint64
	// hits is nil until the first are added.
	hits atomic.Pointer[hitCounts]
}

// Add counts a result.
func (c *Counts) Add(r Result) {
	switch r {
	case Allowed:
		c.Allowed.Add(1)
	case Denied:
		c.Denied.Add(1)
	case Shadowed:
		c.Shadowed.Add(1)
	case Peeked:
		c.Peeked.Add(1)
	}
}

// IsZero reports whether nothing has been counted yet.
func (c *Counts) IsZero() bool { return c.total() == 0 }

// Of returns the count of a result.
func (c *Counts) Of(r Result) uint64 {
	switch r {
	case Allowed:
		return c.Allowed.Load()
	case Denied:
		return c.Denied.Load()
	case Shadowed:
		return c.Shadowed.Load()
	default:
		return c.Peeked.Load()
	}
}
