package fiberlimit_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/recover"

	"github.com/ratelimitd/ratelimitd/client"
	"github.com/ratelimitd/ratelimitd/contrib/fiberlimit"
	"github.com/ratelimitd/ratelimitd/contrib/internal/daemontest"
)

func TestMain(m *testing.M) { os.Exit(daemontest.Run(m)) }

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

func newLimit(t testing.TB, c *client.Client, o fiberlimit.Options) fiber.Handler {
	t.Helper()
	o.Domain = "api"
	limit, err := fiberlimit.New(c, o)
	if err != nil {
		t.Fatal(err)
	}
	return limit
}

// serve serves an app until the test ends, and returns its URL.
func serve(t testing.TB, app *fiber.App) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- app.Listener(l, fiber.ListenConfig{DisableStartupMessage: true}) }()
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		_ = app.Shutdown()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return "http://" + l.Addr().String()
}

func hello(c fiber.Ctx) error { return c.SendString("hello") }

// server serves routes that the middleware is around.
func server(t testing.TB, c *client.Client, o fiberlimit.Options) string {
	t.Helper()
	limit := newLimit(t, c, o)
	app := fiber.New()
	for _, path := range []string{"/", "/items/:id", "/other"} {
		app.Get(path, limit, hello)
		app.Post(path, limit, hello)
	}
	return serve(t, app)
}

func by(parts ...fiberlimit.Part) []fiberlimit.Descriptor {
	return []fiberlimit.Descriptor{fiberlimit.By(parts...)}
}

type response struct {
	*http.Response
	body string
}

// ask sends a request with headers of the form "name: value".
func ask(t testing.TB, url string, headers ...string) response {
	t.Helper()
	return send(t, "GET", url, 0, headers...)
}

func send(t testing.TB, method, url string, size int, headers ...string) response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, bytes.NewReader(make([]byte, size)))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range headers {
		name, value, _ := strings.Cut(line, ": ")
		r.Header.Add(name, value)
	}
	got, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Error(err)
		return response{Response: new(http.Response)}
	}
	defer got.Body.Close()
	b, err := io.ReadAll(got.Body)
	if err != nil {
		t.Error(err)
	}
	return response{got, string(b)}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	c := connect(t, daemontest.Start(t, limits))
	s := server(t, c, fiberlimit.Options{Descriptors: by(fiberlimit.Header("user", "X-User"))})
	for i, want := range []string{"1", "0"} {
		r := ask(t, s, "X-User: alice")
		if r.StatusCode != 200 || r.body != "hello" || r.Header.Get("X-Ratelimit-Limit") != "2" || r.Header.Get("X-Ratelimit-Remaining") != want ||
			r.Header.Get("X-Ratelimit-Reset") != "3600" || r.Header.Get("Retry-After") != "" {
			t.Errorf("request %d: %d %v", i, r.StatusCode, r.Header)
		}
	}
	r := ask(t, s, "X-User: alice")
	if after := r.Header.Get("Retry-After"); r.StatusCode != 429 || r.body != "Too Many Requests\n" || r.Header.Get("X-Ratelimit-Remaining") != "0" ||
		r.Header.Get("Content-Type") != "text/plain; charset=utf-8" || (after != "3600" && after != "3599") {
		t.Errorf("denied: %d %v", r.StatusCode, r.Header)
	}
	if r := ask(t, s, "X-User: bob"); r.StatusCode != 200 {
		t.Errorf("another user: %d", r.StatusCode)
	}
}

