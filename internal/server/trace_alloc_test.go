//go:build !race

package server_test

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/ratelimitd/ratelimitd/internal/server"
	"github.com/ratelimitd/ratelimitd/internal/tracing"
)

// TestUnsampledAnswerAllocatesNothing compares a server with a tracer with one
// without.
func TestUnsampledAnswerAllocatesNothing(t *testing.T) {
	in, err := proto.Marshal(request("api", 1, "user=alice"))
	if err != nil {
		t.Fatal(err)
	}
	allocations := func(s *server.Server) float64 {
		return testing.AllocsPerRun(1000, func() {
			if _, err := s.Answer(t.Context(), in); err != nil {
				t.Fatal(err)
			}
		})
	}
	off := allocations(start(t, traceLimits).srv)
	on := allocations(startTraced(t, 1, func(o *tracing.Options, _ *server.Options) { o.SampleRatio = 0 }).srv)
	if on > off {
		t.Errorf("%v allocations with a tracer, %v without", on, off)
	}
}
