package top

import "sync/atomic"

// MaxBytes is the most bytes that one Top takes. Two of them are less than 1 MB.
const MaxBytes = 472 << 10

// Budget bounds the memory of everything that shares it, in bytes.
type Budget struct {
	bytes        int64
	held, active atomic.Int64
}

// NewBudget returns a budget of the given number of bytes.
func NewBudget(bytes int64) *Budget { return &Budget{bytes: bytes} }

// Held returns how many bytes are taken.
func (b *Budget) Held() int64 { return b.held.Load() }

// take takes bytes, if that many are left.
func (b *Budget) take(n int64) bool {
	for {
		held := b.held.Load()
		if held+n > b.bytes {
			return false
		}
		if b.held.CompareAndSwap(held, held+n) {
			return true
		}
	}
}

func (b *Budget) give(n int64) { b.held.Add(-n) }

// share is what each user may take at the moment: its equal part of the whole, or a
// quarter of what is free, if that is more. Most of many need little, and the few that
// need much find it; the less is left, the more each has to go back to its equal part, so
// that there is room for newcomers.
func (b *Budget) share() int64 {
	const ofFree = 4
	return min(MaxBytes, max(b.bytes/max(1, b.active.Load()), (b.bytes-b.held.Load())/ofFree))
}