func TestWhatIsAskedAbout(t *testing.T) {
	t.Parallel()
	c := connect(t, daemontest.Start(t, limits))
	pass := func(url string, headers ...string) bool {
		return ask(t, url, headers...).StatusCode == 200
	}
	routes := server(t, c, fiberlimit.Options{Descriptors: by(fiberlimit.Constant("user", "routes"), fiberlimit.Route("route"))})
	if !pass(routes+"/items/1") || !pass(routes+"/ITEMS/2/") || pass(routes+"/items/3") || !pass(routes+"/other") {
		t.Error("a route is not one counter")
	}
	app := fiber.New()
	app.Use("/items", newLimit(t, c, fiberlimit.Options{Descriptors: by(fiberlimit.Constant("user", "used"), fiberlimit.Route("route"))}))
	app.Get("/items/:id", hello)
	app.Get("/items/:id/parts", hello)
	used := serve(t, app)
	if !pass(used+"/items/1") || !pass(used+"/items/1/parts") || pass(used+"/items/2") {
		t.Error("a prefix is not one counter")
	}
	method := server(t, c, fiberlimit.Options{Descriptors: by(fiberlimit.Constant("user", "method"), fiberlimit.Method("route"))})
	if !pass(method+"/items/1") || !pass(method+"/other") || pass(method) || send(t, "POST", method, 0).StatusCode != 200 {
		t.Error("a method is not one counter")
	}
	direct := server(t, c, fiberlimit.Options{Descriptors: by(fiberlimit.ClientAddress("ip"))})
	proxied := server(t, c, fiberlimit.Options{Descriptors: by(fiberlimit.ClientAddress("ip", netip.MustParsePrefix("127.0.0.0/8")))})
	for i := range 3 {
		if got := pass(direct, fmt.Sprintf("X-Forwarded-For: 203.0.113.%d", i)); got != (i < 2) {
			t.Errorf("without a proxy, %d: %v", i, got)
		}
		if got := pass(proxied, fmt.Sprintf("X-Forwarded-For: 203.0.113.%d", i), "X-Forwarded-For: 198.51.100.7"); got != (i < 2) {
			t.Errorf("behind a proxy, %d: %v", i, got)
		}
	}
	hosts := server(t, c, fiberlimit.Options{Descriptors: by(fiberlimit.Header("user", "host")), OnMissing: fiberlimit.Omit})
	for i := range 3 {
		if got := pass(hosts); got != (i < 2) {
			t.Errorf("a host, %d: %v", i, got)
		}
	}
	paid := server(t, c, fiberlimit.Options{
		Descriptors: []fiberlimit.Descriptor{{
			Parts: []fiberlimit.Part{fiberlimit.Func("user", func(c fiber.Ctx) (string, bool) { return "paid", true })},
			LimitFor: func(c fiber.Ctx) *client.Numbers {
				if c.Query("plan") == "gold" {
					return &client.Numbers{Requests: 5, Period: time.Hour}
				}
				return nil
			},
		}},
		Cost: func(c fiber.Ctx) uint64 { return uint64(len(c.Body())) },
		Skip: func(c fiber.Ctx) bool { return c.Path() == "/other" },
	})
	if r := send(t, "POST", paid, 2); r.StatusCode != 200 || r.Header.Get("X-Ratelimit-Remaining") != "0" {
		t.Errorf("a cost of 2: %v", r.Header)
	}
	if r := send(t, "POST", paid, 0); r.StatusCode != 429 {
		t.Errorf("a cost of 0 passes where there is no room for 1: %v", r.Header)
	}
	if r := send(t, "POST", paid+"/?plan=gold", 3); r.StatusCode != 200 || r.Header.Get("X-Ratelimit-Limit") != "5" || r.Header.Get("X-Ratelimit-Remaining") != "0" {
		t.Errorf("a plan: %v", r.Header)
	}
	if r := send(t, "POST", paid+"/other", 9); r.StatusCode != 200 || r.Header.Get("X-Ratelimit-Limit") != "" {
		t.Errorf("skipped: %v", r.Header)
	}
}

func TestOnMissing(t *testing.T) {
	t.Parallel()
	c := connect(t, daemontest.Start(t, limits))
	for _, tc := range []struct {
		options fiberlimit.Options
		want    string
	}{
		{fiberlimit.Options{OnMissing: fiberlimit.Empty}, "[200 200 429]"},
		{fiberlimit.Options{OnMissing: fiberlimit.Omit}, "[200 200 200]"},
		{fiberlimit.Options{OnMissing: fiberlimit.Deny}, "[429 429 429]"},
	} {
		o := tc.options
		o.Descriptors = by(fiberlimit.Header("user", "X-User"))
		s := server(t, c, o)
		var got []int
		for range 3 {
			got = append(got, ask(t, s).StatusCode)
		}
		if fmt.Sprint(got) != tc.want {
			t.Errorf("%d: %v, want %s", o.OnMissing, got, tc.want)
		}
	}
	// What is empty is not missing.
	s := server(t, c, fiberlimit.Options{OnMissing: fiberlimit.Deny, Descriptors: by(fiberlimit.Constant("user", "x"), fiberlimit.Header("route", "X-User"))})
	if r := ask(t, s, "X-User: "); r.StatusCode != 200 {
		t.Errorf("an empty header: %d", r.StatusCode)
	}
}

