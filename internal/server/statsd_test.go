package server_test

import (
	"fmt"
	"log/slog"
	"maps"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/bucket/heaptest"
	"github.com/ratelimitd/ratelimitd/internal/server"
	"github.com/ratelimitd/ratelimitd/internal/server/servertest"
	"github.com/ratelimitd/ratelimitd/internal/statsd"
	"github.com/ratelimitd/ratelimitd/internal/statsd/statsdtest"
)

// sending has a server send its counts to a statsd server.
func sending(network, address string) func(*server.Options) {
	return func(o *server.Options) {
		likeEnvoyproxy(o)
		o.Statsd = server.Statsd{Every: 20 * time.Millisecond, Sender: statsd.New(statsd.Options{
			Network: network, Address: address, Log: slog.New(slog.DiscardHandler), Now: time.Now,
		})}
	}
}

const statsdLimits = `
domain: api
descriptors:
- {key: user, rate_limit: {unit: year, requests_per_unit: 10}}
- {key: user, value: a:b, rate_limit: {unit: year, requests_per_unit: 2}, shadow_mode: true}
- {key: by, value_to_metric: true, rate_limit: {unit: year, requests_per_unit: 3}}
- key: deep
  descriptors: [{key: er, descriptors: [{key: est, rate_limit: {unit: year, requests_per_unit: 2}}]}]
`

// asStatsd returns the counters of a page of metrics by their names in statsd.
func asStatsd(d *servertest.Daemon) map[string]uint64 {
	found := make(map[string]uint64)
	for series, value := range d.Metrics() {
		name, labels, _ := strings.Cut(strings.TrimSuffix(series, `"}`), `{`)
		words := strings.NewReplacer(`",key1="`, ".", `",key2="`, ".", `domain="`, "", `grpc_method="`, "", `err_type="`, "").Replace(labels)
		words = strings.TrimSuffix(words, ".")
		part, isHits := strings.CutPrefix(name, "ratelimit_service_rate_limit_")
		switch {
		case value == 0:
		case isHits:
			found["ratelimit.service.rate_limit."+words+"."+part] = uint64(value)
		case name == "ratelimit_service_total_requests":
			found["ratelimit_server."+words+".total_requests"] = uint64(value)
		case name == "ratelimit_service_should_rate_limit_error":
			found["ratelimit.service.call.should_rate_limit."+words] = uint64(value)
		case strings.HasPrefix(name, "ratelimit_service_config_load_"):
			found["ratelimit.service."+strings.TrimPrefix(name, "ratelimit_service_")] = uint64(value)
		}
	}
	return found
}

// What arrives at a statsd server adds up to what the page of metrics has by the names
// of envoyproxy/ratelimit, over a reload too.
func TestAStatsdServerGetsWhatMetricsHave(t *testing.T) {
	t.Parallel()
	for _, network := range []string{"udp", "tcp"} {
		t.Run(network, func(t *testing.T) {
			t.Parallel()
			stats := statsdtest.ListenUDP(t)
			if network == "tcp" {
				stats = statsdtest.ListenTCP(t, "127.0.0.1:0")
			}
			d := servertest.Start(t, statsdLimits, sending(network, stats.Address))
			wantSame := func() map[string]uint64 {
				t.Helper()
				d.Check("") // counts too, so that there is a last one that the page has
				want := asStatsd(d)
				asynctest.Eventually(t, "the sums are those of the metrics", func() bool { return maps.Equal(stats.Sums(t), want) })
				return want
			}
			for i := range 15 {
				d.Ask("api", 1, "user=x", "user=a:b")
				d.Ask("api", 2, fmt.Sprintf("by=v%d", i%4), "deep=1,er=2,est=3")
			}
			got := wantSame()
			for name, want := range map[string]uint64{
				"ratelimit.service.rate_limit.api.user.total_hits":        15,
				"ratelimit.service.rate_limit.api.user.over_limit":        5,
				"ratelimit.service.rate_limit.api.user.within_limit":      10,
				"ratelimit.service.rate_limit.api.user.near_limit":        2,
				"ratelimit.service.rate_limit.api.user_a_b.shadow_mode":   13,
				"ratelimit.service.rate_limit.api.by_v0.total_hits":       8,
				"ratelimit.service.rate_limit.api.deep.er.est.total_hits": 30,
				"ratelimit.service.config_load_success":                   1,
				"ratelimit_server.ShouldRateLimit.total_requests":         30,
			} {
				if got[name] != want {
					t.Errorf("%s is %d, want %d", name, got[name], want)
				}
			}
			d.Reload(strings.Replace(statsdLimits, "requests_per_unit: 10", "requests_per_unit: 11", 1))
			d.Ask("api", 1, "user=x")
			wantSame()
		})
	}
}

// A server of statsd that is away costs no request anything, and what was counted
// meanwhile arrives at the end of the daemon if it is there again.
func TestCountsArriveAtTheEndOfTheDaemon(t *testing.T) {
	t.Parallel()
	stats := statsdtest.ListenTCP(t, "127.0.0.1:0")
	d := servertest.Start(t, statsdLimits, sending("tcp", stats.Address), func(o *server.Options) { o.Statsd.Every = time.Hour })
	for range 3 {
		d.Ask("api", 1, "user=x")
	}
	d.End()
	asynctest.Eventually(t, "the counts arrive", func() bool { return stats.Sums(t)["ratelimit.service.rate_limit.api.user.total_hits"] == 3 })
}

// For statsd alone, hits are counted and not shown.
func TestStatsdAloneShowsNoMetrics(t *testing.T) {
	t.Parallel()
	stats := statsdtest.ListenUDP(t)
	d := servertest.Start(t, statsdLimits, sending("udp", stats.Address), func(o *server.Options) { o.Statsd.Alone = true })
	d.Ask("api", 1, "user=x")
	asynctest.Eventually(t, "the count arrives", func() bool { return stats.Sums(t)["ratelimit.service.rate_limit.api.user.total_hits"] == 1 })
	if page := d.Get("admin", "/metrics").Body; strings.Contains(page, "ratelimit_service_") {
		t.Errorf("the page has\n%s", page)
	}
}

// For each value that a rule counts by itself, no more is held than the documents say.
func TestStatsdHoldsLittleForEachValue(t *testing.T) {
	const rules, values = 20, 1000
	unread, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer unread.Close()
	limits := "domain: api\ndescriptors:\n"
	for i := range rules {
		limits += fmt.Sprintf("- {key: k%d, value_to_metric: true, rate_limit: {unit: year, requests_per_unit: 9}}\n", i)
	}
	d := servertest.Start(t, limits, sending("udp", unread.LocalAddr().String()), func(o *server.Options) { o.Statsd.Every = time.Hour })
	for i := range rules * values {
		if _, err := d.Server.RPC().ShouldRateLimit(t.Context(), servertest.Request("api", 1, fmt.Sprintf("k%d=%s%d", i%rules, strings.Repeat("v", 200), i/rules))); err != nil {
			t.Fatal(err)
		}
	}
	send := d.Server.SendsCounts()
	before := heaptest.InUse()
	for range 3 {
		send(t.Context())
	}
	if each := (heaptest.InUse() - before) / (rules * values); each > 200 {
		t.Errorf("%d bytes are held for each value", each)
	} else {
		t.Logf("%d bytes are held for each value", each)
	}
	runtime.KeepAlive(send)
}
