package bucket

import (
	"fmt"
)

// Algorithm names how a limit counts.
type Algorithm uint8

// The algorithms. TokenBucket, GCRA and LeakyBucket admit the same requests;
// LeakyBucket also says how long to hold each one to get an even stream. Concurrency
// counts requests in flight, all others requests per period.
const (
	TokenBucket Algorithm = iota + 1
	GCRA
	LeakyBucket
	FixedWindow
	SlidingWindow
	SlidingLog
	Concurrency
)

// algorithm is what the limits of an Algorithm are and do. The functions are steps on a
// State, and promise what the methods of Limit in step.go and mend.go do; they are called
// only for limits with requests above 0, and for those with holders. TestTableIsWhole says
// which of them an algorithm may lack.
type algorithm struct {
	name string
	// maxRequests bounds the requests of a Spec, and whyMaxRequests says why.
	maxRequests    int64
	whyMaxRequests string
	// hasBurst is whether what was taken comes back gradually, so that the capacity may
	// differ from the requests.
	hasBurst bool
	// hasSubWindows is whether a Spec may have SubWindows.
	hasSubWindows bool
	// hasSpans is whether a State has Spans, which grow with the hits.
	hasSpans bool
	// hasHolders is whether hits name holders: then a negative cost releases what the
	// holder has, whatever its group gets.
	hasHolders bool

	// derive sets what a Limit has besides its Spec; nil if that is nothing.
	derive func(l *Limit) error
	decide func(l *Limit, s *State, clock int64, demand Demand) Decision
	// charge reports false if it found nothing to do.
	charge func(l *Limit, s *State, clock int64, demand Demand) (wrote bool)
	// giveBack gives the demand's cost back, which is all or a part of what a hit took.
	// before is what its caller took earlier and still has, if that is known.
	giveBack func(l *Limit, s *State, clock int64, demand Demand, took, before Portion)
	// level returns how much of a state still counts at clock, in units of a bucket or else
	// in costs; nil if a hit with a cost is no charge.
	level func(l *Limit, s *State, clock int64) int64
	// remaining is what remains by a state that was just written.
	remaining func(l *Limit, s *State) int64
	// mend is for a state whose last moment is further ahead than the skew.
	mend func(l *Limit, s *State, clock, skew int64) bool
	// numbers is Limit.Numbers; nil if there are none.
	numbers func(l *Limit) [4]int64
	// periodEnd is the end of the limit's period that contains at; nil if periods do not
	// begin at certain moments.
	periodEnd func(l *Limit, at int64) int64
}

// algorithms is the table of all algorithms.
var algorithms = [...]algorithm{
	TokenBucket:   tokenBucket("token_bucket"),
	GCRA:          tokenBucket("gcra"),
	LeakyBucket:   tokenBucket("leaky_bucket"),
	FixedWindow:   fixedWindow(),
	SlidingWindow: slidingWindow(),
	SlidingLog:    slidingLog(),
	Concurrency:   concurrency(),
}

func (l *Limit) algorithm() *algorithm { return &algorithms[l.Algorithm] }

func (a Algorithm) isKnown() bool { return a > 0 && int(a) < len(algorithms) }

// Algorithms lists the algorithms in the order in which they are documented.
func Algorithms() (all []Algorithm) {
	for a := TokenBucket; a.isKnown(); a++ {
		all = append(all, a)
	}
	return all
}

// String returns the one spelling of the algorithm, as in a limits file.
func (a Algorithm) String() string {
	if !a.isKnown() {
		return fmt.Sprintf("Algorithm(%d)", uint8(a))
	}
	return algorithms[a].name
}

// ParseAlgorithm returns the algorithm of that name.
func ParseAlgorithm(name string) (Algorithm, error) {
	for a := range algorithms {
		if algorithms[a].name == name && Algorithm(a).isKnown() {
			return Algorithm(a), nil
		}
	}
	return 0, fmt.Errorf("%q is no algorithm", name)
}

// IsBucket reports whether the algorithm is one of the three that drain
// continuously and so have a burst.
func (a Algorithm) IsBucket() bool { return a.isKnown() && algorithms[a].hasBurst }

// MaxRequests returns the most requests that a limit of the algorithm may have.
func (a Algorithm) MaxRequests() int64 { return algorithms[a].maxRequests }

// HasHolders reports whether hits on limits of the algorithm name holders.
func (a Algorithm) HasHolders() bool { return a.isKnown() && algorithms[a].hasHolders }

// HasSpans reports whether the states of the algorithm have Spans.
func (a Algorithm) HasSpans() bool { return a.isKnown() && algorithms[a].hasSpans }
