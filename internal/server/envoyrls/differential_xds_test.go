package envoyrls_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/ratelimitd/ratelimitd/internal/bucket/soaktest"
	"github.com/ratelimitd/ratelimitd/internal/config/limitsfile"
	"github.com/ratelimitd/ratelimitd/internal/config/rules"
	"github.com/ratelimitd/ratelimitd/internal/config/xds"
	"github.com/ratelimitd/ratelimitd/internal/server/servertest"
	xdsv3 "github.com/ratelimitd/ratelimitd/proto/ratelimit/xds/v3"
)

// TestAnswersOverXDSAreThoseOfTheModel asks in the first worlds with their limits
// from an xDS server.
func TestAnswersOverXDSAreThoseOfTheModel(t *testing.T) {
	t.Parallel()
	compareWorlds(t, soaktest.Long(10, 1000), 160, servertest.Memory, fromXDS)
}

// fromXDS loads limits from a server. The messages cannot say share_threshold.
func fromXDS(t *testing.T, w *world) *rules.Live {
	response := &discoveryv3.DiscoveryResponse{VersionInfo: "1", Nonce: "1", TypeUrl: xds.TypeURL}
	for name, nodes := range w.domains {
		// With merged domains, each descriptor comes in a resource of its own.
		parts := [][]*modelNode{nodes}
		if w.merge {
			parts = nil
			for i := range nodes {
				parts = append(parts, nodes[i:i+1])
			}
		}
		for i, part := range parts {
			content, err := proto.Marshal(&xdsv3.RateLimitConfig{Name: fmt.Sprintf("%s-%03d", name, i), Domain: name, Descriptors: inMessages(t, part)})
			if err != nil {
				t.Fatal(err)
			}
			response.Resources = append(response.Resources, &anypb.Any{TypeUrl: xds.TypeURL, Value: content})
		}
	}
	live := limitsfile.Options{MergeDomains: w.merge, Lenient: w.lenient}.NewFedLive("xds", nil)
	c, err := xds.New(xds.Options{Address: serveOnce(t, response), NodeID: "test", MaxBytes: 1 << 20, Live: live, Metrics: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.Run(ctx)
	}()
	defer func() { // the rules stay
		cancel()
		<-ended
	}()
	select {
	case <-c.Answered():
	case <-time.After(servertest.Patience):
		t.Fatal("no answer of the server")
	}
	if live.Rules() == nil {
		t.Fatalf("%s\n%v", w, live.Status().LastError)
	}
	return live.Live
}

func inMessages(t *testing.T, nodes []*modelNode) []*xdsv3.RateLimitDescriptor {
	var list []*xdsv3.RateLimitDescriptor
	for _, n := range nodes {
		n.share = false
		d := &xdsv3.RateLimitDescriptor{
			Key: n.key, Value: n.value, ShadowMode: n.shadow, QuotaMode: n.quota, DetailedMetric: n.detailed, Descriptors: inMessages(t, n.nodes),
		}
		if l := n.limit; l != nil {
			d.RateLimit = &xdsv3.RateLimitPolicy{Unlimited: l.unlimited, Name: l.name}
			if !l.unlimited {
				d.RateLimit.RequestsPerUnit = l.requests
				d.RateLimit.Unit = xdsv3.RateLimitUnit(xdsv3.RateLimitUnit_value["RATE_LIMIT_UNIT_"+strings.ToUpper(l.unit)])
			}
			for _, name := range l.replaces {
				d.RateLimit.Replaces = append(d.RateLimit.Replaces, &xdsv3.RateLimitReplace{Name: name})
			}
		}
		if n.metadata != nil {
			var err error
			if d.Metadata, err = structpb.NewStruct(n.metadata); err != nil {
				t.Fatal(err)
			}
		}
		list = append(list, d)
	}
	return list
}

// onceServer answers the first request of each stream, and takes the ones after
// it as they are.
type onceServer struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	response *discoveryv3.DiscoveryResponse
}

// serveOnce returns the address of a server with this response.
func serveOnce(t *testing.T, response *discoveryv3.DiscoveryResponse) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer()
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(g, &onceServer{response: response})
	go func() { _ = g.Serve(l) }()
	t.Cleanup(g.Stop)
	return l.Addr().String()
}

// StreamAggregatedResources implements the service.
func (s *onceServer) StreamAggregatedResources(stream discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	if _, err := stream.Recv(); err != nil {
		return err
	}
	if err := stream.Send(s.response); err != nil {
		return err
	}
	for {
		if _, err := stream.Recv(); err != nil {
			return err
		}
	}
}
