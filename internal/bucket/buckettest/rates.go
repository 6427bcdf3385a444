package buckettest

import (
	"slices"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// Rates lists the algorithms that count requests per period: all but those with holders,
// whose hits name who takes and cost 1 at most.
func Rates() []bucket.Algorithm {
	return slices.DeleteFunc(bucket.Algorithms(), bucket.Algorithm.HasHolders)
}
