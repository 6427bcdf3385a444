package server

import (
	"context"
	runtimemetrics "runtime/metrics" // metrics are the server's here
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/ratelimitd/ratelimitd/internal/config/reload"
	"github.com/ratelimitd/ratelimitd/internal/config/rules"
	"github.com/ratelimitd/ratelimitd/internal/server/endpoint"
)

// envoyproxyMetrics are the metrics by the names of envoyproxy/ratelimit that are counted
// while a request is answered. Their names, counters without _total among
// them, are what dashboards ask for.
type envoyproxyMetrics struct {
	methods map[string]answeredMethod // by the full name
	errors  *endpoint.ErrorCounts
}

// answeredMethod is what is known of the answers of a gRPC method.
type answeredMethod struct {
	name     string
	requests prometheus.Counter
	seconds  prometheus.Observer
}

func newEnvoyproxyMetrics(registry *prometheus.Registry, live *rules.Live) *envoyproxyMetrics {
	factory := promauto.With(registry)
	showEnvoyproxyLoads(factory, live)
	requests := factory.NewCounterVec(prometheus.CounterOpts{
		Name: "ratelimit_service_total_requests",
		Help: "Requests over gRPC that were answered, errors too.",
	}, []string{"grpc_method"})
	seconds := factory.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "ratelimit_service_response_time_seconds",
		Help:    "From the read request to its answer, in seconds.",
		Buckets: prometheus.DefBuckets,
	}, []string{"grpc_method"})
	errors := factory.NewCounterVec(prometheus.CounterOpts{
		Name: "ratelimit_service_should_rate_limit_error",
		Help: "Requests of Envoy's RPC that failed: Redis did not decide them, or the request could not be answered.",
	}, []string{"err_type"})
	factory.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "go_memstats_gc_cpu_fraction",
		Help: "The part of the CPU time that the process could have that went into garbage collection. Envoy Gateway's dashboard asks for it, and client libraries have left it out since.",
	}, gcFraction)
	method := func(name string) answeredMethod {
		return answeredMethod{name: name, requests: requests.WithLabelValues(name), seconds: seconds.WithLabelValues(name)}
	}
	return &envoyproxyMetrics{
		methods: map[string]answeredMethod{
			rlsv3.RateLimitService_ShouldRateLimit_FullMethodName: method("ShouldRateLimit"),
			healthpb.Health_Check_FullMethodName:                  method("Check"),
		},
		errors: &endpoint.ErrorCounts{Store: errors.WithLabelValues("redis_error"), Other: errors.WithLabelValues("service_error")},
	}
}

// showEnvoyproxyLoads registers the counts of loads of the limits files.
func showEnvoyproxyLoads(factory promauto.Factory, live *rules.Live) {
	loads := func(result, how string, count func(reload.Status) int) {
		factory.NewCounterFunc(prometheus.CounterOpts{
			Name: "ratelimit_service_config_load_" + result,
			Help: "Loads of the limits files with" + how + " an error. One that ends as the one before did is not counted.",
		}, func() float64 { return float64(count(live.Status())) })
	}
	loads("success", "out", func(s reload.Status) int { return s.Succeeded })
	loads("error", "", func(s reload.Status) int { return s.Failed })
}

// gcFraction returns the part of the CPU time since the start that went into garbage
// collection.
func gcFraction() float64 {
	seconds := []runtimemetrics.Sample{{Name: "/cpu/classes/gc/total:cpu-seconds"}, {Name: "/cpu/classes/total:cpu-seconds"}}
	runtimemetrics.Read(seconds)
	if all := seconds[1].Value.Float64(); all > 0 {
		return seconds[0].Value.Float64() / all
	}
	return 0 // so far: both are measured at the end of a collection
}

// timing returns an interceptor that counts and times what next does. It calls next
// itself, since gRPC allocates for each request if it chains two interceptors.
func (m *envoyproxyMetrics) timing(next grpc.UnaryServerInterceptor) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		method, ok := m.methods[info.FullMethod]
		if !ok {
			return next(ctx, request, info, handler)
		}
		started := time.Now()
		answer, err := next(ctx, request, info, handler)
		method.seconds.Observe(time.Since(started).Seconds())
		method.requests.Inc()
		return answer, err
	}
}
