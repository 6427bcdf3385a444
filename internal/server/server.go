package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/recovery"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"

	"github.com/ratelimitd/ratelimitd/internal/config/rules/tally"
	"github.com/ratelimitd/ratelimitd/internal/decide"
	"github.com/ratelimitd/ratelimitd/internal/server/adminapi"
	"github.com/ratelimitd/ratelimitd/internal/server/authapi"
	"github.com/ratelimitd/ratelimitd/internal/server/endpoint"
	"github.com/ratelimitd/ratelimitd/internal/server/envoyrls"
	"github.com/ratelimitd/ratelimitd/internal/server/overload"
	"github.com/ratelimitd/ratelimitd/internal/server/takeapi"
	"github.com/ratelimitd/ratelimitd/internal/server/transport"
)

// Server is the daemon's ports.
type Server struct {
	options Options
	log     *slog.Logger
	started time.Time
	ready   *readiness
	panics  *endpoint.PanicLog
	watches *watches
	decider *decide.Decider
	guard   *overload.Guard
	// envoyproxy is nil unless metrics by its names are asked for.
	envoyproxy *envoyproxyMetrics
	rules      *ruleMetrics
	scrape     http.Handler // the page of metrics

	viaGRPC, viaHTTP *envoyrls.API
	apiGRPC, apiHTTP *takeapi.API
	viaAuth          *authapi.API // nil if it is off
	adminAPI         *adminapi.API

	grpc      *grpc.Server
	http      *http.Server
	admin     *http.Server
	metrics   *http.Server
	places    pagePlaces
	listeners map[string]net.Listener // by "grpc", "http", "admin", "metrics"
}

const (
	// maxMetadataBytes bounds the headers of a call over gRPC.
	maxMetadataBytes = 8 << 10
	// streamsPerConnection bounds what one client can have in flight.
	streamsPerConnection = 1024
	// handshake bounds the handshake of a gRPC connection. The stop waits for
	// handshakes, so it is no longer than inFlight.
	handshake = 5 * time.Second
	// inFlight is how long calls have to end after the drain delay. Most end far
	// sooner, and health watches at once; streams that do not end are cut.
	inFlight = 5 * time.Second
)

// New listens on all ports. Its error names the port on which it cannot. The server
// answers once Run is called.
func New(o Options) (*Server, error) {
	o.setDefaults()
	s := &Server{options: o, log: o.Log, started: o.Now(), ready: newReadiness(), watches: newWatches(), listeners: make(map[string]net.Listener)}
	s.rules = &ruleMetrics{live: o.Live, maxRules: o.MaxRules, showsHits: o.Hits.On && !o.Statsd.Alone}
	s.scrape = s.metricsPage()
	m := newMetrics(o.Metrics, s.ready)
	showLimits(o.Metrics, o.Live)
	s.guard = overload.New(o.Requests.Memory, m.cut.Inc)
	s.places = newPagePlaces()
	showMemory(o.Metrics, s.guard)
	showTops(o.Metrics, o.Tops)
	s.panics = endpoint.NewPanicLog(o.Log, o.Now, m.panics)
	s.decider = decide.New(decide.Options{
		Live: o.Live, Store: o.Store, Many: o.Many, Refuses: o.Health.Refuses, Loading: o.Health.Loading, Modes: o.Modes, Bounds: o.Requests.Bounds,
		Assigned: o.Assigned, Now: func() int64 { return o.Now().UnixMicro() }, UnknownDomains: &s.rules.unknownDomains, OwnLimits: m.ownLimits, Settlements: m.settlements, Hits: o.Hits, Tops: o.Tops,
	})
	failures := endpoint.NewFailureLog(o.Log, o.Now)
	newEndpoint := func(name string) *endpoint.Endpoint {
		return &endpoint.Endpoint{
			Name: name, Recorder: o.Recorder, Decider: s.decider, Bounds: o.Requests.Bounds, Refunds: o.Requests.Refunds, Callers: o.Requests.Callers, RemoteStore: o.RemoteStore,
			Failures: failures, Panics: s.panics, Requests: endpoint.NewRequestCounts(m.calls, name),
			Durations: m.durations.WithLabelValues(name).(prometheus.Histogram),
			Headers:   &s.options.Responses.Headers, Tracer: o.Tracer,
		}
	}
	s.viaGRPC, s.viaHTTP = envoyrls.New(newEndpoint("grpc"), o.Responses.DynamicMetadata), envoyrls.New(newEndpoint("http"), o.Responses.DynamicMetadata)
	if o.Hits.On {
		shown := o.Metrics
		if o.Statsd.Alone {
			shown = prometheus.NewRegistry()
		}
		s.envoyproxy = newEnvoyproxyMetrics(shown, o.Live)
		s.viaGRPC.Errors, s.viaHTTP.Errors = s.envoyproxy.errors, s.envoyproxy.errors
	}
	s.apiGRPC = takeapi.New(newEndpoint("api_grpc"))
	s.apiGRPC.Stopping, s.apiGRPC.Age, s.apiGRPC.Grace = s.watches.stopping, o.GRPC.ConnectionAge, o.GRPC.ConnectionAgeGrace
	s.apiHTTP = takeapi.New(newEndpoint("api_http"))
	if o.HTTP.Auth != nil {
		s.viaAuth = authapi.New(newEndpoint("auth"), o.HTTP.Auth)
		showReloads(o.Metrics, "auth", "the file for forward auth", o.HTTP.Auth.Status)
	}
	if err := s.listen(); err != nil {
		s.closeListeners()
		return nil, err
	}
	s.grpc = s.grpcServer() // which has goroutines from now on, until it is stopped
	s.http = s.httpServer(s.httpHandler(), o.HTTP.TLS, 15*time.Second)
	s.admin = s.adminServer()
	s.metrics = s.httpServer(s.metricsHandler(), nil, time.Minute)
	s.adminAPI = s.newAdminAPI(m.adminCalls) // which depends on where the port is
	return s, nil
}

