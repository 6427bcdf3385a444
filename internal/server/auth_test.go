package server_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/forwardauth"
	"github.com/ratelimitd/ratelimitd/internal/config/settings"
	"github.com/ratelimitd/ratelimitd/internal/server"
	"github.com/ratelimitd/ratelimitd/internal/server/decide"
)

// authLimits has a rule for each key that tests use, so that each value that
// was read shows in a key of the store.
const authLimits = `
domain: d
descriptors:
  - {key: client, rate_limit: {name: c, requests: 3, period: 1h}}
  - {key: user, rate_limit: {name: u, requests: 2, period: 1h}, descriptors: [{key: path, rate_limit: {requests: 9, period: 1h}}]}
  - {key: method, rate_limit: {requests: 9, period: 1h}}
  - {key: path, rate_limit: {requests: 9, period: 1h}}
  - {key: page, rate_limit: {requests: 9, period: 1h}}
  - {key: site, rate_limit: {requests: 9, period: 1h}}
`

// authFile is a file for forward auth with one endpoint, n, with these entries,
// each of a descriptor of its own, for connections from 127.0.0.1 and beyond.
func authFile(proxy string, entries ...string) string {
	text := "trusted_proxies: [127.0.0.1, 10.0.0.0/8, 'fd00::/8']\nendpoints:\n- name: n\n  proxy: " + proxy + "\n  domain: d\n  descriptors:\n"
	for _, e := range entries {
		text += "  - entries: [{" + e + "}]\n"
	}
	return text
}

// withAuth has a server answer forward auth by a file.
func withAuth(t testing.TB, text string) func(*server.Options) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "auth.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	live := forwardauth.NewLive(path, slog.New(slog.DiscardHandler))
	if err := live.Reload(); err != nil {
		t.Fatal(err)
	}
	return func(o *server.Options) { o.HTTP.Auth = live }
}

// keys is a store that allows everything and tells which keys it was asked for.
type keys struct {
	fakeStore
	mu    sync.Mutex
	asked []string
}

func newKeys() *keys {
	k := new(keys)
	k.take = func(_ context.Context, hits []bucket.Hit, _ []bucket.Decision) error {
		k.mu.Lock()
		defer k.mu.Unlock()
		for _, h := range hits {
			subject, _, _ := strings.Cut(string(h.Key), "#")
			if h.Cost != 1 {
				subject += fmt.Sprintf(" cost %d", h.Cost)
			}
			k.asked = append(k.asked, strings.TrimPrefix(subject, "d|"))
		}
		return nil
	}
	return k
}

func (k *keys) last() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	asked := strings.Join(k.asked, " ")
	k.asked = nil
	return asked
}

// auth asks as a proxy at this address does, with headers given as "name: value".
func (d *daemon) auth(from, method, name string, headers ...string) page {
	d.t.Helper()
	r, err := http.NewRequest(method, "http://"+d.srv.Address("http")+"/auth/"+name, nil)
	if err != nil {
		d.t.Fatal(err)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header[name] = append(r.Header[name], value)
	}
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	client := &http.Client{Transport: &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true}, Timeout: patience}
	response, err := client.Do(r)
	if err != nil {
		d.t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		d.t.Fatal(err)
	}
	return page{response.StatusCode, string(body), response.Header}
}

