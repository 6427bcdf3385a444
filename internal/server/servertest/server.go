// Package servertest is a daemon's server for tests: on limits and a store that a test
// chooses, with clients of its ports, and what these answer in forms that a table can
// hold. It imports server, and what its options are made of.
package servertest

import (
	"context"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/config/limitsfile"
	"github.com/ratelimitd/ratelimitd/internal/config/rules"
	"github.com/ratelimitd/ratelimitd/internal/decide"
	"github.com/ratelimitd/ratelimitd/internal/server"
	"github.com/ratelimitd/ratelimitd/internal/server/adminapi"
	"github.com/ratelimitd/ratelimitd/internal/top"
)

// Daemon is a server that runs until the test ends, with clients.
type Daemon struct {
	T      testing.TB
	Server *server.Server
	Live   *rules.Live
	File   string // of the limits
	Log    *Log
	Clock  *asynctest.Clock // of the store, the log and reloads
	// Since is the clock of reloads: Clock, unless a test changes it.
	Since func() int64

	// Conn is a connection to the gRPC port, without TLS unless a test dials again. RLS
	// and Health are on it.
	Conn   *grpc.ClientConn
	RLS    rlsv3.RateLimitServiceClient
	Health healthpb.HealthClient
	// Client is for all HTTP ports.
	Client *http.Client

	Stop  chan time.Duration // stops the server, as server.Run says
	Ended chan struct{}      // is closed once the server has ended
	Err   error              // of the server's Run, once it has ended
}

// Start runs a server on the limits, in YAML, until the test ends, and waits until it
// serves. Without a change it has the options of NewOptions, and a log.
func Start(t testing.TB, limits string, change ...func(*server.Options)) *Daemon {
	t.Helper()
	d := Run(t, limits, change...)
	asynctest.Eventually(t, "SERVING", func() bool { return d.Check("") == "SERVING" })
	return d
}

// Run is Start, but does not wait.
func Run(t testing.TB, limits string, change ...func(*server.Options)) *Daemon {
	t.Helper()
	d := &Daemon{T: t, Log: new(Log), Clock: NewClock(), Stop: make(chan time.Duration), Ended: make(chan struct{})}
	o := d.options(limits)
	for _, c := range change {
		c(&o)
	}
	var err error
	if d.Server, err = server.New(o); err != nil {
		t.Fatal(err)
	}
	d.Dial(Plain())
	d.Client = &http.Client{Transport: &http.Transport{}, Timeout: Patience}
	go func() {
		d.Err = d.Server.Run(d.Stop)
		close(d.Ended)
	}()
	t.Cleanup(d.End)
	return d
}

// NewOptions returns the options of a server on the limits, with the memory store, on
// free ports, and without a log.
func NewOptions(t testing.TB, limits string, change ...func(*server.Options)) server.Options {
	t.Helper()
	d := &Daemon{T: t, Log: new(Log), Clock: NewClock()}
	o := d.options(limits)
	o.Log = slog.New(slog.DiscardHandler)
	for _, c := range change {
		c(&o)
	}
	return o
}

// options returns the options of a server with the memory store on free ports.
func (d *Daemon) options(limits string) server.Options {
	d.T.Helper()
	d.File = filepath.Join(d.T.TempDir(), "limits.yaml")
	d.Write(limits)
	logger := slog.New(slog.NewTextHandler(d.Log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	d.Since = d.Clock.Micros
	d.Live = limitsfile.Options{Clock: func() int64 { return d.Since() }}.NewLive(d.File, logger)
	if err := d.Live.Reload(); err != nil {
		d.T.Fatal(err)
	}
	return server.Options{
		GRPC:     server.GRPC{Address: "127.0.0.1:0"},
		HTTP:     server.HTTP{Address: "127.0.0.1:0"},
		Admin:    server.Admin{Address: "127.0.0.1:0", Relief: adminapi.Relief{Times: 2, For: 24 * time.Hour}},
		Requests: server.Requests{Bounds: decide.Bounds{Descriptors: 100, Entries: 32, Bytes: 65536, Takes: 1000}, Refunds: true},
		Live:     d.Live,
		Store:    Memory(d.T, d.Clock),
		Hits:     decide.HitCounting{NearRatio: 0.8},
		Metrics:  prometheus.NewRegistry(),
		Log:      logger,
		Now:      d.Clock.Time,
		Version:  "v0.0.0-test",
	}
}

// Dial makes the gRPC clients use another connection.
func (d *Daemon) Dial(o ...grpc.DialOption) {
	d.T.Helper()
	conn, err := grpc.NewClient(d.Server.Address("grpc"), o...)
	if err != nil {
		d.T.Fatal(err)
	}
	d.T.Cleanup(func() { _ = conn.Close() })
	d.Conn, d.RLS, d.Health = conn, rlsv3.NewRateLimitServiceClient(conn), healthpb.NewHealthClient(conn)
}

// End stops the server at once, if it runs, and waits for it.
func (d *Daemon) End() {
	_ = d.Conn.Close()
	d.Client.CloseIdleConnections()
	select {
	case d.Stop <- 0:
	case <-d.Ended:
	}
	d.Wait()
}

// Wait waits until Run has returned without an error.
func (d *Daemon) Wait() {
	select {
	case <-d.Ended:
		if d.Err != nil {
			d.T.Errorf("Run: %v", d.Err)
		}
	case <-time.After(Patience):
		d.T.Error("Run does not return")
	}
}

// Write replaces the limits file.
func (d *Daemon) Write(limits string) {
	d.T.Helper()
	if err := os.WriteFile(d.File, []byte(limits), 0o644); err != nil {
		d.T.Fatal(err)
	}
}

// Check returns the health of a service, or the error of asking.
func (d *Daemon) Check(service string) string {
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	h, err := d.Health.Check(ctx, &healthpb.HealthCheckRequest{Service: service})
	if err != nil {
		return err.Error()
	}
	return h.GetStatus().String()
}

// Reload replaces the limits file, and puts it in force.
func (d *Daemon) Reload(limits string) {
	d.T.Helper()
	d.Write(limits)
	if err := d.Live.Reload(); err != nil {
		d.T.Fatal(err)
	}
}

// KeepingTops makes a server keep all subjects that had the most.
func KeepingTops(o *server.Options) {
	o.Tops = decide.Tops{Denied: true, Used: true, Budget: top.NewBudget(64 << 20)}
}
