package authapi_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/config/settings"
	"github.com/ratelimitd/ratelimitd/internal/server"
	"github.com/ratelimitd/ratelimitd/internal/server/servertest"
)

// An endpoint allows when all its descriptors are left out.
func TestAuthAllowsWhenAllDescriptorsAreOmitted(t *testing.T) {
	t.Parallel()
	store := newKeys()
	d := servertest.Start(t, servertest.AuthLimits, servertest.On(store), servertest.WithAuth(t, servertest.AuthFile("caddy", "key: user, from: header, name: X-User, on_missing: omit")))
	if p := d.Auth("127.0.0.1", "GET", "n"); p.Code != 200 || p.Body != "" || store.last() != "" {
		t.Errorf("got %+v", p)
	}
}

// Denials have the status of the file and the headers of the settings. Several
// descriptors pass together.
func TestAuthAnswersHaveStatusAndHeaders(t *testing.T) {
	t.Parallel()
	text := servertest.AuthFile("caddy", "key: user, from: header, name: X-User", "key: client, from: client_address")
	d := servertest.Start(t, servertest.AuthLimits, servertest.WithAuth(t, text+strings.ReplaceAll(text[strings.Index(text, "- name"):], "name: n\n", "name: other\n  denied_status: 418\n")),
		func(o *server.Options) { o.Responses.Headers = settings.Headers{Style: "x-ratelimit"} })
	ask := func(name, user string) string {
		p := d.Auth("127.0.0.1", "GET", name, "X-User: "+user, "X-Forwarded-For: 1.2.3.4")
		return fmt.Sprintf("%d limit %s remaining %s reset %s retry %s %s", p.Code, p.Header.Get("X-RateLimit-Limit"), p.Header.Get("X-RateLimit-Remaining"),
			p.Header.Get("X-RateLimit-Reset"), p.Header.Get("Retry-After"), strings.TrimSpace(p.Body))
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
	d.WantMetrics(map[string]float64{
		`ratelimitd_requests_total{api="auth",code="OK",outcome="allowed"}`: 3,
		`ratelimitd_requests_total{api="auth",code="OK",outcome="denied"}`:  3,
		`ratelimitd_auth_reloads_total{result="success"}`:                   1,
		`ratelimitd_auth_reloads_total{result="failure"}`:                   0,
		`ratelimitd_auth_last_reload_successful`:                            1,
		`ratelimitd_requests_total{api="http",code="OK",outcome="allowed"}`: 0,
	})
	if p := d.Get("admin", "/authconfig"); p.Code != 200 || !strings.Contains(p.Body, "/auth/other") || !strings.HasPrefix(p.Body, "# generation 1, loaded ") {
		t.Errorf("/authconfig: %d %s", p.Code, p.Body)
	}
}

func TestAuthFailsWithoutStoreOrEndpoint(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t, servertest.AuthLimits, servertest.On(servertest.Failing("gone")), servertest.WithAuth(t, servertest.AuthFile("caddy", "key: user, from: header, name: X-User")))
	if p := d.Auth("127.0.0.1", "GET", "n", "X-User: a"); p.Code != 503 || !strings.Contains(p.Body, "the store did not decide: gone") {
		t.Errorf("a store that fails: %d %s", p.Code, p.Body)
	}
	for _, name := range []string{"m", "N", "n%2f", "."} {
		t.Run("endpoint "+name, func(t *testing.T) {
			if p := d.Auth("127.0.0.1", "POST", name); p.Code != 404 || strings.Contains(p.Body, `"n"`) {
				t.Errorf("got %d %s", p.Code, p.Body)
			}
		})
	}
	if p := d.Auth("127.0.0.1", "GET", "m"); p.Body != `{"error":"no endpoint has this name; the file of the setting auth.path says which there are"}`+"\n" {
		t.Errorf("an unknown name: %s", p.Body)
	}
	d.WantMetrics(map[string]float64{
		`ratelimitd_requests_total{api="auth",code="Unavailable",outcome="error"}`: 1, `ratelimitd_requests_total{api="auth",code="OK",outcome="allowed"}`: 0,
	})
	off := servertest.Start(t, servertest.AuthLimits)
	if p := off.Auth("127.0.0.1", "GET", "n"); p.Code != 404 {
		t.Errorf("off: %d", p.Code)
	}
	if p := off.Get("admin", "/authconfig"); p.Code != 404 {
		t.Errorf("/authconfig, off: %d", p.Code)
	}
}

// Traefik's ForwardAuth sends these: the client's own headers, its own
// X-Forwarded-*, and always a GET.
func TestAuthAnswersWhatTraefikSends(t *testing.T) {
	t.Parallel()
	store := newKeys()
	d := servertest.Start(t, servertest.AuthLimits, servertest.On(store), servertest.WithAuth(t, servertest.AuthFile("traefik", "key: user, from: header, name: X-User", "key: client, from: client_address",
		"key: method, from: method", "key: path, from: path, prefixes: [/orders]", "key: page, from: query, name: page")))
	p := d.Auth("127.0.0.1", "GET", "n",
		"Accept: */*", "Accept-Encoding: gzip", "User-Agent: curl/8.5.0", "X-User: ann", "X-Original-Uri: /else", "X-Original-Method: PUT",
		"X-Forwarded-For: 203.0.113.9", "X-Forwarded-Host: shop.example.com", "X-Forwarded-Method: POST", "X-Forwarded-Port: 443",
		"X-Forwarded-Proto: https", "X-Forwarded-Server: edge-1", "X-Forwarded-Uri: /orders/5?page=2", "X-Real-Ip: 203.0.113.9")
	if got := store.last(); p.Code != 200 || got != "user=ann client=203.0.113.9 method=POST path=/orders page=2" {
		t.Errorf("%d, %s", p.Code, got)
	}
}
