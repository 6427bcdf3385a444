package forwardauth_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/config/forwardauth"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
	"github.com/ratelimitd/ratelimitd/internal/filetest"
)

const goodAuth = `
trusted_proxies: [127.0.0.1, 10.0.0.0/8, "fd00::/8", "::1"]
endpoints:
  - name: shop
    proxy: nginx
    domain: shop
    on_missing: omit
    descriptors:
      - entries:
          - {key: client, from: client_address, on_missing: empty, ipv4_prefix: 24, ipv6_prefix: 64}
          - {key: path, from: path, prefixes: [/, /api, /api/v1, /login]}
        cost: 5
      - entries:
          - {key: user, from: header, name: X-User}
          - {key: page, from: query, name: a b, on_missing: deny}
          - {key: site, value: 15}
  - name: a.b~c-D_9
    proxy: traefik
    denied_status: 420
    domain: d
    descriptors: [{entries: [{key: method, from: method}], cost: 0}]
  - {name: c, proxy: caddy, domain: d, descriptors: [{entries: [{key: site, value: ""}]}]}
`

func loadAuth(t testing.TB, text string) (*forwardauth.File, error) {
	t.Helper()
	return forwardauth.Load(filetest.Write(t, t.TempDir(), "auth.yaml", text))
}

func TestAFileIsReadInFull(t *testing.T) {
	t.Parallel()
	a, err := loadAuth(t, goodAuth)
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(a.TrustedProxies); got != "[127.0.0.1/32 10.0.0.0/8 fd00::/8 ::1/128]" {
		t.Errorf("trusted proxies %s", got)
	}
	shop := a.Endpoint("shop")
	if shop == nil || a.Endpoint("") != nil || a.Endpoint("Shop") != nil || len(a.Endpoints) != 3 {
		t.Fatalf("endpoints %v", a.Endpoints)
	}
	if shop.Domain != "shop" || shop.DeniedStatus != 403 || shop.URIHeader != "X-Original-URI" || shop.MethodHeader != "X-Original-Method" || shop.Line != 4 {
		t.Errorf("shop is %+v", shop)
	}
	want := []forwardauth.Descriptor{
		{Cost: 5, Entries: []forwardauth.Entry{
			{Key: "client", From: forwardauth.FromClientAddress, IPv4Prefix: 24, IPv6Prefix: 64, OnMissing: forwardauth.MissingEmpty},
			{Key: "path", From: forwardauth.FromPath, Prefixes: []string{"/api/v1", "/login", "/api", "/"}, OnMissing: forwardauth.MissingOmit},
		}},
		{Cost: 1, Entries: []forwardauth.Entry{
			{Key: "user", From: forwardauth.FromHeader, Name: "X-User", OnMissing: forwardauth.MissingOmit},
			{Key: "page", From: forwardauth.FromQuery, Name: "a b", OnMissing: forwardauth.MissingDeny},
			{Key: "site", Value: "15"},
		}},
	}
	if !reflect.DeepEqual(shop.Descriptors, want) {
		t.Errorf("descriptors\n got %+v\nwant %+v", shop.Descriptors, want)
	}
	other, third := a.Endpoint("a.b~c-D_9"), a.Endpoint("c")
	if other.DeniedStatus != 420 || other.URIHeader != "X-Forwarded-Uri" || other.MethodHeader != "X-Forwarded-Method" || other.Descriptors[0].Cost != 0 {
		t.Errorf("the second is %+v", other)
	}
	if third.DeniedStatus != 429 || third.URIHeader != "X-Forwarded-Uri" || third.MethodHeader != "X-Forwarded-Method" {
		t.Errorf("the third is %+v", third)
	}
}

func TestTrustsAddressesOfTrustedProxies(t *testing.T) {
	t.Parallel()
	a, err := loadAuth(t, goodAuth)
	if err != nil {
		t.Fatal(err)
	}
	for address, want := range map[string]bool{
		"127.0.0.1": true, "127.0.0.2": false, "10.0.0.0": true, "10.255.255.255": true, "11.0.0.0": false,
		"fd12::1": true, "fc00::1": false, "::1": true, "::2": false, "::ffff:10.0.0.1": false,
	} {
		t.Run(address, func(t *testing.T) {
			if got := a.Trusts(netip.MustParseAddr(address)); got != want {
				t.Errorf("%s is trusted: %t", address, got)
			}
		})
	}
	if a.Trusts(netip.Addr{}) {
		t.Error("no address is trusted")
	}
}

