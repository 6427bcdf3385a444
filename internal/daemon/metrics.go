package daemon

import (
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/ratelimitd/ratelimitd/internal/bucket/memstore"
	"github.com/ratelimitd/ratelimitd/internal/fleet"
)

// newMetrics returns the registry of /metrics, with the metrics of the process
// itself. Other packages add theirs.
func newMetrics(version string) *prometheus.Registry {
	registry := prometheus.NewRegistry()
	registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	promauto.With(registry).NewGauge(prometheus.GaugeOpts{
		Name:        "ratelimitd_build_info",
		Help:        "1, with the version of the daemon and of the Go that built it.",
		ConstLabels: prometheus.Labels{"version": version, "goversion": runtime.Version()},
	}).Set(1)
	return registry
}

// showFleet adds the metrics of the register of daemons. They are what the daemon learnt
// when it last signed in: Redis is not asked for them.
func showFleet(registry prometheus.Registerer, members *fleet.Membership) {
	factory := promauto.With(registry)
	factory.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "ratelimitd_fleet_daemons",
		Help: "Daemons that share the Redis and the prefix, this one included, as of its last sign-in to the register.",
	}, func() float64 { return float64(members.Size()) })
	factory.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "ratelimitd_fleet_rules_differ",
		Help: "1 if these daemons had different rules in force then, else 0.",
	}, func() float64 { return oneIf(members.HasDifferentRules()) })
	factory.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "ratelimitd_fleet_sign_in_failed",
		Help: "1 if Redis did not answer the last sign-in, which is tried every 2 s, or refused it, else 0.",
	}, func() float64 { return oneIf(members.HasFailed()) })
}

// oneIf returns the value of a gauge that says yes or no.
func oneIf(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

// showMemory adds the metrics of a memory store.
func showMemory(registry prometheus.Registerer, store *memstore.Store) {
	factory := promauto.With(registry)
	factory.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "ratelimitd_memory_keys",
		Help: "Keys that the memory store holds; those that have expired are removed within a second.",
	}, func() float64 { return float64(store.Stats().Keys) })
	factory.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "ratelimitd_memory_bytes",
		Help: "Bytes that these keys and their states take, about.",
	}, func() float64 { return float64(store.Stats().Bytes) })
	factory.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "ratelimitd_memory_max_keys",
		Help: "Keys that the memory store holds at most, which is memory.max_keys.",
	}, func() float64 { return float64(store.Stats().MaxKeys) })
	factory.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "ratelimitd_memory_max_bytes",
		Help: "Bytes that these keys and their states may take, which is memory.max_bytes.",
	}, func() float64 { return float64(store.Stats().MaxBytes) })
	factory.NewCounterFunc(prometheus.CounterOpts{
		Name: "ratelimitd_memory_evicted_keys_total",
		Help: "Keys that lost their place, and so their state, to another since memory.max_keys or memory.max_bytes was reached.",
	}, func() float64 { return float64(store.Stats().Evicted) })
	factory.NewCounterFunc(prometheus.CounterOpts{
		Name: "ratelimitd_memory_unreserved_total",
		Help: "Charges with an id for whose bill there was no room in the memory store: they cannot be settled.",
	}, func() float64 { return float64(store.Stats().Unreserved) })
	factory.NewCounterFunc(prometheus.CounterOpts{
		Name: "ratelimitd_memory_full_hits_total",
		Help: "Hits on new keys while the memory store was full, which memory.when_full decided.",
	}, func() float64 { return float64(store.Stats().Degraded) })
}
