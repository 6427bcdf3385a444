package server

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/ratelimitd/ratelimitd/internal/config/reload"
	"github.com/ratelimitd/ratelimitd/internal/config/rules"
	"github.com/ratelimitd/ratelimitd/internal/decide"
	"github.com/ratelimitd/ratelimitd/internal/server/endpoint"
	"github.com/ratelimitd/ratelimitd/internal/server/overload"
)

// metrics are the counters that requests update. Nothing is looked up by name or
// allocated for that; rules have counters of their own.
type metrics struct {
	calls, adminCalls *prometheus.CounterVec
	durations         *prometheus.HistogramVec
	panics, cut       prometheus.Counter
	ownLimits         decide.Results
	settlements       *decide.SettlementCounts
}

// newMetrics registers all metrics of the server.
func newMetrics(registry *prometheus.Registry, ready *readiness) *metrics {
	factory := promauto.With(registry)
	factory.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "ratelimitd_serving",
		Help: "1 while the health check says SERVING, else 0.",
	}, func() float64 { return oneIf(ready.isServing()) })
	return &metrics{
		calls: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "ratelimitd_requests_total",
			Help: "Requests, by the API and port they came through, the gRPC code of their answer, and what came of them: OK is allowed, denied, peeked, given_back or settled, any other code is error.",
		}, []string{"api", "code", "outcome"}),
		durations: factory.NewHistogramVec(endpoint.DurationOpts("ratelimitd_request_duration_seconds",
			"From the first byte of a request that the API reads to its answer, by the API and port."), []string{"api"}),
		adminCalls: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "ratelimitd_admin_requests_total",
			Help: "Requests of the admin API, by the method of ratelimit.admin.v1 and the gRPC code of their answer.",
		}, []string{"method", "code"}),
		ownLimits: decide.NewResults(factory.NewCounterVec(prometheus.CounterOpts{
			Name: "ratelimitd_override_decisions_total",
			Help: "Descriptors without a rule that brought a limit of their own, by what they got themselves.",
		}, []string{"result"})),
		settlements: newSettlementCounts(factory),
		cut: factory.NewCounter(prometheus.CounterOpts{
			Name: "ratelimitd_connections_cut_total",
			Help: "Connections that were closed because they held the most of request_memory for each request that they had finished.",
		}),
		panics: factory.NewCounter(prometheus.CounterOpts{
			Name: "ratelimitd_panics_total",
			Help: "Panics of handlers, each of which failed one request.",
		}),
	}
}

// newSettlementCounts registers the metrics of takes with IDs.
func newSettlementCounts(factory promauto.Factory) *decide.SettlementCounts {
	settlements := factory.NewCounterVec(prometheus.CounterOpts{
		Name: "ratelimitd_settlements_total",
		Help: "Settlements of takes with an id, by whether the store knew the id (settled), or nothing was taken, all was denied or given back, or it was too long ago (unknown).",
	}, []string{"result"})
	return &decide.SettlementCounts{
		Reserved: factory.NewCounter(prometheus.CounterOpts{
			Name: "ratelimitd_reservations_total",
			Help: "Takes with an id that charged something, which can be settled.",
		}),
		Settled: settlements.WithLabelValues("settled"),
		Unknown: settlements.WithLabelValues("unknown"),
		Shared: factory.NewCounter(prometheus.CounterOpts{
			Name: "ratelimitd_shared_settlements_total",
			Help: "Settlements of an id that several takes had: they were settled as one.",
		}),
	}
}

// showMemory registers the metric of the memory that requests hold.
func showMemory(registry *prometheus.Registry, g *overload.Guard) {
	promauto.With(registry).NewGaugeFunc(prometheus.GaugeOpts{
		Name: "ratelimitd_request_memory_bytes",
		Help: "What connections and the requests on them hold of request_memory.",
	}, func() float64 { return float64(g.Held()) })
}

// showTops registers the metric of the memory that tops hold.
func showTops(registry *prometheus.Registry, tops decide.Tops) {
	if tops.Budget == nil {
		return
	}
	promauto.With(registry).NewGaugeFunc(prometheus.GaugeOpts{
		Name: "ratelimitd_top_bytes",
		Help: "Bytes that the subjects that had the most take at all rules, of top.memory.",
	}, func() float64 { return float64(tops.Budget.Held()) })
}

// showLimits registers the metrics of loads of the limits files.
func showLimits(registry *prometheus.Registry, live *rules.Live) {
	showReloads(registry, "limits", "the limits files", live.Status)
	factory := promauto.With(registry)
	factory.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "ratelimitd_limits_last_reload_success_timestamp_seconds",
		Help: "When the limits files were last loaded without an error; 0 before the first.",
	}, func() float64 {
		if st := live.Status(); st.Succeeded > 0 {
			return float64(st.SucceededAt.UnixMilli()) / 1000
		}
		return 0
	})
	factory.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "ratelimitd_limits_rules",
		Help: "Rules in force, in all domains.",
	}, func() float64 {
		if set := live.Rules(); set != nil {
			return float64(set.Count())
		}
		return 0
	})
}

// showReloads registers the metrics of loads of some files.
func showReloads(registry *prometheus.Registry, name, files string, status func() reload.Status) {
	factory := promauto.With(registry)
	loads := func(result string, count func(reload.Status) int) {
		factory.NewCounterFunc(prometheus.CounterOpts{
			Name:        "ratelimitd_" + name + "_reloads_total",
			Help:        "Loads of " + files + ", that at start included. One with the same content or the same errors as the one before is not counted.",
			ConstLabels: prometheus.Labels{"result": result},
		}, func() float64 { return float64(count(status())) })
	}
	loads("success", func(s reload.Status) int { return s.Succeeded })
	loads("failure", func(s reload.Status) int { return s.Failed })
	factory.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "ratelimitd_" + name + "_last_reload_successful",
		Help: "1 if the current content of " + files + " is in force; 0 while it has errors and older content stays in force.",
	}, func() float64 { return oneIf(status().LastError == nil) })
}

func oneIf(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}