var errWrong = errors.New("a wrong password")

// Only what fails counts, whether the status or an error says so, and asking in
// parallel finds no way past.
func TestCountIf(t *testing.T) {
	t.Parallel()
	c := connect(t, daemontest.Start(t, limits))
	var tried atomic.Int64
	app := fiber.New(fiber.Config{ErrorHandler: func(c fiber.Ctx, err error) error {
		switch {
		case errors.Is(err, errWrong):
			return c.SendStatus(401)
		case err.Error() == "a lost cause":
			return err
		}
		return fiber.DefaultErrorHandler(c, err)
	}})
	app.Use(recover.New())
	app.Use(newLimit(t, c, fiberlimit.Options{
		Descriptors: by(fiberlimit.Header("failed", "X-User")),
		CountIf:     func(status int) bool { return status == 401 || status == 500 },
	}))
	app.Get("/:what", func(c fiber.Ctx) error {
		tried.Add(1)
		switch c.Params("what") {
		case "wrong":
			return c.SendStatus(401)
		case "error":
			return fiber.ErrUnauthorized
		case "mapped":
			return errWrong
		case "lost":
			return errors.New("a lost cause")
		case "panic":
			panic("a bug")
		case "teapot":
			return fiber.ErrTeapot
		}
		return c.SendString("welcome")
	})
	s := serve(t, app)
	for range 10 {
		for path, want := range map[string]int{"/right": 200, "/teapot": 418, "/no/route": 404} {
			if r := ask(t, s+path, "X-User: good"); r.StatusCode != want {
				t.Fatalf("%s counts: %d", path, r.StatusCode)
			}
		}
	}
	for path, want := range map[string]int{"/wrong": 401, "/error": 401, "/mapped": 401, "/lost": 500, "/panic": 500} {
		for i := range 4 {
			if i == 3 {
				want = 429
			}
			if r := ask(t, s+path, "X-User: mixed"+path); r.StatusCode != want {
				t.Errorf("%d, %s: %d, want %d", i, path, r.StatusCode, want)
			}
		}
	}
	tried.Store(0)
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() { ask(t, s+"/wrong", "X-User: evil") })
	}
	all.Wait()
	if n := tried.Load(); n != 3 {
		t.Errorf("%d of 50 parallel wrong guesses were tried, want 3", n)
	}
}

// What handlers return reaches fiber's ErrorHandler once.
func TestErrorsAreHandledOnce(t *testing.T) {
	t.Parallel()
	c := connect(t, daemontest.Start(t, limits))
	for name, countIf := range map[string]func(int) bool{"does not count": nil, "counts": func(int) bool { return true }} {
		handled := 0
		app := fiber.New(fiber.Config{ErrorHandler: func(c fiber.Ctx, err error) error {
			handled++
			return fiber.DefaultErrorHandler(c, err)
		}})
		limit := newLimit(t, c, fiberlimit.Options{Descriptors: by(fiberlimit.Constant("failed", name)), CountIf: countIf})
		app.Get("/", limit, func(fiber.Ctx) error { return fiber.ErrTeapot })
		r := ask(t, serve(t, app))
		if r.StatusCode != 418 || r.Header.Get("X-Ratelimit-Limit") != "3" || handled != 1 {
			t.Errorf("what %s: %d %v, handled %d times", name, r.StatusCode, r.Header, handled)
		}
	}
}