// endpoint is a file with one endpoint, which has this on line 4.
func endpoint(text string) string {
	return "trusted_proxies: [127.0.0.1]\nendpoints:\n- name: n\n  " + text + "\n"
}

// authEntry is a file with one entry, on line 8.
func authEntry(text string) string {
	return endpoint("proxy: caddy\n  domain: d\n  descriptors:\n  - entries:\n    - {" + text + "}")
}

const (
	authKeys       = "trusted_proxies, endpoints"
	endpointKeys   = "name, proxy, domain, denied_status, on_missing, descriptors"
	authDescriptor = "entries, cost"
	authEntryKeys  = "key, value, from, name, prefixes, ipv4_prefix, ipv6_prefix, on_missing"
	sources        = "client_address, header, method, path, query"
	network        = "an IP address, or a network such as 10.0.0.0/8 or fd00::/8"
	endpointNames  = "1 to 64 letters, digits and -_.~, and not . or .."
	plainPaths     = "/ and segments, decoded and without a slash at the end, such as /api/v1"
	headerNames    = "1 to 64 letters, digits and !#$%&'*+-.^_`|~"
)

// badAuths are files and all that is wrong with each, after the file's name.
var badAuths = []struct {
	name, text string
	want       []string
}{
	{"empty", "", []string{"1:1: found an empty file; allowed: a file for forward auth, with " + authKeys}},
	{"a list", "- a\n", []string{"1:1: found a list; allowed: a file for forward auth, with " + authKeys}},
	{"no YAML", "endpoints: [\n", []string{"1:1: found no YAML: did not find expected node content"}},
	{"two documents", goodAuth + "---\na: b\n", []string{"23:1: found a second document; allowed: one document in a file"}},
	{"Latin-1", "# caf\xe9\n", []string{"1:6: found the byte 0xe9, which is not UTF-8; allowed: UTF-8"}},
	{"an alias in itself", "endpoints: &a [*a]\n", []string{"1:16: found *a inside its own anchor; allowed: an alias after what it names"}},
	{"no endpoints", "trusted_proxies: []\n", []string{"1:1: found no endpoints; allowed: endpoints: a list with at least one"}},
	{"null endpoints", "endpoints:\n", []string{"1:11: endpoints: found no value; allowed: a list of endpoints"}},
	{"empty endpoints", "endpoints: []\n", []string{"1:12: endpoints: found an empty list; allowed: at least one"}},
	{"an unknown key", "endpoint: []\n", []string{
		`1:1: found an unknown key "endpoint" in a file for forward auth (endpoints?); allowed: ` + authKeys,
		"1:1: found no endpoints; allowed: endpoints: a list with at least one",
	}},
	{"a key of another level", endpoint("entries: []\n  proxy: caddy\n  domain: d\n  descriptors: [{entries: [{key: k, value: v}]}]"), []string{
		"4:3: endpoints[0]: found entries in an endpoint, but it belongs in a descriptor; allowed: " + endpointKeys,
	}},
	{"a key of limits files", authEntry("key: k, value: v, requests: 5"), []string{
		`8:26: endpoints[0].descriptors[0].entries[0]: found an unknown key "requests" in an entry; allowed: ` + authEntryKeys,
	}},
	{"a key twice", authEntry("key: k, key: l, value: v"), []string{
		"8:16: endpoints[0].descriptors[0].entries[0].key: found a second key, the first is on line 8; allowed: one",
	}},

	{"networks", `trusted_proxies: [10.0.0.1/8, "::ffff:10.0.0.0/104", 0.0.0.0/0, "::/0", localhost, "fe80::1%eth0", 10.0.0.0/33, 10.0.0, [a], ""]` +
		"\nendpoints: [{name: n, proxy: caddy, domain: d, descriptors: [{entries: [{key: k, value: v}]}]}]\n", []string{
		`1:19: trusted_proxies[0]: found the text "10.0.0.1/8", which has bits beyond its length (10.0.0.0/8?); allowed: ` + network,
		`1:31: trusted_proxies[1]: found the text "::ffff:10.0.0.0/104", which is an IPv4 address in the form of IPv6; allowed: ` + network,
		`1:54: trusted_proxies[2]: found the text "0.0.0.0/0", which is everybody: any client could say who it is; allowed: ` + network,
		`1:65: trusted_proxies[3]: found the text "::/0", which is everybody: any client could say who it is; allowed: ` + network,
		`1:73: trusted_proxies[4]: found the text "localhost"; allowed: ` + network,
		`1:84: trusted_proxies[5]: found the text "fe80::1%eth0"; allowed: ` + network,
		`1:100: trusted_proxies[6]: found the text "10.0.0.0/33"; allowed: ` + network,
		`1:113: trusted_proxies[7]: found the text "10.0.0"; allowed: ` + network,
		"1:121: trusted_proxies[8]: found a list; allowed: " + network,
		`1:126: trusted_proxies[9]: found the text ""; allowed: ` + network,
	}},
	{"one network", "trusted_proxies: 10.0.0.0/8\nendpoints: [{name: n, proxy: caddy, domain: d, descriptors: [{entries: [{key: k, value: v}]}]}]\n", []string{
		`1:18: trusted_proxies: found the text "10.0.0.0/8"; allowed: a list of IP addresses and networks`,
	}},

	{"an empty endpoint", "endpoints: [{}]\n", []string{
		"1:13: endpoints[0]: found no name; allowed: name: NAME, as in /auth/NAME",
		"1:13: endpoints[0]: found no proxy; allowed: proxy: one of nginx, caddy, traefik",
		"1:13: endpoints[0]: found no domain; allowed: domain: NAME, that of the limits",
		"1:13: endpoints[0]: found no descriptors; allowed: descriptors: a list with at least one",
	}},
	{"bad values of an endpoint", "endpoints:\n- name: a/b\n  proxy: ngnix\n  domain: ''\n  denied_status: 200\n  on_missing: denied\n  descriptors: {}\n", []string{
		`2:9: endpoints[0].name: found the text "a/b"; allowed: ` + endpointNames,
		`3:10: endpoints[0].proxy: found the text "ngnix" (nginx?); allowed: nginx, caddy, traefik`,
		"4:11: endpoints[0].domain: found an empty text; allowed: a name of 1 to 255 bytes without control characters",
		"5:18: endpoints[0].denied_status: found the number 200; allowed: a whole number from 400 to 499",
		`6:15: endpoints[0].on_missing: found the text "denied"; allowed: empty, omit, deny`,
		"7:16: endpoints[0].descriptors: found a mapping; allowed: a list of descriptors",
	}},
	{"two endpoints of a name", "endpoints:\n- &a {name: a, proxy: caddy, domain: d, descriptors: [{entries: [{key: k, value: v}]}]}\n- {name: .., <<: *a}\n- {<<: *a, domain: e}\n", []string{
		`2:13: endpoints[2].name: found the name "a" again, the first is on line 2; allowed: a name for each endpoint`,
		`3:10: endpoints[1].name: found the text ".."; allowed: ` + endpointNames,
	}},
	{"a status that nginx does not take", endpoint("proxy: nginx\n  denied_status: 429\n  domain: d\n  descriptors: [{entries: [{key: k, value: v}]}]"), []string{
		"5:18: endpoints[0].denied_status: found 429 with the proxy nginx, which takes it for an error; allowed: 401 or 403, of which error_page makes another status",
	}},
	{"descriptors", endpoint("proxy: caddy\n  domain: d\n  descriptors: [{}, {entries: []}, {entries: [{key: k, value: v}], cost: -1}, {entry: [], entries: [{key: k, value: v}]}]"), []string{
		"6:17: endpoints[0].descriptors[0]: found no entries; allowed: entries: a list with at least one",
		"6:31: endpoints[0].descriptors[1].entries: found an empty list; allowed: at least one",
		"6:74: endpoints[0].descriptors[2].cost: found the number -1; allowed: a whole number from 0 to 4503599627370496",
		`6:80: endpoints[0].descriptors[3]: found an unknown key "entry" in a descriptor; allowed: ` + authDescriptor,
	}},
	{"a header without trust", "endpoints: [{name: n, proxy: caddy, domain: d, descriptors: [{entries: [{key: k, from: path, prefixes: [/]}, {key: k, from: header, name: a}]}]}]\n", []string{
		"1:88: endpoints[0].descriptors[0].entries[0].from: found path without trusted_proxies, which alone can tell it; allowed: it with trusted_proxies in the file",
	}},

	{"no source", authEntry("key: k"), []string{
		"8:7: endpoints[0].descriptors[0].entries[0]: found no value; allowed: value: TEXT, or from: one of " + sources,
	}},
	{"two sources", authEntry("key: k, value: v, from: method"), []string{
		"8:26: endpoints[0].descriptors[0].entries[0].from: found value beside from; allowed: one of them",
	}},
	{"no key", authEntry("value: v"), []string{"8:7: endpoints[0].descriptors[0].entries[0]: found no key; allowed: key: NAME, in every entry"}},
	{"an unknown source", authEntry("key: k, from: headers"), []string{
		`8:22: endpoints[0].descriptors[0].entries[0].from: found the text "headers" (header?); allowed: ` + sources,
	}},
	{"a list as a value", authEntry("key: k, value: [v]"), []string{
		"8:23: endpoints[0].descriptors[0].entries[0].value: found a list; allowed: a text, a number or a boolean",
	}},
	{"no header", authEntry("key: k, from: header"), []string{
		"8:7: endpoints[0].descriptors[0].entries[0]: found from: header without name; allowed: name beside it",
	}},
	{"no header's name", authEntry("key: k, from: header, name: 'x user'"), []string{
		`8:36: endpoints[0].descriptors[0].entries[0].name: found the text "x user"; allowed: ` + headerNames,
	}},
	{"the header Host", authEntry("key: k, from: header, name: host"), []string{
		"8:36: endpoints[0].descriptors[0].entries[0].name: found the header Host, which is that of this daemon; allowed: X-Forwarded-Host, or a name that the proxy's configuration gives it",
	}},
	{"no parameter", authEntry("key: k, from: query"), []string{
		"8:7: endpoints[0].descriptors[0].entries[0]: found from: query without name; allowed: name beside it",
	}},
	{"no prefixes", authEntry("key: k, from: path"), []string{
		"8:7: endpoints[0].descriptors[0].entries[0]: found from: path without prefixes; allowed: prefixes beside it",
	}},
	{"an empty list of prefixes", authEntry("key: k, from: path, prefixes: []"), []string{
		"8:38: endpoints[0].descriptors[0].entries[0].prefixes: found 0 paths; allowed: 1 to 1000",
	}},
	{"bad prefixes", authEntry("key: k, from: path, prefixes: [a, /a/, //, /a//b, /./a, /a/.., '/a?b', /a;b, '/#', /a, /a]"), func() (want []string) {
		for i, s := range []string{"a", "/a/", "//", "/a//b", "/./a", "/a/..", "/a?b", "/a;b", "/#"} {
			column := []int{39, 42, 47, 51, 58, 64, 71, 79, 85}[i]
			want = append(want, fmt.Sprintf("8:%d: endpoints[0].descriptors[0].entries[0].prefixes[%d]: found the text %q; allowed: %s", column, i, s, plainPaths))
		}
		return append(want, `8:95: endpoints[0].descriptors[0].entries[0].prefixes[10]: found "/a" again; allowed: each path once`)
	}()},
	{"lengths", authEntry("key: k, from: client_address, ipv4_prefix: 33, ipv6_prefix: 0"), []string{
		"8:51: endpoints[0].descriptors[0].entries[0].ipv4_prefix: found the number 33; allowed: a whole number from 1 to 32",
		"8:68: endpoints[0].descriptors[0].entries[0].ipv6_prefix: found the number 0; allowed: a whole number from 1 to 128",
	}},
	{"needless for a method", authEntry("key: k, from: method, name: n, prefixes: [/], ipv4_prefix: 8, ipv6_prefix: 8"), []string{
		"8:30: endpoints[0].descriptors[0].entries[0].name: found name beside from: method; allowed: it beside from: header or query",
		"8:39: endpoints[0].descriptors[0].entries[0].prefixes: found prefixes beside from: method; allowed: it beside from: path",
		"8:54: endpoints[0].descriptors[0].entries[0].ipv4_prefix: found ipv4_prefix beside from: method; allowed: it beside from: client_address",
		"8:70: endpoints[0].descriptors[0].entries[0].ipv6_prefix: found ipv6_prefix beside from: method; allowed: it beside from: client_address",
	}},
	{"needless for a value", authEntry("key: k, value: v, on_missing: deny"), []string{
		"8:26: endpoints[0].descriptors[0].entries[0].on_missing: found on_missing beside a value; allowed: it beside from: client_address or header or method or path or query",
	}},
}

