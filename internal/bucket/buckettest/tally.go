package buckettest

import (
	"maps"
	"sync"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// Tally adds up what traces count by algorithm. The zero Tally is empty; its
// methods may be called concurrently.
type Tally struct {
	mu    sync.Mutex
	total map[bucket.Algorithm]int
}

// Add adds the counts of a trace.
func (t *Tally) Add(counts map[bucket.Algorithm]int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.total == nil {
		t.total = map[bucket.Algorithm]int{}
	}
	for a, n := range counts {
		t.total[a] += n
	}
}

// Total returns the sums.
func (t *Tally) Total() map[bucket.Algorithm]int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.total)
}
