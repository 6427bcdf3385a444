//go:build !race

// The race detector makes sync.Pool forget at random; make test runs this file
// without it.

package envoyrls_test

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/ratelimitd/ratelimitd/internal/server/servertest"
)

// TestOverrideAllocatesNothing compares requests with and without a limit of
// their own.
func TestOverrideAllocatesNothing(t *testing.T) {
	rpc := servertest.NewRPC(t, servertest.BenchLimits)
	allocations := func(limit string) float64 {
		in, err := proto.Marshal(servertest.Request("api", 1, "user=alice,route=/orders"))
		if limit != "" {
			in, err = proto.Marshal(servertest.Overriding(t, 1, "user=alice,route=/orders", limit))
		}
		if err != nil {
			t.Fatal(err)
		}
		return testing.AllocsPerRun(1000, func() {
			if _, err := rpc.AnswerBytes(t.Context(), in); err != nil {
				t.Fatal(err)
			}
		})
	}
	without := allocations("")
	for _, limit := range []string{"5/HOUR", "7/90xSECOND"} {
		t.Run(limit, func(t *testing.T) {
			if with := allocations(limit); with > without {
				t.Errorf("%v allocations with it, %v without", with, without)
			}
		})
	}
}
