package xds_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/bucket/heaptest"
	"github.com/ratelimitd/ratelimitd/internal/config/xds"
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
			if n := maxInASecond(s.asked()); n >= 5 {
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
		{"a million empty descriptors", "the snapshot: found more than 150000 resources, descriptors", []*anypb.Any{{TypeUrl: xds.TypeURL, Value: []byte(strings.Repeat("\x1a\x00", 1_000_000))}}},
		{"empty names in replaces", "the snapshot: found more than 150000 resources, descriptors", []*anypb.Any{swollenReplaces(1_000_000)}},
		{"empty values in metadata", "the snapshot: found more than 150000 resources, descriptors", []*anypb.Any{withMetadata(bytesField(0x32, strings.Repeat("\x0a\x00", 1_000_000)))}},
		{"empty fields in metadata", "the snapshot: found more than 150000 resources, descriptors", []*anypb.Any{withMetadata(bytesField(0x2a, strings.Repeat("\x0a\x00", 1_000_000)))}},
		{"metadata that nests", "the snapshot: found descriptors or metadata that nest too deep", []*anypb.Any{withMetadata(nestedValues(2000))}},
		{"empty resources", "the snapshot: found more than 100000 resources", make([]*anypb.Any, 200_000)},
		{"domains and descriptors", "the snapshot: found more than 150000 resources, descriptors", slices.Repeat([]*anypb.Any{packed(domain("d", 5))}, 75_001)},
		{"long names", "the snapshot: found more than 25165824 bytes of names, keys and values", slices.Repeat([]*anypb.Any{packed(domain(strings.Repeat("x", 500), 5))}, 26_000)},
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

// The worst configurations that are allowed, and others in their place, fit into what
// Envoy Gateway requests for a pod.
func TestTheLargestConfigurationFitsIntoAPod(t *testing.T) {
	if testing.Short() {
		t.Skip("it loads 600,000 rules")
	}
	limit := func(requests int) string {
		return bytesField(0x1a, "\x08\x03\x10"+string(protowire.AppendVarint(nil, uint64(requests))))
	}
	pattern := func(key string, id int, more string) string {
		return bytesField(0x1a, bytesField(0x0a, key)+bytesField(0x12, fmt.Sprintf("*%x*", id))+limit(id)+more)
	}
	resource := func(name, descriptors string) *anypb.Any {
		return &anypb.Any{TypeUrl: xds.TypeURL, Value: []byte(bytesField(0x0a, name) + bytesField(0x12, name) + descriptors)}
	}
	domains := func(count int, descriptors func(round, i int) string) func(int) []*anypb.Any {
		return func(round int) []*anypb.Any {
			list := make([]*anypb.Any, count)
			for i := range list {
				list[i] = resource(fmt.Sprintf("domain-%d-%d-%0100d", round, i, 0), descriptors(round, i))
			}
			return list
		}
	}
	for _, c := range []struct {
		name      string
		resources func(round int) []*anypb.Any
	}{
		{"a domain of patterns", func(round int) []*anypb.Any {
			var all strings.Builder
			for i := range 149_990 {
				all.WriteString(pattern("k", round<<20+i, ""))
			}
			return []*anypb.Any{resource(fmt.Sprint("domain-", round), all.String())}
		}},
		{"domains of a limit", domains(74_990, func(round, i int) string { return pattern("k", round<<20+i, "") })},
		{"domains of limits in others", domains(49_990, func(round, i int) string {
			return pattern(fmt.Sprint("k", i), round<<20+i, strings.Replace(pattern(fmt.Sprint("l", i), round<<20+i+1, ""), "\x1a", "\x22", 1))
		})},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := serveRaw(t, func(stream adsStream, s *rawServer) error {
				for round := 0; ; round++ {
					if _, err := s.receive(stream); err != nil {
						return err
					}
					if round == 2 {
						<-stream.Context().Done()
						return nil
					}
					if err := stream.Send(response(fmt.Sprint(round), c.resources(round)...)); err != nil {
						return err
					}
				}
			})
			d := launch(t, &management{t: t, address: s.address}, "FORCE_START_WITHOUT_INITIAL_CONFIG=true")
			asynctest.Eventually(t, "the first answer", func() bool { return len(s.asked()) >= 2 })
			asynctest.Eventually(t, "the second", func() bool { return len(s.asked()) == 3 })
			for _, r := range s.asked() {
				if detail := r.GetErrorDetail(); detail != nil {
					t.Fatal(detail)
				}
			}
			peak := d.memory("VmHWM")
			t.Logf("%d MiB at most, then %d", peak>>20, d.memory("VmRSS")>>20)
			if peak > 512<<20 {
				t.Errorf("%d MiB", peak>>20)
			}
		})
	}
}

// One large response after the other, each refused, takes no more than two of them.
func TestAFloodOfLargeResponsesTakesLittleMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("it sends a gigabyte")
	}
	types := make([]*anypb.Any, 60)
	for i := range types {
		types[i] = &anypb.Any{TypeUrl: strings.Repeat("u", 1<<20)}
	}
	long := packed(domain(strings.Repeat("n", 14<<20), 5))
	for _, c := range []struct {
		name      string
		resources []*anypb.Any
	}{
		{"long types", types},
		{"long names", []*anypb.Any{long, long}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := serveRaw(t, func(stream adsStream, s *rawServer) error {
				go func() {
					for i := 0; stream.Send(response(fmt.Sprint(i), c.resources...)) == nil; i++ {
					}
				}()
				for {
					if _, err := s.receive(stream); err != nil {
						return err
					}
				}
			})
			d := launch(t, &management{t: t, address: s.address}, "FORCE_START_WITHOUT_INITIAL_CONFIG=true")
			asynctest.Eventually(t, "ten requests", func() bool { return len(s.asked()) >= 10 })
			if s.asked()[9].GetErrorDetail() == nil {
				t.Error("it is accepted")
			}
			peak := d.memory("VmHWM")
			t.Logf("%d MiB", peak>>20)
			if peak > 384<<20 {
				t.Errorf("%d MiB", peak>>20)
			}
		})
	}
}

// withMetadata is a domain with a limit that has a value of google.protobuf.Value
// as metadata.
func withMetadata(value string) *anypb.Any {
	metadata := bytesField(0x0a, bytesField(0x0a, "a")+bytesField(0x12, value))
	limit := bytesField(0x1a, "\x08\x03\x10\x05")
	return &anypb.Any{TypeUrl: xds.TypeURL, Value: []byte(bytesField(0x12, "d") + bytesField(0x1a, bytesField(0x0a, "k")+limit+bytesField(0x42, metadata)))}
}

// nestedValues is a list in a list, and so on.
func nestedValues(depth int) string {
	value := ""
	for range depth {
		value = bytesField(0x32, bytesField(0x0a, value))
	}
	return value
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
