package daemon

import (
	"fmt"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/settings"
	"github.com/ratelimitd/ratelimitd/internal/decide"
	"github.com/ratelimitd/ratelimitd/internal/server"
	"github.com/ratelimitd/ratelimitd/internal/server/adminapi"
	"github.com/ratelimitd/ratelimitd/internal/tlsfiles"
	"github.com/ratelimitd/ratelimitd/internal/top"
)

// newServer listens on the ports of the settings.
func (p *parts) newServer(s settings.Settings) (*server.Server, error) {
	grpcTLS, err := tlsfiles.ServerConfig(s.GRPC.TLS, p.log)
	if err != nil {
		return nil, fmt.Errorf("grpc.tls: %w", err)
	}
	httpTLS, err := tlsfiles.ServerConfig(s.HTTP.TLS, p.log)
	if err != nil {
		return nil, fmt.Errorf("http.tls: %w", err)
	}
	adminTLS, err := tlsfiles.ServerConfig(s.Admin.TLS, p.log)
	if err != nil {
		return nil, fmt.Errorf("admin.tls: %w", err)
	}
	stats, err := statsdOf(s, p.log)
	if err != nil {
		return nil, err
	}
	options := p.options(s)
	options.GRPC.TLS, options.HTTP.TLS, options.Admin.TLS = grpcTLS, httpTLS, adminTLS
	options.Statsd = stats
	options.Hits = decide.HitCounting{On: s.Metrics.Names == settings.NamesEnvoyproxy || stats.Sender != nil, NearRatio: s.Metrics.NearRatio}
	options.MaxRules = s.Metrics.MaxRules
	if p.limits.xds != nil {
		options.LimitsStatus = p.limits.xds.WriteStatus
	}
	return server.New(options)
}

// options returns the options of the server, except for what may be wrong in the
// settings.
func (p *parts) options(s settings.Settings) server.Options {
	return server.Options{
		GRPC: server.GRPC{
			Address:            s.GRPC.Address,
			Socket:             s.GRPC.Socket,
			ConnectionAge:      s.GRPC.MaxConnectionAge,
			ConnectionAgeGrace: s.GRPC.MaxConnectionAgeGrace,
		},
		HTTP: server.HTTP{Address: s.HTTP.Address, Auth: p.auth},
		Admin: server.Admin{
			Address:        s.Admin.Address,
			Members:        p.who.members,
			Assignments:    p.assigned,
			Relief:         adminapi.Relief{Times: s.Assignments.ReliefTimes, For: s.Assignments.ReliefFor},
			Daemons:        p.engine.daemons(),
			AskTop:         p.asked.asker(),
			Pprof:          s.Admin.Pprof,
			MetricsAddress: s.Metrics.Address,
			MetricsPath:    s.Metrics.Path,
		},
		Requests: server.Requests{
			Bounds: decide.Bounds{
				Descriptors:  s.GRPC.MaxDescriptors,
				Takes:        s.GRPC.MaxTakes,
				Entries:      s.GRPC.MaxEntries,
				Bytes:        s.GRPC.MaxBytes,
				SettleWithin: s.API.MaxSettleWithin,
			},
			Memory:  requestMemory(s),
			Refunds: s.API.Refunds,
			Callers: p.who.callers,
		},
		Assigned:  p.assigned.Table(),
		Modes:     decide.Modes{Shadow: s.Limits.ShadowMode, Quota: s.Limits.QuotaMode, DenyUnmatched: s.Limits.Unmatched == settings.DenyUnmatched},
		Responses: server.Responses{DynamicMetadata: s.API.DynamicMetadata, Headers: s.Headers},
		Health: server.Health{
			Readiness:      readinessOf(s),
			OnlyWithDomain: !s.Limits.ReadyWhenEmpty,
			BeforeLimits:   s.Limits.ReadyBeforeLoaded,
			Refuses:        p.engine.refuses,
			Loading:        p.assigned.loading,
			Lacks:          p.assigned.lacks,
			OnAnswer:       p.engine.onAnswer,
		},
		Tops:        topsOf(s.Top),
		Live:        p.limits.live,
		Store:       p.engine.store,
		Many:        p.engine.many,
		RemoteStore: s.Store == settings.StoreRedis,
		Metrics:     p.metrics,
		Log:         p.log,
		Version:     p.version,
		Tracer:      p.tracer,
		Recorder:    p.decisions.recorder,
	}
}

// readinessOf returns when the daemon is ready. With a failure mode that answers it
// needs no store to be ready, unless a setting makes it wait for it.
func readinessOf(s settings.Settings) server.Readiness {
	switch {
	case s.Store == settings.StoreMemory:
		return server.Always
	case s.Failure.Health == settings.HealthFirstAnswer:
		return server.OnceStoreAnswered
	case s.Failure.Mode != bucket.FailError:
		return server.Always
	case s.Failure.Health == settings.HealthNotServing:
		return server.WhileStoreAnswers
	}
	return server.OnceStoreAnswered
}

// topsOf says which subjects rules keep.
func topsOf(t settings.Top) decide.Tops {
	return decide.Tops{
		Denied: t.Subjects != settings.TopOff,
		Used:   t.Subjects == settings.TopAll,
		Budget: top.NewBudget(topMemory(t)),
	}
}
