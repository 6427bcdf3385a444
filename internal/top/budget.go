package top

import "sync/atomic"

// MaxBytes is how many bytes one Top takes at most. Two of them are less than 1 MB.
const MaxBytes = 472 << 10

// Budget bounds the memory of all that share it, in bytes.
type Budget struct {
	bytes        int64
	held, active atomic.Int64
}

// NewBudget returns a budget of so many bytes.
func NewBudget(bytes int64) *Budget { return &Budget{bytes: bytes} }

// Held returns how many bytes are taken.
func (b *Budget) Held() int64 { return b.held.Load() }

// take takes bytes, if there are so many.
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

// share is what each of those in use may take, so that no few of them leave nothing to
// the others.
func (b *Budget) share() int64 { return min(MaxBytes, b.bytes/max(1, b.active.Load())) }
