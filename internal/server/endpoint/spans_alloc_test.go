//go:build !race

package endpoint_test

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/ratelimitd/ratelimitd/internal/server"
	"github.com/ratelimitd/ratelimitd/internal/server/servertest"
)

// TestUnsampledAnswerAllocatesNothing compares an endpoint with a tracer with one
// without.
func TestUnsampledAnswerAllocatesNothing(t *testing.T) {
	in, err := proto.Marshal(servertest.Request("api", 1, "user=alice"))
	if err != nil {
		t.Fatal(err)
	}
	allocations := func(rpc servertest.RPC) float64 {
		return testing.AllocsPerRun(1000, func() {
			if _, err := rpc.AnswerBytes(t.Context(), in); err != nil {
				t.Fatal(err)
			}
		})
	}
	off := allocations(servertest.NewRPC(t, traceLimits))
	on := allocations(servertest.NewRPC(t, traceLimits, func(o *server.Options) { o.Tracer = newTracer(t, 0) }))
	if on > off {
		t.Errorf("%v allocations with a tracer, %v without", on, off)
	}
}
