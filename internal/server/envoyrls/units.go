package envoyrls

import (
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/decide"
	"github.com/ratelimitd/ratelimitd/internal/server/endpoint"
)

const day = 24 * time.Hour

// unit is a period with a name on the wire.
type unit struct {
	period time.Duration
	// inResponse names it in a response.
	inResponse rlsv3.RateLimitResponse_RateLimit_Unit
	// inRequest names it in a descriptor's own limit; UNKNOWN if it has no name there.
	inRequest typev3.RateLimitUnit
}

// units has all of them, the longest first.
var units = [...]unit{
	{365 * day, rlsv3.RateLimitResponse_RateLimit_YEAR, typev3.RateLimitUnit_YEAR},
	{30 * day, rlsv3.RateLimitResponse_RateLimit_MONTH, typev3.RateLimitUnit_MONTH},
	{7 * day, rlsv3.RateLimitResponse_RateLimit_WEEK, typev3.RateLimitUnit_UNKNOWN},
	{day, rlsv3.RateLimitResponse_RateLimit_DAY, typev3.RateLimitUnit_DAY},
	{time.Hour, rlsv3.RateLimitResponse_RateLimit_HOUR, typev3.RateLimitUnit_HOUR},
	{time.Minute, rlsv3.RateLimitResponse_RateLimit_MINUTE, typev3.RateLimitUnit_MINUTE},
	{time.Second, rlsv3.RateLimitResponse_RateLimit_SECOND, typev3.RateLimitUnit_SECOND},
}

// calendarUnits are the units of limits by calendar; a quarter has none.
var calendarUnits = map[bucket.CalendarUnit]rlsv3.RateLimitResponse_RateLimit_Unit{
	bucket.CalendarHour:  rlsv3.RateLimitResponse_RateLimit_HOUR,
	bucket.CalendarDay:   rlsv3.RateLimitResponse_RateLimit_DAY,
	bucket.CalendarWeek:  rlsv3.RateLimitResponse_RateLimit_WEEK,
	bucket.CalendarMonth: rlsv3.RateLimitResponse_RateLimit_MONTH,
	bucket.CalendarYear:  rlsv3.RateLimitResponse_RateLimit_YEAR,
}

// unitOf returns the period of a limit as a number of the longest unit that divides it:
// 90 s are 90 SECOND, and Envoy writes w=90 into its headers. A period that no unit
// divides is UNKNOWN, and Envoy leaves it out; so is a hold. A limit by calendar has its
// unit.
func unitOf(l *bucket.Limit) (rlsv3.RateLimitResponse_RateLimit_Unit, int64) {
	period := l.Period
	switch {
	case l.Calendar.Unit != bucket.NoCalendar:
		return calendarUnits[l.Calendar.Unit], 1
	case l.Algorithm.HasHolders():
		return rlsv3.RateLimitResponse_RateLimit_UNKNOWN, 1
	}
	for i := range units { // most periods are one unit
		if u := &units[i]; period == u.period {
			return u.inResponse, 1
		}
	}
	for i := range units {
		if u := &units[i]; period%u.period == 0 {
			return u.inResponse, int64(period / u.period)
		}
	}
	return rlsv3.RateLimitResponse_RateLimit_UNKNOWN, 1
}

// unitNamed returns the unit that a descriptor's own limit names, or nil.
func unitNamed(name typev3.RateLimitUnit) *unit {
	for i := range units {
		if u := &units[i]; u.inRequest == name && name != typev3.RateLimitUnit_UNKNOWN {
			return u
		}
	}
	return nil
}

// own is a limit that a descriptor brings with it, as Envoy sends it.
type own struct {
	requests uint32
	unit     typev3.RateLimitUnit
	// multiplier, if hasMultiplier, is how many units the period has.
	multiplier    uint64
	hasMultiplier bool
}

// override returns the limit of descriptor i.
func (o *own) override(i int) decide.Override {
	limit := decide.Override{
		Set: true, Requests: uint64(o.requests), Names: &limitNames,
		Spelling: decide.Spelling{Unit: int32(o.unit), Multiplier: uint32(o.multiplier), HasMultiplier: o.hasMultiplier},
	}
	limit.Period, limit.Invalid = o.period(i)
	return limit
}

func (o *own) period(i int) (time.Duration, error) {
	u := unitNamed(o.unit)
	if u == nil {
		return 0, endpoint.Invalid("descriptors[%d].limit.unit: found %s; allowed: SECOND, MINUTE, HOUR, DAY, MONTH, YEAR", i, o.unit)
	}
	if !o.hasMultiplier {
		return u.period, nil
	}
	n := uint32(o.multiplier)
	if maxMultiplier := int64(bucket.MaxPeriod / u.period); n < 1 || int64(n) > maxMultiplier {
		return 0, endpoint.Invalid("descriptors[%d].limit.unit_multiplier: found %d; allowed: 1 to %d for the unit %s", i, n, maxMultiplier, o.unit)
	}
	return u.period * time.Duration(n), nil
}

// limitNames are the names of a RateLimitOverride.
var limitNames = decide.OwnNames{Whole: "limit", Fields: map[string]string{"requests": "limit.requests_per_unit"}}
