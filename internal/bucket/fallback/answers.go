package fallback

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// Reason says why a store did not decide. It is the label of a metric; Reasons
// lists all there are.
type Reason string

// The reasons.
const (
	// Timeout: the store did not answer in time.
	Timeout Reason = "timeout"
	// Unreachable: the connection failed.
	Unreachable Reason = "unreachable"
	// BreakerOpen: the store was not asked, because it failed just before.
	BreakerOpen Reason = "breaker_open"
	// QueueFull: the store was not asked, because too much waits for it.
	QueueFull Reason = "queue_full"
	// Refused: the store answered with an error.
	Refused Reason = "refused"
	// Unreadable: what the store holds for a key is no state.
	Unreadable Reason = "unreadable"
)

// Reasons lists the reasons.
func Reasons() []Reason {
	return []Reason{Timeout, Unreachable, BreakerOpen, QueueFull, Refused, Unreadable}
}

// answers counts requests by mode and reason. All counters are there from the
// start, so that the first failure shows as a rise.
type answers [bucket.FailError + 1]map[Reason]prometheus.Counter

func newAnswers(metrics prometheus.Registerer) (a answers) {
	vec := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "ratelimitd_degraded_answers_total",
		Help: "Requests that the store did not decide, by what answered instead and why. One whose limits have several modes counts once for each.",
	}, []string{"mode", "reason"})
	for _, m := range bucket.FailureModes() {
		a[m] = make(map[Reason]prometheus.Counter)
		for _, r := range Reasons() {
			a[m][r] = vec.WithLabelValues(m.String(), string(r))
		}
	}
	if metrics != nil {
		metrics.MustRegister(vec)
	}
	return a
}

// Degraded is what of one request its store did not decide: for each mode that
// answered instead, why. The zero Degraded is nothing.
type Degraded struct {
	any bool
	why [bucket.FailError + 1]Reason
}

// Any reports whether there is anything.
func (d *Degraded) Any() bool { return d.any }

// Add adds hits that the store did not decide. For each mode among them the
// first reason stands.
func (f *Fallback) Add(d *Degraded, hits []bucket.Hit, reason Reason) {
	for i := range hits {
		if m := f.modeOf(&hits[i]); d.why[m] == "" {
			d.any, d.why[m] = true, reason
		}
	}
}

// Count counts a request, once for each mode that answered. A reason that is
// none of Reasons is not counted: the labels must not grow.
func (f *Fallback) Count(d *Degraded) {
	for m, reason := range d.why {
		if c := f.answers[m][reason]; c != nil {
			c.Inc()
		}
	}
}
