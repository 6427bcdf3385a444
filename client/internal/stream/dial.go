package stream

import (
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/resolver"
)

// dial returns the connections to a target, and does not wait for them.
func dial(target string, own []grpc.DialOption) (*grpc.ClientConn, error) {
	list := dialOptions()
	if strings.Contains(target, ",") && !strings.Contains(target, "://") {
		builder, err := newAddressList(target)
		if err != nil {
			return nil, err
		}
		list = append(list, grpc.WithResolvers(builder))
		target = builder.Scheme() + ":///" + target
	}
	conn, err := grpc.NewClient(target, append(list, own...)...)
	if err != nil {
		return nil, fmt.Errorf("client: target %q: %w", target, err)
	}
	return conn, nil
}

// dialOptions returns the default dial options, which those of the user override.
func dialOptions() []grpc.DialOption {
	const (
		window    = 1 << 20 // bytes of answers that a daemon may send ahead
		maxAnswer = 8 << 20 // bytes of one answer; a daemon sends fewer
	)
	retry := backoff.DefaultConfig
	retry.BaseDelay, retry.MaxDelay = 100*time.Millisecond, 5*time.Second
	return []grpc.DialOption{
		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig": [{"round_robin": {}}]}`),
		// The client quickly finds a daemon that is back, and notices one that is
		// silently gone sooner than the kernel would.
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: retry, MinConnectTimeout: 5 * time.Second}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 5 * time.Second}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)),
		// A resolver's service config could turn retries on, but a request that
		// may have been decided must not be sent again.
		grpc.WithDisableRetry(),
		// To grow windows, gRPC would send a ping after each answer.
		grpc.WithStaticStreamWindowSize(window),
		grpc.WithStaticConnWindowSize(window),
	}
}

// addressList resolves a target that is a list of addresses.
type addressList struct{ state resolver.State }

// newAddressList reads host:port,host:port.
func newAddressList(target string) (*addressList, error) {
	var a addressList
	for i, address := range strings.Split(target, ",") {
		address = strings.TrimSpace(address)
		if address == "" {
			return nil, fmt.Errorf("client: target %q: address %d is empty; allowed: host:port,host:port", target, i+1)
		}
		a.state.Endpoints = append(a.state.Endpoints, resolver.Endpoint{Addresses: []resolver.Address{{Addr: address, ServerName: address}}})
	}
	return &a, nil
}

// Scheme implements resolver.Builder.
func (*addressList) Scheme() string { return "ratelimitd-list" }

// Build implements resolver.Builder.
func (a *addressList) Build(_ resolver.Target, cc resolver.ClientConn, _ resolver.BuildOptions) (resolver.Resolver, error) {
	return a, cc.UpdateState(a.state)
}

// ResolveNow implements resolver.Resolver: a list does not change.
func (*addressList) ResolveNow(resolver.ResolveNowOptions) {}

// Close implements resolver.Resolver.
func (*addressList) Close() {}

// message is an encoded message.
type message struct{ data []byte }

// codec passes messages through as they are.
type codec struct{}

var _ encoding.CodecV2 = codec{}

// Name implements encoding.CodecV2: the bytes are those of protobuf.
func (codec) Name() string { return proto.Name }

// Marshal implements encoding.CodecV2.
func (codec) Marshal(v any) (mem.BufferSlice, error) {
	m, ok := v.(*message)
	if !ok {
		return nil, fmt.Errorf("client: an interceptor sends a %T", v)
	}
	return mem.BufferSlice{mem.SliceBuffer(m.data)}, nil
}

// Unmarshal implements encoding.CodecV2.
func (codec) Unmarshal(data mem.BufferSlice, v any) error {
	m, ok := v.(*message)
	if !ok {
		return fmt.Errorf("client: an interceptor reads a %T", v)
	}
	n := data.Len()
	if cap(m.data) < n {
		m.data = make([]byte, n)
	}
	m.data = m.data[:n]
	data.CopyTo(m.data)
	return nil
}
