package server

import (
	"errors"
	"sync"
	"time"

	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config"
)

// override is a limit that a descriptor brings with it. Where set, it replaces
// the whole rule of the descriptor, and needs none.
type override struct {
	set      bool
	requests uint32
	burst    uint32 // of a bucket; 0: as many as requests
	period   time.Duration

	// seconds and nanos are the period as it was sent, where it is not in units.
	seconds int64
	nanos   int32

	// inUnits is whether it was sent as Envoy does: with the period in units.
	inUnits bool
	unit    typev3.RateLimitUnit
	// multiplier, if hasMultiplier, is how many units the period has.
	multiplier    uint32
	hasMultiplier bool
}

// check refuses a period that cannot be as it was sent, and counts one that can;
// i is the descriptor's index.
func (o *override) check(i int) error {
	switch {
	case !o.set:
		return nil
	case !o.inUnits:
		return o.checkDuration(i)
	}
	u := unitNamed(o.unit)
	if u == nil {
		return invalid("descriptors[%d].limit.unit: found %s; allowed: SECOND, MINUTE, HOUR, DAY, MONTH, YEAR", i, o.unit)
	}
	o.period = u.period
	if !o.hasMultiplier {
		return nil
	}
	if most := int64(bucket.MaxPeriod / u.period); o.multiplier < 1 || int64(o.multiplier) > most {
		return invalid("descriptors[%d].limit.unit_multiplier: found %d; allowed: 1 to %d for the unit %s", i, o.multiplier, most, o.unit)
	}
	o.period *= time.Duration(o.multiplier)
	return nil
}

// checkDuration is check for a Duration, whose parts have bounds and one sign.
// One that is too long for a time.Duration becomes one that is too long for a
// period.
func (o *override) checkDuration(i int) error {
	if o.nanos <= -1e9 || o.nanos >= 1e9 || o.seconds > 0 && o.nanos < 0 || o.seconds < 0 && o.nanos > 0 {
		return invalid("descriptors[%d].numbers.period: found %d seconds and %d nanos; allowed: nanos under a second, of the same sign as seconds", i, o.seconds, o.nanos)
	}
	const most = int64(1 << 31)
	o.period = time.Duration(min(max(o.seconds, -most), most))*time.Second + time.Duration(o.nanos)
	return nil
}

// ownLimit says which limit an override is.
type ownLimit struct {
	spec bucket.Spec
	// byPeriod limits have their period in the key.
	byPeriod bool
}

// limit tells the limit that replaces a rule, which may be nil. It is the
// rule's limit of the same period with other numbers, so that their state is
// one; with a period that the rule does not have, it counts by itself, as the
// rule's first limit would.
func (o *override) limit(domain *config.Domain, rule *config.Rule) ownLimit {
	own := ownLimit{byPeriod: true}
	if rule == nil || len(rule.Limits) == 0 {
		own.spec.Algorithm = domain.Algorithm
		if own.spec.Algorithm == 0 {
			own.spec.Algorithm = bucket.FixedWindow
		}
	} else {
		own.spec = rule.Limits[0].Spec
		for _, l := range rule.Limits {
			if l.Period == o.period {
				own = ownLimit{spec: l.Spec}
				break
			}
		}
	}
	own.spec.Requests, own.spec.Period, own.spec.Burst = int64(o.requests), o.period, int64(o.burst)
	return own
}

// override has the limit of descriptor i decide instead of its rule's.
func (c *call) override(domain *config.Domain, o *outcome, i int) error {
	o.own = &c.descriptors[i].own
	l, err := c.decider.overrides.get(o.own.limit(domain, o.rule))
	if err != nil {
		return o.own.refused(i, err)
	}
	n := len(c.overrides)
	c.overrides = append(c.overrides, l)
	o.limits = c.overrides[n : n+1 : n+1]
	return nil
}

// refused says in the words of a request which numbers cannot be a limit.
func (o *override) refused(i int, err error) error {
	at := "numbers"
	if o.inUnits {
		at = "limit"
	}
	var spec *bucket.SpecError
	if !errors.As(err, &spec) {
		return invalid("descriptors[%d].%s: %v", i, at, err)
	}
	switch {
	case !o.inUnits:
		at += "." + spec.Field
	case spec.Field == "requests":
		at += ".requests_per_unit"
	}
	return invalid("descriptors[%d].%s: found %s; allowed: %s", i, at, spec.Found, spec.Allowed)
}

// overrideCache holds the limits of overrides that were asked for lately: to
// make one costs more than to decide it, and requests that ask the same limit
// travel to the store as one. Callers choose the numbers, so it is bounded.
type overrideCache struct {
	mu sync.RWMutex
	// A limit is made in recent, and found again in both. When recent is full,
	// it becomes older, and what was older is forgotten.
	recent, older map[ownLimit]*bucket.Limit
}

// cachedOverrides is how many limits each half of an overrideCache holds.
const cachedOverrides = 5000

// get returns the limit. Its error is that of making it.
func (c *overrideCache) get(own ownLimit) (*bucket.Limit, error) {
	c.mu.RLock()
	l := c.recent[own]
	c.mu.RUnlock()
	if l != nil {
		return l, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if l := c.recent[own]; l != nil {
		return l, nil
	}
	l = c.older[own]
	if l == nil {
		var err error
		if l, err = own.make(); err != nil {
			return nil, err
		}
	}
	if c.recent == nil || len(c.recent) == cachedOverrides {
		c.recent, c.older = make(map[ownLimit]*bucket.Limit), c.recent
	}
	c.recent[own] = l
	return l, nil
}

func (o ownLimit) make() (*bucket.Limit, error) {
	if o.byPeriod {
		return bucket.NewPeriodLimit(o.spec)
	}
	return bucket.NewLimit(o.spec)
}
