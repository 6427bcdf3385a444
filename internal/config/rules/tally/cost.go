package tally

import "sync/atomic"

// Cost is a sum of costs, which callers choose. It stops at maxCost, and so never begins
// again at 0.
type Cost struct{ sum atomic.Uint64 }

// maxCost leaves room to add a few sums, and what thousands of concurrent callers add
// before one of them stops the sum.
const maxCost = 1 << 62

// Add adds a cost, at most bucket.MaxRequests.
func (c *Cost) Add(cost uint64) {
	if c.sum.Add(cost) > maxCost {
		c.sum.Store(maxCost)
	}
}

// Load returns the sum.
func (c *Cost) Load() uint64 { return min(c.sum.Load(), maxCost) }
