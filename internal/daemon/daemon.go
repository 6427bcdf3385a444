package daemon

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ratelimitd/ratelimitd/internal/config/forwardauth"
	"github.com/ratelimitd/ratelimitd/internal/config/settings"
	"github.com/ratelimitd/ratelimitd/internal/gctuning"
	"github.com/ratelimitd/ratelimitd/internal/tracing"
)

// Addresses are where a daemon listens, as host:port or unix:path. A port that is off has
// none.
type Addresses struct{ GRPC, HTTP, Admin string }

// Run opens what the daemon is made of, and runs it until a signal, the end of ctx or a
// failure.
func Run(ctx context.Context, version string, s settings.Settings, log *slog.Logger) error {
	return RunListening(ctx, version, s, log, func(Addresses) {})
}

// RunListening is Run, and calls listening once all ports are open. What is sent to them
// from then on is answered soon after it returns.
func RunListening(ctx context.Context, version string, s settings.Settings, log *slog.Logger, listening func(Addresses)) error {
	received := notifySignals()
	defer received.end()
	log.Info("starting", "version", version)
	p := parts{version: version, tuner: tuneGC(log), metrics: newMetrics(version), listening: listening, log: log}
	defer p.close()
	log.Debug("settings in force", "settings", s)
	logTelemetry(log)
	if err := p.openFiles(ctx, s); err != nil {
		return err
	}
	err := p.openStore(ctx, s, received)
	if errors.Is(err, errStopped) {
		log.Info("stopped")
		return nil
	} else if err != nil {
		return err
	}
	return p.run(ctx, s, received)
}

// parts are what the server is wired from. auth, tracer and tuner may be nil.
type parts struct {
	version   string
	limits    *limits
	auth      *forwardauth.Live
	who       accessFiles
	engine    *engine
	assigned  *assignments
	asked     *asked
	tracer    *tracing.Tracer
	tuner     *gctuning.Tuner
	decisions *decisions
	metrics   *prometheus.Registry
	listening func(Addresses)
	log       *slog.Logger
	// closing ends the parts, in the order in which they were opened.
	closing []func()
}

// onClose adds what ends a part. Parts that are opened later end earlier.
func (p *parts) onClose(end func()) { p.closing = append(p.closing, end) }

// close ends the parts, the last one first.
func (p *parts) close() {
	for _, end := range slices.Backward(p.closing) {
		end()
	}
}

// openFiles loads what files say, and opens what is written.
func (p *parts) openFiles(ctx context.Context, s settings.Settings) (err error) {
	if p.decisions, err = openDecisions(ctx, p.version, s, p.metrics, p.log); err != nil {
		return err
	}
	p.onClose(p.decisions.close)
	if p.limits, err = loadLimits(s.Limits, p.tuner, p.decisions.announce(), p.metrics, p.log); err != nil {
		return err
	}
	if p.auth, err = loadAuth(s.Auth, p.log); err != nil {
		return err
	}
	if p.who, err = loadAccess(s, p.metrics, p.log); err != nil {
		return err
	}
	if p.tracer, err = newTracer(ctx, p.version, s.Tracing, p.metrics, p.log); err != nil {
		return err
	}
	if p.tracer != nil {
		p.onClose(p.tracer.Close)
	}
	return nil
}

// openStore opens the store and that of assignments, once there are limits. It returns
// errStopped if a signal comes first.
func (p *parts) openStore(ctx context.Context, s settings.Settings, received signals) (err error) {
	if p.engine, err = newEngine(p.version, s, p.limits.live, p.tracer, p.metrics, p.log); err != nil {
		return err
	}
	p.onClose(func() { _ = p.engine.close() })
	if err := p.engine.refusedByStore(ctx); err != nil {
		return err
	}
	endLimits, err := p.limits.follow(ctx, s.Limits.Initial, received, p.log)
	if err != nil {
		return err
	}
	p.onClose(endLimits)
	if p.assigned, err = newAssignments(s, p.engine, p.metrics, p.log); err != nil {
		return err
	}
	p.onClose(func() { _ = p.assigned.close() })
	if p.tuner != nil {
		p.assigned.Table().OnFilling(p.tuner.Filling)
	}
	p.asked = newAsked(p.engine, p.assigned, p.log)
	return nil
}

// run opens the ports and serves until a signal, the end of outer or a failure. Nothing
// that it starts outlives it.
func (p *parts) run(outer context.Context, s settings.Settings, received signals) error {
	srv, err := p.newServer(s)
	if err != nil {
		return err
	}
	p.asked.answerWith(srv.Top)

	// What requests in flight need goes on until the server has ended.
	ctx, cancel := context.WithCancel(context.WithoutCancel(outer))
	var background sync.WaitGroup
	defer background.Wait()
	defer cancel()
	files := p.files()
	p.start(ctx, s, files, &background)
	stop, failed := make(chan time.Duration), make(chan error, 1)
	stopNow := func() {
		select {
		case stop <- 0:
		case <-ctx.Done():
		}
	}
	p.assigned.run(ctx, p.engine, &background, p.log, func(err error) {
		failed <- err
		stopNow()
	})
	background.Go(func() {
		select {
		case <-outer.Done():
			stopNow()
		case <-ctx.Done():
		}
	})
	p.listening(Addresses{GRPC: srv.Address("grpc"), HTTP: srv.Address("http"), Admin: srv.Address("admin")})
	background.Go(func() { p.asked.run(ctx) })
	background.Go(func() { received.stopAtSignal(ctx, s.DrainDelay, stop) })
	background.Go(func() { received.reloadAtSignal(ctx, files, p.decisions, p.log) })
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

// start starts what the server needs before it serves, and what runs until ctx ends.
func (p *parts) start(ctx context.Context, s settings.Settings, files []reloader, background *sync.WaitGroup) {
	background.Go(func() { gctuning.GiveBack(ctx) })
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
}

// files returns the files that are reloaded when they change.
func (p *parts) files() []reloader {
	var all []reloader
	if p.limits.xds == nil {
		all = append(all, p.limits.live)
	}
	if p.auth != nil {
		all = append(all, p.auth)
	}
	return append(all, p.who.files()...)
}