// What the client's address is, whoever asks and whatever the list says.
func TestAuthFindsTheAddressOfTheClient(t *testing.T) {
	t.Parallel()
	store := newKeys()
	d := start(t, authLimits, on(store), withAuth(t, authFile("caddy", "key: client, from: client_address")))
	const proxy, stranger = "127.0.0.1", "127.0.0.2"
	for _, c := range []struct {
		from      string
		forwarded []string
		want      string
	}{
		{stranger, nil, "127.0.0.2"},
		{stranger, []string{"1.2.3.4"}, "127.0.0.2"},
		{stranger, []string{"1.2.3.4, 10.0.0.1"}, "127.0.0.2"},
		{stranger, []string{"rubbish"}, "127.0.0.2"},

		{proxy, []string{"1.2.3.4"}, "1.2.3.4"},
		{proxy, []string{"5.6.7.8, 1.2.3.4"}, "1.2.3.4"},
		{proxy, []string{"5.6.7.8,1.2.3.4"}, "1.2.3.4"},
		{proxy, []string{"5.6.7.8 \t , \t 1.2.3.4 "}, "1.2.3.4"},
		{proxy, []string{"5.6.7.8", "1.2.3.4"}, "1.2.3.4"},
		{proxy, []string{"10.0.0.9, 1.2.3.4"}, "1.2.3.4"},
		{proxy, []string{"1.2.3.4, 10.0.0.9"}, "1.2.3.4"},
		{proxy, []string{"1.2.3.4", "10.0.0.9"}, "1.2.3.4"},
		{proxy, []string{"5.6.7.8, 1.2.3.4, 10.0.0.8, 10.0.0.9"}, "1.2.3.4"},
		{proxy, []string{"5.6.7.8, 10.0.0.7, 1.2.3.4, 10.0.0.9"}, "1.2.3.4"},
		{proxy, []string{"rubbish, 1.2.3.4, 10.0.0.9"}, "1.2.3.4"},
		{proxy, []string{"1.2.3.4, , 10.0.0.9,"}, "1.2.3.4"},
		// Nobody but trusted proxies is on the way: the first of them.
		{proxy, []string{"10.0.0.8, 10.0.0.9"}, "10.0.0.8"},
		{proxy, []string{"127.0.0.1"}, "127.0.0.1"},
		// What a trusted proxy wrote tells nothing.
		{proxy, nil, ""},
		{proxy, []string{""}, ""},
		{proxy, []string{" , ,"}, ""},
		{proxy, []string{"unix:"}, ""},
		{proxy, []string{"1.2.3.4, unknown"}, ""},
		{proxy, []string{"1.2.3.4, rubbish, 10.0.0.9"}, ""},
		{proxy, []string{"1.2.3.4.5"}, ""},
		{proxy, []string{"01.2.3.4"}, ""},
		// One address has one form.
		{proxy, []string{"::ffff:1.2.3.4"}, "1.2.3.4"},
		{proxy, []string{"1.2.3.4:5678"}, "1.2.3.4"},
		{proxy, []string{"1.2.3.4, ::ffff:10.0.0.9"}, "1.2.3.4"},
		{proxy, []string{"2001:DB8:0:0:0::1"}, "2001:db8::1"},
		{proxy, []string{"[2001:db8::1]:443"}, "2001:db8::1"},
		{proxy, []string{"2001:db8::1%eth0"}, "2001:db8::1"},
		{proxy, []string{"2001:db8::1, fd00::7"}, "2001:db8::1"},
	} {
		var headers []string
		for _, f := range c.forwarded {
			headers = append(headers, "X-Forwarded-For: "+f)
		}
		// Headers of other makers tell nothing.
		headers = append(headers, "X-Real-Ip: 9.9.9.9", "Forwarded: for=9.9.9.9")
		p := d.auth(c.from, "GET", "n", headers...)
		if got := store.last(); p.code != 200 || got != "client="+c.want {
			t.Errorf("%s asks with %q: %d, %s; want client=%s", c.from, c.forwarded, p.code, got, c.want)
		}
	}
}

func TestAuthCountsAddressesByNetwork(t *testing.T) {
	t.Parallel()
	store := newKeys()
	d := start(t, authLimits, on(store), withAuth(t, authFile("caddy", "key: client, from: client_address, ipv4_prefix: 24, ipv6_prefix: 64")))
	for address, want := range map[string]string{
		"1.2.3.4": "1.2.3.0/24", "1.2.3.255": "1.2.3.0/24", "::ffff:1.2.3.4": "1.2.3.0/24",
		"2001:db8:1:2:3::4": "2001:db8:1:2::/64", "2001:db8:1:2::": "2001:db8:1:2::/64", "": "",
	} {
		d.auth("127.0.0.1", "GET", "n", "X-Forwarded-For: "+address)
		if got := store.last(); got != "client="+want {
			t.Errorf("%s: %s, want %s", address, got, want)
		}
	}
}

