package decide

import (
	"sync"
	"sync/atomic"
	"time"
)

// pins know which decisions are under way, so that one can wait for those that
// began before a change. They are counted in one of two columns, and the column
// that new ones go to is switched: sleepable read-copy-update (McKenney, "Sleepable
// RCU", LWN 2006), with counters spread over cache lines.
type pins struct {
	column atomic.Uint32
	rows   [pinRows]pinRow
	given  atomic.Uint32
	mu     sync.Mutex // held by quiesce
}

// pinRows is large enough that calls on different processors rarely share a row.
const pinRows = 64

type pinRow struct {
	under [2]atomic.Int64
	_     [64 - 2*8]byte // the rest of a cache line
}

// next returns a row for a call, which it keeps.
func (p *pins) next() uint32 { return p.given.Add(1) % pinRows }

// pin is one decision under way.
type pin struct{ count *atomic.Int64 }

// enter begins a decision.
func (p *pins) enter(row uint32) pin {
	count := &p.rows[row].under[p.column.Load()&1]
	count.Add(1)
	return pin{count}
}

// leave ends the decision. A second leave does nothing.
func (p *pin) leave() {
	if p.count != nil {
		p.count.Add(-1)
		p.count = nil
	}
}

// quiesce returns once all decisions that began before it was called have ended.
// One may have read the column before it was switched and be counted there later,
// so both columns are emptied, one after the other.
func (p *pins) quiesce() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for range 2 {
		old := (p.column.Add(1) - 1) & 1
		for wait := 10 * time.Microsecond; !p.isEmpty(old); wait = min(2*wait, time.Millisecond) {
			time.Sleep(wait)
		}
	}
}

func (p *pins) isEmpty(column uint32) bool {
	sum := int64(0)
	for i := range p.rows {
		sum += p.rows[i].under[column].Load()
	}
	return sum == 0
}

// Quiesce returns once every decision that began before the call has ended, so none that
// read earlier assignments is left.
func (d *Decider) Quiesce() { d.pins.quiesce() }
