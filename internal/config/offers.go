package config

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/top"
)

// Values that are counted by themselves are those that came first, until others are
// clearly more frequent: these are found in a sketch of what is not kept, which is
// looked at once a minute. So a caller that makes up values cannot keep those out
// that matter, and series do not come and go with every fluctuation.

const (
	// exchangeEvery is how often values are exchanged at most.
	exchangeEvery = time.Minute
	// exchangedPart is the part of a rule's values that is exchanged at most: a tenth.
	exchangedPart = 10
	// A value replaces one that was less than half as frequent, and if it came at least
	// so often in a minute.
	clearly     = 2
	leastOffers = 10
	// offerBytes bounds the sketch of a rule, and maxOfferBytes those of all.
	offerBytes    = 64 << 10
	maxOfferBytes = 8 << 20
)

// offers are the values of a rule that are not kept.
type offers struct {
	mu     sync.Mutex
	sketch *top.Sketch // nil before the first
	gone   bool

	// A tick alone uses what follows.

	isWatched bool
	since     time.Duration
}

// add counts a value that is not kept.
func (o *offers) add(room *valueRoom, value []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.gone {
		return
	}
	if o.sketch == nil {
		o.sketch = top.NewSketch(room.offers, func() int64 { return offerBytes })
	}
	o.sketch.Add(value, 1)
}

// close gives the memory back.
func (o *offers) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.gone = true
	if o.sketch != nil {
		o.sketch.Reset()
	}
}

// take returns what was offered since the last time.
func (o *offers) take() top.Summary {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.sketch == nil || o.sketch.Total() == 0 {
		return top.Summary{}
	}
	s := o.sketch.Summary()
	o.sketch.Reset()
	return s
}

// isEmpty reports whether nothing was offered.
func (o *offers) isEmpty() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.sketch == nil || o.sketch.Total() == 0
}

// exchangeValues replaces values that are kept by more frequent ones, if it is time. It
// is called by one at a time.
func (r *RuleCounts) exchangeValues(now time.Duration) {
	o := &r.offers
	switch {
	case !o.isWatched && o.isEmpty():
		return
	case !o.isWatched: // from here on both are counted
		o.isWatched, o.since = true, now
		o.take()
		r.rank()
	case now-o.since >= exchangeEvery:
		offered := o.take()
		o.since, o.isWatched = now, offered.Total > 0
		r.exchange(offered)
	}
}

// rankedValue is a value that is kept.
type rankedValue struct {
	value string
	*keptValue
}

// rank returns the values that are kept, the least frequent first. One that was frequent
// is so for some minutes yet.
func (r *RuleCounts) rank() []rankedValue {
	r.mu.RLock()
	defer r.mu.RUnlock()
	ranked := make([]rankedValue, 0, len(r.values))
	for value, c := range r.values {
		total := c.total()
		c.score = max(total-c.seen, c.score-c.score/4)
		c.seen = total
		ranked = append(ranked, rankedValue{value, c})
	}
	slices.SortFunc(ranked, func(a, b rankedValue) int {
		return cmp.Or(cmp.Compare(a.score, b.score), cmp.Compare(a.value, b.value))
	})
	return ranked
}

// exchange replaces values by offered ones. What those had counted goes with their
// series, as with those of a rule that leaves: if it moved to the rest, the rate of the
// rest would jump, and with it that of the rule.
func (r *RuleCounts) exchange(offered top.Summary) {
	surely := func(c *top.Count) uint64 { return c.Count - c.Error }
	slices.SortFunc(offered.Counts, func(a, b top.Count) int {
		return cmp.Or(cmp.Compare(surely(&b), surely(&a)), cmp.Compare(a.Subject, b.Subject))
	})
	ranked := r.rank()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.room == nil {
		return
	}
	for i := range min(len(offered.Counts), max(1, len(ranked)/exchangedPart), len(ranked)) {
		c, old := &offered.Counts[i], ranked[i]
		if n := surely(c); n < leastOffers || n <= clearly*old.score || r.values[c.Subject] != nil {
			return
		}
		delete(r.values, old.value)
		r.keep(c.Subject).score = surely(c)
	}
}
