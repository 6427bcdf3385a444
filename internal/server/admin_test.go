package server_test

import (
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/server"
)

func wantPage(t *testing.T, p page, code int, holds ...string) {
	t.Helper()
	if p.code != code {
		t.Errorf("status %d, want %d", p.code, code)
	}
	for _, text := range holds {
		if !strings.Contains(p.body, text) {
			t.Errorf("not found: %q in\n%s", text, p.body)
		}
	}
}

func TestAdminShowsTheRulesInForce(t *testing.T) {
	t.Parallel()
	d := start(t, oneLimit)
	wantPage(t, d.get("admin", "/rlconfig"), 200, "# generation 1, loaded ", "; 0 reloads failed", "domain api (", "user", "u", "fixed_window", "5 requests an hour")

	d.write("domain: api\ndescriptors:\n  - {key: user, rate_limit: {unit: fortnight, requests_per_unit: 5}}\n")
	if d.live.Reload() == nil {
		t.Fatal("the files have no error")
	}
	p := d.get("admin", "/rlconfig")
	wantPage(t, p, 200, "# generation 1, loaded ", "; 1 reloads failed", "these rules stay in force",
		"\n#   "+d.file+":3:", "fortnight", "\ndomain api (", "5 requests an hour")
	wantShown(t, d.ask("api", 1, "user=x"), "OK; OK u 5/HOUR remaining 4 reset 59m50s")

	d.write(strings.ReplaceAll(oneLimit, "5", "7"))
	if err := d.live.Reload(); err != nil {
		t.Fatal(err)
	}
	p = d.get("admin", "/rlconfig")
	wantPage(t, p, 200, "# generation 2, loaded ", "; 1 reloads failed", "7 requests an hour")
	for _, gone := range []string{"fortnight", "stay in force", "5 requests"} {
		if strings.Contains(p.body, gone) {
			t.Errorf("still there: %q in\n%s", gone, p.body)
		}
	}
	if got := p.header.Get("Content-Type"); got != "text/plain; charset=utf-8" {
		t.Errorf("Content-Type %q", got)
	}
}

func TestPprofIsServedOnlyWhenItIsOn(t *testing.T) {
	t.Parallel()
	paths := []string{"/debug/pprof/", "/debug/pprof/cmdline", "/debug/pprof/symbol", "/debug/pprof/goroutine?debug=1"}
	with := start(t, oneLimit, func(o *server.Options) { o.Admin.Pprof = true })
	without := start(t, oneLimit)
	for _, path := range paths {
		t.Run(path, func(t *testing.T) {
			if p := with.get("admin", path); p.code != 200 {
				t.Errorf("on: %d", p.code)
			}
			if p := without.get("admin", path); p.code != 404 {
				t.Errorf("off: %d", p.code)
			}
		})
	}
	wantPage(t, with.get("admin", "/"), 200, "ratelimitd v0.0.0-test", "/metrics", "/rlconfig", "/debug/pprof/")
	if p := without.get("admin", "/"); strings.Contains(p.body, "pprof") {
		t.Errorf("off, but shown:\n%s", p.body)
	}
}

// TestMetricsPortServesOnlyMetrics keeps the operators' pages off the port.
func TestMetricsPortServesOnlyMetrics(t *testing.T) {
	t.Parallel()
	d := start(t, oneLimit, func(o *server.Options) {
		o.Admin.MetricsAddress, o.Admin.MetricsPath = "127.0.0.1:0", "/stats/prometheus"
	})
	d.ask("api", 1, "user=x")
	const counted = `ratelimitd_decisions_total{domain="api",result="allowed",rule="user",value=""} 1`
	wantPage(t, d.get("metrics", "/stats/prometheus"), 200, counted)
	wantPage(t, d.get("admin", "/metrics"), 200, counted)
	for _, path := range []string{"/", "/metrics", "/rlconfig", "/stats", "/stats/prometheus/x", "/debug/pprof/"} {
		t.Run(path, func(t *testing.T) {
			if p := d.get("metrics", path); p.code != 404 {
				t.Errorf("got %d", p.code)
			}
		})
	}
	if off := start(t, oneLimit); off.srv.Address("metrics") != "" {
		t.Errorf("unasked it is at %s", off.srv.Address("metrics"))
	}
}
