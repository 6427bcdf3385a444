package tally

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/top"
)

// TickEvery is how often RuleCounts.Tick must be called.
const TickEvery = top.PaneLength

// RuleCounts counts the results of the descriptors that matched a rule. Its own Counts
// hold those not counted by value; each value has its own Counts.
//
// A later load keeps the counts of a rule that still exists: one with the same path in a
// domain of the same name. So a request that began with the older rules is counted too.
type RuleCounts struct {
	Counts

	// path is the path of the rule, once it was asked for.
	path atomic.Pointer[string]

	// limits holds the counts of those limits that were asked, by name.
	limits atomic.Pointer[[]*LimitCounts]
	tops   tops

	// mu guards the fields below, except rest, isShort and nextCheck.
	mu sync.RWMutex
	// inForce are the limits of the rule that the counts belong to since a reload; nil
	// before the first.
	inForce   *[]*bucket.Limit
	values    map[string]*keptValue
	rest      atomic.Pointer[Counts] // for all values that are not kept; nil before the first
	isShort   atomic.Bool            // whether a value found no place since dropIdle last checked
	nextCheck time.Duration          // when it checks next; used only by ticks
	place     place
	// room is for the values of all rules. It is nil once the rule is gone: from then on
	// only requests that began with it are counted, and they are few.
	room *Room
}

// NewRuleCounts returns the counts of a new rule, with room for values that it shares
// with other rules.
func NewRuleCounts(room *Room) *RuleCounts { return &RuleCounts{room: room} }

// Path returns the path of the rule, as returned by text, which is called once and not
// after a reload.
func (r *RuleCounts) Path(text func() string) string {
	if known := r.path.Load(); known != nil {
		return *known
	}
	path := text()
	r.path.Store(&path)
	return path
}

// GoOn assigns the counts to a rule with these limits after a reload, and drops those of
// limits that it does not have.
func (r *RuleCounts) GoOn(limits *[]*bucket.Limit) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.inForce = limits
	r.keepLimits()
}

// place is whether a rule has metrics of its own.
type place uint8

const (
	undecided place = iota
	own
	shared
)

// HasOwnMetrics reports whether the rule has metrics of its own, or shares some with
// others. The first maxRules rules to be asked about have their own. The answer stays the
// same while the rule exists, so no count moves from one metric to another.
func (r *RuleCounts) HasOwnMetrics(maxRules int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.place == undecided {
		r.place = shared
		if r.room != nil && r.room.rules.Load() < int64(maxRules) {
			r.room.rules.Add(1)
			r.place = own
		}
	}
	return r.place == own
}

// Enter makes the counts share a room, and reports whether they already did. It is called
// before the rules are in force.
func (r *RuleCounts) Enter(room *Room) (before bool) {
	before = r.room == room
	if !before {
		r.room = room
	}
	return before
}

// Tick does the work due every TickEvery, one call at a time: it rotates the top subjects
// (see top.Top) and drops idle values.
func (r *RuleCounts) Tick(now time.Duration) {
	r.dropIdle(now)
	for kind := range top.Kind(top.Kinds) {
		if t := r.Top(kind); t != nil {
			t.Tick(now)
		}
	}
}

// Leave gives back the room that values and tops take, once the rule is gone.
func (r *RuleCounts) Leave() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.room == nil {
		return
	}
	r.room.taken.Add(int64(-len(r.values)))
	if r.place == own {
		r.room.rules.Add(-1)
	}
	r.room = nil
	r.closeTops()
}