// Each source, by each proxy; the headers of the other one tell nothing.
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
			d := start(t, authLimits, on(store), withAuth(t, authFile(c.proxy, sources...)))
			for _, m := range []string{"GET", "POST", "HEAD", "PROPFIND"} {
				d.auth("127.0.0.1", m, "n?a+page=9", "X-User: bob", c.method+": DELETE", c.uri+": /api/v1/x?b=1&a+page=3",
					c.otherMethod+": PUT", c.otherURI+": /login?a+page=7")
				if got := store.last(); got != "user=bob method=DELETE path=/api/v1 page=3 site=shop" {
					t.Errorf("%s: %s", m, got)
				}
			}
			d.auth("127.0.0.1", "GET", "n", c.otherMethod+": PUT", c.otherURI+": /login?a+page=7")
			if got := store.last(); got != "user= method= path= page= site=shop" {
				t.Errorf("with the other proxy's headers: %s", got)
			}
			// What a stranger tells of another request is nothing.
			d.auth("127.0.0.2", "GET", "n", "X-User: bob", c.method+": DELETE", c.uri+": /api/v1/x?a+page=3")
			if got := store.last(); got != "user=bob method= path= page= site=shop" {
				t.Errorf("a stranger: %s", got)
			}
		})
	}
}

func TestAuthReadsQueryParameters(t *testing.T) {
	t.Parallel()
	store := newKeys()
	d := start(t, authLimits, on(store), withAuth(t, authFile("caddy", "key: page, from: query, name: 'a b'")))
	for uri, want := range map[string]string{
		"/?a+b=1": "1", "/?a%20b=1": "1", "/?%61+b=1&c=2": "1", "/?c=2&a+b=1": "1", "?a+b=1": "1", "/?x?a+b=1": "",
		"/?a+b": "", "/?a+b=": "", "/?a=1&b=2": "", "/": "", "/?": "", "/a+b=1": "", "/?&&a+b=1&&": "1",
		"/?a+b=c+d%2Be%26": "c d+e&", "/?a+b=1=2": "1%3D2", "/?a+b=%zz%4": "%25zz%254", "/?a+b=%c3%a9": "\u00e9", "/?a+b=1&a%20b=1": "1",
		// Names that some servers take for this one.
		"/?A+B=1": "1", "/?a_b=1": "1", "/?a.b=1": "1", "/?+a%20b%00x=1": "1", "/?a[b=1": "1", "/?a[b]=1": "", "/?ab=1": "",
		"/?x=1;a+b=2": "2", "/?x=1;y=2": "",
	} {
		p := d.auth("127.0.0.1", "GET", "n", "X-Forwarded-Uri: "+uri)
		if got := store.last(); p.code != 200 || got != "page="+want {
			t.Errorf("%q: %d, %s, want %q", uri, p.code, got, want)
		}
	}
}

// What has two values is denied, whatever on_missing says: a client could
// else have one counted and another served.
func TestAuthDeniesUnclearValues(t *testing.T) {
	t.Parallel()
	store := newKeys()
	d := start(t, authLimits, on(store), withAuth(t, authFile("nginx", "key: user, from: header, name: X-User, on_missing: omit",
		"key: page, from: query, name: p, on_missing: omit", "key: method, from: method", "key: path, from: path, prefixes: [/]")))
	const uri = "X-Original-Uri: /?p=1"
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
		p := d.auth("127.0.0.1", "GET", "n", c.headers...)
		asked := store.last()
		if p.code != c.code || (asked != "") != (c.code == 200) {
			t.Errorf("%s: %d, want %d; asked %s", c.name, p.code, c.code, asked)
		}
		if c.code != 200 && p.body != `{"error":"the request lacks a value that its limits are counted by, or has several"}`+"\n" {
			t.Errorf("%s: %s", c.name, p.body)
		}
	}
	d.wantMetrics(map[string]float64{`ratelimitd_requests_total{api="auth",code="OK"}`: 18})
}

