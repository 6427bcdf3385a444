// Package bucket says what a limit does: its numbers, the arithmetic of each
// algorithm, the key of its state, and what a store of states must promise. It
// imports nothing of the project.
//
// A Limit is an algorithm with its numbers. Its State is what it remembers
// about one key. Decide returns what a hit of some cost would get, Charge writes
// the hit into the state, GiveBack takes it out again, and Mend comes before each
// of them where clocks may step. All four are arithmetic on their arguments alone:
// no clock is read and nothing is sent. A Store keeps the states and runs these
// steps atomically for all hits of a group.
//
// # Time
//
// A moment is an int64 of microseconds since the Unix epoch on the store's
// clock. Windows and logs count in microseconds; a bucket counts in its own
// Quantum, the finest of 1 us, 1 ms, 1 s and 1 min in which its numbers fit. For
// one key time never runs backwards: a clock behind the state's last write counts
// as the moment of that write. A clock further behind than right clocks can be
// means that a wrong clock wrote the state, and Mend puts it in order.
//
// # Exactness
//
// All arithmetic is on integers that stay under 2^53, so that a script whose
// numbers are IEEE doubles computes the very same decisions. Rounding only
// ever favours the limit: what remains is rounded down, waits are rounded up.
package bucket

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"strconv"
	"sync/atomic"
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

// Spec holds the numbers of a limit as a person writes them.
type Spec struct {
	// Name tells apart the limits of one rule; it may be empty.
	Name      string
	Algorithm Algorithm
	// Requests per Period, 0 to MaxRequests; 0 denies always. For a concurrency they are
	// how many may hold at once, at most MaxHolders.
	Requests int64
	// Period in whole milliseconds, MinPeriod to MaxPeriod. For a concurrency it is the
	// hold: how long a holder that is not heard of keeps its slot. With a Calendar it is 0
	// or Calendar.Period, and nothing is computed with it.
	Period time.Duration
	// Calendar says when the windows of a fixed_window begin, in place of Period.
	Calendar Calendar
	// Burst is the capacity of a bucket; 0 means Requests.
	Burst int64
	// SubWindows is the resolution of a sliding_window, 1 to MaxSubWindows;
	// 0 means DefaultSubWindows.
	SubWindows int64
	// Postpaid says when a charge is for what was already used.
	Postpaid Postpaid
	// OnStoreFailure says what decides when the store does not.
	OnStoreFailure FailureMode
	// Unenforced is the share of the subjects for whom the limit counts and denies
	// nothing, in hundredths of a percent: 0 to AllSubjects.
	Unenforced int64
}

// Limit is a Spec with the numbers derived from it. NewLimit makes it. A Limit
// does not change afterwards, and may be used concurrently.
type Limit struct {
	Spec

	// Capacity is the most that can be taken at once: a bucket's burst, a
	// window's requests.
	Capacity int64
	// PeriodMicros is Period in microseconds.
	PeriodMicros int64

	// Quantum is the length of a bucket's tick in microseconds.
	Quantum int64
	// A token of a bucket is divided into Unit units, of which Rate drain per
	// quantum: Unit / Rate = Period / Requests, in lowest terms.
	Unit, Rate int64
	// full is Capacity in units; at most maxLevel.
	full int64
	// MaxDebt in units bounds the debt of a bucket that is charged beyond its
	// capacity; at least full.
	MaxDebt int64

	// SlotMicros is how long a slot of a sliding window gathers hits; a
	// sliding_log's stamps are slots of one microsecond.
	SlotMicros int64

	// calendar has the windows of a limit with a Calendar; otherwise it is nil.
	calendar *calendarWindows

	// suffix is the end of every key of this limit.
	suffix      string
	fingerprint uint64 // see Fingerprint

	// isReported is set on what Reported returns for a limit with PostpaidAuto,
	// and reported is that limit, once it was asked for.
	isReported bool
	reported   atomic.Pointer[Limit]

	// share is the last one that was asked for, or nil.
	share atomic.Pointer[share]
}

// SpecError says which number of a Spec is not allowed, and why.
type SpecError struct {
	// Field is the number's name in a limits file, such as "period".
	Field string
	// Found is the offending value, and Allowed says which values are allowed.
	Found, Allowed string
}

// Error implements error.
func (e *SpecError) Error() string {
	return fmt.Sprintf("%s: found %s; allowed: %s", e.Field, e.Found, e.Allowed)
}

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

// Reported returns the limit that decides a hit whose cost is what a caller reports as
// used. With PostpaidAuto that is a limit of its own, with the same key and state;
// otherwise it is the limit itself. A second call does not allocate.
func (l *Limit) Reported() *Limit {
	if l.Postpaid != PostpaidAuto || l.isReported {
		return l
	}
	if r := l.reported.Load(); r != nil {
		return r
	}
	r, err := NewLimit(l.Spec)
	if err != nil {
		panic(fmt.Sprintf("bucket: the numbers of a limit, %+v, make no limit: %v", l.Spec, err))
	}
	r.suffix, r.isReported = l.suffix, true
	l.reported.CompareAndSwap(nil, r) // one for all, so that equal hits have equal limits
	return l.reported.Load()
}

// Fingerprint is a hash of the numbers that a state is counted with, the same in
// every process. Postpaid, OnStoreFailure and Unenforced are not in it: a
// state does not depend on them.
func (l *Limit) Fingerprint() uint64 { return l.fingerprint }

// CountsAs reports whether both limits keep a subject's state under the same key,
// and count it with the same numbers.
func (l *Limit) CountsAs(other *Limit) bool {
	return l.fingerprint == other.fingerprint && l.suffix == other.suffix
}

// Numbers are what the steps compute with, besides Capacity and Charging, for code that
// computes them elsewhere: for a bucket Quantum, Unit, Rate and MaxDebt, for a window its
// period, for a sliding one also its slot. For a limit that always denies it is the
// period, if periods begin at certain moments.
func (l *Limit) Numbers() [4]int64 {
	a := l.algorithm()
	switch {
	case l.looksAtState():
		return a.numbers(l)
	case a.periodEnd != nil:
		return [4]int64{l.PeriodMicros}
	}
	return [4]int64{}
}

func (l *Limit) hashNumbers() uint64 {
	var b [4 * 8]byte
	for i, n := range [...]int64{l.Requests, l.PeriodMicros, l.Burst, l.SubWindows} {
		binary.LittleEndian.PutUint64(b[8*i:], uint64(n))
	}
	h := fnv.New64a()
	_, _ = h.Write(b[:]) // never fails
	if l.calendar != nil {
		_, _ = io.WriteString(h, l.Calendar.String())
	}
	return h.Sum64()
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// ceilDiv returns a / b rounded up, for a >= 0 and b > 0.
func ceilDiv(a, b int64) int64 { return (a + b - 1) / b }
