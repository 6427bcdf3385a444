package authapi_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/bucket/soaktest"
	"github.com/ratelimitd/ratelimitd/internal/server"
	"github.com/ratelimitd/ratelimitd/internal/server/servertest"
)

const pathEntry = "key: path, from: path, prefixes: [/api, /login, /api/v1, /Data, '/caf\u00e9 x']"

// Every spelling that some server serves as a prefix counts for that prefix.
func TestAuthPathCountsForEachPrefixThatMayServeIt(t *testing.T) {
	t.Parallel()
	store := newKeys()
	d := servertest.Start(t, servertest.AuthLimits, servertest.On(store), servertest.WithAuth(t, servertest.AuthFile("caddy", pathEntry+", on_missing: omit")))
	for _, c := range []struct{ name, uri, want string }{
		{"itself", "/api", "/api"},
		{"a slash", "/api/", "/api"},
		{"below", "/api/x", "/api"},
		{"the longest", "/api/v1/x/y", "/api/v1"},
		{"a prefix below another, and more", "/api/v2", "/api"},
		{"a longer segment", "/apix", ""},
		{"a longer segment, with a dot", "/login.css", ""},
		{"a shorter segment", "/ap", ""},
		{"the root", "/", ""},
		{"elsewhere", "/x/api", ""},
		{"a query", "/api?x", "/api"},
		{"a path in the query", "/apix?/api", ""},
		{"escapes", "/caf%C3%A9%20x/y", "/caf\u00e9 x"},
		{"small escapes", "/caf%c3%a9 x", "/caf\u00e9 x"},
		{"no path", "", ""},
		{"a star", "*", ""},

		// An odd path that no prefix serves counts like a plain one.
		{"an escaped slash", "/files/a%2Fb", ""},
		{"empty segments", "//x", ""},
		{"a URL in a path", "/proxy/https://example.com/login", ""},
		{"dots in names", "/v1.2/a...b/.well-known/x", ""},
		{"parameters", "/cars;colour=red/x", ""},
		{"no escapes", "/100%/%zzlogin/%6", ""},
		{"a backslash", `/a\b`, ""},

		{"empty segments before", "///login", "/login"},
		{"one dot", "/./login", "/login"},
		{"two dots", "/x/../login", "/login"},
		{"two dots at the root", "/../../login", "/login"},
		{"two dots after", "/login/..", "/login"},
		{"two dots and more after", "/login/../x", "/login"},
		{"an escaped letter", "/%6Cogin", "/login"},
		{"an escaped slash before", "/%2flogin", "/login"},
		{"an escaped slash after", "/login%2Fx", "/login"},
		{"escaped dots", "/x/%2e%2E/login", "/login"},
		{"escaped dots and slashes", "/x%2f..%2flogin", "/login"},
		{"dots that leave more than one decoded", "/a%2fb/../login", "/login"},
		{"escaped twice", "/%256Cogin", "/login"},
		{"escaped thrice", "/%25256Cogin", "/login"},
		{"two dots, escaped twice", "/x/%252e%252e/login", "/login"},
		{"IIS's escapes", "/%u006Cogin", "/login"},
		{"letters in too many bytes", "/%c1%acogin", "/login"},
		{"a slash in too many bytes", "/x%c0%af..%c0%aflogin", "/login"},
		{"a dot in three bytes", "/x/%e0%80%ae./login", "/login"},
		{"a letter in four bytes", "/%f0%80%81%acogin", "/login"},
		{"parameters after", "/login;a=b", "/login"},
		{"parameters, escaped", "/login%3Ba", "/login"},
		{"a segment of a parameter", "/;a=b/login", "/login"},
		{"a segment of nothing but ;", "/;/login", "/login"},
		{"a dot before ;", "/.;x/login", "/login"},
		{"a dot, and ;", "/./;x/login", "/login"},
		{"two dots before ;", "/x/..;/login", "/login"},
		{"two dots before ;, escaped", "/x/%2e%2e%3b/login", "/login"},
		{"a slash in a parameter", "/login;%2fx", "/login"},
		{"a backslash", `/x\..\login`, "/login"},
		{"a backslash, escaped", "/x%5c..%5Clogin", "/login"},
		{"a backslash in front", `\login`, "/login"},
		{"dots at the end", "/login..", "/login"},
		{"a space at the end", "/login%20", "/login"},
		{"a space at the end of two dots", "/x/..%20/login", "/login"},
		{"NUL", "/login%00.html", "/login"},
		{"a line break", "/login%0a", "/login"},
		{"an escaped ?", "/login%3fx", "/login"},
		{"an escaped #", "/login%23x", "/login"},
		{"capitals", "/LogIn/x", "/login"},
		{"small letters", "/data", "/Data"},
		{"capitals beyond ASCII", "/CAF%C3%89%20X", "/caf\u00e9 x"},
		{"a whole URL", "http://h/login", "/login"},
		{"no slash in front", "login", "/login"},
		{"a host", "//h/login", "/login"},
		{"a whole URL without a path", "http://h", ""},
		{"several at once", `/%2578/;/..;q\.\%2e/L%256fgin%20;x/y`, "/login"},

		// A path that servers serve under several prefixes counts for each.
		{"one and another", "/login/../api", "/login, /api"},
		{"another, escaped", "/api/%2e%2e/login", "/api, /login"},
		{"a longer one", "/api//v1", "/api, /api/v1"},
		{"a longer one in capitals", "/api/V1", "/api, /api/v1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := d.Auth("127.0.0.1", "GET", "n", "X-Forwarded-Uri: "+c.uri)
			var want []string
			for prefix := range strings.SplitSeq(c.want, ", ") {
				if prefix != "" {
					want = append(want, "path="+prefix)
				}
			}
			if got := store.last(); p.Code != 200 || got != strings.Join(want, " ") {
				t.Errorf("%q: %d, %q, want %q", c.uri, p.Code, got, want)
			}
		})
	}
}