// Names of headers and methods count in each spelling that a server takes for
// the same.
func TestAuthTakesSpellingsAsOne(t *testing.T) {
	t.Parallel()
	store := newKeys()
	d := start(t, authLimits, on(store), withAuth(t, authFile("caddy", "key: user, from: header, name: X-Api_User", "key: method, from: method")))
	for _, header := range []string{"X-Api_User", "X-Api-User", "X_Api_User", "x-api-user"} {
		d.auth("127.0.0.1", "GET", "n", header+": ann", "X-Forwarded-Method: post")
		if got := store.last(); got != "user=ann method=POST" {
			t.Errorf("%s: %s", header, got)
		}
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
		store := newKeys()
		d := start(t, authLimits, on(store), withAuth(t, fmt.Sprintf(text, c.user, c.path)))
		const user, path = "X-User: bob", "X-Forwarded-Uri: /a"
		for _, r := range []struct {
			want    string
			headers []string
		}{
			{c.none, nil}, {c.none, []string{"X-User: ", "X-Forwarded-Uri: /b"}}, {c.withUser, []string{user}}, {c.withPath, []string{path}}, {c.both, []string{user, path}},
		} {
			p := d.auth("127.0.0.1", "GET", "n", r.headers...)
			got := store.last()
			if p.code != 200 {
				got = strings.TrimSpace(fmt.Sprint(p.code, " ", got))
			}
			if got != r.want {
				t.Errorf("on_missing %s and %s, %q: %s, want %s", c.user, c.path, r.headers, got, r.want)
			}
		}
	}
}

// An endpoint of which all descriptors are left out allows.
func TestAuthAllowsWhenAllDescriptorsAreOmitted(t *testing.T) {
	t.Parallel()
	store := newKeys()
	d := start(t, authLimits, on(store), withAuth(t, authFile("caddy", "key: user, from: header, name: X-User, on_missing: omit")))
	if p := d.auth("127.0.0.1", "GET", "n"); p.code != 200 || p.body != "" || store.last() != "" {
		t.Errorf("got %+v", p)
	}
}

// Denials have the status of the file and the headers of the settings, and
// several descriptors pass together.
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
		`ratelimitd_requests_total{api="auth",code="OK"}`: 6,
		`ratelimitd_auth_reloads_total{result="success"}`: 1,
		`ratelimitd_auth_reloads_total{result="failure"}`: 0,
		`ratelimitd_auth_last_reload_successful`:          1,
		`ratelimitd_requests_total{api="http",code="OK"}`: 0,
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
		if p := d.auth("127.0.0.1", "POST", name); p.code != 404 || strings.Contains(p.body, `"n"`) {
			t.Errorf("/auth/%s: %d %s", name, p.code, p.body)
		}
	}
	if p := d.auth("127.0.0.1", "GET", "m"); p.body != `{"error":"no endpoint has this name; the file of the setting auth.path says which there are"}`+"\n" {
		t.Errorf("an unknown name: %s", p.body)
	}
	d.wantMetrics(map[string]float64{
		`ratelimitd_requests_total{api="auth",code="Unavailable"}`: 1, `ratelimitd_requests_total{api="auth",code="OK"}`: 0,
	})
	off := start(t, authLimits)
	if p := off.auth("127.0.0.1", "GET", "n"); p.code != 404 {
		t.Errorf("off: %d", p.code)
	}
	if p := off.get("admin", "/authconfig"); p.code != 404 {
		t.Errorf("/authconfig, off: %d", p.code)
	}
}

// The bounds of requests are those of the other doors.
func TestAuthRequestsAreBounded(t *testing.T) {
	t.Parallel()
	d := start(t, authLimits, withAuth(t, authFile("caddy", "key: user, from: header, name: X-User", "key: site, value: s")),
		func(o *server.Options) { o.Requests.Bounds = decide.Bounds{Descriptors: 2, Entries: 1, Bytes: 1024} })
	if p := d.auth("127.0.0.1", "GET", "n", "X-User: "+strings.Repeat("x", 900)); p.code != 200 {
		t.Errorf("900 bytes: %d %s", p.code, p.body)
	}
	if p := d.auth("127.0.0.1", "GET", "n", "X-User: "+strings.Repeat("x", 1100)); p.code != 400 || !strings.Contains(p.body, "grpc.max_bytes") {
		t.Errorf("1100 bytes: %d %s", p.code, p.body)
	}
	if p := d.auth("127.0.0.1", "GET", "n", "X-User: "+strings.Repeat("x", 100_000)); p.code != 431 {
		t.Errorf("100,000 bytes: %d", p.code)
	}
	var many []string
	for i := range 500 {
		many = append(many, fmt.Sprintf("X-User: %d", i))
	}
	if p := d.auth("127.0.0.1", "GET", "n", many...); p.code != 429 {
		t.Errorf("500 headers: %d %s", p.code, p.body)
	}
}

