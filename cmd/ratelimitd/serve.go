package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/forwardauth"
	"github.com/ratelimitd/ratelimitd/internal/config/settings"
	"github.com/ratelimitd/ratelimitd/internal/decide"
	"github.com/ratelimitd/ratelimitd/internal/gctuning"
	"github.com/ratelimitd/ratelimitd/internal/server"
	"github.com/ratelimitd/ratelimitd/internal/tlsfiles"
	"github.com/ratelimitd/ratelimitd/internal/top"
	"github.com/ratelimitd/ratelimitd/internal/tracing"
)

func serveCommand() *cobra.Command {
	file := ""
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the daemon",
		Long: `Runs the daemon until SIGTERM or Ctrl-C. SIGHUP loads the limits files again.

A setting such as redis.addresses can stand in a YAML file (--config), in the
environment (RATELIMITD_REDIS_ADDRESSES) and on the command line
(--redis-addresses); the later wins.`,
		Example: `  ratelimitd serve --limits-path deploy/limits
  RATELIMITD_STORE=redis RATELIMITD_REDIS_ADDRESSES=10.0.0.5:6379 ratelimitd serve --config ratelimitd.yaml`,
		Args: noArguments,
	}
	cmd.Flags().StringVar(&file, "config", os.Getenv("RATELIMITD_CONFIG"), "YAML file of settings")
	settings.BindFlags(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		s, warnings, err := settings.Load(cmd.Flags(), os.Environ(), file)
		if err != nil {
			return fmt.Errorf("settings:\n%w", err)
		}
		return serveWith(cmd, s, warnings)
	}
	return cmd
}

// serveWith logs the warnings about the settings, and serves.
func serveWith(cmd *cobra.Command, s settings.Settings, warnings []string) error {
	log := newLogger(cmd.ErrOrStderr(), s.Log)
	for _, w := range warnings {
		log.Warn(w)
	}
	return serve(cmd.Context(), s, log)
}

// serve opens what the daemon is made of, and runs it until a signal or a failure.
func serve(ctx context.Context, s settings.Settings, log *slog.Logger) error {
	told := notifySignals()
	defer told.end()
	log.Info("starting", "version", versionText())
	tuner := tuneGC(log)
	log.Debug("settings in force", "settings", s)
	metrics := newMetrics()
	logTelemetry(log)
	decisions, err := openDecisions(ctx, s, metrics, log)
	if err != nil {
		return err
	}
	defer decisions.close()
	limits, err := loadLimits(s.Limits, tuner, decisions.announce(), metrics, log)
	if err != nil {
		return err
	}
	auth, err := loadAuth(s.Auth, log)
	if err != nil {
		return err
	}
	who, err := loadAccess(s, metrics, log)
	if err != nil {
		return err
	}
	tracer, err := newTracer(ctx, s.Tracing, metrics, log)
	if err != nil {
		return err
	}
	if tracer != nil {
		defer tracer.Close()
	}
	engine, err := newEngine(s, limits.live, tracer, metrics, log)
	if err != nil {
		return err
	}
	defer engine.close()
	if err := engine.refusedByStore(ctx); err != nil {
		return err
	}
	endLimits, err := limits.follow(ctx, s.Limits.Initial, told, log)
	if errors.Is(err, errToldToStop) {
		log.Info("stopped")
		return nil
	} else if err != nil {
		return err
	}
	defer endLimits()
	assigned, err := newAssignments(s, engine, metrics, log)
	if err != nil {
		return err
	}
	defer assigned.close()
	if tuner != nil {
		assigned.Table().OnFilling(tuner.Filling)
	}
	return parts{limits, auth, who, engine, assigned, newAsked(engine, assigned, log), tracer, decisions, metrics, log}.run(ctx, s, told)
}

// parts are what the server is wired from. auth and tracer may be nil. They belong to
// the caller, who closes them after run.
type parts struct {
	limits    *limits
	auth      *forwardauth.Live
	who       accessFiles
	engine    *engine
	assigned  *assignments
	asked     *asked
	tracer    *tracing.Tracer
	decisions *decisions
	metrics   *prometheus.Registry
	log       *slog.Logger
}

