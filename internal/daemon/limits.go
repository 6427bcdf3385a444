package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ratelimitd/ratelimitd/internal/config/limitsfile"
	"github.com/ratelimitd/ratelimitd/internal/config/rules"
	"github.com/ratelimitd/ratelimitd/internal/config/settings"
	"github.com/ratelimitd/ratelimitd/internal/config/xds"
	"github.com/ratelimitd/ratelimitd/internal/gctuning"
	"github.com/ratelimitd/ratelimitd/internal/tlsfiles"
)

// limits holds the rules in force and what keeps them current.
type limits struct {
	live *rules.Live
	xds  *xds.Client // nil where limits come from files
}

// loadLimits loads the limits files, or the cached limits of an xDS server. announce, if
// set, gets them before they are in force.
func loadLimits(s settings.Limits, tuner *gctuning.Tuner, announce func(*rules.Set, []limitsfile.Text), metrics prometheus.Registerer, log *slog.Logger) (*limits, error) {
	options := limitsfile.Options{MergeDomains: s.MergeDomains, Lenient: s.Lenient, Announce: announce}
	if tuner != nil {
		options.Sparing = tuner.Sparing
	}
	if s.Source == settings.SourceXDS {
		return limitsOverXDS(s, options, metrics, log)
	}
	live := options.NewLive(s.Path, log)
	if err := live.Reload(); err != nil {
		err = fmt.Errorf("no limits are in force (limits.path is %s):\n%w", s.Path, err)
		if s.Initial == settings.InitialRequired {
			return nil, err
		}
		log.Error("requests are answered once limits can be loaded", "error", err)
	}
	return &limits{live: live}, nil
}

func limitsOverXDS(s settings.Limits, options limitsfile.Options, metrics prometheus.Registerer, log *slog.Logger) (*limits, error) {
	headers := make(map[string]string, len(s.XDS.Headers))
	for name, value := range s.XDS.Headers {
		headers[name] = value.Reveal()
	}
	live := options.NewFedLive("xds "+s.XDS.Address, log)
	client, err := xds.New(xds.Options{
		Address:      s.XDS.Address,
		NodeID:       s.XDS.NodeID,
		NodeMetadata: s.XDS.NodeMetadata,
		Headers:      headers,
		TLS: tlsfiles.Client{
			Enabled: s.XDS.TLS.Enabled, CA: s.XDS.TLS.CA, Cert: s.XDS.TLS.Cert, Key: s.XDS.TLS.Key, ServerName: s.XDS.TLS.ServerName,
		},
		MaxBytes:  s.XDS.MaxBytes,
		CachePath: s.CachePath,
		Live:      live,
		Metrics:   metrics,
		Log:       log,
	})
	if err != nil {
		return nil, fmt.Errorf("limits.xds.tls: %w", err)
	}
	return &limits{live: live.Live, xds: client}, nil
}

// errStopped ends a daemon that received a signal before it served.
var errStopped = errors.New("stopped by a signal")

// follow follows the xDS server, if limits come from one, until end is called.
// Unless limits are optional it waits for the server's first answer, without a
// time limit; it returns errStopped if a signal ends the wait.
func (l *limits) follow(ctx context.Context, initial settings.Initial, received signals, log *slog.Logger) (end func(), err error) {
	if l.xds == nil {
		return func() {}, nil
	}
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { l.xds.Run(ctx) })
	end = func() {
		cancel()
		running.Wait()
	}
	if initial == settings.InitialOptional || l.live.Rules() != nil {
		return end, nil
	}
	log.Info("waiting for the limits of the xDS server before any port is opened")
	select {
	case <-l.xds.Answered():
		return end, nil
	case <-received.stop:
		err = errStopped
	case <-ctx.Done():
		err = ctx.Err()
	}
	end()
	return nil, err
}