// Requests as nobody sends them get an answer, and the daemon lives.
func TestAuthAnswersHostileRequests(t *testing.T) {
	t.Parallel()
	store := newKeys()
	d := start(t, authLimits, on(store), withAuth(t, authFile("caddy", "key: user, from: header, name: X-User", "key: client, from: client_address",
		"key: path, from: path, prefixes: [/]", "key: page, from: query, name: p")))
	for _, headers := range []string{
		"X-User: \x01\r\n", "X-User : a\r\n", "X-User: a\r\n b\r\n", "\xff\xfe: a\r\n",
		"X-Forwarded-For: " + strings.Repeat(",", 15000) + "\r\n", "X-Forwarded-For: " + strings.Repeat("10.0.0.1,", 1600) + "\r\n",
		"X-Forwarded-Uri: " + strings.Repeat("/..", 5000) + "\r\n", "X-Forwarded-Uri: " + strings.Repeat("/%2f", 3500) + "\r\n",
		"X-Forwarded-Uri: /?" + strings.Repeat("p&", 7000) + "\r\n", "X-Forwarded-Uri: " + strings.Repeat("%", 15000) + "\r\n",
		"Content-Length: 5\r\nContent-Length: 6\r\n", "Transfer-Encoding: chunked\r\nContent-Length: 6\r\n", "Expect: 100-continue\r\nContent-Length: 10\r\n",
	} {
		conn, err := net.Dial("tcp", d.srv.Address("http"))
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(patience))
		fmt.Fprintf(conn, "GET /auth/n HTTP/1.1\r\nHost: a\r\nConnection: close\r\n%s\r\n", headers)
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Errorf("%.40q: %v", headers, err)
		} else if !slices.Contains([]int{200, 400, 429}, response.StatusCode) {
			t.Errorf("%.40q: %s", headers, response.Status)
		}
		_ = conn.Close()
	}
	store.last()
	if p := d.auth("127.0.0.1", "GET", "n", "X-User: b|=#{}%~"); p.code != 200 || store.last() != "user=b%7C%3D%23%7B%7D%25%7E client= path= page=" {
		t.Errorf("and then: %+v", p)
	}
	d.wantMetrics(map[string]float64{"ratelimitd_panics_total": 0})
}

// Exactly what Traefik's ForwardAuth sends: the client's own headers, but for
// X-Forwarded-*, which it sets itself, and always a GET.
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

func FuzzAuthRequest(f *testing.F) {
	store := newKeys()
	d := start(f, authLimits, on(store), withAuth(f, authFile("caddy", "key: client, from: client_address, ipv6_prefix: 64",
		"key: path, from: path, prefixes: [/a, /]", "key: page, from: query, name: p, on_missing: omit")))
	handler := d.srv.HTTP()
	for _, s := range []string{"", "/a?p=1", "/%2e%2e/a;x?%70=%ff&p", "1.2.3.4, ::1", "[::1%a]:5, 10.0.0.1,"} {
		f.Add(s, s)
	}
	f.Fuzz(func(t *testing.T, uri, forwarded string) {
		r, err := http.NewRequest(http.MethodGet, "/auth/n", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.RemoteAddr = "127.0.0.1:1"
		r.Header = http.Header{"X-Forwarded-Uri": {uri}, "X-Forwarded-For": {forwarded}}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if w.Code != 200 && w.Code != 429 && w.Code != 400 {
			t.Errorf("%q, %q: %d", uri, forwarded, w.Code)
		}
		if panics := d.log.lines("msg=panic"); len(panics) > 0 {
			t.Errorf("%q, %q: %s", uri, forwarded, panics)
		}
	})
}
