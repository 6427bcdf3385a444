package server_test

import (
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/config/limitsfile"
	"github.com/ratelimitd/ratelimitd/internal/config/rules"
	"github.com/ratelimitd/ratelimitd/internal/server"
	"github.com/ratelimitd/ratelimitd/internal/server/servertest"
)

// TestNothingIsAnsweredWithoutLimits checks that nothing is answered before
// the first limits load, and all is as usual afterwards.
func TestNothingIsAnsweredWithoutLimits(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "later.yaml")
	var live *rules.Live
	d := servertest.Run(t, servertest.OneLimit, func(o *server.Options) {
		live = limitsfile.NewLive(path, o.Log)
		if err := live.Reload(); err == nil {
			t.Fatal("a file that is not there loads")
		}
		o.Live = live
	})
	unanswered := func() {
		t.Helper()
		for _, domain := range []string{"api", "unknown"} {
			if _, err := d.Try(servertest.Request(domain, 1, "user=x")); status.Code(err) != codes.Unavailable || status.Convert(err).Message() != "no limits are loaded yet" {
				t.Errorf("%s: %v", domain, err)
			}
		}
		asynctest.Eventually(t, "the reason", func() bool { return d.Get("http", "/healthcheck").Body == "NOT_SERVING: no limits are loaded yet\n" })
		wantHealth(d, "NOT_SERVING")
		wantPage(t, d.Get("admin", "/rlconfig"), 200, "# no limits were loaded yet\n", "; no request is answered until they are fixed:\n#   ", "later.yaml")
		wantPage(t, d.Get("admin", "/metrics"), 200, "ratelimitd_limits_rules 0\n", "ratelimitd_limits_last_reload_successful 0\n")
		if p := d.Post(servertest.BodyX); p.Code != 503 {
			t.Errorf("over HTTP: %d %s", p.Code, p.Body)
		}
	}
	unanswered()
	if err := os.WriteFile(path, []byte("domain: 5: 6"), 0o600); err != nil {
		t.Fatal(err)
	}
	if live.Reload() == nil {
		t.Fatal("a bad file loads")
	}
	if len(d.Log.Lines("limits not loaded, none are in force yet")) != 1 {
		t.Errorf("the second failure is not in the log")
	}
	unanswered()
	if err := os.WriteFile(path, []byte(servertest.OneLimit), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := live.Reload(); err != nil {
		t.Fatal(err)
	}
	asynctest.Eventually(t, "SERVING", func() bool { return d.Check("") == "SERVING" })
	servertest.WantShown(t, d.Ask("api", 1, "user=x"), "OK; OK u 5/HOUR remaining 4 reset 59m50s")
}

func TestReadyOnlyWithDomain(t *testing.T) {
	t.Parallel()
	empty := t.TempDir()
	var live *rules.Live
	noDomain := func(o *server.Options) {
		live = limitsfile.NewLive(empty, o.Log)
		if err := live.Reload(); err != nil {
			t.Fatal(err)
		}
		o.Live = live
	}
	servertest.Start(t, servertest.OneLimit, noDomain).Ask("api", 1, "user=x")
	d := servertest.Run(t, servertest.OneLimit, noDomain, func(o *server.Options) { o.Health.OnlyWithDomain = true })
	asynctest.Eventually(t, "the reason", func() bool { return d.Get("http", "/healthcheck").Body == "NOT_SERVING: the limits have no domain\n" })
	d.Ask("api", 1, "user=x")
	if err := os.WriteFile(empty+"/api.yaml", []byte(servertest.OneLimit), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := live.Reload(); err != nil {
		t.Fatal(err)
	}
	asynctest.Eventually(t, "SERVING", func() bool { return d.Check("") == "SERVING" })
}
