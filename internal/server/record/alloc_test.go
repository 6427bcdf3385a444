//go:build !race

// The race detector makes sync.Pool forget at random; make test runs this file
// without it.

package record_test

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/server"
	"github.com/ratelimitd/ratelimitd/internal/server/servertest"
)

// nowhere is a sink that keeps nothing.
type nowhere struct{}

func (nowhere) Write([]byte, int64, bucket.SpanRef) {}

// Requests are compared with those of an endpoint that records none.
func TestRecordingAllocatesNothing(t *testing.T) {
	for _, descriptors := range [][]string{
		{"user=alice,route=/orders"}, {"user=alice,route=/orders", "user=alice,closed=/orders"}, {"user=alice,other=/orders"},
	} {
		in, err := proto.Marshal(servertest.Request("api", 3, descriptors...))
		if err != nil {
			t.Fatal(err)
		}
		allocations := func(change ...func(*server.Options)) float64 {
			rpc := servertest.NewRPC(t, servertest.BenchLimits, change...)
			return testing.AllocsPerRun(1000, func() {
				if _, err := rpc.AnswerBytes(t.Context(), in); err != nil {
					t.Fatal(err)
				}
			})
		}
		if with, without := allocations(servertest.Recording(nowhere{})), allocations(); with > without {
			t.Errorf("%v: %v allocations with it, %v without", descriptors, with, without)
		}
	}
}
