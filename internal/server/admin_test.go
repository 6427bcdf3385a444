package server_test

import (
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/server"
	"github.com/ratelimitd/ratelimitd/internal/server/servertest"
)

func wantPage(t *testing.T, p servertest.Page, code int, holds ...string) {
	t.Helper()
	if p.Code != code {
		t.Errorf("status %d, want %d", p.Code, code)
	}
	for _, text := range holds {
		if !strings.Contains(p.Body, text) {
			t.Errorf("not found: %q in\n%s", text, p.Body)
		}
	}
}

func TestAdminShowsTheRulesInForce(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t, servertest.OneLimit)
	wantPage(t, d.Get("admin", "/rlconfig"), 200, "# generation 1, loaded ", "; 0 reloads failed", "domain api (", "user", "u", "fixed_window", "5 requests an hour")

	d.Write("domain: api\ndescriptors:\n  - {key: user, rate_limit: {unit: fortnight, requests_per_unit: 5}}\n")
	if d.Live.Reload() == nil {
		t.Fatal("the files have no error")
	}
	p := d.Get("admin", "/rlconfig")
	wantPage(t, p, 200, "# generation 1, loaded ", "; 1 reloads failed", "these rules stay in force",
		"\n#   "+d.File+":3:", "fortnight", "\ndomain api (", "5 requests an hour")
	servertest.WantShown(t, d.Ask("api", 1, "user=x"), "OK; OK u 5/HOUR remaining 4 reset 59m50s")

	d.Write(strings.ReplaceAll(servertest.OneLimit, "5", "7"))
	if err := d.Live.Reload(); err != nil {
		t.Fatal(err)
	}
	p = d.Get("admin", "/rlconfig")
	wantPage(t, p, 200, "# generation 2, loaded ", "; 1 reloads failed", "7 requests an hour")
	for _, gone := range []string{"fortnight", "stay in force", "5 requests"} {
		if strings.Contains(p.Body, gone) {
			t.Errorf("still there: %q in\n%s", gone, p.Body)
		}
	}
	if got := p.Header.Get("Content-Type"); got != "text/plain; charset=utf-8" {
		t.Errorf("Content-Type %q", got)
	}
}

func TestPprofIsServedOnlyWhenItIsOn(t *testing.T) {
	t.Parallel()
	paths := []string{"/debug/pprof/", "/debug/pprof/cmdline", "/debug/pprof/symbol", "/debug/pprof/goroutine?debug=1"}
	with := servertest.Start(t, servertest.OneLimit, func(o *server.Options) { o.Admin.Pprof = true })
	without := servertest.Start(t, servertest.OneLimit)
	for _, path := range paths {
		t.Run(path, func(t *testing.T) {
			if p := with.Get("admin", path); p.Code != 200 {
				t.Errorf("on: %d", p.Code)
			}
			if p := without.Get("admin", path); p.Code != 404 {
				t.Errorf("off: %d", p.Code)
			}
		})
	}
	wantPage(t, with.Get("admin", "/"), 200, "ratelimitd v0.0.0-test", "/metrics", "/rlconfig", "/debug/pprof/")
	if p := without.Get("admin", "/"); strings.Contains(p.Body, "pprof") {
		t.Errorf("off, but shown:\n%s", p.Body)
	}
}

// TestMetricsPortServesOnlyMetrics keeps the operators' pages off the port.
func TestMetricsPortServesOnlyMetrics(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t, servertest.OneLimit, func(o *server.Options) {
		o.Admin.MetricsAddress, o.Admin.MetricsPath = "127.0.0.1:0", "/stats/prometheus"
	})
	d.Ask("api", 1, "user=x")
	const counted = `ratelimitd_decisions_total{domain="api",result="allowed",rule="user",value=""} 1`
	wantPage(t, d.Get("metrics", "/stats/prometheus"), 200, counted)
	wantPage(t, d.Get("admin", "/metrics"), 200, counted)
	for _, path := range []string{"/", "/metrics", "/rlconfig", "/stats", "/stats/prometheus/x", "/debug/pprof/"} {
		t.Run(path, func(t *testing.T) {
			if p := d.Get("metrics", path); p.Code != 404 {
				t.Errorf("got %d", p.Code)
			}
		})
	}
	if off := servertest.Start(t, servertest.OneLimit); off.Server.Address("metrics") != "" {
		t.Errorf("unasked it is at %s", off.Server.Address("metrics"))
	}
}
