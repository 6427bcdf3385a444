package daemon

import (
	"context"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/limitsfile"
	"github.com/ratelimitd/ratelimitd/internal/config/rules"
	"github.com/ratelimitd/ratelimitd/internal/config/settings"
	"github.com/ratelimitd/ratelimitd/internal/decisionlog"
	"github.com/ratelimitd/ratelimitd/internal/decisionlog/sink"
	"github.com/ratelimitd/ratelimitd/internal/server/record"
	"github.com/ratelimitd/ratelimitd/internal/tracing"
)

// decisions holds the log of decisions. All of it is nil if that is off.
type decisions struct {
	file     *sink.File
	otlp     *sink.OTLP
	recorder *record.Recorder
}

// openDecisions opens the log of decisions.
func openDecisions(ctx context.Context, version string, s settings.Settings, metrics prometheus.Registerer, log *slog.Logger) (*decisions, error) {
	d := new(decisions)
	o := &s.Decisions
	if !o.IsOn() {
		return d, nil
	}
	key, err := o.HashKey()
	if err != nil {
		return nil, err
	}
	lines := sink.NewLines(metrics, "ratelimitd_decision_log_lines_total", "Lines of the log of decisions, by what became of them.")
	var sinks []record.Sink
	leftOut := new(atomic.Int64)
	if o.Path != "" {
		d.file, err = sink.Open(sink.Options{
			Path: o.Path, MaxSize: o.MaxSize, Keep: o.Keep, Compress: o.Compress, Buffer: o.Buffer, Settings: recordedSettings(s),
			LeftOut: leftOut, Counts: sink.NewCounts(lines), Log: log,
		})
		if err != nil {
			return nil, err
		}
		sinks = append(sinks, d.file)
	}
	if o.OTLP.Endpoint != "" {
		if d.otlp, err = sendDecisions(ctx, version, s, metrics, log); err != nil {
			d.close()
			return nil, err
		}
		sinks = append(sinks, d.otlp)
	}
	d.recorder = record.New(record.Options{
		Sinks: sinks, Allowed: o.Sample.Allowed, Denied: o.Sample.Denied, PerSubject: o.PerSubject, BytesPerSecond: o.BytesPerSecond,
		HashKey: key, Thinned: lines.WithLabelValues("thinned"), LeftOut: leftOut, Now: func() int64 { return time.Now().UnixMicro() },
	})
	return d, nil
}

// recordedSettings returns the settings that a replay of the log needs.
func recordedSettings(s settings.Settings) *decisionlog.Settings {
	l := &s.Limits
	recorded := &decisionlog.Settings{
		ShadowMode: l.ShadowMode, QuotaMode: l.QuotaMode, Lenient: l.Lenient, MergeDomains: l.MergeDomains,
		DenyUnmatched: l.Unmatched == settings.DenyUnmatched, MaxClockSkew: bucket.DefaultMaxClockSkew,
	}
	if s.Store == settings.StoreRedis {
		recorded.MaxClockSkew = s.Redis.MaxClockSkew
	}
	if o := &s.Decisions; !o.IsWhole() || o.PerSubject > 0 || o.BytesPerSecond > 0 {
		recorded.Bounds = &decisionlog.Bounds{
			PerSubject: int64(o.PerSubject), BytesPerSecond: int64(o.BytesPerSecond),
			SampleAllowed: o.Sample.Allowed, SampleDenied: o.Sample.Denied,
		}
	}
	return recorded
}

// sendDecisions sends the log of decisions to a collector.
func sendDecisions(ctx context.Context, version string, s settings.Settings, metrics prometheus.Registerer, log *slog.Logger) (*sink.OTLP, error) {
	resource, err := tracing.NewResource(ctx, tracingOptions(version, s.Tracing))
	if err != nil {
		return nil, err
	}
	protocol := string(s.Decisions.OTLP.Protocol)
	if s.Decisions.OTLP.Protocol == settings.TracingAuto {
		protocol = ""
	}
	return sink.NewOTLP(ctx, sink.OTLPOptions{
		Endpoint: s.Decisions.OTLP.Endpoint, Protocol: protocol, Environment: os.Getenv, Resource: resource, Buffer: s.Decisions.Buffer, Log: log,
		Counts: sink.NewCounts(sink.NewLines(metrics, "ratelimitd_decision_log_otlp_lines_total", "Lines of the log of decisions for the collector, by what became of them.")),
	})
}

// announce returns what writes limits to the file before any decisions by them, or nil
// without a file.
func (d *decisions) announce() func(*rules.Set, []limitsfile.Text) {
	if d.file == nil {
		return nil
	}
	last := ""
	return func(r *rules.Set, texts []limitsfile.Text) {
		if r.Fingerprint() == last {
			return
		}
		last = r.Fingerprint()
		files := make([]decisionlog.File, len(texts))
		for i, t := range texts {
			files[i] = decisionlog.File{Name: t.Name, Text: t.Text}
		}
		d.file.Announce(last, files)
	}
}

// reopen reopens the file, which may have been moved.
func (d *decisions) reopen() {
	if d.file != nil {
		d.file.Reopen()
	}
}

// close writes what waits.
func (d *decisions) close() {
	if d.file != nil {
		d.file.Close()
	}
	if d.otlp != nil {
		d.otlp.Close()
	}
}
