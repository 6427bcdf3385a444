package authapi_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/server/servertest"
)

// Each source is read for each proxy. The headers of the other proxy do not
// count.
func TestAuthReadsEachSource(t *testing.T) {
	t.Parallel()
	sources := []string{
		"key: user, from: header, name: X-User", "key: method, from: method", "key: path, from: path, prefixes: [/api, /login, /api/v1]",
		"key: page, from: query, name: a page", "key: site, value: shop",
	}
	for _, c := range []struct{ proxy, uri, method, otherURI, otherMethod string }{
		{"nginx", "X-Original-URI", "X-Original-Method", "X-Forwarded-Uri", "X-Forwarded-Method"},
		{"caddy", "X-Forwarded-Uri", "X-Forwarded-Method", "X-Original-Uri", "X-Original-Method"},
		{"traefik", "X-Forwarded-Uri", "X-Forwarded-Method", "X-Original-Uri", "X-Original-Method"},
	} {
		t.Run(c.proxy, func(t *testing.T) {
			t.Parallel()
			store := newKeys()
			d := servertest.Start(t, servertest.AuthLimits, servertest.On(store), servertest.WithAuth(t, servertest.AuthFile(c.proxy, sources...)))
			for _, m := range []string{"GET", "POST", "HEAD", "PROPFIND"} {
				d.Auth("127.0.0.1", m, "n?a+page=9", "X-User: bob", c.method+": DELETE", c.uri+": /api/v1/x?b=1&a+page=3",
					c.otherMethod+": PUT", c.otherURI+": /login?a+page=7")
				if got := store.last(); got != "user=bob method=DELETE path=/api/v1 page=3 site=shop" {
					t.Errorf("%s: %s", m, got)
				}
			}
			d.Auth("127.0.0.1", "GET", "n", c.otherMethod+": PUT", c.otherURI+": /login?a+page=7")
			if got := store.last(); got != "user= method= path= page= site=shop" {
				t.Errorf("with the other proxy's headers: %s", got)
			}
			// A stranger's headers about another request do not count.
			d.Auth("127.0.0.2", "GET", "n", "X-User: bob", c.method+": DELETE", c.uri+": /api/v1/x?a+page=3")
			if got := store.last(); got != "user=bob method= path= page= site=shop" {
				t.Errorf("a stranger: %s", got)
			}
		})
	}
}

func TestAuthReadsQueryParameters(t *testing.T) {
	t.Parallel()
	store := newKeys()
	d := servertest.Start(t, servertest.AuthLimits, servertest.On(store), servertest.WithAuth(t, servertest.AuthFile("caddy", "key: page, from: query, name: 'a b'")))
	for uri, want := range map[string]string{
		"/?a+b=1": "1", "/?a%20b=1": "1", "/?%61+b=1&c=2": "1", "/?c=2&a+b=1": "1", "?a+b=1": "1", "/?x?a+b=1": "",
		"/?a+b": "", "/?a+b=": "", "/?a=1&b=2": "", "/": "", "/?": "", "/a+b=1": "", "/?&&a+b=1&&": "1",
		"/?a+b=c+d%2Be%26": "c d+e&", "/?a+b=1=2": "1%3D2", "/?a+b=%zz%4": "%25zz%254", "/?a+b=%c3%a9": "\u00e9", "/?a+b=1&a%20b=1": "1",
		// Some servers take these names for this one.
		"/?A+B=1": "1", "/?a_b=1": "1", "/?a.b=1": "1", "/?+a%20b%00x=1": "1", "/?a[b=1": "1", "/?a[b]=1": "", "/?ab=1": "",
		"/?x=1;a+b=2": "2", "/?x=1;y=2": "",
	} {
		t.Run(uri, func(t *testing.T) {
			p := d.Auth("127.0.0.1", "GET", "n", "X-Forwarded-Uri: "+uri)
			if got := store.last(); p.Code != 200 || got != "page="+want {
				t.Errorf("got %d, %s, want %q", p.Code, got, want)
			}
		})
	}
}

