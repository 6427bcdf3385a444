package server

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config"
	"github.com/ratelimitd/ratelimitd/internal/server/endpoint"
)

// envoyproxyMetrics are the metrics by the names of envoyproxy/ratelimit that
// are counted on the way of a request; envoyproxyCollector has the others. Their
// names, counters without _total among them, are what dashboards ask for.
type envoyproxyMetrics struct {
	methods map[string]answeredMethod // by the full name
	errors  *endpoint.ErrorCounts
}

// answeredMethod is what is known of the answers of a gRPC method.
type answeredMethod struct {
	requests prometheus.Counter
	seconds  prometheus.Observer
}

func newEnvoyproxyMetrics(registry *prometheus.Registry, live *config.Live) *envoyproxyMetrics {
	factory := promauto.With(registry)
	registry.MustRegister(newEnvoyproxyCollector(live))
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
	method := func(name string) answeredMethod {
		return answeredMethod{requests.WithLabelValues(name), seconds.WithLabelValues(name)}
	}
	return &envoyproxyMetrics{
		methods: map[string]answeredMethod{
			rlsv3.RateLimitService_ShouldRateLimit_FullMethodName: method("ShouldRateLimit"),
			healthpb.Health_Check_FullMethodName:                  method("Check"),
		},
		errors: &endpoint.ErrorCounts{Store: errors.WithLabelValues("redis_error"), Other: errors.WithLabelValues("service_error")},
	}
}

// timing returns an interceptor that counts and times what next does. It is one
// with next, since gRPC allocates for each request where it chains two.
func (m *envoyproxyMetrics) timing(next grpc.UnaryServerInterceptor) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		method, ok := m.methods[info.FullMethod]
		if !ok {
			return next(ctx, request, info, handler)
		}
		begun := time.Now()
		answer, err := next(ctx, request, info, handler)
		method.seconds.Observe(time.Since(begun).Seconds())
		method.requests.Inc()
		return answer, err
	}
}

// envoyproxyCollector shows the hits that rules counted and the loads of the
// limits files by the names of envoyproxy/ratelimit. A rule that was used has five
// series, and so has each value that it counts by itself; rules that are spelt
// alike share them, as there.
type envoyproxyCollector struct {
	live *config.Live

	parts              []hitPart
	loads, failedLoads *prometheus.Desc
}

// hitPart is a metric of hits.
type hitPart struct {
	desc *prometheus.Desc
	of   func(config.Hits) uint64
}

func newEnvoyproxyCollector(live *config.Live) *envoyproxyCollector {
	part := func(name, help string, of func(config.Hits) uint64) hitPart {
		return hitPart{prometheus.NewDesc("ratelimit_service_rate_limit_"+name, help, []string{"domain", "key1", "key2"}, nil), of}
	}
	loads := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("ratelimit_service_config_load_"+name, help, nil, nil)
	}
	return &envoyproxyCollector{
		live: live,
		parts: []hitPart{
			part("total_hits", "Hits that descriptors with a limit asked for.", config.Hits.Total),
			part("within_limit", "Hits of descriptors that were within their limits.", func(h config.Hits) uint64 { return h.Within }),
			part("over_limit", "Hits beyond a limit.", func(h config.Hits) uint64 { return h.Over }),
			part("near_limit", "Hits by which a count came to stand near its limit and not beyond it.", func(h config.Hits) uint64 { return h.Near }),
			part("shadow_mode", "Hits of descriptors that were over their limit and let pass by shadow_mode.", func(h config.Hits) uint64 { return h.Shadowed }),
		},
		loads:       loads("success", "Loads of the limits files without an error. One that ends as the one before did is not counted."),
		failedLoads: loads("error", "Loads of the limits files with an error. One that ends as the one before did is not counted."),
	}
}

// Describe implements prometheus.Collector.
func (c *envoyproxyCollector) Describe(out chan<- *prometheus.Desc) {
	for _, p := range c.parts {
		out <- p.desc
	}
	out <- c.loads
	out <- c.failedLoads
}

// Collect implements prometheus.Collector.
func (c *envoyproxyCollector) Collect(out chan<- prometheus.Metric) {
	counter := func(d *prometheus.Desc, n float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, n, labels...)
	}
	st, rules := c.live.Status(), c.live.Rules()
	counter(c.loads, float64(st.Succeeded))
	counter(c.failedLoads, float64(st.Failed))
	if rules == nil {
		return
	}
	sums := hitsByLabels(rules)
	// In order, since the registry sorts each metric by itself, which takes most of
	// the time where they are many.
	inOrder := slices.SortedFunc(maps.Keys(sums), func(a, b [3]string) int { return slices.Compare(a[:], b[:]) })
	for _, labels := range inOrder {
		// All of them from the first, so that each first event is an increase.
		for _, p := range c.parts {
			counter(p.desc, float64(p.of(sums[labels])), labels[:]...)
		}
	}
}

// hitsByLabels returns the hits that rules counted by domain, key1 and key2. Rules
// that counted none have none.
func hitsByLabels(rules *config.Rules) map[[3]string]config.Hits {
	sums := make(map[[3]string]config.Hits)
	for _, domain := range rules.Domains() {
		name := statName(domain.Name)
		add := func(hits config.Hits, entries []bucket.Entry) {
			key1, key2 := statKeys(entries)
			labels := [...]string{name, key1, key2}
			sums[labels] = sums[labels].Plus(hits)
		}
		for _, rule := range domain.Rules() {
			if hits := rule.Counts.Hits(); hits.Total() > 0 {
				add(hits, rule.Entries())
			}
			for _, n := range rule.Counts.Values() {
				if hits := n.Hits(); hits.Total() > 0 {
					add(hits, rule.EntriesOf(n.Value))
				}
			}
		}
	}
	return sums
}

// statKeys returns the labels key1 and key2 of a rule with these entries. There
// deeper ones are left out, so that many limits are one series; here key2 has them
// all.
func statKeys(entries []bucket.Entry) (key1, key2 string) {
	words := make([]string, len(entries))
	for i, e := range entries {
		words[i] = statName(e.Key)
		if e.Value != "" {
			words[i] += "_" + statName(e.Value)
		}
	}
	return words[0], strings.Join(words[1:], ".")
}

var statWords = strings.NewReplacer(":", "_", "|", "_")

// statName spells a text as envoyproxy/ratelimit has it in names of statistics,
// which know no colon and no bar, and where dots stand between words. Of these
// only those of IPv4 addresses are spelt otherwise there.
func statName(text string) string {
	text = statWords.Replace(text)
	if strings.Count(text, ".") < 3 {
		return text
	}
	var s strings.Builder
	for {
		rest := strings.TrimLeftFunc(text, inAddress)
		run := text[:len(text)-len(rest)]
		if isIPv4(run) {
			run = strings.ReplaceAll(run, ".", "_")
		}
		s.WriteString(run)
		at := strings.IndexFunc(rest, inAddress)
		if at < 0 {
			s.WriteString(rest)
			return s.String()
		}
		s.WriteString(rest[:at])
		text = rest[at:]
	}
}

func inAddress(r rune) bool { return r == '.' || '0' <= r && r <= '9' }

// isIPv4 reports whether a text of digits and dots looks like an address.
func isIPv4(text string) bool {
	numbers := strings.Split(text, ".")
	for _, n := range numbers {
		if n == "" || len(n) > 3 {
			return false
		}
	}
	return len(numbers) == 4
}
