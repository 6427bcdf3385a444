package xds

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
)

// Status describes how the configuration in force came about.
type Status struct {
	// Connected tells whether a stream is open, and Since when that changed.
	Connected bool
	Since     time.Time
	// Silent tells whether the server says nothing on it.
	Silent bool
	// Version is the last accepted one; AcceptedAt is zero if none was.
	Version    string
	AcceptedAt time.Time
	// CachedAt is when the configuration in force was written to the cache; zero if it
	// comes from the server instead.
	CachedAt time.Time
	// Rejected is the last refusal, or nil after a configuration was accepted.
	Rejected *Rejection
	// LastError is why a stream last ended or could not start, Hint what that means, if
	// known, and FailedAt when it happened; nil once the server has answered.
	LastError error
	Hint      string
	FailedAt  time.Time
}

// Rejection is a configuration that was refused.
type Rejection struct {
	Version string
	At      time.Time
	Err     error
}

// Status returns the current status.
func (c *Client) Status() Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.status
}

// WriteStatus writes the status as lines for people, each starting with #.
func (c *Client) WriteStatus(w io.Writer) {
	st := c.Status()
	moment := func(t time.Time) string { return t.UTC().Format(time.RFC3339) }
	state := "not connected"
	if st.Connected {
		state = "connected"
	}
	fmt.Fprintf(w, "# limits from the xDS server %s for the node %s: %s since %s\n",
		yamlfile.Printable(c.options.Address), yamlfile.Printable(c.options.NodeID), state, moment(st.Since))
	if st.Silent {
		fmt.Fprintln(w, "# it has sent no configuration on this connection: it has none yet, or none for this node id")
	}
	if !st.AcceptedAt.IsZero() {
		fmt.Fprintf(w, "# version %s accepted %s\n", yamlfile.Printable(st.Version), moment(st.AcceptedAt))
	}
	if !st.CachedAt.IsZero() {
		fmt.Fprintf(w, "# stale: the limits in force are version %s from the cache of %s; the server has sent none since the start\n",
			yamlfile.Printable(st.Version), moment(st.CachedAt))
	}
	if st.Rejected != nil {
		fmt.Fprintf(w, "# version %s refused %s:\n", yamlfile.Printable(st.Rejected.Version), moment(st.Rejected.At))
		for line := range strings.Lines(st.Rejected.Err.Error()) {
			fmt.Fprintf(w, "#   %s\n", strings.TrimRight(line, "\n"))
		}
	}
	if st.LastError != nil {
		fmt.Fprintf(w, "# last failure %s: %s", moment(st.FailedAt), onOneLine(st.LastError.Error()))
		if st.Hint != "" {
			fmt.Fprintf(w, " (%s)", st.Hint)
		}
		fmt.Fprintln(w)
	}
}

// onOneLine returns a text chosen by a server without anything that moves the cursor.
func onOneLine(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text)
}

// metrics are the counts of the client.
type metrics struct {
	accepted, rejected, emptied, failures prometheus.Counter
}

func newMetrics(registry prometheus.Registerer, c *Client) *metrics {
	factory := promauto.With(registry)
	oneIf := func(yes bool) float64 {
		if yes {
			return 1
		}
		return 0
	}
	factory.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "ratelimitd_xds_connected",
		Help: "1 while a stream to the xDS server is open, else 0.",
	}, func() float64 { return oneIf(c.Status().Connected) })
	factory.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "ratelimitd_xds_last_accepted_timestamp_seconds",
		Help: "When a configuration of the xDS server was last accepted; 0 before the first.",
	}, func() float64 {
		if at := c.Status().AcceptedAt; !at.IsZero() {
			return float64(at.UnixMilli()) / 1000
		}
		return 0
	})
	factory.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "ratelimitd_xds_stale",
		Help: "1 while the limits in force are those of limits.cache_path and the xDS server has sent none, else 0.",
	}, func() float64 { return oneIf(!c.Status().CachedAt.IsZero()) })
	responses := factory.NewCounterVec(prometheus.CounterOpts{
		Name: "ratelimitd_xds_responses_total",
		Help: "Responses of the xDS server, by whether they were accepted. One that is sent again counts again.",
	}, []string{"result"})
	return &metrics{
		accepted: responses.WithLabelValues("accepted"),
		rejected: responses.WithLabelValues("rejected"),
		emptied: factory.NewCounter(prometheus.CounterOpts{
			Name: "ratelimitd_xds_emptied_total",
			Help: "Accepted configurations of the xDS server that had no rule and removed those in force.",
		}),
		failures: factory.NewCounter(prometheus.CounterOpts{
			Name: "ratelimitd_xds_connection_failures_total",
			Help: "Connections to the xDS server that could not be made, and streams that ended.",
		}),
	}
}
