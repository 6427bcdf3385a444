package server_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/server/servertest"
)

func TestPortsServeTheirPathsAlone(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t, servertest.OneLimit)
	for _, c := range []struct {
		method, port, path string
		code               int
		allow              string
	}{
		{"GET", "http", "/json", 405, "POST"},
		{"PUT", "http", "/json", 405, "POST"},
		{"DELETE", "http", "/json", 405, "POST"},
		{"OPTIONS", "http", "/json", 405, "POST"},
		{"HEAD", "http", "/json", 405, "POST"},
		{"GET", "http", "/v1/take", 405, "POST"},
		{"PATCH", "http", "/v1/give-back", 405, "POST"},
		{"POST", "http", "/openapi.yaml", 405, "GET, HEAD"},
		{"POST", "http", "/json/", 404, ""},
		{"POST", "http", "/", 404, ""},
		{"GET", "http", "/", 404, ""},
		{"HEAD", "http", "/nothing", 404, ""},
		{"GET", "http", "/rlconfig", 404, ""},
		{"GET", "http", "/debug/pprof/", 404, ""},
		{"GET", "http", "/" + strings.Repeat("x", 10_000), 404, ""},
		{"GET", "http", "/%00%22%ff", 404, ""},
		{"GET", "http", "/healthcheck", 200, ""},
		{"HEAD", "http", "/healthcheck", 200, ""},
		{"GET", "http", "//healthcheck", 200, ""}, // the client is redirected to the clean path
		{"POST", "http", "/healthcheck", 405, "GET, HEAD"},
		{"GET", "admin", "/", 200, ""},
		{"GET", "admin", "/nothing", 404, ""},
		{"GET", "admin", "/healthz", 200, ""},
		{"POST", "admin", "/rlconfig", 405, "GET, HEAD"},
		{"POST", "admin", "/json", 404, ""},
	} {
		t.Run(fmt.Sprintf("%s %.100s of the %s port", c.method, c.path, c.port), func(t *testing.T) {
			p := d.Fetch(c.method, c.port, c.path, nil)
			if p.Code != c.code || p.Header.Get("Allow") != c.allow {
				t.Errorf("got %d, allowed %q; want %d, %q", p.Code, p.Header.Get("Allow"), c.code, c.allow)
			}
			if c.port == "admin" || c.code == 200 {
				return
			}
			// All errors of that port are JSON.
			if p.Header.Get("Content-Type") != "application/json" {
				t.Errorf("got %v", p.Header)
			}
			if c.method == "HEAD" {
				return
			}
			var told map[string]string
			if err := json.Unmarshal([]byte(p.Body), &told); err != nil || len(told) != 1 || told["error"] == "" || len(p.Body) > 300 {
				t.Errorf("got %v in %.400s", err, p.Body)
			}
			if !strings.Contains(told["error"], c.allow) {
				t.Errorf("%q does not say what is allowed", told["error"])
			}
		})
	}
}

func TestPagesOfOtherSitesAreRefused(t *testing.T) {
	t.Parallel()
	const request = `"domain":"api","descriptors":[{"entries":[{"key":"user","value":"a"}]}]`
	d := servertest.Start(t, servertest.OneLimit)
	here := "http://" + d.Server.Address("http")
	for _, path := range []string{"/json", "/v1/take", "/v1/give-back", "/v1/settle", "/v1/release"} {
		for _, c := range []struct{ name, header, value string }{
			{"a page of another site", "Sec-Fetch-Site", "cross-site"},
			{"a page of another port", "Sec-Fetch-Site", "same-site"},
			{"an old browser", "Origin", "https://evil.example"},
			{"a sandboxed page", "Origin", "null"},
		} {
			t.Run(c.name+" posts to "+path, func(t *testing.T) {
				r, err := http.NewRequest(http.MethodPost, here+path, strings.NewReader("{"+request+"}"))
				if err != nil {
					t.Fatal(err)
				}
				r.Header.Set("Content-Type", "text/plain")
				r.Header.Set(c.header, c.value)
				if p := d.Do(r); p.Code != http.StatusForbidden {
					t.Errorf("got %d %s", p.Code, p.Body)
				}
			})
		}
	}
	// None of these took anything, and others still may, whatever their content type is.
	for range 5 {
		if p := d.Post("{" + request + "}"); p.Code != http.StatusOK {
			t.Errorf("got %d %s", p.Code, p.Body)
		}
	}
	if p := d.Post("{" + request + "}"); p.Code != http.StatusTooManyRequests {
		t.Errorf("got %d %s", p.Code, p.Body)
	}
}
