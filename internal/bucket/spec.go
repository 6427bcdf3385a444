package bucket

import (
	"errors"
	"fmt"
	"strconv"
)

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
