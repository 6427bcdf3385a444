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
	live     *rules.Live
	maxRules int
	// sent is how many of the hits were sent. What rules that a reload dropped had
	// counted since then is not sent.
	sent  map[*tally.Counts]*sentHits
	fixed []fixedCount
}

// sentHits are the parts of hits in the order of hitCounters.
type sentHits [len(hitCounters)]uint64

// fixedCount is a count whose name does not depend on the rules.
type fixedCount struct {
	name  string
	total func() uint64
	sent  *uint64
}

func newStatsdCounts(live *rules.Live, maxRules int, m *envoyproxyMetrics) *statsdCounts {
	c := &statsdCounts{live: live, maxRules: maxRules, sent: make(map[*tally.Counts]*sentHits)}
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
	set := c.live.Rules()
	if set == nil {
		return
	}
	before := c.sent
	c.sent = make(map[*tally.Counts]*sentHits, len(before))
	hasEnded := false // what was sent of the counts that follow is kept
	eachHits(set.Domains(), c.maxRules, func(labels hitLabels, counts *tally.Counts) {
		sent := before[counts]
		if sent == nil {
			sent = new(sentHits)
		}
		c.sent[counts] = sent
		if hasEnded {
			return
		}
		name := "ratelimit.service.rate_limit"
		for _, label := range labels {
			if label != "" {
				name += "." + label
			}
		}
		h := counts.Hits()
		for i, counter := range hitCounters {
			if !yield(statsd.Count{Name: []byte(name + "." + counter.name), Total: counter.of(h), Sent: &sent[i]}) {
				hasEnded = true
				return
			}
		}
	})
}

// sendCounts sends counts from time to time, and once more when ctx ends.
func (s *Server) sendCounts(ctx context.Context) {
	o := s.options.Statsd
	if o.Sender == nil {
		return
	}
	counts := newStatsdCounts(s.options.Live, s.rules.maxRules, s.envoyproxy)
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