// A prefix of all paths counts for those that have no other.
func TestAuthPathRootCountsWhatHasNoOtherPrefix(t *testing.T) {
	t.Parallel()
	store := newKeys()
	d := servertest.Start(t, servertest.AuthLimits, servertest.On(store), servertest.WithAuth(t, servertest.AuthFile("caddy", "key: path, from: path, prefixes: [/, /a, /A]")))
	for uri, want := range map[string]string{
		"/": "path=/", "/x": "path=/", "/a": "path=/a", "/A": "path=/A", "/a/x": "path=/a", "//a": "path=/ path=/a", "a": "path= path=/a", "": "path=",
	} {
		t.Run("path "+uri, func(t *testing.T) {
			d.Auth("127.0.0.1", "GET", "n", "X-Forwarded-Uri: "+uri)
			if got := store.last(); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		})
	}
}

// A path that can be read in too many ways is denied.
func TestAuthPathOfTooManyReadingsIsDenied(t *testing.T) {
	t.Parallel()
	store := newKeys()
	d := servertest.Start(t, servertest.AuthLimits, servertest.On(store), servertest.WithAuth(t, servertest.AuthFile("nginx", "key: path, from: path, prefixes: [/login], on_missing: omit",
		"key: user, from: header, name: X-User")))
	var many []string
	for i := range 10 {
		many = append(many, fmt.Sprintf("/p%d", i))
	}
	several := servertest.Start(t, servertest.AuthLimits, servertest.On(store), servertest.WithAuth(t, servertest.AuthFile("nginx", "key: path, from: path, prefixes: ["+strings.Join(many, ", ")+"]")))
	for _, c := range []struct {
		name string
		d    *servertest.Daemon
		uri  string
		code int
	}{
		{"escaped very often", d, "/%" + strings.Repeat("25", 200) + "6Cogin", 403},
		{"long and odd", d, "/x;/..//" + strings.Repeat("%252e", 3000), 403},
		{"long", d, "/" + strings.Repeat("x", 15000), 200},
		{"long, with escapes", d, "/" + strings.Repeat("%20x", 3500), 200},
		{"with many hosts", several, "//" + strings.Join(many, "/") + strings.Repeat("/..", 9), 200},
		{"with as many readings as prefixes", several, "/p0/..%2fp1/..%252fp2/..%25252fp3/..%2525252fp4/..%252525252fp5/..%25252525252fp6/..%2525252525252fp7/..%252525252525252fp8", 403},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := c.d.Auth("127.0.0.1", "GET", "n", "X-Original-URI: "+c.uri)
			if asked := store.last(); p.Code != c.code || (asked == "") != (p.Code == 403) {
				t.Errorf("%d, want %d; asked %s", p.Code, c.code, asked)
			}
		})
	}
}

// Each prefix of a path keeps the other entries of its descriptor.
func TestAuthPathPrefixesKeepTheOtherEntries(t *testing.T) {
	t.Parallel()
	store := newKeys()
	d := servertest.Start(t, servertest.AuthLimits, servertest.On(store), servertest.WithAuth(t, servertest.AuthFile("caddy", "key: user, from: header, name: X-User}, {"+pathEntry, "key: site, value: s")))
	d.Auth("127.0.0.1", "GET", "n", "X-User: ann", "X-Forwarded-Uri: /api/..;/login")
	if got := store.last(); got != "user=ann|path=/api user=ann|path=/login site=s" {
		t.Error(got)
	}
}

