package xds

import (
	"crypto/tls"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
)

// tlsConfig makes the configuration of one connection from the current contents of the
// files.
type tlsConfig func(serverName string) (*tls.Config, error)

// dial returns a connection, which is established on first use.
func (c *Client) dial() (*grpc.ClientConn, error) {
	security := insecure.NewCredentials()
	if c.tls != nil {
		config, err := c.tls(c.options.Address)
		if err != nil {
			return nil, err
		}
		security = credentials.NewTLS(config)
	}
	return grpc.NewClient(c.options.Address,
		grpc.WithTransportCredentials(security),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: minPause, Multiplier: 1.6, Jitter: 0.2, MaxDelay: maxPause},
			MinConnectTimeout: 5 * time.Second,
		}),
		// A server in Go cuts connections that ping it more often.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 6 * time.Minute, Timeout: 20 * time.Second}),
		grpc.WithMaxHeaderListSize(64<<10),
		// A service config from DNS could enable retries.
		grpc.WithDisableServiceConfig(),
		grpc.WithDisableRetry(),
	)
}

// received holds the bytes of a message. Decoded, a response takes many times that
// memory, so its parts are counted first.
type received struct{ data []byte }

// codec sends protobuf messages and receives bytes.
type codec struct{}

// Name implements encoding.CodecV2.
func (codec) Name() string { return "proto" }

// Marshal implements encoding.CodecV2.
func (codec) Marshal(v any) (mem.BufferSlice, error) {
	m, ok := v.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("%T is no message", v)
	}
	data, err := proto.Marshal(m)
	if err != nil {
		return nil, err
	}
	return mem.BufferSlice{mem.SliceBuffer(data)}, nil
}

// Unmarshal implements encoding.CodecV2.
func (codec) Unmarshal(data mem.BufferSlice, v any) error {
	m, ok := v.(*received)
	if !ok {
		return fmt.Errorf("%T receives no bytes", v)
	}
	m.data = data.Materialize()
	return nil
}

const silentHint = "it accepts the connection and says nothing; is limits.xds.address that of a management server?"

// hintFor explains an error of the connection to whoever has to fix it, or returns "".
func hintFor(err error) string {
	text := err.Error()
	for _, h := range []struct{ in, hint string }{
		{"unknown authority", "its certificate is not signed by limits.xds.tls.ca, nor by an authority of the system"},
		{"certificate is valid for", "its certificate does not bear the name that was dialled; limits.xds.tls.server_name names another"},
		{"doesn't contain any IP SANs", "its certificate does not bear the address that was dialled; limits.xds.tls.server_name names another"},
		{"certificate is not valid for any names", "its certificate bears no name; limits.xds.tls.server_name cannot match"},
		{"certificate required", "it wants a client's certificate, which is limits.xds.tls.cert"},
		{"bad certificate", "it refuses the client's certificate, which is limits.xds.tls.cert"},
		{"tls: unknown certificate", "it refuses the client's certificate, which is limits.xds.tls.cert"},
		{"certificate has expired", "a certificate has expired, or a clock is wrong"},
		{"first record does not look like a TLS handshake", "it does not speak TLS, which limits.xds.tls.enabled asks for"},
		{"use of closed network connection", silentHint}, // gRPC closes what says nothing
		{"handshake failed: context deadline exceeded", silentHint},
		{"PROTOCOL_ERROR", "it does not speak gRPC, so limits.xds.address is that of another server, or it wants TLS, which is limits.xds.tls.enabled"},
		{"error reading server preface", "it ends the connection at once; does it want TLS, which is limits.xds.tls.enabled, or a client's certificate?"},
		{"broken pipe", "it ends the connection at once; does it want TLS, which is limits.xds.tls.enabled, or a client's certificate?"},
		{"connection reset", "it ends the connection at once; does it want TLS, which is limits.xds.tls.enabled, or a client's certificate?"},
		{"no such host", "nothing has the name in limits.xds.address"},
		{"name resolver error", "the name in limits.xds.address cannot be looked up"},
		{"connection refused", "nothing listens at limits.xds.address"},
		{"code = Unimplemented", "it has no aggregated discovery service, so limits.xds.address is that of another server"},
		{"received message larger than max", "its configuration is larger than limits.xds.max_bytes"},
	} {
		if strings.Contains(text, h.in) {
			return h.hint
		}
	}
	return ""
}
