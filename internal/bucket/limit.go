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
	"strconv"
	"sync/atomic"
	"time"
)

// Bounds of a limit's numbers.
const (
	// MaxRequests is the largest number of requests, and the largest burst: the
	// wire has 32 bits for them.
	MaxRequests = 1<<32 - 1
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
	// still exact in a double. Only charges of use, or a state that was carried
	// over to far larger units, can reach it; such a level stays there.
	maxLevel = 1 << 52
	// maxDrain bounds how long a debt can last, in microseconds.
	maxDrain = int64(10 * MaxPeriod / time.Microsecond)
	// maxSpans bounds the slots or stamps of one state. Only charges of use
	// can need more; they join the newest one then.
	maxSpans = MaxLogRequests
)

// Algorithm names how a limit counts.
type Algorithm uint8

// The algorithms. TokenBucket, GCRA and LeakyBucket admit the same requests;
// LeakyBucket also says how long to hold each one to get an even stream.
const (
	TokenBucket Algorithm = iota + 1
	GCRA
	LeakyBucket
	FixedWindow
	SlidingWindow
	SlidingLog
)

var algorithmNames = [...]string{
	TokenBucket:   "token_bucket",
	GCRA:          "gcra",
	LeakyBucket:   "leaky_bucket",
	FixedWindow:   "fixed_window",
	SlidingWindow: "sliding_window",
	SlidingLog:    "sliding_log",
}

// Algorithms lists every algorithm, in the order in which they are documented.
func Algorithms() []Algorithm {
	return []Algorithm{TokenBucket, GCRA, LeakyBucket, FixedWindow, SlidingWindow, SlidingLog}
}

// String returns the one spelling of the algorithm, as in a limits file.
func (a Algorithm) String() string {
	if a == 0 || int(a) >= len(algorithmNames) {
		return fmt.Sprintf("Algorithm(%d)", uint8(a))
	}
	return algorithmNames[a]
}

// ParseAlgorithm returns the algorithm of that name.
func ParseAlgorithm(name string) (Algorithm, error) {
	for _, a := range Algorithms() {
		if algorithmNames[a] == name {
			return a, nil
		}
	}
	return 0, fmt.Errorf("%q is no algorithm", name)
}

// IsBucket reports whether the algorithm is one of the three that drain
// continuously and so have a burst.
func (a Algorithm) IsBucket() bool { return a >= TokenBucket && a <= LeakyBucket }

