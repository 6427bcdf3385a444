package fallback

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// Reason says why a store did not decide. It is a label of a metric, so Reasons
// lists all of them.
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
	// Unreadable: the store holds no state under a key, but something else.
	Unreadable Reason = "unreadable"
)

// Reasons lists the reasons.
func Reasons() []Reason {
	return []Reason{Timeout, Unreachable, BreakerOpen, QueueFull, Refused, Unreadable}
}

// counters count requests by mode and reason. All of them exist from the start,
// so that the first failure shows as a rise.
type counters [bucket.FailError + 1]map[Reason]prometheus.Counter

func newCounters(metrics prometheus.Registerer) (c counters) {
	vec := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "ratelimitd_degraded_answers_total",
		Help: "Requests that the store did not decide, by what answered instead and why. One whose limits have several modes counts once for each.",
	}, []string{"mode", "reason"})
	for _, m := range bucket.FailureModes() {
		c[m] = make(map[Reason]prometheus.Counter)
		for _, r := range Reasons() {
			c[m][r] = vec.WithLabelValues(m.String(), string(r))
		}
	}
	if metrics != nil {
		metrics.MustRegister(vec)
	}
	return c
}

// Degraded says, for each mode that decided part of a request in place of its store, why
// the store did not. The zero Degraded is a request that its store decided.
type Degraded struct {
	any bool
	why [bucket.FailError + 1]Reason
}

// Any reports whether the store left some of the request undecided.
func (d *Degraded) Any() bool { return d.any }

// Add adds hits that the store did not decide. For each of their modes the first
// reason counts.
func (f *Fallback) Add(d *Degraded, hits []bucket.Hit, reason Reason) {
	for i := range hits {
		if m := f.modeOf(&hits[i]); d.why[m] == "" {
			d.any, d.why[m] = true, reason
		}
	}
}

// Count counts a request, once for each mode. A reason that Reasons does not list
// is not counted, so that the labels cannot grow.
func (f *Fallback) Count(d *Degraded) {
	for m, reason := range d.why {
		if c := f.counters[m][reason]; c != nil {
			c.Inc()
		}
	}
}
