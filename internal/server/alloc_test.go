//go:build !race

// The race detector makes sync.Pool forget at random; make test runs this file
// without it.

package server_test

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/ratelimitd/ratelimitd/internal/server"
)

// Requests are compared with those of a server that counts no hits.
func TestCountingHitsAllocatesNothing(t *testing.T) {
	in, err := proto.Marshal(request("api", 3, "user=alice,route=/orders", "user=alice,closed=/orders"))
	if err != nil {
		t.Fatal(err)
	}
	allocations := func(change ...func(*server.Options)) float64 {
		s := start(t, benchLimits, change...).srv
		return testing.AllocsPerRun(1000, func() {
			if _, err := s.Answer(t.Context(), in); err != nil {
				t.Fatal(err)
			}
		})
	}
	if with, without := allocations(likeEnvoyproxy), allocations(); with > without {
		t.Errorf("%v allocations with it, %v without", with, without)
	}
}

// Requests are compared with those of a server that keeps no subjects.
func TestKeepingWhoHadTheMostAllocatesNothing(t *testing.T) {
	for _, descriptor := range []string{"user=alice,route=/orders", "user=alice,closed=/orders"} {
		in, err := proto.Marshal(request("api", 3, descriptor))
		if err != nil {
			t.Fatal(err)
		}
		allocations := func(change ...func(*server.Options)) float64 {
			s := start(t, benchLimits, change...).srv
			return testing.AllocsPerRun(1000, func() {
				if _, err := s.Answer(t.Context(), in); err != nil {
					t.Fatal(err)
				}
			})
		}
		if with, without := allocations(keepingTops), allocations(); with > without {
			t.Errorf("%s: %v allocations with it, %v without", descriptor, with, without)
		}
	}
}

// TestOverrideAllocatesNothing compares requests with and without a limit of
// their own.
func TestOverrideAllocatesNothing(t *testing.T) {
	s := start(t, benchLimits).srv
	allocations := func(limit string) float64 {
		in, err := proto.Marshal(request("api", 1, "user=alice,route=/orders"))
		if limit != "" {
			in, err = proto.Marshal(overriding(t, 1, "user=alice,route=/orders", limit))
		}
		if err != nil {
			t.Fatal(err)
		}
		return testing.AllocsPerRun(1000, func() {
			if _, err := s.Answer(t.Context(), in); err != nil {
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
