package server

import (
	"context"
	"iter"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/ratelimitd/ratelimitd/internal/config/rules"
	"github.com/ratelimitd/ratelimitd/internal/config/rules/tally"
	"github.com/ratelimitd/ratelimitd/internal/statsd"
)

// Statsd says whether counts are sent to a statsd server, by the names of
// envoyproxy/ratelimit. They need Hits.
type Statsd struct {
	// Sender is nil if none are.
	Sender *statsd.Sender
	// Every is how often.
	Every time.Duration
	// Alone is whether the page of metrics leaves these names out.
	Alone bool
}

// statsdCounts are the counts that a statsd server gets. Requests do not know of it: it
// looks at what is counted for the page of metrics. For each rule in use, and each
// value that one counts by itself, it holds some 100 bytes.
type statsdCounts struct {
	walk hitWalk
	live *rules.Live
	// sent is how many of the hits were sent. What rules that a reload dropped had
	// counted since then is not sent.
	sent  map[*tally.Counts]*sentHits
	fixed []fixedCount
}

// sentHits are the parts of hits in the order of hitNames.
type sentHits [5]uint64

var hitNames = [...]string{"total_hits", "within_limit", "over_limit", "near_limit", "shadow_mode"}

// fixedCount is a count whose name does not depend on the rules.
type fixedCount struct {
	name  string
	total func() uint64
	sent  *uint64
}

func newStatsdCounts(live *rules.Live, m *envoyproxyMetrics) *statsdCounts {
	c := &statsdCounts{live: live, sent: make(map[*tally.Counts]*sentHits)}
	add := func(name string, total func() uint64) {
		c.fixed = append(c.fixed, fixedCount{name: name, total: total, sent: new(uint64)})
	}
	add("ratelimit.service.config_load_success", func() uint64 { return uint64(live.Status().Succeeded) })
	add("ratelimit.service.config_load_error", func() uint64 { return uint64(live.Status().Failed) })
	add("ratelimit.service.call.should_rate_limit.redis_error", totalOf(m.errors.Store))
	add("ratelimit.service.call.should_rate_limit.service_error", totalOf(m.errors.Other))
	for _, method := range m.methods {
		add("ratelimit_server."+method.name+".total_requests", totalOf(method.requests))
	}
	return c
}

// totalOf returns what reads a counter.
func totalOf(counter prometheus.Counter) func() uint64 {
	return func() uint64 {
		var m dto.Metric
		if counter.Write(&m) != nil {
			return 0
		}
		return uint64(m.GetCounter().GetValue())
	}
}

// all returns the counts as they are now.
func (c *statsdCounts) all() iter.Seq[statsd.Count] {
	return func(yield func(statsd.Count) bool) {
		for _, f := range c.fixed {
			if !yield(statsd.Count{Name: []byte(f.name), Total: f.total(), Sent: f.sent}) {
				return
			}
		}
		c.hits(yield)
	}
}

// hits yields the counts of the rules in force.
func (c *statsdCounts) hits(yield func(statsd.Count) bool) {
	c.walk.domains = nil
	if rules := c.live.Rules(); rules != nil {
		c.walk.domains = rules.Domains()
	}
	before := c.sent
	c.sent = make(map[*tally.Counts]*sentHits, len(before))
	var name []byte
	goOn := true
	c.walk.each(func(by *tally.Counts) bool {
		sent := before[by]
		if sent == nil {
			sent = new(sentHits)
		}
		c.sent[by] = sent
		if !goOn {
			return true // what was sent of the others stays known
		}
		name = append(name[:0], "ratelimit.service.rate_limit"...)
		for _, label := range c.walk.labels {
			if len(label) > 0 {
				name = append(append(name, '.'), label...)
			}
		}
		h := by.Hits()
		begin := len(name)
		for i, total := range [...]uint64{h.Total(), h.Within, h.Over, h.Near, h.Shadowed} {
			name = append(append(name[:begin], '.'), hitNames[i]...)
			if goOn = goOn && yield(statsd.Count{Name: name, Total: total, Sent: &sent[i]}); !goOn {
				break
			}
		}
		return true
	})
}

// sendCounts sends counts from time to time, and once more when ctx ends.
func (s *Server) sendCounts(ctx context.Context) {
	o := s.options.Statsd
	if o.Sender == nil {
		return
	}
	counts := newStatsdCounts(s.options.Live, s.envoyproxy)
	tick := time.NewTicker(o.Every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			o.Sender.Send(ctx, counts.all())
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastCounts)
			defer cancel()
			o.Sender.Send(last, counts.all())
			return
		}
	}
}

// lastCounts bounds how long a daemon that ends waits for a statsd server.
const lastCounts = time.Second