// listen takes all ports.
func (s *Server) listen() error {
	o := &s.options
	grpcAddress := o.GRPC.Address
	if o.GRPC.Socket != "" {
		l, err := transport.ListenSocket(o.GRPC.Socket)
		if err != nil {
			return fmt.Errorf("grpc.socket: %w", err)
		}
		s.listeners["grpc"], grpcAddress = l, ""
	}
	for _, p := range []struct{ name, address string }{
		{"grpc", grpcAddress}, {"http", o.HTTP.Address}, {"admin", o.Admin.Address}, {"metrics", o.Admin.MetricsAddress},
	} {
		if p.address == "" {
			continue
		}
		l, err := net.Listen("tcp", p.address)
		if err != nil {
			return fmt.Errorf("%s.address: %w", p.name, err)
		}
		s.listeners[p.name] = l
	}
	return nil
}

func (s *Server) closeListeners() {
	for _, l := range s.listeners {
		l.Close()
	}
}

// Address returns the address of the port grpc, http, admin or metrics, a
// socket's as unix:path, or "" when it is off.
func (s *Server) Address(port string) string {
	l := s.listeners[port]
	switch {
	case l == nil:
		return ""
	case l.Addr().Network() == "unix":
		return "unix:" + l.Addr().String()
	}
	return l.Addr().String()
}

func (s *Server) grpcServer() *grpc.Server {
	onPanic := recovery.WithRecoveryHandler(func(p any) error {
		s.panics.Add(p)
		return status.Error(codes.Internal, "internal error")
	})
	unary := recovery.UnaryServerInterceptor(onPanic)
	if s.envoyproxy != nil {
		unary = s.envoyproxy.timing(unary)
	}
	options := []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(unary),
		grpc.ChainStreamInterceptor(recovery.StreamServerInterceptor(onPanic), s.watches.untilStop),
		grpc.MaxRecvMsgSize(endpoint.MessageBound(s.options.Requests.Bounds)),
		grpc.NumStreamWorkers(transport.StreamWorkers),
		grpc.StaticStreamWindowSize(transport.StreamWindow),
		grpc.StaticConnWindowSize(transport.ConnectionWindow),
		grpc.ForceServerCodecV2(endpoint.NewCodec()),
		grpc.MaxConcurrentStreams(streamsPerConnection),
		grpc.MaxHeaderListSize(maxMetadataBytes),
		grpc.ConnectionTimeout(handshake),
		grpc.UnknownServiceHandler(unknownMethod),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			MaxConnectionAge:      s.options.GRPC.ConnectionAge,
			MaxConnectionAgeGrace: s.options.GRPC.ConnectionAgeGrace,
			Time:                  time.Minute,
			Timeout:               20 * time.Second,
		}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
	}
	security := insecure.NewCredentials()
	if s.options.GRPC.TLS != nil {
		security = credentials.NewTLS(s.options.GRPC.TLS)
	}
	g := grpc.NewServer(append(options, grpc.Creds(transport.NewCredentials(security)))...)
	s.viaGRPC.Register(g)
	s.apiGRPC.Register(g)
	healthpb.RegisterHealthServer(g, s.ready.health)
	reflection.Register(g)
	return g
}

