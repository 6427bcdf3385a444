package bucket

import (
	"errors"
	"fmt"
	"strconv"
	"time"
)

// Bounds of a limit's numbers.
const (
	// MaxRequests is the largest number of requests, and the largest burst. A bucket may
	// allow less, beside its period.
	MaxRequests = 1 << 52
	// MaxPeriod is the longest period, and the longest time in which a full
	// bucket may drain.
	MaxPeriod = 366 * 24 * time.Hour
	// MinPeriod is the shortest period, and what periods are multiples of.
	MinPeriod = time.Millisecond
	// MaxLogRequests bounds a sliding_log, which keeps a stamp per hit.
	MaxLogRequests = 1000
	// MaxSubWindows bounds the resolution of a sliding_window.
	MaxSubWindows = 60
	// MinBlockFor and MaxBlockFor bound BlockFor, which is in whole milliseconds.
	MinBlockFor = time.Second
	MaxBlockFor = 30 * 24 * time.Hour
	// AllowedBlockFor says so.
	AllowedBlockFor = "1s to 30d in whole milliseconds"
	// MaxLease is the longest lease, and the shortest is MinPeriod, as AllowedLease says.
	MaxLease     = time.Second
	AllowedLease = "1ms to 1s in whole milliseconds"
	// DefaultSubWindows is the resolution of a sliding_window whose Spec has 0.
	DefaultSubWindows = 10

	// maxLevel bounds capacities, debts and counts: the sum of any two of them is
	// still exact in a double. Only the largest limits, charges of use, or a state that
	// was carried over to far larger units, can reach it; such a level stays there.
	maxLevel = MaxRequests
	// maxDrain bounds how long a debt can last, in microseconds.
	maxDrain = int64(10 * MaxPeriod / time.Microsecond)
	// maxSpans bounds the slots or stamps of one state. Only charges of use can need
	// more; these join the newest one.
	maxSpans = MaxLogRequests
)

// MaxCost bounds what one hit can cost or refund. A larger cost counts as MaxCost,
// which exceeds the capacity of every limit.
const MaxCost = MaxRequests + 1

// NewLimit checks the numbers of a Spec and derives the rest. Its error joins a
// *SpecError for each number that is not allowed.
func NewLimit(s Spec) (*Limit, error) {
	if s.Calendar.Unit.isKnown() && s.Period == 0 {
		s.Period = s.Calendar.Period()
	}
	if err := s.check(); err != nil {
		return nil, err
	}
	l := &Limit{Spec: s, Capacity: s.Requests, PeriodMicros: s.Period.Microseconds(), Quantum: 1}
	l.suffix = "#" + s.Algorithm.String()
	if s.Name != "" {
		l.suffix += ":" + string(appendEscaped(nil, s.Name))
	}
	if derive := l.algorithm().derive; derive != nil {
		if err := derive(l); err != nil {
			return nil, err
		}
	}
	if s.Calendar != (Calendar{}) {
		l.calendar = &calendarWindows{Calendar: s.Calendar}
	}
	l.fingerprint = l.hashNumbers()
	return l, nil
}

// NewPeriodLimit is NewLimit for a limit whose period the caller of the daemon
// chooses. Each period has keys of its own, so that two periods on one descriptor
// are two limits.
func NewPeriodLimit(s Spec) (*Limit, error) {
	l, err := NewLimit(s)
	if err != nil {
		return nil, err
	}
	l.suffix += "#" + strconv.FormatInt(s.Period.Milliseconds(), 10)
	return l, nil
}

// check looks at each number by itself.
func (s *Spec) check() error {
	var errs []error
	bad := func(field string, found any, allowed string, args ...any) {
		errs = append(errs, &SpecError{Field: field, Found: fmt.Sprint(found), Allowed: fmt.Sprintf(allowed, args...)})
	}
	of := &algorithm{maxRequests: MaxRequests, hasBurst: true, hasSubWindows: true}
	if s.Algorithm.isKnown() {
		of = &algorithms[s.Algorithm]
	} else {
		bad("algorithm", s.Algorithm, "%v", Algorithms())
	}
	if s.Requests < 0 || s.Requests > of.maxRequests {
		bad("requests", s.Requests, "0 to %d%s", of.maxRequests, of.whyMaxRequests)
	}
	s.checkCalendar(bad)
	if s.Period < MinPeriod || s.Period > MaxPeriod || s.Period%MinPeriod != 0 {
		bad("period", s.Period, "1ms to 366d in whole milliseconds")
	}
	switch {
	case s.Burst != 0 && !of.hasBurst:
		bad("burst", s.Burst, "no burst on a %s, only on token_bucket, gcra and leaky_bucket", s.Algorithm)
	case s.Burst < 0 || s.Burst > MaxRequests:
		bad("burst", s.Burst, "1 to %d", int64(MaxRequests))
	case s.Burst != 0 && s.Requests == 0:
		bad("burst", s.Burst, "no burst beside requests 0, which deny always")
	}
	if s.Postpaid != PostpaidNever && of.hasHolders {
		bad("postpaid", s.Postpaid, "no postpaid on a %s, where nothing is used up", s.Algorithm)
	}
	if s.BlockFor != 0 {
		s.checkBlockFor(bad, of.hasHolders)
	}
	s.checkLease(bad)
	if s.Unenforced < 0 || s.Unenforced > AllSubjects {
		bad("enforce", fmt.Sprintf("%d of %d subjects unenforced", s.Unenforced, AllSubjects), "0%% to 100%%")
	}
	switch {
	case s.SubWindows != 0 && !of.hasSubWindows:
		bad("sub_windows", s.SubWindows, "no sub_windows on a %s, only on sliding_window", s.Algorithm)
	case s.SubWindows < 0 || s.SubWindows > MaxSubWindows:
		bad("sub_windows", s.SubWindows, "1 to %d", MaxSubWindows)
	}
	return errors.Join(errs...)
}

