package config

import (
	"sync/atomic"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/top"
)

// TickEvery is how often Rules.Tick is to be called.
const TickEvery = top.PaneLength

// tops say who had the most of each kind. One is nil until somebody had any.
type tops [top.Kinds]atomic.Pointer[top.Top]

// AddTop adds n of a kind to the count of a subject, by its text, at a moment of the
// clock that all share. Of a rule that has gone nothing more is added.
func (r *RuleCounts) AddTop(kind top.Kind, budget *top.Budget, now time.Duration, subject []byte, n uint64) {
	t := r.tops[kind].Load()
	if t == nil {
		if t = r.makeTop(kind, budget); t == nil {
			return
		}
	}
	t.Add(now, subject, n)
}

// makeTop returns who had the most of a kind, or nil of a rule that has gone.
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

// Top returns who had the most of a kind, or nil if nobody had any.
func (r *RuleCounts) Top(kind top.Kind) *top.Top { return r.tops[kind].Load() }

// closeTops gives back the memory of a rule that has gone. r.mu is held.
func (r *RuleCounts) closeTops() {
	for kind := range r.tops {
		if t := r.tops[kind].Load(); t != nil {
			t.Close()
		}
	}
}

// Tick does, for all rules, what is done every TickEvery, one at a time: it puts away
// who had the most before (see top.Top), and exchanges values that are counted by
// themselves.
func (r *Rules) Tick(now time.Duration) {
	for _, d := range r.sorted {
		for _, rule := range d.rules {
			rule.Counts.exchangeValues(now)
			for kind := range top.Kind(top.Kinds) {
				if t := rule.Counts.Top(kind); t != nil {
					t.Tick(now)
				}
			}
		}
	}
}
