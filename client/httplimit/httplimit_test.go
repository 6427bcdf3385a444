package httplimit_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ratelimitd/ratelimitd/client"
	"github.com/ratelimitd/ratelimitd/client/httplimit"
	"github.com/ratelimitd/ratelimitd/client/internal/daemontest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const limits = `
domain: api
descriptors:
  - key: user
    rate_limit: {algorithm: sliding_window, requests: 2, period: 1h}
    descriptors:
      - key: route
        rate_limit: {algorithm: sliding_window, requests: 2, period: 1h}
  - key: ip
    rate_limit: {algorithm: sliding_window, requests: 2, period: 1h}
  - key: failed
    rate_limit: {algorithm: sliding_window, requests: 3, period: 1h}
  - key: two
    rate_limits:
      - {name: short, algorithm: token_bucket, requests: 10, period: 10s, burst: 1}
      - {name: 'the "long"', algorithm: sliding_window, requests: 100, period: 1h}
  - key: shadow
    rate_limit: {requests: 0, period: 1h}
    shadow_mode: true
`

func connect(t testing.TB, target string, options ...client.Option) *client.Client {
	t.Helper()
	c, err := client.New(target, append([]client.Option{client.Timeout(30 * time.Second)}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

var hello = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "hello") })

// wrap returns the handler behind the middleware.
func wrap(t testing.TB, c *client.Client, o httplimit.Options, next http.Handler) http.Handler {
	t.Helper()
	o.Domain = "api"
	limit, err := httplimit.New(c, o)
	if err != nil {
		t.Fatal(err)
	}
	return limit(next)
}

func by(parts ...httplimit.Part) []httplimit.Descriptor {
	return []httplimit.Descriptor{httplimit.By(parts...)}
}

// ask sends a request with headers of the form "name: value".
func ask(h http.Handler, target string, headers ...string) *http.Response {
	r := httptest.NewRequest("GET", target, nil)
	for _, line := range headers {
		name, value, _ := strings.Cut(line, ": ")
		r.Header.Add(name, value)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

func body(r *http.Response) string {
	b, _ := io.ReadAll(r.Body)
	return string(b)
}

func TestLimits(t *testing.T) {
	t.Parallel()
	c := connect(t, daemontest.Start(t, limits).Address)
	h := wrap(t, c, httplimit.Options{Descriptors: by(httplimit.Header("user", "X-User"))}, hello)
	for i, want := range []string{"1", "0"} {
		r := ask(h, "/", "X-User: alice")
		if r.StatusCode != 200 || body(r) != "hello" || r.Header.Get("X-Ratelimit-Limit") != "2" || r.Header.Get("X-Ratelimit-Remaining") != want ||
			r.Header.Get("X-Ratelimit-Reset") != "3600" || r.Header.Get("Retry-After") != "" {
			t.Errorf("request %d: %d %v", i, r.StatusCode, r.Header)
		}
	}
	r := ask(h, "/", "X-User: alice")
	if after := r.Header.Get("Retry-After"); r.StatusCode != 429 || body(r) != "Too Many Requests\n" || r.Header.Get("X-Ratelimit-Remaining") != "0" || (after != "3600" && after != "3599") {
		t.Errorf("denied: %d %v", r.StatusCode, r.Header)
	}
	if r := ask(h, "/", "X-User: bob"); r.StatusCode != 200 {
		t.Errorf("another user: %d", r.StatusCode)
	}
}

func TestWhatIsAskedAbout(t *testing.T) {
	t.Parallel()
	c := connect(t, daemontest.Start(t, limits).Address)
	mux := http.NewServeMux()
	pass := func(h http.Handler, target string, headers ...string) bool {
		return ask(h, target, headers...).StatusCode == 200
	}
	inside := wrap(t, c, httplimit.Options{Descriptors: by(httplimit.Constant("user", "inside"), httplimit.Route("route"))}, hello)
	mux.Handle("GET /items/{id}", inside)
	mux.Handle("GET /other", inside)
	if !pass(mux, "/items/1") || !pass(mux, "/items/2") || pass(mux, "/items/3") || !pass(mux, "/other") {
		t.Error("a route is not one counter")
	}
	around := wrap(t, c, httplimit.Options{Descriptors: by(httplimit.Constant("user", "around"), httplimit.RouteOf("route", mux))}, hello)
	if !pass(around, "/items/1") || !pass(around, "/items/2") || pass(around, "/items/3") || !pass(around, "/other") {
		t.Error("a route of the mux is not one counter")
	}
	method := wrap(t, c, httplimit.Options{Descriptors: by(httplimit.Constant("user", "method"), httplimit.Method("route"))}, hello)
	if !pass(method, "/1") || !pass(method, "/2") || pass(method, "/3") {
		t.Error("a method is not one counter")
	}
	proxied := wrap(t, c, httplimit.Options{Descriptors: by(httplimit.ClientAddress("ip", netip.MustParsePrefix("192.0.2.0/24")))}, hello)
	for i := range 3 {
		if got := pass(proxied, "/", fmt.Sprintf("X-Forwarded-For: 203.0.113.%d, 198.51.100.7", i)); got != (i < 2) {
			t.Errorf("behind a proxy, %d: %v", i, got)
		}
	}
	network := wrap(t, c, httplimit.Options{Descriptors: by(httplimit.ClientNetwork("ip", 32, 64, netip.MustParsePrefix("192.0.2.0/24")))}, hello)
	for i := range 3 {
		if got := pass(network, "/", fmt.Sprintf("X-Forwarded-For: 2001:db8::%d", i)); got != (i < 2) {
			t.Errorf("a customer's network, %d: %v", i, got)
		}
	}
	direct := wrap(t, c, httplimit.Options{Descriptors: by(httplimit.ClientAddress("ip"))}, hello)
	for i := range 3 {
		if got := pass(direct, "/", fmt.Sprintf("X-Forwarded-For: 203.0.113.%d", i)); got != (i < 2) {
			t.Errorf("without a proxy, %d: %v", i, got)
		}
	}
	hosts := wrap(t, c, httplimit.Options{Descriptors: by(httplimit.Header("user", "host")), OnMissing: httplimit.Omit}, hello)
	for i := range 3 {
		if got := pass(hosts, "http://a.example/"); got != (i < 2) {
			t.Errorf("a host, %d: %v", i, got)
		}
	}
	if !pass(hosts, "http://b.example/") {
		t.Error("two hosts are one counter")
	}
	paid := wrap(t, c, httplimit.Options{
		Descriptors: []httplimit.Descriptor{{
			Parts: []httplimit.Part{httplimit.Func("user", func(r *http.Request) (string, bool) { return "paid", true })},
			LimitFor: func(r *http.Request) *client.Numbers {
				if r.URL.Path == "/gold" {
					return &client.Numbers{Requests: 5, Period: time.Hour}
				}
				return nil
			},
		}},
		Cost: func(r *http.Request) uint64 { return uint64(r.ContentLength) },
		Skip: func(r *http.Request) bool { return r.URL.Path == "/free" },
	}, hello)
	cost := func(path string, n int64) *http.Response {
		r := httptest.NewRequest("POST", path, nil)
		r.ContentLength = n
		w := httptest.NewRecorder()
		paid.ServeHTTP(w, r)
		return w.Result()
	}
	if r := cost("/", 2); r.StatusCode != 200 || r.Header.Get("X-Ratelimit-Remaining") != "0" {
		t.Errorf("a cost of 2: %v", r.Header)
	}
	if r := cost("/", 0); r.StatusCode != 429 {
		t.Errorf("a cost of 0 passes where there is no room for 1: %v", r.Header)
	}
	if r := cost("/gold", 3); r.StatusCode != 200 || r.Header.Get("X-Ratelimit-Limit") != "5" || r.Header.Get("X-Ratelimit-Remaining") != "0" {
		t.Errorf("a plan: %v", r.Header)
	}
	if r := cost("/free", 9); r.StatusCode != 200 || r.Header.Get("X-Ratelimit-Limit") != "" {
		t.Errorf("skipped: %v", r.Header)
	}
}

func TestOnMissing(t *testing.T) {
	t.Parallel()
	c := connect(t, daemontest.Start(t, limits).Address)
	o := httplimit.Options{Descriptors: by(httplimit.Header("user", "X-User"))}
	statuses := func() (got []int) {
		h := wrap(t, c, o, hello)
		for range 3 {
			got = append(got, ask(h, "/").StatusCode)
		}
		return got
	}
	if got := fmt.Sprint(statuses()); got != "[200 200 429]" {
		t.Error("empty:", got)
	}
	o.OnMissing = httplimit.Omit
	if got := fmt.Sprint(statuses()); got != "[200 200 200]" {
		t.Error("omit:", got)
	}
	o.OnMissing = httplimit.Deny
	if got := fmt.Sprint(statuses()); got != "[429 429 429]" {
		t.Error("deny:", got)
	}
}

// Bytes that are no text reach the daemon as some, each as its own.
func TestValuesThatAreNotUTF8(t *testing.T) {
	t.Parallel()
	c := connect(t, daemontest.Start(t, limits).Address)
	h := wrap(t, c, httplimit.Options{Descriptors: by(httplimit.Header("user", "X-User"))}, hello)
	for _, user := range []string{"a\xff", "a\xfe"} {
		for i := range 3 {
			if got := ask(h, "/", "X-User: "+user).StatusCode; (got == 200) != (i < 2) {
				t.Errorf("%q, %d: %d", user, i, got)
			}
		}
	}
}

// Only what fails counts, and asking in parallel finds no way past.
func TestCountIf(t *testing.T) {
	t.Parallel()
	c := connect(t, daemontest.Start(t, limits).Address)
	var tried, inside, most atomic.Int64
	h := wrap(t, c, httplimit.Options{
		Descriptors: by(httplimit.Header("failed", "X-User")),
		CountIf:     func(status int) bool { return status >= 400 },
	}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tried.Add(1)
		most.Store(max(most.Load(), inside.Add(1)))
		defer inside.Add(-1)
		switch r.URL.Path {
		case "/wrong":
			w.WriteHeader(401)
		case "/early":
			w.WriteHeader(103)
			w.WriteHeader(401)
		case "/panic":
			panic(http.ErrAbortHandler)
		case "/silent":
		default:
			_, _ = io.WriteString(w, "welcome")
			w.WriteHeader(401) // too late: superfluous
		}
	}))
	for range 20 {
		for _, path := range []string{"/right", "/silent"} {
			if r := ask(h, path, "X-User: good"); r.StatusCode != 200 {
				t.Fatalf("%s counts: %d", path, r.StatusCode)
			}
		}
	}
	for i, path := range []string{"/wrong", "/early", "/panic", "/wrong"} {
		func() {
			defer func() { _ = recover() }()
			if r := ask(h, path, "X-User: mixed"); (r.StatusCode == 429) != (i == 3) {
				t.Errorf("%s: %d", path, r.StatusCode)
			}
		}()
	}
	tried.Store(0)
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() { ask(h, "/wrong", "X-User: evil") })
	}
	all.Wait()
	if n := tried.Load(); n != 3 {
		t.Errorf("%d of 50 parallel wrong guesses were tried, want 3", n)
	}
}

// What a handler can do with its writer it can do behind the middleware.
func TestWritersKeepWhatTheyCan(t *testing.T) {
	t.Parallel()
	c := connect(t, daemontest.Start(t, limits).Address)
	s := httptest.NewServer(wrap(t, c, httplimit.Options{
		Descriptors: by(httplimit.Constant("failed", "x")),
		CountIf:     func(int) bool { return false },
	}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, ok := w.(http.Flusher); !ok {
			t.Error("no Flusher")
		}
		if _, ok := w.(io.ReaderFrom); !ok {
			t.Error("no ReaderFrom")
		}
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = io.WriteString(conn, "HTTP/1.0 204 No Content\r\n\r\n")
		_ = conn.Close()
	})))
	defer s.Close()
	defer http.DefaultClient.CloseIdleConnections()
	r, err := http.Get(s.URL)
	if err != nil || r.StatusCode != 204 {
		t.Fatal(r, err)
	}
	_ = r.Body.Close()
}

// CountIf is told the status that the caller got, whatever the handler does
// afterwards.
func TestCountIfSeesTheStatusThatIsSent(t *testing.T) {
	t.Parallel()
	c := connect(t, daemontest.Start(t, limits).Address)
	for name, test := range map[string]struct {
		handler http.HandlerFunc
		sent    int
	}{
		"flushed": {func(w http.ResponseWriter, _ *http.Request) {
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}, 200},
		"flushed by a controller": {func(w http.ResponseWriter, _ *http.Request) {
			if err := http.NewResponseController(w).Flush(); err != nil {
				t.Error(err)
			}
			panic(http.ErrAbortHandler)
		}, 200},
		"not hijacked": {func(w http.ResponseWriter, _ *http.Request) {
			if _, _, err := w.(http.Hijacker).Hijack(); err != nil {
				w.WriteHeader(500)
			}
		}, 500},
		"switched": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(101) }, 101},
	} {
		counted := 0
		h := wrap(t, c, httplimit.Options{
			Descriptors: by(httplimit.Constant("unlimited", "x")),
			CountIf:     func(status int) bool { counted = status; return true },
		}, test.handler)
		w := httptest.NewRecorder()
		func() {
			defer func() { _ = recover() }()
			h.ServeHTTP(unhijackable{w}, httptest.NewRequest("GET", "/", nil))
		}()
		if counted != test.sent || w.Code != test.sent {
			t.Errorf("%s: counted is %d, sent %d; want %d", name, counted, w.Code, test.sent)
		}
	}
}

// unhijackable has a Hijack that fails, as those of writers around others do.
type unhijackable struct{ *httptest.ResponseRecorder }

func (unhijackable) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return nil, nil, http.ErrNotSupported
}

func TestHeaders(t *testing.T) {
	t.Parallel()
	c := connect(t, daemontest.Start(t, limits).Address)
	o := httplimit.Options{
		Headers: httplimit.IETF,
		Descriptors: []httplimit.Descriptor{
			httplimit.By(httplimit.Constant("shadow", "x")),
			httplimit.By(httplimit.Constant("two", "x")),
			httplimit.By(httplimit.Constant("user", "x")),
		},
	}
	h := wrap(t, c, o, hello)
	r := ask(h, "/")
	if got, want := r.Header.Get("Ratelimit-Policy"), `"short";q=1;w=1, "the \"long\"";q=100;w=3600, "user";q=2;w=3600`; got != want {
		t.Errorf("RateLimit-Policy: %s, want %s", got, want)
	}
	if got, want := r.Header.Get("Ratelimit"), `"short";r=0;t=1, "the \"long\"";r=99;t=3600, "user";r=1;t=3600`; got != want {
		t.Errorf("RateLimit: %s, want %s", got, want)
	}
	if r.Header.Get("X-Ratelimit-Limit") != "" {
		t.Error("both styles at once")
	}
	o.Headers, o.Status, o.Body = httplimit.None, 503, "later"
	h = wrap(t, c, o, hello)
	ask(h, "/")
	if r = ask(h, "/"); r.StatusCode != 503 || body(r) != "later\n" || len(r.Header) != 1 {
		t.Errorf("no headers: %d %v", r.StatusCode, r.Header)
	}
	o.Headers, o.OnDenied = httplimit.XRateLimit, func(w http.ResponseWriter, _ *http.Request, v httplimit.Verdict) {
		w.WriteHeader(418)
		_, _ = io.WriteString(w, v.Result.Denier().Algorithm.String())
	}
	o.Descriptors = by(httplimit.Constant("user", "y"))
	h = wrap(t, c, o, hello)
	ask(h, "/")
	ask(h, "/")
	if r = ask(h, "/"); r.StatusCode != 418 || body(r) != "sliding_window" || r.Header.Get("X-Ratelimit-Limit") != "2" {
		t.Errorf("a handler of one's own: %d %v", r.StatusCode, r.Header)
	}
}

func TestFailures(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	_ = l.Close()
	c := connect(t, address)
	o := httplimit.Options{Descriptors: by(httplimit.Constant("user", "x"))}
	if r := ask(wrap(t, c, o, hello), "/"); r.StatusCode != 503 || r.Header.Get("X-Ratelimit-Limit") != "" {
		t.Errorf("error: %d %v", r.StatusCode, r.Header)
	}
	o.OnFailure = client.FailAllow()
	if r := ask(wrap(t, c, o, hello), "/"); r.StatusCode != 200 {
		t.Errorf("allow: %d", r.StatusCode)
	}
	o.OnFailure = client.FailDeny()
	if r := ask(wrap(t, c, o, hello), "/"); r.StatusCode != 429 {
		t.Errorf("deny: %d", r.StatusCode)
	}
	o.OnFailure = client.FailLocal(client.Limit{Algorithm: client.FixedWindow, Requests: 1, Period: 366 * 24 * time.Hour})
	h := wrap(t, c, o, hello)
	if first, second := ask(h, "/"), ask(h, "/"); first.StatusCode != 200 || second.StatusCode != 429 || second.Header.Get("X-Ratelimit-Limit") != "1" {
		t.Errorf("local: %d, %d %v", first.StatusCode, second.StatusCode, second.Header)
	}
	if s := c.Stats(); s.Failed() != 5 {
		t.Errorf("stats: %+v", s)
	}
}

func TestBadOptions(t *testing.T) {
	t.Parallel()
	c := connect(t, "localhost:1")
	good := by(httplimit.Method("m"))
	for want, o := range map[string]httplimit.Options{
		"httplimit: domain is empty":                                         {Descriptors: good},
		"httplimit: descriptors is empty; there is at least one":             {Domain: "a"},
		"httplimit: descriptors[0].parts is empty; a descriptor has":         {Domain: "a", Descriptors: by()},
		"httplimit: descriptors[0].parts[0]: a key and a value are needed":   {Domain: "a", Descriptors: by(httplimit.Part{Key: "a"})},
		"httplimit: status: found 42; allowed: 200 to 999":                   {Domain: "a", Descriptors: good, Status: 42},
		"httplimit: on missing: found 3; allowed: Empty, Omit, Deny":         {Domain: "a", Descriptors: good, OnMissing: 3},
		"httplimit: headers: found 3; allowed: XRateLimit, IETF, None":       {Domain: "a", Descriptors: good, Headers: 3},
		"httplimit: the limit of FailLocal: algorithm: found Algorithm(0); ": {Domain: "a", Descriptors: good, OnFailure: client.FailLocal(client.Limit{Requests: 1, Period: time.Second})},
	} {
		if _, err := httplimit.New(c, o); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
	if _, err := httplimit.New(nil, httplimit.Options{Domain: "a", Descriptors: good}); err == nil {
		t.Error("no client is taken")
	}
}
