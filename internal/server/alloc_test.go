//go:build !race

// The race detector makes sync.Pool forget at random; make test runs this file
// without it.

package server_test

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/ratelimitd/ratelimitd/internal/server"
	"github.com/ratelimitd/ratelimitd/internal/server/servertest"
)

// allocations returns how many a server makes with a request about the descriptors.
func allocations(t *testing.T, descriptors []string, change ...func(*server.Options)) float64 {
	t.Helper()
	in, err := proto.Marshal(servertest.Request("api", 3, descriptors...))
	if err != nil {
		t.Fatal(err)
	}
	rpc := servertest.RPC{API: servertest.Start(t, servertest.BenchLimits, change...).Server.RPC()}
	return testing.AllocsPerRun(1000, func() {
		if _, err := rpc.AnswerBytes(t.Context(), in); err != nil {
			t.Fatal(err)
		}
	})
}

// Requests are compared with those of a server that counts no hits.
func TestCountingHitsAllocatesNothing(t *testing.T) {
	both := []string{"user=alice,route=/orders", "user=alice,closed=/orders"}
	if with, without := allocations(t, both, likeEnvoyproxy), allocations(t, both); with > without {
		t.Errorf("%v allocations with it, %v without", with, without)
	}
}

// Requests are compared with those of a server that keeps no subjects.
func TestKeepingWhoHadTheMostAllocatesNothing(t *testing.T) {
	for _, descriptor := range []string{"user=alice,route=/orders", "user=alice,closed=/orders"} {
		one := []string{descriptor}
		if with, without := allocations(t, one, servertest.KeepingTops), allocations(t, one); with > without {
			t.Errorf("%s: %v allocations with it, %v without", descriptor, with, without)
		}
	}
}
