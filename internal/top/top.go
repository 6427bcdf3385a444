package top

import (
	"sync"
	"time"
)

// Top knows the top subjects of one kind, in each window. Its methods may be called
// concurrently. Time is passed in, by a clock that does not go back and began with the
// process; a time slightly earlier than before counts as now.
type Top struct {
	budget *Budget

	// mu guards what an Add needs, and is held only briefly.
	mu     sync.Mutex
	live   *Sketch
	at     int64  // number of the live pane
	due    []live // ended, and not yet in the history
	active bool   // counted in the budget
	closed bool

	// past guards the history, and is locked before mu.
	past    sync.Mutex
	history history
}

// live is a pane that ended.
type live struct {
	at     int64
	sketch *Sketch
}

// New returns a Top whose memory comes from a budget.
func New(budget *Budget) *Top {
	t := &Top{budget: budget, history: history{budget: budget}}
	t.live = t.newSketch()
	return t
}

func (t *Top) newSketch() *Sketch {
	return NewSketch(t.budget, func() int64 { return t.budget.share() * liveParts / allParts })
}

// Add adds n to the count of a subject, given as its text.
func (t *Top) Add(now time.Duration, text []byte, n uint64) {
	at := int64(now / PaneLength)
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		return
	}
	if !t.active {
		t.active = true
		t.budget.active.Add(1)
	}
	t.turn(at)
	t.live.Add(text, n)
	isDue := len(t.due) > 0
	t.mu.Unlock()
	if isDue && t.past.TryLock() {
		// A reader may hold the history for milliseconds; what is due is put away the
		// next time.
		defer t.past.Unlock()
		t.settle(now)
	}
}

// turn begins a new live pane if the current one has ended. t.mu is held.
func (t *Top) turn(at int64) {
	if at <= t.at {
		return
	}
	if t.live.Total() > 0 {
		t.due = append(t.due, live{t.at, t.live})
		t.live = t.newSketch()
	}
	t.at = at
}

// Tick puts away what has ended. Called about every 10 s, it saves Add the work, and
// gives back the memory of subjects that are no longer counted.
func (t *Top) Tick(now time.Duration) {
	t.past.Lock()
	defer t.past.Unlock()
	t.settle(now)
}

// settle is Tick; t.past is held.
func (t *Top) settle(now time.Duration) {
	t.mu.Lock()
	t.turn(int64(now / PaneLength))
	at, due := t.at, t.due
	t.due = nil
	t.mu.Unlock()
	for _, p := range due {
		s := p.sketch.Summary()
		p.sketch.Reset() // before, so that there is room
		t.history.add(p.at, s)
	}
	t.history.advance(at)

	t.mu.Lock()
	defer t.mu.Unlock()
	if t.active && t.live.Total() == 0 && len(t.due) == 0 && t.history.isEmpty() {
		t.active = false
		t.budget.active.Add(-1)
	}
}

// Summary returns the top subjects in a window.
func (t *Top) Summary(now time.Duration, w Window) Summary {
	t.past.Lock()
	defer t.past.Unlock()
	t.settle(now)
	t.mu.Lock()
	s := t.live.Summary()
	for _, p := range t.due { // ended a moment ago
		s = s.Plus(p.sketch.Summary())
	}
	t.mu.Unlock()
	return s.Plus(t.history.sum(w))
}

// Total returns the sum of all in a window, at less cost.
func (t *Top) Total(now time.Duration, w Window) uint64 {
	t.past.Lock()
	defer t.past.Unlock()
	t.settle(now)
	t.mu.Lock()
	defer t.mu.Unlock()
	total := t.live.Total()
	for _, p := range t.due {
		total = plus(total, p.sketch.Total())
	}
	return plus(total, t.history.total(w))
}

// Close gives all memory back. What is added later is not counted.
func (t *Top) Close() {
	t.past.Lock()
	defer t.past.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	t.live.Reset()
	for _, p := range t.due {
		p.sketch.Reset()
	}
	t.due = nil
	t.history.clear()
	if t.active {
		t.active = false
		t.budget.active.Add(-1)
	}
}
