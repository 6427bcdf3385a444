package server_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/config/settings"
	"github.com/ratelimitd/ratelimitd/internal/server"
)

// An endpoint allows when all its descriptors are left out.
func TestAuthAllowsWhenAllDescriptorsAreOmitted(t *testing.T) {
	t.Parallel()
	store := newKeys()
	d := start(t, authLimits, on(store), withAuth(t, authFile("caddy", "key: user, from: header, name: X-User, on_missing: omit")))
	if p := d.auth("127.0.0.1", "GET", "n"); p.code != 200 || p.body != "" || store.last() != "" {
		t.Errorf("got %+v", p)
	}
}

// Denials have the status of the file and the headers of the settings. Several
// descriptors pass together.
func TestAuthAnswersHaveStatusAndHeaders(t *testing.T) {
	t.Parallel()
	text := authFile("caddy", "key: user, from: header, name: X-User", "key: client, from: client_address")
	d := start(t, authLimits, withAuth(t, text+strings.ReplaceAll(text[strings.Index(text, "- name"):], "name: n\n", "name: other\n  denied_status: 418\n")),
		func(o *server.Options) { o.Responses.Headers = settings.Headers{Style: "x-ratelimit"} })
	ask := func(name, user string) string {
		p := d.auth("127.0.0.1", "GET", name, "X-User: "+user, "X-Forwarded-For: 1.2.3.4")
		return fmt.Sprintf("%d limit %s remaining %s reset %s retry %s %s", p.code, p.header.Get("X-RateLimit-Limit"), p.header.Get("X-RateLimit-Remaining"),
			p.header.Get("X-RateLimit-Reset"), p.header.Get("Retry-After"), strings.TrimSpace(p.body))
	}
	const over = `{"error":"the request is over its limit"}`
	for i, c := range []struct{ name, user, want string }{
		{"n", "ann", "200 limit 2 remaining 1 reset 1800 retry  "},
		{"n", "ann", "200 limit 2 remaining 0 reset 3600 retry  "},
		{"n", "ann", "429 limit 2 remaining 0 reset 3600 retry 1800 " + over},
		{"other", "ann", "418 limit 2 remaining 0 reset 3600 retry 1800 " + over},
		// A denial takes nothing: one is left for the client.
		{"n", "bob", "200 limit 3 remaining 0 reset 3600 retry  "},
		{"n", "bob", "429 limit 3 remaining 0 reset 3600 retry 1200 " + over},
	} {
		if got := ask(c.name, c.user); got != c.want {
			t.Errorf("%d: %s, want %s", i, got, c.want)
		}
	}
	d.wantMetrics(map[string]float64{
		`ratelimitd_requests_total{api="auth",code="OK",outcome="allowed"}`: 3,
		`ratelimitd_requests_total{api="auth",code="OK",outcome="denied"}`:  3,
		`ratelimitd_auth_reloads_total{result="success"}`:                   1,
		`ratelimitd_auth_reloads_total{result="failure"}`:                   0,
		`ratelimitd_auth_last_reload_successful`:                            1,
		`ratelimitd_requests_total{api="http",code="OK",outcome="allowed"}`: 0,
	})
	if p := d.get("admin", "/authconfig"); p.code != 200 || !strings.Contains(p.body, "/auth/other") || !strings.HasPrefix(p.body, "# generation 1, loaded ") {
		t.Errorf("/authconfig: %d %s", p.code, p.body)
	}
}

func TestAuthFailsWithoutStoreOrEndpoint(t *testing.T) {
	t.Parallel()
	d := start(t, authLimits, on(failing("gone")), withAuth(t, authFile("caddy", "key: user, from: header, name: X-User")))
	if p := d.auth("127.0.0.1", "GET", "n", "X-User: a"); p.code != 503 || !strings.Contains(p.body, "the store did not decide: gone") {
		t.Errorf("a store that fails: %d %s", p.code, p.body)
	}
	for _, name := range []string{"m", "N", "n%2f", "."} {
		t.Run("endpoint "+name, func(t *testing.T) {
			if p := d.auth("127.0.0.1", "POST", name); p.code != 404 || strings.Contains(p.body, `"n"`) {
				t.Errorf("got %d %s", p.code, p.body)
			}
		})
	}
	if p := d.auth("127.0.0.1", "GET", "m"); p.body != `{"error":"no endpoint has this name; the file of the setting auth.path says which there are"}`+"\n" {
		t.Errorf("an unknown name: %s", p.body)
	}
	d.wantMetrics(map[string]float64{
		`ratelimitd_requests_total{api="auth",code="Unavailable",outcome="error"}`: 1, `ratelimitd_requests_total{api="auth",code="OK",outcome="allowed"}`: 0,
	})
	off := start(t, authLimits)
	if p := off.auth("127.0.0.1", "GET", "n"); p.code != 404 {
		t.Errorf("off: %d", p.code)
	}
	if p := off.get("admin", "/authconfig"); p.code != 404 {
		t.Errorf("/authconfig, off: %d", p.code)
	}
}

// Traefik's ForwardAuth sends these: the client's own headers, its own
// X-Forwarded-*, and always a GET.
func TestAuthAnswersWhatTraefikSends(t *testing.T) {
	t.Parallel()
	store := newKeys()
	d := start(t, authLimits, on(store), withAuth(t, authFile("traefik", "key: user, from: header, name: X-User", "key: client, from: client_address",
		"key: method, from: method", "key: path, from: path, prefixes: [/orders]", "key: page, from: query, name: page")))
	p := d.auth("127.0.0.1", "GET", "n",
		"Accept: */*", "Accept-Encoding: gzip", "User-Agent: curl/8.5.0", "X-User: ann", "X-Original-Uri: /else", "X-Original-Method: PUT",
		"X-Forwarded-For: 203.0.113.9", "X-Forwarded-Host: shop.example.com", "X-Forwarded-Method: POST", "X-Forwarded-Port: 443",
		"X-Forwarded-Proto: https", "X-Forwarded-Server: edge-1", "X-Forwarded-Uri: /orders/5?page=2", "X-Real-Ip: 203.0.113.9")
	if got := store.last(); p.code != 200 || got != "user=ann client=203.0.113.9 method=POST path=/orders page=2" {
		t.Errorf("%d, %s", p.code, got)
	}
}