// A reading without a prefix is a missing value.
func TestAuthPathWithoutPrefixIsMissing(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ onMissing, plain, odd, none string }{
		{"empty", "200 path=/login", "200 path= path=/login", "200 path="},
		{"omit", "200 path=/login", "200 path=/login", "200 "},
		{"deny", "200 path=/login", "429 ", "429 "},
	} {
		t.Run(c.onMissing, func(t *testing.T) {
			t.Parallel()
			store := newKeys()
			d := servertest.Start(t, servertest.AuthLimits, servertest.On(store), servertest.WithAuth(t, servertest.AuthFile("caddy", "key: path, from: path, prefixes: [/login], on_missing: "+c.onMissing)))
			for uri, want := range map[string]string{
				"/login/x": c.plain, "/%6cogin;x": c.plain, "/login/a%2fb": c.plain, "/x/..;/login": c.odd, "//login": c.odd, "/LOGIN": c.odd, "//x": c.none, "/a%2fb/..": c.none,
			} {
				p := d.Auth("127.0.0.1", "GET", "n", "X-Forwarded-Uri: "+uri)
				if got := fmt.Sprint(p.Code, " ", store.last()); got != want {
					t.Errorf("%q: %s, want %s", uri, got, want)
				}
			}
		})
	}
}

// An odd path gains nothing: the limits of all its readings hold, and no
// reading excuses it from another.
func TestAuthPathThatIsOddGainsNothing(t *testing.T) {
	t.Parallel()
	const limits = `
domain: d
descriptors:
  - {key: client, rate_limit: {name: general, requests: 1, period: 1h}}
  - key: path
    rate_limit: {name: general, requests: 1, period: 1h}
  - {key: path, value: /static, rate_limit: {unlimited: true, replaces: [{name: general}]}}
`
	auth := servertest.WithAuth(t, servertest.AuthFile("caddy", "key: client, from: client_address", "key: path, from: path, prefixes: [/static]"))
	quota := func(o *server.Options) { o.Modes.Quota = true }
	for _, c := range []struct {
		name  string
		uri   string
		set   []func(*server.Options)
		codes []int
	}{
		{"plain", "/static/x", nil, []int{200, 200}},
		{"dots", "/static/../x", nil, []int{200, 429}},
		{"dots before a semicolon", "/static/..;/x", nil, []int{200, 429}},
		{"quotas, plain", "/x", []func(*server.Options){quota}, []int{200, 429}},
		{"quotas, dots", "/static/../x", []func(*server.Options){quota}, []int{200, 429}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d := servertest.Start(t, limits, append(c.set, auth)...)
			for i, code := range c.codes {
				if p := d.Auth("127.0.0.1", "GET", "n", "X-Forwarded-Uri: "+c.uri, "X-Forwarded-For: 1.2.3.4"); p.Code != code {
					t.Errorf("%d: %d, want %d", i, p.Code, code)
				}
			}
		})
	}
}

// servers are the steps that servers take on a path before they look for its
// handler. They are written apart from the code under test.
var servers = map[string][]func(string) string{
	"Express":                     {lower},
	"nginx":                       {unescaped, path.Clean},
	"Apache without MergeSlashes": {unescaped, removeDots},
	"Tomcat":                      {noParameters, unescaped, path.Clean},
	"Tomcat on Windows":           {noParameters, unescaped, slashes, path.Clean, trimmed},
	"Jetty":                       {noParameters, removeDots, unescaped},
	"IIS":                         {unescaped, slashes, path.Clean, trimmed, lower},
	"WHATWG's URL":                {slashes, unescapedDots, removeDots},
	"WHATWG's URL before nginx":   {slashes, unescapedDots, removeDots, unescaped, path.Clean},
	"nginx before Tomcat":         {unescaped, path.Clean, noParameters, unescaped, path.Clean},
	"nginx before Express":        {unescaped, path.Clean, lower},
	"decodes, then cuts":          {unescaped, noParameters, path.Clean},
	"parse_url":                   {host, unescaped},
	"Rails":                       {unescaped, merged},
	"nothing":                     {},
}

func lower(s string) string { return strings.ToLower(s) }

