package bucket

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"io"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"
)

// Spec holds the numbers of a limit as a person writes them.
type Spec struct {
	// Name distinguishes the limits of one rule; it may be empty.
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
	// BlockFor is how long all of a key is denied once a hit was, 0 for no longer than
	// what was charged says. See Pause.
	BlockFor time.Duration
	// OnStoreFailure says what decides when the store does not.
	OnStoreFailure FailureMode
	// Lease is for how long a caller may use what it was granted, without asking: 0, or
	// MinPeriod to MaxLease in whole milliseconds, and at most a tenth of the time in which
	// a burst refills, or of a window.
	Lease time.Duration
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
	// full is the most debt that a bucket may have, in units: Capacity, and Leeway; at
	// most maxLevel.
	full int64
	// Leeway is what a Lease costs: how much drains from a bucket meanwhile, in units, or
	// its microseconds for a sliding window or log. See lease.go.
	Leeway int64
	// spare is how long a bucket that is full to its Leeway drains, in microseconds.
	spare int64
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

// share is the share of a limit for n daemons.
type share struct {
	n     int
	limit *Limit
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

// Borders returns the borders of two windows of a limit with a Calendar: the start of the
// one that contains a moment, its end, and the end of the next; all in microseconds since
// the Unix epoch. For a limit without a Calendar ok is false.
func (l *Limit) Borders(at int64) (b [3]int64, ok bool) {
	if l.calendar == nil {
		return b, false
	}
	return *l.calendar.borders(at), true
}

// ResetAt returns when the window of a limit with a Calendar ends in which a decision was
// made, in microseconds since the Unix epoch. It is 0 for other limits, and for decisions
// that know no moment. What was counted by earlier numbers, and was not written since, may
// end before: ResetAfter says that.
func (l *Limit) ResetAt(d *Decision) int64 {
	if l.calendar == nil || d.At == 0 {
		return 0
	}
	return l.calendar.borders(d.At)[1]
}

// PeriodAt returns the Period of a limit, or with a Calendar the length of the window in
// which a decision was made, if the decision knows its moment.
func (l *Limit) PeriodAt(d *Decision) time.Duration {
	if l.calendar == nil || d.At == 0 {
		return l.Period
	}
	b := l.calendar.borders(d.At)
	return micros(b[1] - b[0])
}

// Charging returns how the limit is charged.
func (l *Limit) Charging() Charging {
	switch {
	case l.Postpaid == PostpaidAlways:
		return ChargesUse
	case l.isReported:
		return ChargesReported
	default:
		return ChargesAdmitted
	}
}

// claim returns how much of the capacity must be free for a hit whose cost is not a
// refund.
func (l *Limit) claim(cost int64) int64 {
	switch l.Charging() {
	case ChargesUse:
		return 1
	case ChargesReported:
		return cost
	default:
		return max(1, cost)
	}
}

// Fingerprint is a hash of the numbers that a state is counted with, the same in
// every process. Postpaid, BlockFor, OnStoreFailure and Unenforced are not in it: what a
// state has counted does not depend on them.
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
	if l.Leeway != 0 {
		_, _ = fmt.Fprint(h, " leeway ", l.Leeway)
	}
	return h.Sum64()
}

// AllSubjects is all subjects in the unit of Unenforced, and so the Unenforced of a limit
// that denies no subject.
const AllSubjects = 10_000

// Enforces reports whether the limit may deny a subject, as AppendSubject makes it.
// Limits with the same Unenforced enforce the same subjects, on every daemon and after
// every restart, and subjects stay enforced when Unenforced falls.
func (l *Limit) Enforces(subject []byte) bool {
	switch l.Unenforced {
	case 0:
		return true
	case AllSubjects:
		return false
	}
	return xxhash.Sum64(subject)%AllSubjects < uint64(AllSubjects-l.Unenforced)
}