// A request with two values is denied, whatever on_missing says: else a client
// could have one counted and the other served.
func TestAuthDeniesUnclearValues(t *testing.T) {
	t.Parallel()
	store := newKeys()
	d := servertest.Start(t, servertest.AuthLimits, servertest.On(store), servertest.WithAuth(t, servertest.AuthFile("nginx", "key: user, from: header, name: X-User, on_missing: omit",
		"key: page, from: query, name: p, on_missing: omit", "key: method, from: method", "key: path, from: path, prefixes: [/]")))
	const uri = "X-Original-Uri: /?p=1"
	sent, passed := 0.0, 0.0
	for _, c := range []struct {
		name    string
		headers []string
		code    int
	}{
		{"nothing unusual", []string{"X-User: a", uri}, 200},
		{"a header twice", []string{"X-User: a", "X-User: b", uri}, 403},
		{"an empty one and another", []string{"X-User: ", "X-User: b", uri}, 403},
		{"a header twice the same", []string{"X-User: a", "X-User: a", uri}, 200},
		{"no UTF-8", []string{"X-User: a\xff", uri}, 403},
		{"other headers twice", []string{"X-User: a", "X-Other: a", "X-Other: b\xff", uri}, 200},
		{"a parameter twice", []string{"X-Original-Uri: /?p=1&p=2"}, 403},
		{"a parameter twice, once in disguise", []string{"X-Original-Uri: /?p=1&%70=2"}, 403},
		{"a parameter with and without a value", []string{"X-Original-Uri: /?p=1&p"}, 403},
		{"a parameter that is no UTF-8", []string{"X-Original-Uri: /?p=%ff"}, 403},
		{"a parameter twice, once in capitals", []string{"X-Original-Uri: /?p=1&P=2"}, 403},
		{"a parameter twice, once after a semicolon", []string{"X-Original-Uri: /?p=1&x=1;p=2"}, 403},
		{"a parameter that may end at a semicolon", []string{"X-Original-Uri: /?p=1;2"}, 403},
		{"a semicolon elsewhere", []string{"X-Original-Uri: /?p=1&x=1;2"}, 200},
		{"a header twice, once with another name to CGI", []string{"X-User: a", "X_User: b", uri}, 403},
		{"a fragment", []string{"X-Original-Uri: /?p=1#p=2"}, 403},
		{"two URIs", []string{uri, "X-Original-Uri: /?p=2"}, 403},
		{"two methods", []string{uri, "X-Original-Method: GET", "X-Original-Method: PUT"}, 403},
	} {
		t.Run(c.name, func(t *testing.T) {
			sent++
			if c.code == 200 {
				passed++
			}
			p := d.Auth("127.0.0.1", "GET", "n", c.headers...)
			asked := store.last()
			if p.Code != c.code || (asked != "") != (c.code == 200) {
				t.Errorf("got %d, want %d; asked %s", p.Code, c.code, asked)
			}
			if c.code != 200 && p.Body != `{"error":"the request lacks a value that its limits are counted by, or has several"}`+"\n" {
				t.Errorf("got %s", p.Body)
			}
		})
	}
	d.WantMetrics(map[string]float64{
		`ratelimitd_requests_total{api="auth",code="OK",outcome="allowed"}`: passed,
		`ratelimitd_requests_total{api="auth",code="OK",outcome="denied"}`:  sent - passed,
	})
}

// Names of headers and methods count alike in all spellings that servers take
// for the same.
func TestAuthTakesSpellingsAsOne(t *testing.T) {
	t.Parallel()
	store := newKeys()
	d := servertest.Start(t, servertest.AuthLimits, servertest.On(store), servertest.WithAuth(t, servertest.AuthFile("caddy", "key: user, from: header, name: X-Api_User", "key: method, from: method")))
	for _, header := range []string{"X-Api_User", "X-Api-User", "X_Api_User", "x-api-user"} {
		t.Run(header, func(t *testing.T) {
			d.Auth("127.0.0.1", "GET", "n", header+": ann", "X-Forwarded-Method: post")
			if got := store.last(); got != "user=ann method=POST" {
				t.Errorf("got %s", got)
			}
		})
	}
}

func TestAuthMissingValuesFollowOnMissing(t *testing.T) {
	t.Parallel()
	const text = `
trusted_proxies: [127.0.0.1]
endpoints:
  - name: n
    proxy: caddy
    denied_status: 401
    domain: d
    on_missing: %s
    descriptors:
      - entries: [{key: user, from: header, name: X-User}, {key: path, from: path, prefixes: [/a], on_missing: %s}]
      - entries: [{key: site, value: ""}]
        cost: 4
`
	for _, c := range []struct{ user, path, none, withUser, withPath, both string }{
		{"empty", "empty", "user=|path= site= cost 4", "user=bob|path= site= cost 4", "user=|path=/a site= cost 4", "user=bob|path=/a site= cost 4"},
		{"omit", "empty", "site= cost 4", "user=bob|path= site= cost 4", "site= cost 4", "user=bob|path=/a site= cost 4"},
		{"omit", "omit", "site= cost 4", "site= cost 4", "site= cost 4", "user=bob|path=/a site= cost 4"},
		{"empty", "omit", "site= cost 4", "site= cost 4", "user=|path=/a site= cost 4", "user=bob|path=/a site= cost 4"},
		{"deny", "empty", "401", "user=bob|path= site= cost 4", "401", "user=bob|path=/a site= cost 4"},
		{"deny", "omit", "401", "site= cost 4", "401", "user=bob|path=/a site= cost 4"},
		{"omit", "deny", "401", "401", "site= cost 4", "user=bob|path=/a site= cost 4"},
		{"deny", "deny", "401", "401", "401", "user=bob|path=/a site= cost 4"},
	} {
		t.Run(c.user+" and "+c.path, func(t *testing.T) {
			store := newKeys()
			d := servertest.Start(t, servertest.AuthLimits, servertest.On(store), servertest.WithAuth(t, fmt.Sprintf(text, c.user, c.path)))
			const user, path = "X-User: bob", "X-Forwarded-Uri: /a"
			for _, r := range []struct {
				want    string
				headers []string
			}{
				{c.none, nil}, {c.none, []string{"X-User: ", "X-Forwarded-Uri: /b"}}, {c.withUser, []string{user}}, {c.withPath, []string{path}}, {c.both, []string{user, path}},
			} {
				p := d.Auth("127.0.0.1", "GET", "n", r.headers...)
				got := store.last()
				if p.Code != 200 {
					got = strings.TrimSpace(fmt.Sprint(p.Code, " ", got))
				}
				if got != r.want {
					t.Errorf("%q: %s, want %s", r.headers, got, r.want)
				}
			}
		})
	}
}