func TestEachErrorSaysWhereAndWhat(t *testing.T) {
	t.Parallel()
	for _, c := range badAuths {
		t.Run(c.name, func(t *testing.T) {
			path := filetest.Write(t, t.TempDir(), "auth.yaml", c.text)
			_, err := forwardauth.Load(path)
			var errs yamlfile.Errors
			if !errors.As(err, &errs) {
				t.Fatalf("error %v", err)
			}
			var want []string
			for _, w := range c.want {
				want = append(want, path+":"+w)
			}
			if got := err.Error(); got != strings.Join(want, "\n") {
				t.Errorf("got\n%s\nwant\n%s", got, strings.Join(want, "\n"))
			}
		})
	}
}

func TestFilesThatCannotBeReadAreErrors(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, err := forwardauth.Load(dir + "/none"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	if _, err := forwardauth.Load(dir); err == nil || err.Error() != "forward auth: "+dir+" is no file" {
		t.Errorf("a folder: %v", err)
	}
}

// What is in force changes with the file, and not with one that has errors.
func TestWatchLoadsAFileThatChanges(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filetest.Write(t, dir, "auth.yaml", strings.ReplaceAll(goodAuth, "name: shop", "name: one"))
	log := new(asynctest.Buffer)
	l := forwardauth.NewLive(path, slog.New(slog.NewTextHandler(log, nil)))
	if l.Value() != nil {
		t.Error("there are endpoints before the first load")
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- l.Watch(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Watch: %v", err)
		}
	}()
	has := func(name string) func() bool {
		return func() bool { return l.Value() != nil && l.Value().Endpoint(name) != nil }
	}
	asynctest.Eventually(t, "the first endpoints", has("one"))

	filetest.Write(t, dir, "auth.yaml", strings.ReplaceAll(goodAuth, "name: shop", "name: two"))
	asynctest.Eventually(t, "new endpoints", has("two"))
	if has("one")() || l.Status().Generation != 2 {
		t.Errorf("the old endpoint is there; %+v", l.Status())
	}

	// A good endpoint beside a bad one is not taken.
	filetest.Write(t, dir, "auth.yaml", strings.ReplaceAll(goodAuth, "name: shop", "name: three")+"  - {}\n")
	asynctest.Eventually(t, "an error", func() bool { return l.Status().LastError != nil })
	if !has("two")() || has("three")() || l.Status().Failed != 1 {
		t.Errorf("not the last good endpoints; %+v", l.Status())
	}
	if n := log.Count(`"forward auth endpoints not loaded, the last good ones stay in force"`); n != 1 {
		t.Errorf("the failure was logged %d times", n)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	asynctest.Eventually(t, "the file is gone", func() bool { return errors.Is(l.Status().LastError, os.ErrNotExist) })

	filetest.Write(t, dir, "auth.yaml", strings.ReplaceAll(goodAuth, "name: shop", "name: four"))
	asynctest.Eventually(t, "mended", has("four"))
	if s := l.Status(); s.LastError != nil || s.Generation != 3 {
		t.Errorf("status %+v", s)
	}
}

func TestTableAndWarnings(t *testing.T) {
	t.Parallel()
	path := filetest.Write(t, t.TempDir(), "auth.yaml", goodAuth)
	a, err := forwardauth.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	warnings := a.Warnings(func(name string) bool { return name == "d" })
	if len(warnings) != 1 || warnings[0].String() != path+`:6:13: endpoints[0].domain: no limits file has the domain "shop", so nothing is limited` {
		t.Errorf("warnings %v", warnings)
	}
	var out bytes.Buffer
	if err := a.WriteTable(&out); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"/auth/shop for nginx domain shop client / path, user / page / site denied with 403",
		"/auth/a.b~c-D_9 for traefik domain d method denied with 420",
		"/auth/c for caddy domain d site denied with 429",
	}
	var got []string
	for line := range strings.Lines(out.String()) {
		got = append(got, strings.Join(strings.Fields(line), " "))
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("table\n%s", out.String())
	}
}

func FuzzAuthFile(f *testing.F) {
	f.Add([]byte(goodAuth))
	for _, c := range badAuths {
		f.Add([]byte(c.text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filetest.Write(t, t.TempDir(), "auth.yaml", string(data))
		a, err := forwardauth.Load(path)
		if err != nil {
			var errs yamlfile.Errors
			if !errors.As(err, &errs) || len(errs) == 0 {
				t.Fatalf("error %v", err)
			}
			return
		}
		for _, e := range a.Endpoints {
			if a.Endpoint(e.Name) != e || e.DeniedStatus < 400 || e.DeniedStatus > 499 || len(e.Descriptors) == 0 {
				t.Errorf("endpoint %+v", e)
			}
			for _, d := range e.Descriptors {
				for _, entry := range d.Entries {
					if entry.Key == "" || entry.From == forwardauth.FromConstant && entry.OnMissing != forwardauth.MissingEmpty {
						t.Errorf("entry %+v", entry)
					}
				}
			}
		}
	})
}