// IsBlockFor reports whether a time is one of AllowedBlockFor.
func IsBlockFor(d time.Duration) bool {
	return d >= MinBlockFor && d <= MaxBlockFor && d%MinPeriod == 0
}

// checkBlockFor looks at BlockFor, which is not 0.
func (s *Spec) checkBlockFor(bad func(field string, found any, allowed string, args ...any), hasHolders bool) {
	switch {
	case hasHolders, s.Algorithm == LeakyBucket:
		bad("block_for", s.BlockFor, "no block_for on a %s, only on token_bucket, gcra and windows", s.Algorithm)
	case s.Postpaid != PostpaidNever:
		bad("block_for", s.BlockFor, "no block_for beside postpaid %s, since a pause cannot stop what was used already", s.Postpaid)
	case !IsBlockFor(s.BlockFor):
		bad("block_for", s.BlockFor, AllowedBlockFor)
	}
}

// checkCalendar looks at the calendar and the numbers that do not go with one.
func (s *Spec) checkCalendar(bad func(field string, found any, allowed string, args ...any)) {
	c := s.Calendar
	switch {
	case c == (Calendar{}):
		return
	case !c.Unit.isKnown():
		bad("calendar", c.Unit, "%v", CalendarUnits())
		return
	case s.Algorithm != FixedWindow:
		bad("calendar", c.Unit, "no calendar on a %s, only on fixed_window", s.Algorithm)
	case s.Period != c.Period():
		bad("period", s.Period, "no period beside a calendar")
	}
	if !c.Starts.Fit(c.Unit) {
		bad("starts", c.Starts, "%s, for a calendar %s", AllowedStarts(c.Unit), c.Unit)
	}
	if c.Zone == nil {
		bad("time_zone", "none", "a time zone")
	}
}

// Postpaid says when the cost of a hit is what was already used, which is charged
// in full.
type Postpaid uint8

const (
	// PostpaidNever charges only what is allowed.
	PostpaidNever Postpaid = iota
	// PostpaidAlways charges every cost in full.
	PostpaidAlways
	// PostpaidAuto charges in full what a caller reports by itself, as
	// envoyproxy/ratelimit does, and everything else only if it is allowed. See Reported.
	PostpaidAuto
)

var postpaidNames = [...]string{PostpaidNever: "false", PostpaidAlways: "true", PostpaidAuto: "auto"}

// String returns the value as in a limits file.
func (p Postpaid) String() string {
	if int(p) >= len(postpaidNames) {
		return fmt.Sprintf("Postpaid(%d)", uint8(p))
	}
	return postpaidNames[p]
}

// Charging says which hits a limit allows and charges. A cost above 0 is charged
// either if it and its group are allowed, or always: beyond the capacity too, and
// whatever the group gets. The script on Redis has the same values.
type Charging uint8

const (
	// ChargesAdmitted: a cost is allowed if it fits into what remains, and a peek
	// if a cost of 1 does. What is not allowed is not charged.
	ChargesAdmitted Charging = iota
	// ChargesUse: a cost is always charged. Costs and peeks are allowed while
	// anything remains.
	ChargesUse
	// ChargesReported: a cost is always charged, and allowed if it fits into what
	// remains. A peek is allowed unless more than the capacity was charged. It is
	// what envoyproxy/ratelimit does with hits_addend.
	ChargesReported
)

// FailureMode says what decides for a limit when its store does not.
type FailureMode uint8

const (
	// FailureDefault is the daemon's setting, failure.mode.
	FailureDefault FailureMode = iota
	// FailLocal decides in this process, by this daemon's share of the limit.
	FailLocal
	// FailAllow allows.
	FailAllow
	// FailDeny denies.
	FailDeny
	// FailError fails the request.
	FailError
)

var failureModeNames = [...]string{FailLocal: "local", FailAllow: "allow", FailDeny: "deny", FailError: "error"}

// FailureModes lists the modes that have a name.
func FailureModes() []FailureMode { return []FailureMode{FailLocal, FailAllow, FailDeny, FailError} }

// String returns the one spelling of the mode, as in a limits file.
func (m FailureMode) String() string {
	if m == FailureDefault || int(m) >= len(failureModeNames) {
		return fmt.Sprintf("FailureMode(%d)", uint8(m))
	}
	return failureModeNames[m]
}
