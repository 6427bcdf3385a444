package xds

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
)

// status describes how the configuration in force came about. Its times are zero for what
// did not happen.
type status struct {
	// connected is whether a stream is open, and since when that changed; silent is
	// whether the server says nothing on it.
	connected, silent bool
	since             time.Time
	// version is the last accepted one. cachedAt is when it was written to the cache that
	// it comes from.
	version              string
	acceptedAt, cachedAt time.Time
	// refused is the version that was last refused; Live says why.
	refused string
	// failure is why a stream last ended or could not start; "" once the server has
	// answered.
	failure  string
	failedAt time.Time
}

// changeStatus changes the status, and the metrics that show it.
func (c *Client) changeStatus(change func(*status)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(&c.status)
	set := func(g prometheus.Gauge, yes bool) {
		if g.Set(0); yes {
			g.Set(1)
		}
	}
	set(c.metrics.connected, c.status.connected)
	set(c.metrics.stale, !c.status.cachedAt.IsZero())
	if !c.status.acceptedAt.IsZero() {
		c.metrics.acceptedAt.Set(float64(c.status.acceptedAt.UnixMilli()) / 1000)
	}
}

// WriteStatus writes the status as lines for people, each starting with #.
func (c *Client) WriteStatus(w io.Writer) {
	c.mu.Lock()
	st := c.status
	c.mu.Unlock()
	moment := func(t time.Time) string { return t.UTC().Format(time.RFC3339) }
	line := func(show bool, format string, args ...any) {
		if show {
			fmt.Fprintf(w, "# "+format+"\n", args...)
		}
	}
	state, version := "not connected", yamlfile.Printable(st.version)
	if st.connected {
		state = "connected"
	}
	line(true, "limits from the xDS server %s for the node %s: %s since %s", yamlfile.Printable(c.options.Address), yamlfile.Printable(c.options.NodeID), state, moment(st.since))
	line(st.silent, "it has sent no configuration on this connection: it has none yet, or none for this node id")
	line(!st.acceptedAt.IsZero(), "version %s accepted %s", version, moment(st.acceptedAt))
	line(!st.cachedAt.IsZero(), "stale: the limits in force are version %s from the cache of %s; the server has sent none since the start", version, moment(st.cachedAt))
	if live := c.options.Live.Status(); live.LastError != nil {
		line(true, "version %s refused %s:\n#   %s", yamlfile.Printable(st.refused), moment(live.FailedAt), strings.ReplaceAll(live.LastError.Error(), "\n", "\n#   "))
	}
	line(st.failure != "", "last failure %s: %s", moment(st.failedAt), st.failure)
}

// metrics are what is counted and shown of the client.
type metrics struct {
	connected, acceptedAt, stale          prometheus.Gauge
	accepted, rejected, emptied, failures prometheus.Counter
}

func newMetrics(registry prometheus.Registerer) *metrics {
	factory := promauto.With(registry)
	gauge := func(name, help string) prometheus.Gauge {
		return factory.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	counter := func(name, help string) prometheus.Counter {
		return factory.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	responses := factory.NewCounterVec(prometheus.CounterOpts{
		Name: "ratelimitd_xds_responses_total",
		Help: "Responses of the xDS server, by whether they were accepted. One that is sent again counts again.",
	}, []string{"result"})
	return &metrics{
		connected:  gauge("ratelimitd_xds_connected", "1 while a stream to the xDS server is open, else 0."),
		acceptedAt: gauge("ratelimitd_xds_last_accepted_timestamp_seconds", "When a configuration of the xDS server was last accepted; 0 before the first."),
		stale:      gauge("ratelimitd_xds_stale", "1 while the limits in force are those of limits.cache_path and the xDS server has sent none, else 0."),
		accepted:   responses.WithLabelValues("accepted"),
		rejected:   responses.WithLabelValues("rejected"),
		emptied:    counter("ratelimitd_xds_emptied_total", "Accepted configurations of the xDS server that had no rule and removed those in force."),
		failures:   counter("ratelimitd_xds_connection_failures_total", "Connections to the xDS server that could not be made, and streams that ended."),
	}
}
