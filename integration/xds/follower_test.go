package xds_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/config/limitsfile"
	"github.com/ratelimitd/ratelimitd/internal/config/rules/words"
	"github.com/ratelimitd/ratelimitd/internal/config/xds"
)

// follower is a client under test.
type follower struct {
	*xds.Client
	t        *testing.T
	live     *limitsfile.FedLive
	log      *asynctest.Buffer
	registry *prometheus.Registry
	stop     func()
}

// follow runs a client until the test ends. Lenient as by the name of envoyproxy/
// ratelimit.
func follow(t *testing.T, o xds.Options) *follower {
	t.Helper()
	f := &follower{t: t, log: &asynctest.Buffer{}, registry: prometheus.NewRegistry()}
	log := slog.New(slog.NewTextHandler(f.log, nil))
	f.live = limitsfile.Options{Lenient: true}.NewFedLive("xds", log)
	if o.NodeID == "" {
		o.NodeID = nodeID
	}
	if o.MaxBytes == 0 {
		o.MaxBytes = 64 << 20
	}
	o.Live, o.Metrics, o.Log = f.live, f.registry, log
	var err error
	if f.Client, err = xds.New(o); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { f.Run(ctx) })
	f.stop = func() {
		cancel()
		running.Wait()
	}
	t.Cleanup(f.stop)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(f.log.String())
		}
	})
	return f
}

// limit returns the limit of a descriptor in plain words, "" if it has none.
func (f *follower) limit(domain string, entries ...string) string {
	rules := f.live.Rules()
	if rules == nil || rules.Domain(domain) == nil {
		return ""
	}
	var list []bucket.Entry
	for _, e := range entries {
		key, value, _ := strings.Cut(e, "=")
		list = append(list, bucket.Entry{Key: key, Value: value})
	}
	rule := rules.Domain(domain).Match(list)
	if rule == nil {
		return ""
	}
	var limits []string
	for _, l := range rule.Limits {
		limits = append(limits, words.Limit(l))
	}
	return strings.Join(limits, ", ")
}

// wantRequests waits until users of a domain have so many requests an hour.
func (f *follower) wantRequests(domain string, requests int) {
	f.t.Helper()
	want := fmt.Sprintf("%d requests an hour", requests)
	asynctest.Eventually(f.t, want+" in "+domain, func() bool { return strings.HasPrefix(f.limit(domain, "user=a"), want) })
}

// wantAnswers waits until the server was answered so.
func (f *follower) wantAnswers(m *management, want ...string) {
	f.t.Helper()
	asynctest.Eventually(f.t, fmt.Sprintf("the answers %q", want), func() bool { return len(m.answers()) >= len(want) })
	if got := m.answers(); !slices.Equal(got, want) {
		f.t.Errorf("answers %q, want %q", got, want)
	}
}

// metric returns the value of a metric without labels, or with this one.
func (f *follower) metric(name, label string) float64 {
	f.t.Helper()
	families, err := f.registry.Gather()
	if err != nil {
		f.t.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if family.GetName() != name || label != "" && m.GetLabel()[0].GetValue() != label {
				continue
			}
			if m.GetCounter() != nil {
				return m.GetCounter().GetValue()
			}
			return m.GetGauge().GetValue()
		}
	}
	f.t.Errorf("there is no metric %s %s", name, label)
	return 0
}

func (f *follower) wantMetric(name, label string, is func(float64) bool) {
	f.t.Helper()
	asynctest.Eventually(f.t, "the metric "+name+" "+label, func() bool { return is(f.metric(name, label)) })
}

func (f *follower) wantLog(text string) {
	f.t.Helper()
	asynctest.Eventually(f.t, "the line "+text, func() bool { return f.log.Count(text) > 0 })
}

// statusPage returns what /rlconfig tells of the server.
func (f *follower) statusPage() string {
	var s strings.Builder
	f.WriteStatus(&s)
	return s.String()
}

func is(want float64) func(float64) bool { return func(v float64) bool { return v == want } }

func over(least float64) func(float64) bool { return func(v float64) bool { return v > least } }
