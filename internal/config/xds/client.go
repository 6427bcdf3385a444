package xds

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/prometheus/client_golang/prometheus"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/ratelimitd/ratelimitd/internal/config/limitsfile"
	"github.com/ratelimitd/ratelimitd/internal/tlsfiles"
)

// maxDetail bounds the errors reported to the server, in bytes.
const maxDetail = 32 << 10

// Options are the options of a Client.
type Options struct {
	// Address is the host:port of the server.
	Address string
	// NodeID and NodeMetadata identify the client. A server answers nodes that it knows,
	// and is silent to others.
	NodeID       string
	NodeMetadata map[string]string
	// Headers are sent with the stream; their names are in lower case.
	Headers map[string]string
	// TLS says how the connection is protected. Its CA is trusted besides the system's.
	TLS tlsfiles.Client
	// MaxBytes bounds the size of a response.
	MaxBytes int
	// CachePath, if set, is the file that keeps the last good configuration.
	CachePath string
	// Silence is how long a server may stay silent before that is logged; 0 means 15
	// seconds.
	Silence time.Duration
	// Live receives the rules. It was made by NewFedLive.
	Live *limitsfile.FedLive
	// Metrics registers the metrics of the client. Log may be nil.
	Metrics prometheus.Registerer
	Log     *slog.Logger
}

// Client follows the configuration of an xDS server. Its methods may be called
// concurrently; Run runs once.
type Client struct {
	options Options
	log     *slog.Logger
	// tls makes the configuration of one connection from the current contents of the
	// files; nil without TLS.
	tls     func(serverName string) (*tls.Config, error)
	metrics *metrics

	// answered is closed once a response was loaded or refused.
	answered     chan struct{}
	answeredOnce sync.Once

	// lost is what was last logged of connections. Only Run uses it.
	lost string

	mu     sync.Mutex
	status status
}

// New returns a Client and loads the cached configuration. An error says which TLS file
// cannot be read.
func New(o Options) (*Client, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Silence == 0 {
		o.Silence = 15 * time.Second
	}
	security, err := tlsfiles.ClientConfigBesideSystem(o.TLS, o.Log)
	if err != nil {
		return nil, err
	}
	c := &Client{
		options: o, log: o.Log.With("xds_server", o.Address), tls: security, metrics: newMetrics(o.Metrics),
		answered: make(chan struct{}), status: status{since: time.Now()},
	}
	if o.CachePath != "" {
		c.loadCache()
	}
	return c, nil
}

// Answered is closed once the server's first configuration was loaded or refused.
func (c *Client) Answered() <-chan struct{} { return c.answered }

// Run follows the server until ctx ends.
func (c *Client) Run(ctx context.Context) {
	for ctx.Err() == nil {
		if err := c.session(ctx); ctx.Err() == nil {
			c.disconnected(err)
		}
		select {
		case <-ctx.Done():
		// Daemons that lost the same server must not come back together.
		case <-time.After(200*time.Millisecond + rand.N(1800*time.Millisecond)):
		}
	}
}

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
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: 5 * time.Second}),
		// A server in Go cuts connections that ping it more often.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 6 * time.Minute, Timeout: 20 * time.Second}),
		// A service config from DNS could enable retries.
		grpc.WithDisableServiceConfig(),
		grpc.WithDisableRetry(),
	)
}

// session is one stream.
type session struct {
	*Client
	// accepted is the version last accepted on this stream, and rejected the one refused
	// since; each is nil if there is none. Versions of earlier streams mean nothing:
	// another server may start counting again.
	accepted, rejected *string
}

// session connects and follows the server until the stream ends, and returns why it
// ended. Each stream has its own connection: then the name is looked up again, and the TLS
// files are read again.
func (c *Client) session(ctx context.Context) error {
	conn, err := c.dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for name, value := range c.options.Headers {
		ctx = metadata.AppendToOutgoingContext(ctx, name, value)
	}
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx, grpc.MaxCallRecvMsgSize(c.options.MaxBytes))
	if err != nil {
		return err
	}
	c.changeStatus(func(st *status) { st.connected, st.since = true, time.Now() })
	c.log.Info("xds: connected", "node_id", c.options.NodeID)
	silence := time.AfterFunc(c.options.Silence, func() {
		c.changeStatus(func(st *status) { st.silent = true })
		c.log.Warn("xds: the server is connected and has sent no configuration; it may have none yet, or none for this node id",
			"node_id", c.options.NodeID, "after", c.options.Silence)
	})
	defer silence.Stop()
	s := &session{Client: c}
	for request := s.request(""); ; {
		// Where sending fails with EOF, receiving says why.
		if err := stream.Send(request); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		response, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			err = errors.New("the server ended the stream")
		}
		if err != nil {
			return err
		}
		silence.Stop()
		request = s.answer(response)
	}
}

