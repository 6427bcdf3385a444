package xds_test

import (
	"net"
	"sync"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/ratelimitd/ratelimitd/internal/config/xds"
)

// rawServer is a server that says what a test has it say: what a library's server
// never would.
type rawServer struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	address string
	serve   func(stream discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer, s *rawServer) error

	mu       sync.Mutex
	requests []asked
}

func serveRaw(t *testing.T, serve func(discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer, *rawServer) error) *rawServer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &rawServer{address: l.Addr().String(), serve: serve}
	g := grpc.NewServer()
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(g, s)
	go func() { _ = g.Serve(l) }()
	t.Cleanup(g.Stop)
	return s
}

// StreamAggregatedResources implements the service.
func (s *rawServer) StreamAggregatedResources(stream discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	return s.serve(stream, s)
}

// receive waits for a request.
func (s *rawServer) receive(stream discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer) (*discoveryv3.DiscoveryRequest, error) {
	r, err := stream.Recv()
	if err == nil {
		s.mu.Lock()
		s.requests = append(s.requests, asked{DiscoveryRequest: r, at: time.Now()})
		s.mu.Unlock()
	}
	return r, err
}

func (s *rawServer) asked() []asked {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]asked(nil), s.requests...)
}

// once sends responses, each once the one before was answered.
func once(responses ...*discoveryv3.DiscoveryResponse) func(discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer, *rawServer) error {
	return func(stream discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer, s *rawServer) error {
		for _, r := range responses {
			if _, err := s.receive(stream); err != nil {
				return err
			}
			if err := stream.Send(r); err != nil {
				return err
			}
		}
		for {
			if _, err := s.receive(stream); err != nil {
				return err
			}
		}
	}
}

// response is one with these resources.
func response(version string, resources ...*anypb.Any) *discoveryv3.DiscoveryResponse {
	return &discoveryv3.DiscoveryResponse{VersionInfo: version, Nonce: "n" + version, TypeUrl: xds.TypeURL, Resources: resources}
}

func packed(m proto.Message) *anypb.Any {
	content, err := proto.Marshal(m)
	if err != nil {
		panic(err)
	}
	return &anypb.Any{TypeUrl: xds.TypeURL, Value: content}
}
