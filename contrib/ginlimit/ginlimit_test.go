package ginlimit_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/ratelimitd/ratelimitd/client"
	"github.com/ratelimitd/ratelimitd/contrib/ginlimit"
	"github.com/ratelimitd/ratelimitd/contrib/internal/daemontest"
)

func TestMain(m *testing.M) {
	gin.SetMode(gin.ReleaseMode)
	os.Exit(daemontest.Run(m))
}

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
`

func connect(t testing.TB, target string) *client.Client {
	t.Helper()
	c, err := client.New(target, client.Timeout(30*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func newLimit(t testing.TB, c *client.Client, o ginlimit.Options) gin.HandlerFunc {
	t.Helper()
	o.Domain = "api"
	limit, err := ginlimit.New(c, o)
	if err != nil {
		t.Fatal(err)
	}
	return limit
}

// router returns a router of which the middleware is around all, also around
// what no route is for; each path says hello, and others have routes.
func router(t testing.TB, c *client.Client, o ginlimit.Options) *gin.Engine {
	t.Helper()
	r := gin.New()
	r.Use(newLimit(t, c, o))
	hello := func(c *gin.Context) { c.String(http.StatusOK, "hello") }
	r.GET("/", hello)
	r.POST("/", hello)
	r.GET("/items/:id", hello)
	r.GET("/other", hello)
	return r
}

func by(parts ...ginlimit.Part) []ginlimit.Descriptor {
	return []ginlimit.Descriptor{ginlimit.By(parts...)}
}

// ask sends a request with headers of the form "name: value".
func ask(h http.Handler, target string, headers ...string) *http.Response {
	r := httptest.NewRequest("GET", target, nil)
	for _, line := range headers {
		name, value, _ := strings.Cut(line, ": ")
		r.Header.Add(name, value)
	}
	return send(h, r)
}

func send(h http.Handler, r *http.Request) *http.Response {
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
	c := connect(t, daemontest.Start(t, limits))
	h := router(t, c, ginlimit.Options{Descriptors: by(ginlimit.Header("user", "X-User"))})
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

// What is not allowed reaches no handler, even if one's own handler of denials
// forgets to abort.
func TestDeniedAreAborted(t *testing.T) {
	t.Parallel()
	served := 0
	deny := gin.HandlerFunc(func(c *gin.Context) { served++; c.String(200, "served") })
	c := connect(t, daemontest.Start(t, limits))
	for name, o := range map[string]ginlimit.Options{
		"the usual": {OnMissing: ginlimit.Deny},
		"one's own": {OnMissing: ginlimit.Deny, OnDenied: func(c *gin.Context, _ ginlimit.Verdict) { c.Status(429) }},
	} {
		o.Descriptors = by(ginlimit.Header("user", "X-User"))
		r := gin.New()
		r.GET("/", newLimit(t, c, o), deny)
		if code := ask(r, "/").StatusCode; code != 429 || served != 0 {
			t.Errorf("%s: %d, %d served", name, code, served)
		}
	}
}

func TestWhatIsAskedAbout(t *testing.T) {
	t.Parallel()
	c := connect(t, daemontest.Start(t, limits))
	pass := func(h http.Handler, target string, headers ...string) bool {
		return ask(h, target, headers...).StatusCode != 429
	}
	routes := router(t, c, ginlimit.Options{
		Descriptors: by(ginlimit.Constant("user", "routes"), ginlimit.Route("route")),
		OnMissing:   ginlimit.Deny,
	})
	if !pass(routes, "/items/1") || !pass(routes, "/items/2") || pass(routes, "/items/3") || !pass(routes, "/other") {
		t.Error("a route is not one counter")
	}
	if pass(routes, "/nowhere") {
		t.Error("what no route is for does not lack one")
	}
	method := router(t, c, ginlimit.Options{Descriptors: by(ginlimit.Constant("user", "method"), ginlimit.Method("route"))})
	if !pass(method, "/items/1") || !pass(method, "/other") || pass(method, "/") || send(method, httptest.NewRequest("POST", "/", nil)).StatusCode != 200 {
		t.Error("a method is not one counter")
	}
	// The router believes in X-Forwarded-For from anybody, as gin's do unless told otherwise.
	direct := router(t, c, ginlimit.Options{Descriptors: by(ginlimit.ClientAddress("ip"))})
	proxied := router(t, c, ginlimit.Options{Descriptors: by(ginlimit.ClientAddress("ip", netip.MustParsePrefix("192.0.2.0/24")))})
	for i := range 3 {
		if got := pass(direct, "/", fmt.Sprintf("X-Forwarded-For: 203.0.113.%d", i)); got != (i < 2) {
			t.Errorf("without a proxy, %d: %v", i, got)
		}
		if got := pass(proxied, "/", fmt.Sprintf("X-Forwarded-For: 203.0.113.%d", i), "X-Forwarded-For: 198.51.100.7"); got != (i < 2) {
			t.Errorf("behind a proxy, %d: %v", i, got)
		}
	}
	hosts := router(t, c, ginlimit.Options{Descriptors: by(ginlimit.Header("user", "host")), OnMissing: ginlimit.Omit})
	for i := range 3 {
		if got := pass(hosts, "http://a.example/"); got != (i < 2) {
			t.Errorf("a host, %d: %v", i, got)
		}
	}
	if !pass(hosts, "http://b.example/") {
		t.Error("two hosts are one counter")
	}
	paid := router(t, c, ginlimit.Options{
		Descriptors: []ginlimit.Descriptor{{
			Parts: []ginlimit.Part{ginlimit.Func("user", func(c *gin.Context) (string, bool) { return "paid", true })},
			LimitFor: func(c *gin.Context) *client.Numbers {
				if c.Query("plan") == "gold" {
					return &client.Numbers{Requests: 5, Period: time.Hour}
				}
				return nil
			},
		}},
		Cost: func(c *gin.Context) uint64 { return uint64(c.Request.ContentLength) },
		Skip: func(c *gin.Context) bool { return c.FullPath() == "/other" },
	})
	cost := func(target string, n int64) *http.Response {
		r := httptest.NewRequest("GET", target, nil)
		r.ContentLength = n
		return send(paid, r)
	}
	if r := cost("/", 2); r.StatusCode != 200 || r.Header.Get("X-Ratelimit-Remaining") != "0" {
		t.Errorf("a cost of 2: %v", r.Header)
	}
	if r := cost("/", 0); r.StatusCode != 429 {
		t.Errorf("a cost of 0 passes where there is no room for 1: %v", r.Header)
	}
	if r := cost("/?plan=gold", 3); r.StatusCode != 200 || r.Header.Get("X-Ratelimit-Limit") != "5" || r.Header.Get("X-Ratelimit-Remaining") != "0" {
		t.Errorf("a plan: %v", r.Header)
	}
	if r := cost("/other", 9); r.StatusCode != 200 || r.Header.Get("X-Ratelimit-Limit") != "" {
		t.Errorf("skipped: %v", r.Header)
	}
}

func TestOnMissing(t *testing.T) {
	t.Parallel()
	c := connect(t, daemontest.Start(t, limits))
	for _, tc := range []struct {
		onMissing ginlimit.Options
		want      string
	}{
		{ginlimit.Options{OnMissing: ginlimit.Empty}, "[200 200 429]"},
		{ginlimit.Options{OnMissing: ginlimit.Omit}, "[200 200 200]"},
		{ginlimit.Options{OnMissing: ginlimit.Deny}, "[429 429 429]"},
	} {
		o := tc.onMissing
		o.Descriptors = by(ginlimit.Header("user", "X-User"))
		h := router(t, c, o)
		var got []int
		for range 3 {
			got = append(got, ask(h, "/").StatusCode)
		}
		if fmt.Sprint(got) != tc.want {
			t.Errorf("%d: %v, want %s", o.OnMissing, got, tc.want)
		}
	}
}

// Only what fails counts, and asking in parallel finds no way past.
func TestCountIf(t *testing.T) {
	t.Parallel()
	c := connect(t, daemontest.Start(t, limits))
	var tried atomic.Int64
	r := gin.New()
	r.Use(gin.CustomRecoveryWithWriter(io.Discard, func(c *gin.Context, _ any) { c.AbortWithStatus(500) }))
	r.Use(newLimit(t, c, ginlimit.Options{
		Descriptors: by(ginlimit.Header("failed", "X-User")),
		CountIf:     func(status int) bool { return status != 200 },
	}))
	r.GET("/:what", func(c *gin.Context) {
		tried.Add(1)
		switch c.Param("what") {
		case "wrong":
			c.Status(401)
		case "abort":
			c.AbortWithStatusJSON(401, gin.H{"error": "wrong"})
		case "panic":
			panic("a bug")
		case "silent":
		default:
			c.String(200, "welcome")
			c.Status(401) // too late
		}
	})
	for range 20 {
		for _, path := range []string{"/right", "/silent"} {
			if r := ask(r, path, "X-User: good"); r.StatusCode != 200 {
				t.Fatalf("%s counts: %d", path, r.StatusCode)
			}
		}
	}
	for _, paths := range [][]string{
		{"/wrong", "/abort", "/panic", "/wrong"},
		{"/no/route", "/no/route", "/no/route", "/no/route"},
	} {
		for i, path := range paths {
			if code := ask(r, path, "X-User: mixed"+paths[0]).StatusCode; (code == 429) != (i == 3) {
				t.Errorf("%d, %s: %d", i, path, code)
			}
		}
	}
	tried.Store(0)
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() { ask(r, "/wrong", "X-User: evil") })
	}
	all.Wait()
	if n := tried.Load(); n != 3 {
		t.Errorf("%d of 50 parallel wrong guesses were tried, want 3", n)
	}
}

// What a handler can do with its writer it can do behind the middleware; a
// hijacked connection has the status of switched protocols.
func TestWritersKeepWhatTheyCan(t *testing.T) {
	t.Parallel()
	c := connect(t, daemontest.Start(t, limits))
	counted := make(chan int, 1)
	r := gin.New()
	r.Use(newLimit(t, c, ginlimit.Options{
		Descriptors: by(ginlimit.Constant("failed", "x")),
		CountIf:     func(status int) bool { counted <- status; return false },
	}))
	r.GET("/", func(c *gin.Context) {
		if err := http.NewResponseController(c.Writer).SetWriteDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Error(err)
		}
		conn, _, err := c.Writer.Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = io.WriteString(conn, "HTTP/1.0 204 No Content\r\n\r\n")
		_ = conn.Close()
	})
	s := httptest.NewServer(r)
	defer s.Close()
	response, err := s.Client().Get(s.URL)
	if err != nil || response.StatusCode != 204 {
		t.Fatal(response, err)
	}
	_ = response.Body.Close()
	if got := <-counted; got != 101 {
		t.Errorf("the status of a hijacked connection is %d", got)
	}
}

// A connection that could not be hijacked has not switched protocols.
func TestHijackThatFails(t *testing.T) {
	t.Parallel()
	c := connect(t, daemontest.Start(t, limits))
	counted := 0
	r := gin.New()
	r.Use(newLimit(t, c, ginlimit.Options{
		Descriptors: by(ginlimit.Constant("unlimited", "x")),
		CountIf:     func(status int) bool { counted = status; return true },
	}))
	r.GET("/", func(c *gin.Context) {
		if _, _, err := c.Writer.Hijack(); err == nil {
			t.Error("hijacked")
		}
		c.String(200, "no")
	})
	w := httptest.NewRecorder()
	r.ServeHTTP(unhijackable{w}, httptest.NewRequest("GET", "/", nil))
	if counted != 200 || w.Code != 200 {
		t.Errorf("counted is %d, sent %d", counted, w.Code)
	}
}

type unhijackable struct{ *httptest.ResponseRecorder }

func (unhijackable) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return nil, nil, http.ErrNotSupported
}

func TestResponses(t *testing.T) {
	t.Parallel()
	c := connect(t, daemontest.Start(t, limits))
	o := ginlimit.Options{
		Headers:     ginlimit.IETF,
		Descriptors: []ginlimit.Descriptor{ginlimit.By(ginlimit.Constant("two", "x")), ginlimit.By(ginlimit.Constant("user", "x"))},
	}
	r := ask(router(t, c, o), "/")
	if got, want := r.Header.Get("Ratelimit-Policy"), `"short";q=1;w=1, "the \"long\"";q=100;w=3600, "user";q=2;w=3600`; got != want {
		t.Errorf("RateLimit-Policy: %s, want %s", got, want)
	}
	if r.Header.Get("Ratelimit") == "" || r.Header.Get("X-Ratelimit-Limit") != "" {
		t.Errorf("headers: %v", r.Header)
	}
	o = ginlimit.Options{Descriptors: by(ginlimit.Constant("user", "y")), Headers: ginlimit.None, Status: 503, Body: "later 100%"}
	h := router(t, c, o)
	ask(h, "/")
	ask(h, "/")
	if r = ask(h, "/"); r.StatusCode != 503 || body(r) != "later 100%\n" || len(r.Header) != 1 {
		t.Errorf("no headers: %d %v", r.StatusCode, r.Header)
	}
	o.Headers, o.OnDenied = ginlimit.XRateLimit, func(c *gin.Context, v ginlimit.Verdict) {
		c.JSON(418, gin.H{"algorithm": v.Result.Denier().Algorithm.String()})
	}
	if r = ask(router(t, c, o), "/"); r.StatusCode != 418 || body(r) != `{"algorithm":"sliding_window"}` || r.Header.Get("X-Ratelimit-Limit") != "2" {
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
	o := ginlimit.Options{Descriptors: by(ginlimit.Constant("user", "x"))}
	if r := ask(router(t, c, o), "/"); r.StatusCode != 503 || body(r) != "Service Unavailable\n" || r.Header.Get("X-Ratelimit-Limit") != "" {
		t.Errorf("error: %d %v", r.StatusCode, r.Header)
	}
	o.OnError = func(c *gin.Context, v ginlimit.Verdict) { c.String(500, "%v", v.Err != nil) }
	if r := ask(router(t, c, o), "/"); r.StatusCode != 500 || body(r) != "true" {
		t.Errorf("a handler of one's own: %d", r.StatusCode)
	}
	o.OnFailure = client.FailAllow()
	if r := ask(router(t, c, o), "/"); r.StatusCode != 200 {
		t.Errorf("allow: %d", r.StatusCode)
	}
	o.OnFailure = client.FailDeny()
	if r := ask(router(t, c, o), "/"); r.StatusCode != 429 {
		t.Errorf("deny: %d", r.StatusCode)
	}
	o.OnFailure = client.FailLocal(client.Limit{Algorithm: client.FixedWindow, Requests: 1, Period: 366 * 24 * time.Hour})
	h := router(t, c, o)
	if first, second := ask(h, "/"), ask(h, "/"); first.StatusCode != 200 || second.StatusCode != 429 || second.Header.Get("X-Ratelimit-Limit") != "1" {
		t.Errorf("local: %d, %d %v", first.StatusCode, second.StatusCode, second.Header)
	}
}

func TestBadOptions(t *testing.T) {
	t.Parallel()
	c := connect(t, "localhost:1")
	good := by(ginlimit.Method("m"))
	for want, o := range map[string]ginlimit.Options{
		"ginlimit: domain is empty":                                   {Descriptors: good},
		"ginlimit: descriptors[0].parts[0]: a key and a value are ":   {Domain: "a", Descriptors: by(ginlimit.Part{Key: "a"})},
		"ginlimit: status: found 42; allowed: 200 to 999":             {Domain: "a", Descriptors: good, Status: 42},
		"ginlimit: on missing: found 3; allowed: Empty, Omit, Deny":   {Domain: "a", Descriptors: good, OnMissing: 3},
		"ginlimit: headers: found 3; allowed: XRateLimit, IETF, None": {Domain: "a", Descriptors: good, Headers: 3},
	} {
		if _, err := ginlimit.New(c, o); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
	if _, err := ginlimit.New(nil, ginlimit.Options{Domain: "a", Descriptors: good}); err == nil {
		t.Error("no client is taken")
	}
}
