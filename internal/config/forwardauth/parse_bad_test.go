package forwardauth_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/config/forwardauth"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
	"github.com/ratelimitd/ratelimitd/internal/filetest"
)

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
	aNetwork       = "an IP address, or a network such as 10.0.0.0/8 or fd00::/8"
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
	{"no endpoints", "trusted_proxies: []\n", []string{"1:1: found no endpoints; allowed: endpoints: a list with at least one"}},
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

	{"networks", `trusted_proxies: [10.0.0.1/8, "::ffff:10.0.0.0/104", 0.0.0.0/0, "::/0", localhost, "fe80::1%eth0", 10.0.0.0/33, 10.0.0, [a], ""]` +
		"\nendpoints: [{name: n, proxy: caddy, domain: d, descriptors: [{entries: [{key: k, value: v}]}]}]\n", []string{
		`1:19: trusted_proxies[0]: found the text "10.0.0.1/8", which has bits beyond its length (10.0.0.0/8?); allowed: ` + aNetwork,
		`1:31: trusted_proxies[1]: found the text "::ffff:10.0.0.0/104", which is an IPv4 address in the form of IPv6; allowed: ` + aNetwork,
		`1:54: trusted_proxies[2]: found the text "0.0.0.0/0", which is every address: any client could claim to be another; allowed: ` + aNetwork,
		`1:65: trusted_proxies[3]: found the text "::/0", which is every address: any client could claim to be another; allowed: ` + aNetwork,
		`1:73: trusted_proxies[4]: found the text "localhost"; allowed: ` + aNetwork,
		`1:84: trusted_proxies[5]: found the text "fe80::1%eth0"; allowed: ` + aNetwork,
		`1:100: trusted_proxies[6]: found the text "10.0.0.0/33"; allowed: ` + aNetwork,
		`1:113: trusted_proxies[7]: found the text "10.0.0"; allowed: ` + aNetwork,
		"1:121: trusted_proxies[8]: found a list; allowed: " + aNetwork,
		`1:126: trusted_proxies[9]: found the text ""; allowed: ` + aNetwork,
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
		"1:88: endpoints[0].descriptors[0].entries[0].from: found path without trusted_proxies, without which it is unknown; allowed: it with trusted_proxies in the file",
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