// Spec holds the numbers of a limit as a person writes them.
type Spec struct {
	// Name tells apart the limits of one rule; it may be empty.
	Name      string
	Algorithm Algorithm
	// Requests per Period, 0 to MaxRequests; 0 denies always.
	Requests int64
	// Period in whole milliseconds, MinPeriod to MaxPeriod.
	Period time.Duration
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
	if err := s.check(); err != nil {
		return nil, err
	}
	l := &Limit{Spec: s, Capacity: s.Requests, PeriodMicros: s.Period.Microseconds(), Quantum: 1}
	l.suffix = "#" + s.Algorithm.String()
	if s.Name != "" {
		l.suffix += ":" + string(appendEscaped(nil, s.Name))
	}
	switch s.Algorithm {
	case SlidingLog:
		l.SlotMicros = 1
	case SlidingWindow:
		if l.SubWindows == 0 {
			l.SubWindows = DefaultSubWindows
		}
		l.SlotMicros = ceilDiv(l.PeriodMicros, l.SubWindows)
	case TokenBucket, GCRA, LeakyBucket:
		if l.Burst == 0 {
			l.Burst = l.Requests
		}
		l.Capacity = l.Burst
		if l.Requests > 0 {
			if err := l.deriveUnits(); err != nil {
				return nil, err
			}
		}
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
		errs = append(errs, &SpecError{field, fmt.Sprint(found), fmt.Sprintf(allowed, args...)})
	}
	if s.Algorithm < TokenBucket || s.Algorithm > SlidingLog {
		bad("algorithm", s.Algorithm, "%v", Algorithms())
	}
	switch {
	case s.Requests < 0 || s.Requests > MaxRequests:
		bad("requests", s.Requests, "0 to %d", int64(MaxRequests))
	case s.Algorithm == SlidingLog && s.Requests > MaxLogRequests:
		bad("requests", s.Requests, "0 to %d for a sliding_log, which keeps a stamp per request; a sliding_window takes more", MaxLogRequests)
	}
	if s.Period < MinPeriod || s.Period > MaxPeriod || s.Period%MinPeriod != 0 {
		bad("period", s.Period, "1ms to 366d in whole milliseconds")
	}
	switch {
	case s.Burst != 0 && s.Algorithm != 0 && !s.Algorithm.IsBucket():
		bad("burst", s.Burst, "no burst on a %s, only on token_bucket, gcra and leaky_bucket", s.Algorithm)
	case s.Burst < 0 || s.Burst > MaxRequests:
		bad("burst", s.Burst, "1 to %d", int64(MaxRequests))
	case s.Burst != 0 && s.Requests == 0:
		bad("burst", s.Burst, "no burst beside requests 0, which deny always")
	}
	if s.Unenforced < 0 || s.Unenforced > AllSubjects {
		bad("enforce", fmt.Sprintf("%d of %d subjects unenforced", s.Unenforced, AllSubjects), "0%% to 100%%")
	}
	switch {
	case s.SubWindows != 0 && s.Algorithm != 0 && s.Algorithm != SlidingWindow:
		bad("sub_windows", s.SubWindows, "no sub_windows on a %s, only on sliding_window", s.Algorithm)
	case s.SubWindows < 0 || s.SubWindows > MaxSubWindows:
		bad("sub_windows", s.SubWindows, "1 to %d", MaxSubWindows)
	}
	return errors.Join(errs...)
}

// Reported returns the limit as it decides a hit whose cost is what was used, as a
// caller reports it. With PostpaidAuto that is a limit of its own, with the same
// key and state; else it is the limit itself. A second call does not allocate.
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

func (l *Limit) hashNumbers() uint64 {
	var b [4 * 8]byte
	for i, n := range [...]int64{l.Requests, l.PeriodMicros, l.Burst, l.SubWindows} {
		binary.LittleEndian.PutUint64(b[8*i:], uint64(n))
	}
	h := fnv.New64a()
	_, _ = h.Write(b[:]) // never fails
	return h.Sum64()
}

// quanta are the possible ticks of buckets in microseconds, the finest first.
var quanta = [...]int64{1, 1e3, 1e6, 60e6}

// deriveUnits chooses the quantum of a bucket and counts its numbers in it.
func (l *Limit) deriveUnits() error {
	if most := mostToRefill(l.Requests, l.Period); l.Burst > most {
		days := float64(l.Burst) * l.Period.Hours() / 24 / float64(l.Requests)
		return &SpecError{
			Field:   "burst",
			Found:   fmt.Sprintf("%d, which needs %.0f days to refill", l.Burst, days),
			Allowed: fmt.Sprintf("at most %d here: a burst refills within 366 days", most),
		}
	}
	for _, q := range quanta {
		if l.PeriodMicros%q != 0 {
			break
		}
		period := l.PeriodMicros / q
		g := gcd(l.Requests, period)
		unit, rate := period/g, l.Requests/g
		if l.Burst > maxLevel/unit {
			continue
		}
		l.Quantum, l.Unit, l.Rate = q, unit, rate
		l.full = l.Burst * unit
		l.MaxDebt = maxLevel
		if ticks := maxDrain / q; ticks <= maxLevel/rate {
			l.MaxDebt = ticks * rate
		}
		return nil
	}
	return &SpecError{
		Field:   "period",
		Found:   fmt.Sprintf("%s beside %d requests and a burst of %d, which cannot be counted exactly", l.Period, l.Requests, l.Burst),
		Allowed: "a period in whole seconds or minutes for numbers this large",
	}
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// ceilDiv returns a / b rounded up, for a >= 0 and b > 0.
func ceilDiv(a, b int64) int64 { return (a + b - 1) / b }
