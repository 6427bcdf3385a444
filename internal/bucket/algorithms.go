package bucket

import (
	"fmt"
)

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

// HasHolders reports whether hits on limits of the algorithm name holders.
func (a Algorithm) HasHolders() bool { return a.isKnown() && algorithms[a].hasHolders }

// HasSpans reports whether the states of the algorithm have Spans.
func (a Algorithm) HasSpans() bool { return a.isKnown() && algorithms[a].hasSpans }
