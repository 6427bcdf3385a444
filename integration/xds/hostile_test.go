package xds_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/ratelimitd/ratelimitd/internal/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/config/xds"
	"github.com/ratelimitd/ratelimitd/internal/heaptest"
)

type adsStream = discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer

// Each of these servers has a client send a few requests a second, whatever it
// does, and hold little.
func TestHostileServersAreAnsweredSlowly(t *testing.T) {
	t.Parallel()
	bad := func(version string) *discoveryv3.DiscoveryResponse {
		return response(version, packed(domainOf("", domain("d", 5).GetDescriptors()...)), packed(domain(strings.Repeat("x", 1<<20), 5)))
	}
	good := response("g", packed(domain("d", 5)))
	flood := func(next func(i int) *discoveryv3.DiscoveryResponse) func(adsStream, *rawServer) error {
		return func(stream adsStream, s *rawServer) error {
			go func() {
				for i := 0; stream.Send(next(i)) == nil; i++ {
				}
			}()
			for {
				if _, err := s.receive(stream); err != nil {
					return err
				}
			}
		}
	}
	for _, c := range []struct {
		name  string
		serve func(adsStream, *rawServer) error
	}{
		{"resends what was refused", flood(func(int) *discoveryv3.DiscoveryResponse { return bad("1") })},
		{"has a new version each time", flood(func(i int) *discoveryv3.DiscoveryResponse { return bad(fmt.Sprint(i)) })},
		{"resends what was accepted", flood(func(int) *discoveryv3.DiscoveryResponse { return good })},
		{"ends each stream once it was answered", func(stream adsStream, s *rawServer) error {
			if _, err := s.receive(stream); err != nil {
				return err
			}
			if err := stream.Send(good); err != nil {
				return err
			}
			_, err := s.receive(stream)
			return err
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := serveRaw(t, c.serve)
			f := follow(t, xds.Options{Address: s.address})
			asynctest.Eventually(t, "seven requests", func() bool { return len(s.asked()) >= 7 })
			if n := mostInASecond(s.asked()); n >= 5 {
				t.Errorf("%d requests in a second", n)
			}
			if lines := f.log.Count("\n"); lines > 60 {
				t.Errorf("%d lines are logged", lines)
			}
			if held := heaptest.InUse(); held > 256<<20 {
				t.Errorf("the heap holds %d MiB", held>>20)
			}
			f.stop()
		})
	}
}

// A few bytes on the wire must not become many in memory.
func TestWhatSwellsInMemoryIsRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, want string
		resources  []*anypb.Any
	}{
		{"a million empty descriptors", "the snapshot: found more than 500000 descriptors", []*anypb.Any{{TypeUrl: xds.TypeURL, Value: []byte(strings.Repeat("\x1a\x00", 1_000_000))}}},
		{"empty names in replaces", "the snapshot: found more than 500000 descriptors", []*anypb.Any{swollenReplaces(1_000_000)}},
		{"empty resources", "the snapshot: found more than 100000 resources", make([]*anypb.Any, 200_000)},
		{"a hundred thousand mistakes", "resource 1 of 1: descriptors[0].key", []*anypb.Any{{TypeUrl: xds.TypeURL, Value: []byte("\x12\x01d" + strings.Repeat("\x1a\x00", 100_000))}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for i := range c.resources {
				if c.resources[i] == nil {
					c.resources[i] = &anypb.Any{}
				}
			}
			s := serveRaw(t, once(response("1", c.resources...)))
			f := follow(t, xds.Options{Address: s.address})
			<-f.Answered()
			asynctest.Eventually(t, "a refusal", func() bool { return len(s.asked()) == 2 })
			detail := s.asked()[1].GetErrorDetail().GetMessage()
			if !strings.HasPrefix(detail, c.want) || len(detail) > 33<<10 {
				t.Errorf("%d bytes: %.200s", len(detail), detail)
			}
		})
	}
}

func swollenReplaces(n int) *anypb.Any {
	names := strings.Repeat("\x2a\x00", n)
	policy := bytesField(0x1a, names)
	return &anypb.Any{TypeUrl: xds.TypeURL, Value: []byte(bytesField(0x1a, policy))}
}

// bytesField is a field with this tag.
func bytesField(tag byte, content string) string {
	var length []byte
	n := len(content)
	for ; n >= 0x80; n >>= 7 {
		length = append(length, byte(n)|0x80)
	}
	return string(append([]byte{tag}, append(length, byte(n))...)) + content
}

func TestAResponseThatCannotBeReadEndsTheStream(t *testing.T) {
	t.Parallel()
	s := serveRaw(t, once(&discoveryv3.DiscoveryResponse{VersionInfo: strings.Repeat("v", 10_000), TypeUrl: xds.TypeURL}))
	f := follow(t, xds.Options{Address: s.address})
	f.wantLog("the version of a response is no UTF-8 of at most 4096 bytes")
	began := time.Now()
	f.wantMetric("ratelimitd_xds_connection_failures_total", "", over(1))
	if time.Since(began) > 30*time.Second {
		t.Error("it was not dialled again")
	}
}