func (s *Server) httpServer(handler http.Handler, tls *tls.Config, write time.Duration) *http.Server {
	return &http.Server{
		Handler:           overload.HTTP(handler),
		ConnContext:       overload.WithConn,
		TLSConfig:         tls,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      write,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    overload.MaxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
}

// Run serves until it receives from stop or a port fails, which is its error. The value
// received is the drain delay: for that long the health says NOT_SERVING while requests
// are still answered. Another value cuts the delay short. Then Run waits for the requests
// in flight, and returns.
func (s *Server) Run(stop <-chan time.Duration) error {
	ctx, cancel := context.WithCancel(context.Background())
	var background sync.WaitGroup
	defer background.Wait()
	defer cancel()

	failed := make(chan error, len(s.listeners))
	background.Go(func() { s.guard.Run(ctx) })
	serve := func(name string, run func(net.Listener) error) {
		l := s.listeners[name]
		if l == nil {
			return
		}
		if name == "grpc" {
			l = overload.Listener{Listener: l, Guard: s.guard}
		} else {
			l = overload.HTTPListener{Listener: l, Guard: s.guard}
		}
		background.Go(func() {
			if err := run(l); err != nil && !errors.Is(err, http.ErrServerClosed) {
				failed <- fmt.Errorf("%s port: %w", name, err)
			}
		})
	}
	serve("grpc", s.grpc.Serve)
	serve("http", serveHTTP(s.http))
	serve("admin", serveHTTP(s.admin))
	serve("metrics", s.metrics.Serve)
	background.Go(func() { s.tickRules(ctx) })
	background.Go(func() { s.sendCounts(ctx) })
	watching, endWatch := context.WithCancel(ctx)
	defer endWatch()
	background.Go(func() { s.watchReadiness(watching) })

	var err error
	select {
	case err = <-failed:
	case delay := <-stop:
		endWatch() // all else goes on as long as requests are answered
		s.drain(delay, stop)
	}
	s.shutdown()
	return err
}

// tickRules makes rules do what they do from time to time, until ctx ends.
func (s *Server) tickRules(ctx context.Context) {
	tick := time.NewTicker(tally.TickEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if rules := s.options.Live.Rules(); rules != nil {
				rules.Tick(s.decider.Clock())
			}
		}
	}
}

// serveHTTP returns how an HTTP server serves, with TLS if it has any.
func serveHTTP(h *http.Server) func(net.Listener) error {
	if h.TLSConfig == nil {
		return h.Serve
	}
	return func(l net.Listener) error { return h.ServeTLS(l, "", "") }
}

// drain reports not ready, so that load balancers go elsewhere, and waits until they have.
func (s *Server) drain(delay time.Duration, stop <-chan time.Duration) {
	s.ready.end()
	s.log.Info("stopping", "drain_delay", delay)
	select {
	case <-time.After(delay):
	case <-stop:
	}
}

// shutdown ends what is in flight, and then all ports.
func (s *Server) shutdown() {
	s.ready.end()
	s.watches.end()
	ctx, cancel := context.WithTimeout(context.Background(), inFlight)
	defer cancel()
	var ports sync.WaitGroup
	ports.Go(func() {
		graceful := make(chan struct{})
		go func() {
			s.grpc.GracefulStop()
			close(graceful)
		}()
		select {
		case <-graceful:
		case <-ctx.Done():
			s.grpc.Stop()
			<-graceful
		}
	})
	for _, h := range []*http.Server{s.http, s.admin, s.metrics} {
		ports.Go(func() {
			if h.Shutdown(ctx) != nil {
				h.Close()
			}
		})
	}
	ports.Wait()
	s.adminAPI.Stop()
	s.closeListeners()
}

// unknownMethod refuses unknown methods by a handler, so that interceptors see the
// end of such calls.
func unknownMethod(_ any, stream grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(stream)
	return status.Errorf(codes.Unimplemented, "unknown method %s", method)
}