func TestResponses(t *testing.T) {
	t.Parallel()
	c := connect(t, daemontest.Start(t, limits))
	o := fiberlimit.Options{
		Headers:     fiberlimit.IETF,
		Descriptors: []fiberlimit.Descriptor{fiberlimit.By(fiberlimit.Constant("two", "x")), fiberlimit.By(fiberlimit.Constant("user", "x"))},
	}
	r := ask(t, server(t, c, o))
	if got, want := r.Header.Get("Ratelimit-Policy"), `"short";q=1;w=1, "the \"long\"";q=100;w=3600, "user";q=2;w=3600`; got != want {
		t.Errorf("RateLimit-Policy: %s, want %s", got, want)
	}
	if r.Header.Get("Ratelimit") == "" || r.Header.Get("X-Ratelimit-Limit") != "" {
		t.Errorf("headers: %v", r.Header)
	}
	o = fiberlimit.Options{Descriptors: by(fiberlimit.Constant("user", "y")), Headers: fiberlimit.None, Status: 503, Body: "later 100%"}
	s := server(t, c, o)
	ask(t, s)
	ask(t, s)
	if r = ask(t, s); r.StatusCode != 503 || r.body != "later 100%\n" || r.Header.Get("X-Ratelimit-Limit")+r.Header.Get("Retry-After") != "" {
		t.Errorf("no headers: %d %v", r.StatusCode, r.Header)
	}
	o.Headers, o.OnDenied = fiberlimit.XRateLimit, func(c fiber.Ctx, v fiberlimit.Verdict) error {
		return c.Status(418).JSON(fiber.Map{"algorithm": v.Result.Denier().Algorithm.String()})
	}
	if r = ask(t, server(t, c, o)); r.StatusCode != 418 || r.body != `{"algorithm":"sliding_window"}` || r.Header.Get("X-Ratelimit-Limit") != "2" {
		t.Errorf("a handler of one's own: %d %v", r.StatusCode, r.Header)
	}
	o.OnDenied = func(fiber.Ctx, fiberlimit.Verdict) error { return fiber.ErrPaymentRequired }
	if r = ask(t, server(t, c, o)); r.StatusCode != 402 {
		t.Errorf("an error of one's own: %d", r.StatusCode)
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
	o := fiberlimit.Options{Descriptors: by(fiberlimit.Constant("user", "x"))}
	if r := ask(t, server(t, c, o)); r.StatusCode != 503 || r.body != "Service Unavailable\n" || r.Header.Get("X-Ratelimit-Limit") != "" {
		t.Errorf("error: %d %v", r.StatusCode, r.Header)
	}
	o.OnError = func(c fiber.Ctx, v fiberlimit.Verdict) error {
		return c.Status(500).SendString(fmt.Sprint(v.Err != nil))
	}
	if r := ask(t, server(t, c, o)); r.StatusCode != 500 || r.body != "true" {
		t.Errorf("a handler of one's own: %d", r.StatusCode)
	}
	o.OnFailure = client.FailAllow()
	if r := ask(t, server(t, c, o)); r.StatusCode != 200 {
		t.Errorf("allow: %d", r.StatusCode)
	}
	o.OnFailure = client.FailDeny()
	if r := ask(t, server(t, c, o)); r.StatusCode != 429 {
		t.Errorf("deny: %d", r.StatusCode)
	}
	o.OnFailure = client.FailLocal(client.Limit{Algorithm: client.FixedWindow, Requests: 1, Period: 366 * 24 * time.Hour})
	s := server(t, c, o)
	if first, second := ask(t, s), ask(t, s); first.StatusCode != 200 || second.StatusCode != 429 || second.Header.Get("X-Ratelimit-Limit") != "1" {
		t.Errorf("local: %d, %d %v", first.StatusCode, second.StatusCode, second.Header)
	}
}

func TestBadOptions(t *testing.T) {
	t.Parallel()
	c := connect(t, "localhost:1")
	good := by(fiberlimit.Method("m"))
	for want, o := range map[string]fiberlimit.Options{
		"fiberlimit: domain is empty":                                   {Descriptors: good},
		"fiberlimit: descriptors[0].parts[0]: a key and a value are ":   {Domain: "a", Descriptors: by(fiberlimit.Part{Key: "a"})},
		"fiberlimit: status: found 42; allowed: 200 to 999":             {Domain: "a", Descriptors: good, Status: 42},
		"fiberlimit: on missing: found 3; allowed: Empty, Omit, Deny":   {Domain: "a", Descriptors: good, OnMissing: 3},
		"fiberlimit: headers: found 3; allowed: XRateLimit, IETF, None": {Domain: "a", Descriptors: good, Headers: 3},
	} {
		if _, err := fiberlimit.New(c, o); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
	if _, err := fiberlimit.New(nil, fiberlimit.Options{Domain: "a", Descriptors: good}); err == nil {
		t.Error("no client is taken")
	}
}
