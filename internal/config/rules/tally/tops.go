package tally

import (
	"sync/atomic"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/top"
)

// tops holds the top subjects of each kind. One is nil until a subject is counted.
type tops [top.Kinds]atomic.Pointer[top.Top]

// AddTop adds n of a kind to the count of a subject, given as text, at a time of the
// clock shared by all. Nothing more is added for a rule that is gone.
func (r *RuleCounts) AddTop(kind top.Kind, budget *top.Budget, now time.Duration, subject []byte, n uint64) {
	t := r.tops[kind].Load()
	if t == nil {
		if t = r.makeTop(kind, budget); t == nil {
			return
		}
	}
	t.Add(now, subject, n)
}

// makeTop returns the Top of a kind, or nil for a rule that is gone.
func (r *RuleCounts) makeTop(kind top.Kind, budget *top.Budget) *top.Top {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.room == nil {
		return nil
	}
	if r.tops[kind].Load() == nil {
		r.tops[kind].Store(top.New(budget))
	}
	return r.tops[kind].Load()
}

// Top returns the top subjects of a kind, or nil if there are none.
func (r *RuleCounts) Top(kind top.Kind) *top.Top { return r.tops[kind].Load() }

// closeTops gives back the memory of a rule that is gone. r.mu is held.
func (r *RuleCounts) closeTops() {
	for kind := range r.tops {
		if t := r.tops[kind].Load(); t != nil {
			t.Close()
		}
	}
}