// answer loads a response and returns the answer to it.
//
// A refusal names the version before, as the protocol demands. Servers that only compare
// versions take that for a request for the same snapshot and send it at once. If it comes
// again, the answer names its version, which they take to be known; the error says that
// it is refused. The version of another type is never named: it may be the next one of
// the requested type.
func (s *session) answer(response *discoveryv3.DiscoveryResponse) *discoveryv3.DiscoveryRequest {
	version := response.GetVersionInfo()
	why := s.judge(response)
	if why == nil {
		s.accepted, s.rejected = &version, nil
		return s.request(response.GetNonce())
	}
	r := s.request(response.GetNonce())
	if isOfType(response) {
		if s.rejected != nil && *s.rejected == version {
			r.VersionInfo = version
		}
		s.rejected = &version
	}
	message := why.Error()
	r.ErrorDetail = &rpcstatus.Status{Code: int32(codes.InvalidArgument), Message: strings.ToValidUTF8(message[:min(len(message), maxDetail)], "?")}
	return r
}

// request returns a request for all resources.
func (s *session) request(nonce string) *discoveryv3.DiscoveryRequest {
	node := &corev3.Node{Id: s.options.NodeID, Metadata: &structpb.Struct{Fields: make(map[string]*structpb.Value)}}
	for key, value := range s.options.NodeMetadata {
		node.Metadata.Fields[key] = structpb.NewStringValue(value)
	}
	r := &discoveryv3.DiscoveryRequest{Node: node, TypeUrl: TypeURL, ResponseNonce: nonce}
	if s.accepted != nil {
		r.VersionInfo = *s.accepted
	}
	return r
}

// judge loads a response and records the result. It returns why it is refused, or nil.
// Live logs that.
func (c *Client) judge(response *discoveryv3.DiscoveryResponse) (why error) {
	version, before := response.GetVersionInfo(), c.rules()
	why = c.options.Live.Feed(readResponse(response))
	c.changeStatus(func(st *status) {
		st.silent, st.failure = false, ""
		if why == nil {
			st.version, st.acceptedAt, st.cachedAt = version, time.Now(), time.Time{}
		} else {
			st.refused = version
		}
	})
	if why != nil {
		c.metrics.rejected.Inc()
	} else {
		c.lost = ""
		c.metrics.accepted.Inc()
		if before > 0 && c.rules() == 0 {
			// It may be intended, or the server may have lost its own. Domains without a
			// rule may remain.
			c.metrics.emptied.Inc()
			c.log.Error("xds: the server sent a configuration without limits; nothing is limited now", "version", version, "rules_before", before)
		}
		c.saveCache(response)
	}
	c.answeredOnce.Do(func() { close(c.answered) })
	return why
}

// rules returns how many rules are in force.
func (c *Client) rules() int {
	if rules := c.options.Live.Rules(); rules != nil {
		return rules.Count()
	}
	return 0
}

// disconnected records and logs why a stream ended, or could not start.
func (c *Client) disconnected(err error) {
	text := "xds: the server cannot be reached"
	c.changeStatus(func(st *status) {
		if st.connected {
			text = "xds: the stream ended"
			st.connected, st.silent, st.since = false, false, time.Now()
		}
		st.failure, st.failedAt = strings.Join(strings.Fields(err.Error()), " "), time.Now()
	})
	c.metrics.failures.Inc()
	if c.options.Live.Rules() != nil {
		text += "; the limits in force stay"
	} else {
		text += "; no limits are loaded yet"
	}
	if text != c.lost {
		c.lost = text
		c.log.Warn(text, "error", err)
	}
}
