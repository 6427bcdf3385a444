package decide

import (
	"cmp"
	"errors"
	"math"
	"strconv"
	"sync"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/rules"
)

// Override is a limit that a descriptor brings with it. If it is set, it replaces
// all limits of the rule, and needs no rule.
type Override struct {
	Set      bool
	Requests uint64
	Burst    uint64 // of a bucket; 0: as many as requests
	Period   time.Duration
	// Apart is set if the rule has a limit of the same period and another state. A replay
	// knows it from the log; otherwise Match sets it.
	Apart bool
	// Invalid says why the period is invalid, or is nil.
	Invalid error
	// Names are used in errors. They depend on the API.
	Names *OwnNames

	// Spelling is the period as Envoy's API spelt it, for its response.
	Spelling Spelling
}

// OwnNames are the names by which an API calls an own limit and its fields.
type OwnNames struct {
	Whole string
	// Fields has the names by fields of bucket.Spec; others are called Whole.
	Fields map[string]string
}

func (n *OwnNames) of(field string) string {
	if name, ok := n.Fields[field]; ok {
		return name
	}
	return n.Whole
}

// Spelling is a period as a number of Envoy's units.
type Spelling struct {
	Unit int32
	// Multiplier, if HasMultiplier, is how many units the period has.
	Multiplier    uint32
	HasMultiplier bool
}

// ownLimit says which limit an override is.
type ownLimit struct {
	spec bucket.Spec
	// byPeriod limits have their period in the key.
	byPeriod bool
}

// limit returns the limit that replaces those of a rule, which may be nil. inForce are those
// in their place by an assignment. If the rule has a limit of the same period, it is that
// one with other numbers, and they share a state unless the override is Apart. Else it is
// like the rule's first limit, with a state of its own. Limits in shadow mode are skipped,
// and the limit is in force for everybody. A limit by calendar has no period, and neither
// has the override a calendar.
func (o *Override) limit(domain *rules.Domain, rule *rules.Rule, inForce []*bucket.Limit) ownLimit {
	own := ownLimit{byPeriod: true}
	if rule == nil || len(rule.Limits) == 0 {
		own.spec.Algorithm = domain.Algorithm
		if own.spec.Algorithm == 0 {
			own.spec.Algorithm = bucket.FixedWindow
		}
		own.spec.Postpaid = bucket.PostpaidAuto
	} else {
		own.spec = rule.Limits[0].Spec
		hasFirst := false
		for j, l := range rule.Limits {
			if l.Unenforced == bucket.AllSubjects {
				continue // it is on trial beside those that decide
			}
			if l.Period == o.Period && l.Calendar.Unit == bucket.NoCalendar {
				o.Apart = o.Apart || o.harms(l) || j < len(inForce) && o.harms(inForce[j])
				own = ownLimit{spec: l.Spec, byPeriod: o.Apart}
				break
			}
			if !hasFirst {
				own.spec, hasFirst = l.Spec, true
			}
		}
		own.spec.Unenforced = 0
	}
	own.spec.Calendar = bucket.Calendar{}
	own.spec.Requests, own.spec.Period, own.spec.Burst = signed(o.Requests), o.Period, signed(o.Burst)
	return own
}

// harms reports whether the state of a limit would suffer if the override counted in it. By
// another period it would forget what the limit counts. So would a bucket that drained
// faster; one that holds more would lock out those who have the limit's numbers until it
// has drained at their rate.
func (o *Override) harms(l *bucket.Limit) bool {
	requests, burst := signed(o.Requests), signed(o.Burst)
	return l.Period != o.Period || l.Algorithm.IsBucket() && (requests > l.Requests || cmp.Or(burst, requests) > l.Burst)
}

// signed returns a number of a limit: numbers beyond the largest are refused as that is.
func signed(n uint64) int64 { return int64(min(n, math.MaxInt64)) }

// refused says in the words of the API which numbers are invalid.
func (o *Override) refused(i int, err error) error {
	var spec *bucket.SpecError
	if !errors.As(err, &spec) {
		return errorOf(Invalid, "descriptors[%d].%s: %v", i, o.Names.Whole, err)
	}
	return errorOf(Invalid, "descriptors[%d].%s: found %s; allowed: %s", i, o.Names.of(spec.Field), o.found(spec), spec.Allowed)
}

// found says what is wrong, also with a number that no limit can hold.
func (o *Override) found(wrong *bucket.SpecError) string {
	switch {
	case wrong.Field == "requests" && o.Requests > math.MaxInt64:
		return strconv.FormatUint(o.Requests, 10)
	case wrong.Field == "burst" && o.Burst > math.MaxInt64:
		return strconv.FormatUint(o.Burst, 10)
	}
	return wrong.Found
}

// make makes the limit, without the rule's lease if the numbers do not allow it.
func (own ownLimit) make() (l *bucket.Limit, err error) {
	if own.byPeriod {
		l, err = bucket.NewPeriodLimit(own.spec)
	} else {
		l, err = bucket.NewLimit(own.spec)
	}
	if err != nil && own.spec.Lease != 0 {
		own.spec.Lease = 0
		return own.make()
	}
	return l, err
}

// overrideCache holds the limits of recent overrides, or why there is none: making one
// costs more than deciding it, finding out which numbers would do costs still more, and
// requests with the same limit go to the store as one. It is bounded, since callers choose
// the numbers.
type overrideCache struct {
	mu sync.RWMutex
	// A limit is made in recent and looked for in both. When recent is full, it
	// becomes older, and the limits in older are forgotten.
	recent, older map[ownLimit]madeLimit
}

// madeLimit is a limit, or the error of making it.
type madeLimit struct {
	limit *bucket.Limit
	err   error
}

// cachedOverrides is how many limits each half of an overrideCache holds.
const cachedOverrides = 5000

// get returns the limit, or the error of making it.
func (cache *overrideCache) get(own ownLimit) (*bucket.Limit, error) {
	cache.mu.RLock()
	l, isRecent := cache.recent[own]
	isKnown := isRecent
	if !isRecent {
		l, isKnown = cache.older[own]
	}
	cache.mu.RUnlock()
	if isRecent {
		return l.limit, l.err
	}
	if !isKnown {
		l.limit, l.err = own.make() // without the lock
	}
	l = cache.keep(own, l)
	return l.limit, l.err
}

// keep returns the limit that is cached, which is l if there was none.
func (cache *overrideCache) keep(own ownLimit, l madeLimit) madeLimit {
	cache.mu.Lock()
	defer cache.mu.Unlock()
	if first, ok := cache.recent[own]; ok {
		return first // equal limits are one
	}
	if cache.recent == nil || len(cache.recent) == cachedOverrides {
		cache.recent, cache.older = make(map[ownLimit]madeLimit), cache.recent
	}
	cache.recent[own] = l
	return l
}