func slashes(s string) string { return strings.ReplaceAll(s, `\`, "/") }

func merged(s string) string { return regexp.MustCompile("/+").ReplaceAllString(s, "/") }

func noParameters(s string) string { return regexp.MustCompile(";[^/]*").ReplaceAllString(s, "") }

func host(s string) string { return regexp.MustCompile("^//[^/]*").ReplaceAllString(s, "") }

func trimmed(s string) string {
	return regexp.MustCompile("([^/. ])[. ]+(/|$)").ReplaceAllString(s, "$1$2")
}

func unescaped(s string) string {
	return regexp.MustCompile("%[0-9a-fA-F]{2}").ReplaceAllStringFunc(s, func(e string) string {
		n, _ := strconv.ParseUint(e[1:], 16, 8)
		return string([]byte{byte(n)})
	})
}

func unescapedDots(s string) string {
	return regexp.MustCompile("(?i)%2e").ReplaceAllString(s, ".")
}

// removeDots is remove_dot_segments of RFC 3986, 5.2.4.
func removeDots(in string) string {
	out := ""
	for in != "" {
		switch {
		case strings.HasPrefix(in, "/./"):
			in = in[2:]
		case in == "/.":
			in = "/"
		case strings.HasPrefix(in, "/../"), in == "/..":
			in = "/" + strings.TrimPrefix(in[3:], "/")
			out = out[:max(strings.LastIndexByte(out, '/'), 0)]
		default:
			end := strings.IndexByte(in[1:], '/') + 1
			if end == 0 {
				end = len(in)
			}
			out, in = out+in[:end], in[end:]
		}
	}
	return out
}

// serversPrefixes are the prefixes that checkServers counts by.
const serversPrefixes = "[/login, /a, /a/b]"

// under returns the longest of serversPrefixes that holds a path. Loosely, a
// segment may go on with a byte that some servers take for its end.
func under(read string, loosely bool) string {
	for _, p := range []string{"/login", "/a/b", "/a"} {
		rest, ok := strings.CutPrefix(read, p)
		if ok && (rest == "" || rest[0] == '/' || loosely && (rest[0] < ' ' || strings.IndexByte(";?#\x7f", rest[0]) >= 0)) {
			return p
		}
	}
	return ""
}

// checkServers compares the prefixes that are counted for a path with those
// that servers find. It returns how many servers find /login.
func checkServers(t *testing.T, handler http.Handler, store *keys, uri string) (served int) {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, "/auth/n", nil)
	r.RemoteAddr = "127.0.0.1:1"
	r.Header = http.Header{"X-Forwarded-Uri": {uri}}
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	counted := strings.Fields(store.last())
	if w.Code != 200 && w.Code != 429 && w.Code != 400 {
		t.Errorf("%q: %d", uri, w.Code)
	}
	before, _, _ := strings.Cut(uri, "?")
	for name, steps := range servers {
		read := before
		if !strings.HasPrefix(read, "/") {
			read = "/" + read
		}
		for _, step := range steps {
			read = step(read)
		}
		prefix := under(read, false)
		if prefix == "/login" {
			served++
		}
		// A segment that goes on with ; or NUL may be under a prefix to other
		// servers; it counts for that prefix alone. So does a path that equals it
		// without escapes.
		loosely := under(read, true)
		if w.Code != 200 || slices.Contains(counted, "path="+prefix) || slices.Contains(counted, "path="+loosely) && loosely != "" ||
			prefix == "" && strings.Contains(read, "%") {
			continue
		}
		t.Errorf("%q is served by %s as %q, and counted as %q", uri, name, read, counted)
	}
	return served
}

// TestAuthPathCountsAsServersServeIt obfuscates /login at random.
func TestAuthPathCountsAsServersServeIt(t *testing.T) {
	t.Parallel()
	store := newKeys()
	handler := newHandler(t, store, servertest.AuthFile("caddy", "key: path, from: path, prefixes: "+serversPrefixes))
	pieces := []string{"/", "/", "//", "/.", "/..", "/a/..", "/b", "/a", "a", ";", ";x", ";/", "..;/", `\`, `\..`, "%2f", "%2F..", "%5c", "%2e", "%2e%2e/", "%252e", "%252f", "%25", "%3b", "%6c", "l", "L", ".", "%20", " ", "//h", "/login", "?"}
	r := rand.New(rand.NewPCG(1, 2))
	served, cases := 0, soaktest.Long(2_000, 200_000)
	for range cases {
		s := []string{"/", "l", "o", "g", "i", "n"}
		if r.IntN(2) == 0 {
			s[1+r.IntN(5)] = fmt.Sprintf("%%%x", "login"[r.IntN(5)])
		}
		for range r.IntN(6) {
			at := r.IntN(len(s) + 1)
			if r.IntN(3) > 0 {
				at = []int{0, len(s)}[r.IntN(2)]
			}
			s = slices.Insert(s, at, pieces[r.IntN(len(pieces))])
		}
		served += checkServers(t, handler, store, strings.Join(s, ""))
	}
	if served < cases {
		t.Errorf("%d servings as /login of %d paths: the test is too weak", served, cases)
	}
}

func FuzzAuthPath(f *testing.F) {
	store := newKeys()
	handler := newHandler(f, store, servertest.AuthFile("caddy", "key: path, from: path, prefixes: "+serversPrefixes))
	for _, s := range []string{"/login", "//x/../%6Cogin;a/b", `/a/..;\%252e/LOGIN%20`, "/a%2fb/../login", "/..%5c%c1%acogin%00?x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, uri string) { checkServers(t, handler, store, uri) })
}
