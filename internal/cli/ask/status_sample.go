package ask

import (
	"context"
	"fmt"
	"slices"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/ratelimitd/ratelimitd/internal/cli/dial"
)

// sample is what the metrics of a daemon say at a moment.
type sample struct {
	at       time.Time
	families map[string]*dto.MetricFamily
	// denied are the descriptors denied, by domain and rule.
	denied map[[2]string]float64
	// batches to Redis, and the sum of their round trips.
	batches      uint64
	batchSeconds float64
}

// sampleOf reads the metrics, and returns the address of the daemon.
func sampleOf(ctx context.Context, to *dial.Target) (s sample, address string, err error) {
	page, address, err := to.Page(ctx, "/metrics")
	if err != nil {
		return s, address, err
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	s = sample{at: time.Now(), denied: make(map[[2]string]float64)}
	if s.families, err = parser.TextToMetricFamilies(page); err != nil {
		return s, address, fmt.Errorf("%s: metrics cannot be read: %w", address, err)
	}
	for _, m := range s.families["ratelimitd_decisions_total"].GetMetric() {
		if labelOf(m, "result") == "denied" {
			s.denied[[2]string{labelOf(m, "domain"), labelOf(m, "rule")}] += valueOf(m)
		}
	}
	for _, m := range s.families["ratelimitd_redis_round_trip_seconds"].GetMetric() {
		s.batches += m.GetHistogram().GetSampleCount()
		s.batchSeconds += m.GetHistogram().GetSampleSum()
	}
	return s, address, nil
}

// valueOf returns the value of a counter or gauge.
func valueOf(m *dto.Metric) float64 {
	return m.GetCounter().GetValue() + m.GetGauge().GetValue() + m.GetUntyped().GetValue()
}

func labelOf(m *dto.Metric, name string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

// sum adds up a family, or those of its metrics that have one of the values as result.
func (s sample) sum(family string, results ...string) (sum float64) {
	for _, m := range s.families[family].GetMetric() {
		if len(results) == 0 || slices.Contains(results, labelOf(m, "result")) {
			sum += valueOf(m)
		}
	}
	return sum
}

// has reports whether a metric of a family has a value.
func (s sample) has(family string, value float64) bool {
	return slices.ContainsFunc(s.families[family].GetMetric(), func(m *dto.Metric) bool { return valueOf(m) == value })
}

// labels returns the values of a label, sorted: those of metrics that have one of the values
// given, if any are.
func (s sample) labels(family, name string, values ...float64) (found []string) {
	for _, m := range s.families[family].GetMetric() {
		if len(values) == 0 || slices.Contains(values, valueOf(m)) {
			found = append(found, labelOf(m, name))
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}
