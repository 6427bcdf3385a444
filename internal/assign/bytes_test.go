//go:build !race

// What takes memory is counted without the race detector, which takes some itself;
// make test runs this file without it.

package assign_test

import (
	"fmt"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/assign"
	"github.com/ratelimitd/ratelimitd/internal/bucket/heaptest"
)

// bytesOf returns how many bytes each of many assignments takes, and has them removed.
func bytesOf(t *testing.T, change func(*assign.Assignment, int)) float64 {
	t.Helper()
	const n = 250_000 // the maps are as full as with a million
	before := heaptest.InUse()
	table := assign.NewTable()
	fillWith(table, n, change)
	used := float64(heaptest.InUse()-before) / float64(n)
	for i := range n {
		table.Delete(subject("api", fmt.Sprintf("tenant=acme-%06d", i)), "")
	}
	if table.Len() != 0 || table.Domain("api") != nil {
		t.Errorf("%d remain", table.Len())
	}
	return used
}

// TestAssignmentTakesFewBytes must not run in parallel.
func TestAssignmentTakesFewBytes(t *testing.T) {
	if testing.Short() {
		t.Skip("fills a large table")
	}
	for _, c := range []struct {
		name   string
		max    float64
		change func(*assign.Assignment, int)
	}{
		{"a plan", 190, func(*assign.Assignment, int) {}},
		{"numbers of two limits", 320, func(a *assign.Assignment, i int) {
			a.Base.Numbers = []assign.Numbers{{Limit: "month", Requests: int64(i)}, {Limit: "second", Requests: int64(i)}}
		}},
		{"numbers in a temporary layer", 500, func(a *assign.Assignment, i int) {
			terms := assign.Terms{Numbers: []assign.Numbers{{Limit: "month", Requests: 500}}}
			a.Layers = []assign.Layer{{Terms: terms, Until: 1_790_000_000_000_000 + int64(i)}}
		}},
	} {
		used := bytesOf(t, c.change)
		t.Logf("%s: %.0f bytes each", c.name, used)
		if used > c.max {
			t.Errorf("%s: an assignment takes %.0f bytes, want at most %.0f", c.name, used, c.max)
		}
	}
}
