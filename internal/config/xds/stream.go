package xds

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/structpb"
)

// maxDetail bounds the errors reported to the server, in bytes.
const maxDetail = 32 << 10

// session connects and follows the server until the stream ends. It returns whether
// something was accepted, and why the stream ended.
func (c *Client) session(ctx context.Context) (good bool, err error) {
	// Each stream has its own connection: then the name is looked up again, the TLS files
	// are read again, and the pauses in between are ours alone.
	conn, err := c.dial()
	if err != nil {
		return false, err
	}
	defer conn.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for name, value := range c.options.Headers {
		ctx = metadata.AppendToOutgoingContext(ctx, name, value)
	}
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true},
		discoveryv3.AggregatedDiscoveryService_StreamAggregatedResources_FullMethodName,
		grpc.ForceCodecV2(codec{}), grpc.MaxCallRecvMsgSize(c.options.MaxBytes))
	if err != nil {
		return false, err
	}
	c.connected()
	s := &session{Client: c, stream: stream}
	if err := s.follow(ctx); !errors.Is(err, io.EOF) {
		return s.good, err
	}
	return s.good, errEndOfStream
}

// session is one stream.
type session struct {
	*Client
	stream grpc.ClientStream
	// version is the last one accepted on this stream. Versions of earlier streams mean
	// nothing: another server may start counting again.
	version string
	// rejected is the version last refused on this stream.
	rejected    string
	hasRejected bool
	// good is set once a response was accepted.
	good bool
}

// follow sends requests and answers each response until the stream ends.
func (s *session) follow(ctx context.Context) error {
	if err := s.send(ctx, s.request("", "")); err != nil {
		return err
	}
	silence := time.AfterFunc(s.options.Silence, s.tellSilence)
	defer silence.Stop()
	for {
		answer, err := s.receive(ctx)
		if err != nil {
			return err
		}
		silence.Stop()
		s.heard()
		if err := s.send(ctx, answer); err != nil {
			return err
		}
	}
}

// receive waits for a response, loads it, and returns the answer to it. It keeps no
// reference to the bytes of the response.
func (s *session) receive(ctx context.Context) (answer *discoveryv3.DiscoveryRequest, err error) {
	var message received
	if err := s.stream.RecvMsg(&message); err != nil {
		return nil, err
	}
	work := func() {
		answer, err = s.answer(message.data)
		message.data = nil
	}
	if s.options.Sparing != nil && len(message.data) > largeResponse {
		careless := work
		work = func() { s.options.Sparing(careless) }
	}
	if resting := s.pace.work(ctx, work); resting != nil {
		return nil, resting
	}
	return answer, err
}

// largeResponse is the size in bytes from which on a response would make the heap grow
// much: a server may send one after the other.
const largeResponse = 1 << 20

// answer loads a response from its bytes and returns the answer to it.
func (s *session) answer(data []byte) (*discoveryv3.DiscoveryRequest, error) {
	snapshot, err := readSnapshot(data)
	if err != nil {
		return nil, fmt.Errorf("a response that cannot be read: %w", err)
	}
	if err := s.judge(snapshot, data); err != nil {
		return s.refuse(snapshot, err), nil
	}
	s.good, s.version, s.hasRejected = true, snapshot.version, false
	return s.request(snapshot.version, snapshot.nonce), nil
}

// refuse returns the answer to a refused snapshot: the previous version, as the protocol
// demands. Servers that only compare versions take that for a request for the same
// snapshot and send it at once. If it comes again, the answer names its version, which
// they take to be known; the error says that it is refused. The version of another type
// is never named: it may be the next one of the requested type.
func (s *session) refuse(snapshot *snapshot, why error) *discoveryv3.DiscoveryRequest {
	version := s.version
	if snapshot.isOfType() {
		if s.hasRejected && s.rejected == snapshot.version {
			version = snapshot.version
		}
		s.rejected, s.hasRejected = snapshot.version, true
	}
	s.metrics.rejected.Inc()
	r := s.request(version, snapshot.nonce)
	r.ErrorDetail = &status.Status{Code: int32(codes.InvalidArgument), Message: shortened(why.Error())}
	return r
}

// shortened returns as many lines of a text as the server is told.
func shortened(text string) string {
	if len(text) <= maxDetail {
		return strings.ToValidUTF8(text, "?")
	}
	cut := strings.LastIndexByte(text[:maxDetail], '\n')
	if cut < 0 {
		cut = maxDetail
	}
	return strings.ToValidUTF8(text[:cut], "?") + fmt.Sprintf("\nand %d lines more", strings.Count(text[cut:], "\n"))
}

// request returns a request for all resources.
func (s *session) request(version, nonce string) *discoveryv3.DiscoveryRequest {
	return &discoveryv3.DiscoveryRequest{Node: s.node(), TypeUrl: TypeURL, VersionInfo: version, ResponseNonce: nonce}
}

func (s *session) node() *corev3.Node {
	n := &corev3.Node{Id: s.options.NodeID}
	if len(s.options.NodeMetadata) > 0 {
		n.Metadata = &structpb.Struct{Fields: make(map[string]*structpb.Value, len(s.options.NodeMetadata))}
		for key, value := range s.options.NodeMetadata {
			n.Metadata.Fields[key] = structpb.NewStringValue(value)
		}
	}
	return n
}

func (s *session) send(ctx context.Context, r *discoveryv3.DiscoveryRequest) error {
	if err := s.pace.wait(ctx); err != nil {
		return err
	}
	err := s.stream.SendMsg(r)
	if errors.Is(err, io.EOF) {
		// The stream has ended; receiving says why.
		var message received
		if err := s.stream.RecvMsg(&message); err != nil {
			return err
		}
		return errEndOfStream
	}
	return err
}
