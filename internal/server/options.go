package server

import (
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ratelimitd/ratelimitd/internal/access"
	"github.com/ratelimitd/ratelimitd/internal/assign"
	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/forwardauth"
	"github.com/ratelimitd/ratelimitd/internal/config/rules"
	"github.com/ratelimitd/ratelimitd/internal/config/settings"
	"github.com/ratelimitd/ratelimitd/internal/decide"
	"github.com/ratelimitd/ratelimitd/internal/fleet"
	"github.com/ratelimitd/ratelimitd/internal/server/adminapi"
	"github.com/ratelimitd/ratelimitd/internal/server/record"
	"github.com/ratelimitd/ratelimitd/internal/top"
	"github.com/ratelimitd/ratelimitd/internal/tracing"
)

// Options of a Server.
type Options struct {
	GRPC     GRPC
	HTTP     HTTP
	Admin    Admin
	Requests Requests
	Modes    decide.Modes
	// Assigned are the assignments in force; nil means none.
	Assigned  *assign.Table
	Responses Responses
	Health    Health
	// Hits says when a limit is near its end. If it is on, hits are counted and shown,
	// with all metrics by the names of envoyproxy/ratelimit.
	Hits decide.HitCounting
	// Statsd gets what is counted by these names.
	Statsd Statsd
	// MaxRules is how many rules have series of their own in metrics; 0 is 5,000.
	MaxRules int
	// Tops says whether rules keep the subjects that had the most.
	Tops decide.Tops
	// Live has the rules. While it has none, no request is answered, and unless
	// Health says otherwise the health check fails.
	Live *rules.Live
	// LimitsStatus, if set, writes lines about where limits come from, each after
	// a #. Without it they come from files.
	LimitsStatus func(io.Writer)
	Store        bucket.Store
	// Many is how Store decides several takes at a time; nil if it does not.
	Many decide.ManyTaker
	// RemoteStore is set if another process decides for the store, so that many
	// requests have to ask it at the same time.
	RemoteStore bool
	// Metrics is what /metrics shows. The server registers its own there.
	Metrics *prometheus.Registry
	Log     *slog.Logger
	// Tracer makes the spans of requests; nil makes none. It belongs to the
	// caller, who closes it after the server.
	Tracer *tracing.Tracer
	// Recorder writes the log of decisions; nil writes none. Its sinks belong to the
	// caller, who closes them after the server.
	Recorder *record.Recorder
	// Now is the clock by which assignments end, and which spaces lines of the log; nil
	// is time.Now.
	Now     func() time.Time
	Version string
}

// setDefaults fills in what may be left out.
func (o *Options) setDefaults() {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Health.Refuses == nil {
		o.Health.Refuses = func() error { return nil }
	}
	if o.Health.Loading == nil {
		o.Health.Loading = func() error { return nil }
	}
	if o.Health.Lacks == nil {
		o.Health.Lacks = func() error { return nil }
	}
	if o.MaxRules == 0 {
		o.MaxRules = defaultMaxRules
	}
	if o.Requests.Memory == 0 {
		o.Requests.Memory = defaultMemory
	}
}

// GRPC is the gRPC port.
type GRPC struct {
	// Address is host:port; the port 0 takes a free one.
	Address string
	// Socket, if set, is the path of a unix socket to listen on instead.
	Socket string
	// TLS is nil for plain text.
	TLS *tls.Config
	// ConnectionAge is the age at which clients are asked to reconnect, which makes those
	// behind a load balancer of connections find new daemons, and ConnectionAgeGrace how
	// long their calls then have to end; 0 means no limit.
	ConnectionAge, ConnectionAgeGrace time.Duration
}

// HTTP is the HTTP port.
type HTTP struct {
	// Address is host:port; empty turns the port off, and the port 0 takes a free
	// one.
	Address string
	// TLS is nil for plain text.
	TLS *tls.Config
	// Auth, if set, has the endpoints at /auth/ for proxies. It is loaded.
	Auth *forwardauth.Live
}

// Admin is the port for operators.
type Admin struct {
	// Address is host:port; empty turns the port off, and the port 0 takes a free
	// one.
	Address string
	// TLS is nil for plain text.
	TLS *tls.Config
	// Members, if set, are those who may call the admin API. It is loaded. Without it
	// callers on this machine may see what is in force, explain and inspect if Address
	// is loopback, and those with a certificate may see it if TLS asks for one.
	Members *access.LiveMembers
	// Assignments keeps what is assigned; Options.Assigned is what is in force of it. With
	// nil nothing can be assigned.
	Assignments assign.Store
	// Relief bounds what the role support may assign.
	Relief adminapi.Relief
	// Daemons returns the daemons that share the store, the ID of this one, and the time
	// of that list, on their clock; nil means that there are no others.
	Daemons func(context.Context) (_ []fleet.Daemon, self string, at time.Time, _ error)
	// AskTop asks the other daemons who had the most. It calls take with their answers,
	// one at a time, and returns the IDs of those that did not give one; nil means that
	// there are no others.
	AskTop func(_ context.Context, _ top.Question, take func(top.Answer)) (pending []string, _ error)
	// Pprof adds /debug/pprof/.
	Pprof bool
	// MetricsAddress, if set, is another port with nothing but the metrics, under
	// MetricsPath.
	MetricsAddress, MetricsPath string
}

// defaultMemory is Requests.Memory if Options do not say, in bytes.
const defaultMemory = 512 << 20

// Requests says which requests are accepted.
type Requests struct {
	Bounds decide.Bounds
	// Memory is how many bytes all requests that are being read and answered may
	// hold; 0 is 512 MiB.
	Memory int64
	// Refunds allows requests to give back.
	Refunds bool
	// Callers, if set, are those who may ask. It is loaded.
	Callers *access.LiveCallers
}

// Responses says what Envoy's responses contain.
type Responses struct {
	// DynamicMetadata repeats the request in them.
	DynamicMetadata bool
	// Headers describe limits; no Style is "none".
	Headers settings.Headers
}

// Health says when the health check says SERVING.
type Health struct {
	Readiness Readiness
	// OnlyWithDomain makes it fail while the rules have no domain.
	OnlyWithDomain bool
	// BeforeLimits makes it succeed before there are rules, unless OnlyWithDomain.
	BeforeLimits bool
	// Refuses, if set, returns why this daemon must not decide anything, or nil.
	// That fails the health check, and each request that has a limit.
	Refuses func() error
	// Loading, if set, returns why it is not known yet what is assigned, or nil. That
	// fails the health check, and each request.
	Loading func() error
	// Lacks, if set, returns why requests should go to other daemons, or nil. That fails
	// the health check alone.
	Lacks func() error
	// OnAnswer, if set, is called when the store has answered for the first time.
	OnAnswer func(context.Context)
}
