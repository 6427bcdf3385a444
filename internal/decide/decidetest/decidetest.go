// Package decidetest has what the tests of several APIs need to read requests
// into calls.
package decidetest

import (
	"math"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/ratelimitd/ratelimitd/internal/decide"
)

// Unbounded returns a decider whose calls are read whatever their size.
func Unbounded() *decide.Decider {
	return decide.New(decide.Options{Bounds: decide.Bounds{Descriptors: math.MaxInt, Entries: math.MaxInt}})
}

// Marshal returns the bytes of a message.
func Marshal(t testing.TB, m proto.Message) []byte {
	t.Helper()
	out, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// ReadingIsBounded tests that parts of a request beyond the bounds are counted
// and not kept, and that unknown fields are skipped without a copy. A request
// has descriptors in field 2, and these have entries in field 1.
func ReadingIsBounded(t *testing.T, read func(c *decide.Call, request string) error) {
	const n = 200_000
	d := decide.New(decide.Options{Bounds: decide.Bounds{Descriptors: 3, Entries: 2}})
	entries := "\x0a\x01x" + string(protowire.AppendString([]byte{0x12}, strings.Repeat("\x0a\x00", n)))
	for name, in := range map[string]string{
		"descriptors":    strings.Repeat("\x12\x00", n),
		"entries":        entries,
		"fixed32":        strings.Repeat("\x4d1234", n),
		"fixed64":        strings.Repeat("\x4912345678", n),
		"groups":         strings.Repeat("\x4b\x4c", n),
		"nested groups":  strings.Repeat("\x4b", n),
		"unknown fields": strings.Repeat("\xa2\x06\x00", n),
	} {
		t.Run(name, func(t *testing.T) {
			allocated := testing.AllocsPerRun(1, func() {
				c := d.NewCall()
				if err := read(c, in); (err != nil) != (name == "nested groups") {
					t.Errorf("%v", err)
				}
				if len(c.Descriptors) > 3 || len(c.Entries) > 2 {
					t.Errorf("%d descriptors, %d entries are kept", len(c.Descriptors), len(c.Entries))
				}
				more := c.MoreDescriptors + len(c.Descriptors)
				for _, d := range c.Descriptors {
					more += d.MoreEntries + len(d.Entries)
				}
				if name == "descriptors" && more != n || name == "entries" && more != n+1 {
					t.Errorf("%d are counted", more)
				}
			})
			if allocated > 20 {
				t.Errorf("%v allocations", allocated)
			}
		})
	}
}
