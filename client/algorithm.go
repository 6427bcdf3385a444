package client

import "github.com/ratelimitd/ratelimitd/internal/bucket"

// Algorithm names how a limit counts.
type Algorithm uint8

// The algorithms.
const (
	TokenBucket   = Algorithm(bucket.TokenBucket)
	GCRA          = Algorithm(bucket.GCRA)
	LeakyBucket   = Algorithm(bucket.LeakyBucket)
	FixedWindow   = Algorithm(bucket.FixedWindow)
	SlidingWindow = Algorithm(bucket.SlidingWindow)
	SlidingLog    = Algorithm(bucket.SlidingLog)
)

// String returns the algorithm's spelling in a limits file.
func (a Algorithm) String() string { return bucket.Algorithm(a).String() }

// IsBucket reports whether the algorithm is one of the three that drain
// continuously and so have a burst.
func (a Algorithm) IsBucket() bool { return bucket.Algorithm(a).IsBucket() }
