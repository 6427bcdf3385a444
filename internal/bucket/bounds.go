package bucket

import (
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

// MaxCost bounds what one hit can cost or refund. A larger cost counts as MaxCost,
// which exceeds the capacity of every limit.
const MaxCost = MaxRequests + 1