// run opens the ports and serves until a signal or a failure. Nothing that it begins
// goes on when it returns.
func (p parts) run(ctx context.Context, s settings.Settings, told signals) error {
	srv, err := newServer(s, p)
	if err != nil {
		return err
	}
	p.assigned.settleWith(srv.Settle)
	p.asked.answerWith(srv.Top)

	ctx, cancel := context.WithCancel(ctx)
	var background sync.WaitGroup
	defer background.Wait()
	defer cancel()
	background.Go(func() { gctuning.GiveBack(ctx) })
	files := p.files()
	if s.Limits.Watch {
		for _, f := range files {
			background.Go(func() { f.Watch(ctx) })
		}
	}
	if members := p.engine.fleet; members != nil {
		// Before anything is served: the register may forbid it.
		_ = members.SignIn(ctx) // which logs
		background.Go(func() { members.Run(ctx) })
	}
	stop, failed := make(chan time.Duration), make(chan error, 1)
	p.assigned.run(ctx, p.engine, &background, p.log, func(err error) {
		failed <- err
		select {
		case stop <- 0:
		case <-ctx.Done():
		}
	})
	background.Go(func() { p.asked.run(ctx) })
	background.Go(func() { told.stopWhenTold(ctx, s.DrainDelay, stop) })
	background.Go(func() { told.reloadWhenTold(ctx, files, p.decisions, p.log) })
	if err := srv.Run(stop); err != nil {
		return err
	}
	select {
	case err := <-failed:
		return err
	default:
	}
	p.log.Info("stopped")
	return nil
}

// files returns the files that are loaded again when they change.
func (p parts) files() []reloader {
	var all []reloader
	if p.limits.xds == nil {
		all = append(all, p.limits.live)
	}
	if p.auth != nil {
		all = append(all, p.auth)
	}
	return append(all, p.who.files()...)
}

// reloader is a reload.Live: of limits, or of another file.
type reloader interface {
	Reload() error
	Watch(ctx context.Context)
}

// topsOf says which subjects rules keep.
func topsOf(t settings.Top) decide.Tops {
	return decide.Tops{
		Denied: t.Subjects != settings.TopOff,
		Used:   t.Subjects == settings.TopAll,
		Budget: top.NewBudget(topMemory(t)),
	}
}

// loadAuth loads the file for forward auth; nil without one.
func loadAuth(a settings.Auth, log *slog.Logger) (*forwardauth.Live, error) {
	if a.Path == "" {
		return nil, nil
	}
	live := forwardauth.NewLive(a.Path, log)
	if err := live.Reload(); err != nil {
		return nil, fmt.Errorf("nothing is in force for forward auth (auth.path is %s):\n%w", a.Path, err)
	}
	return live, nil
}

// newServer listens on the ports of the settings.
func newServer(s settings.Settings, p parts) (*server.Server, error) {
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
	var limitsStatus func(io.Writer)
	if p.limits.xds != nil {
		limitsStatus = p.limits.xds.WriteStatus
	}
	return server.New(server.Options{
		GRPC: server.GRPC{
			Address:            s.GRPC.Address,
			Socket:             s.GRPC.Socket,
			TLS:                grpcTLS,
			ConnectionAge:      s.GRPC.MaxConnectionAge,
			ConnectionAgeGrace: s.GRPC.MaxConnectionAgeGrace,
		},
		HTTP: server.HTTP{Address: s.HTTP.Address, TLS: httpTLS, Auth: p.auth},
		Admin: server.Admin{
			Address:        s.Admin.Address,
			TLS:            adminTLS,
			Members:        p.who.members,
			Assignments:    p.assigned,
			Daemons:        p.engine.daemons(),
			AskTop:         p.asked.asker(),
			Pprof:          s.Admin.Pprof,
			MetricsAddress: s.Metrics.Address,
			MetricsPath:    s.Metrics.Path,
		},
		Requests: server.Requests{
			Bounds: decide.Bounds{
				Descriptors: s.GRPC.MaxDescriptors,
				Takes:       s.GRPC.MaxTakes,
				Entries:     s.GRPC.MaxEntries,
				Bytes:       s.GRPC.MaxBytes,
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
		Hits:         decide.HitCounting{On: s.Metrics.Names == settings.NamesEnvoyproxy || stats.Sender != nil, NearRatio: s.Metrics.NearRatio},
		Statsd:       stats,
		Tops:         topsOf(s.Top),
		Live:         p.limits.live,
		LimitsStatus: limitsStatus,
		Store:        p.engine.store,
		Tenure:       p.engine.tenure(),
		Degrade:      p.engine.degrade,
		StoreWaits:   s.Store == settings.StoreRedis,
		Metrics:      p.metrics,
		Log:          p.log,
		Version:      versionText(),
		Tracer:       p.tracer,
		Recorder:     p.decisions.recorder,
	})
}

// readinessOf returns when the daemon is ready. With a failure mode that answers it
// needs no store to be ready, unless it is told to wait for it.
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
