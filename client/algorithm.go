package client

import "github.com/ratelimitd/ratelimitd/internal/bucket"

// Algorithm names how a limit counts.
type Algorithm uint8

// The algorithms.
const (
	TokenBucket   Algorithm = Algorithm(bucket.TokenBucket)
	GCRA          Algorithm = Algorithm(bucket.GCRA)
	LeakyBucket   Algorithm = Algorithm(bucket.LeakyBucket)
	FixedWindow   Algorithm = Algorithm(bucket.FixedWindow)
	SlidingWindow Algorithm = Algorithm(bucket.SlidingWindow)
	SlidingLog    Algorithm = Algorithm(bucket.SlidingLog)
)

// String returns the algorithm's spelling in a limits file.
func (a Algorithm) String() string { return bucket.Algorithm(a).String() }

// IsBucket reports whether the algorithm is TokenBucket, GCRA or LeakyBucket:
// these have a burst.
func (a Algorithm) IsBucket() bool { return bucket.Algorithm(a).IsBucket() }
