//go:build !race

// The race detector allocates; make test runs this file without it.

package endpoint

import (
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/decide"
)

// A body beyond the bounds allocates only the error, however much it holds.
func TestJSONBoundsAllocateLittle(t *testing.T) {
	b := BoundsOfRequest(decide.Bounds{Descriptors: 2, Entries: 2, Bytes: 1000})
	for name, body := range map[string]string{
		"values":  `[` + strings.Repeat(`{},`, 100_000),
		"nesting": strings.Repeat(`[`, 100_000),
		"a text":  `{"domain":"` + strings.Repeat(`,[{`, 100_000) + `"}`,
	} {
		t.Run(name, func(t *testing.T) {
			in := []byte(body)
			if n := testing.AllocsPerRun(10, func() { _ = b.check(in) }); n > 5 {
				t.Errorf("%v allocations", n)
			}
		})
	}
}
