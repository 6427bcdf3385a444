package fiberlimit_test

import (
	"errors"
	"net"
	"os"
	"slices"
	"testing"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/recover"

	"github.com/ratelimitd/ratelimitd/client"
	"github.com/ratelimitd/ratelimitd/client/guard/guardtest"
	"github.com/ratelimitd/ratelimitd/contrib/fiberlimit"
)

func TestMain(m *testing.M) { os.Exit(guardtest.WithDaemon(m).Run()) }

func TestMiddleware(t *testing.T) {
	t.Parallel()
	guardtest.RunHTTP(t, guardtest.Framework[fiber.Ctx, int, fiberlimit.Handler]{
		Package: "fiberlimit",
		New: func(c *client.Client, o fiberlimit.Options) error {
			_, err := fiberlimit.New(c, o)
			return err
		},
		Serve:         serveRoutes,
		Func:          fiberlimit.Func,
		Header:        fiberlimit.Header,
		Method:        fiberlimit.Method,
		ClientAddress: fiberlimit.ClientAddress,
		HeaderOf:      func(c fiber.Ctx, name string) string { return c.Get(name) },
		Responding: func(say func(fiberlimit.Verdict) (int, string)) fiberlimit.Handler {
			return func(c fiber.Ctx, v fiberlimit.Verdict) error {
				status, body := say(v)
				return c.Status(status).SendString(body)
			}
		},
	}, fiberlimit.Route)
}

// serveRoutes serves routes with the middleware among their handlers.
func serveRoutes(t testing.TB, c *client.Client, o fiberlimit.Options, h guardtest.Handler[int]) guardtest.Ask[int] {
	app, limit := fiber.New(), newLimit(t, c, o)
	app.Use(recover.New())
	for _, path := range []string{"/", "/items/:id", "/other"} {
		app.All(path, limit, func(c fiber.Ctx) error {
			status, body := h(func(name string) string { return c.Get(name) })
			return c.Status(status).SendString(body)
		})
	}
	return serve(t, app)
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

// serve serves an app until the test ends.
func serve(t testing.TB, app *fiber.App) guardtest.Ask[int] {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- app.Listener(l, fiber.ListenConfig{DisableStartupMessage: true}) }()
	t.Cleanup(func() {
		_ = app.Shutdown()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return guardtest.AskURL(t, "http://"+l.Addr().String())
}

const limits = `
domain: api
descriptors:
  - key: route
    rate_limit: {algorithm: sliding_window, requests: 2, period: 1h}
  - key: failed
    rate_limit: {algorithm: sliding_window, requests: 3, period: 1h}
`

func connect(t testing.TB) *client.Client {
	t.Helper()
	return guardtest.Connect(t, guardtest.StartDaemon(t, limits))
}

func by(parts ...fiberlimit.Part) []fiberlimit.Descriptor {
	return []fiberlimit.Descriptor{fiberlimit.By(parts...)}
}

func hello(c fiber.Ctx) error { return c.SendString("hello") }

// statuses sends a request for each path.
func statuses(t testing.TB, ask guardtest.Ask[int], paths ...string) (got []int) {
	t.Helper()
	for _, path := range paths {
		got = append(got, ask(t, guardtest.Request{Path: path}).Status)
	}
	return got
}

func wantStatuses(t testing.TB, got []int, want ...int) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("found %v, want %v", got, want)
	}
}

func TestRouteIsOneHoweverItsPathIsSpelt(t *testing.T) {
	t.Parallel()
	app := fiber.New()
	app.Get("/items/:id", newLimit(t, connect(t), fiberlimit.Options{Descriptors: by(fiberlimit.Route("route"))}), hello)
	wantStatuses(t, statuses(t, serve(t, app), "/items/1", "/ITEMS/2/", "/items/3"), 200, 200, 429)
}

func TestRouteWithinUseIsThePrefix(t *testing.T) {
	t.Parallel()
	app := fiber.New()
	app.Use("/items", newLimit(t, connect(t), fiberlimit.Options{Descriptors: by(fiberlimit.Route("route"))}))
	app.Get("/items/:id", hello)
	app.Get("/items/:id/parts", hello)
	wantStatuses(t, statuses(t, serve(t, app), "/items/1", "/items/1/parts", "/items/2"), 200, 200, 429)
}

// An error has no status before fiber's ErrorHandler gives it one.
func TestErrorsCountByTheStatusThatIsSent(t *testing.T) {
	t.Parallel()
	c := connect(t)
	errWrong, errLost := errors.New("a wrong password"), errors.New("a lost cause")
	for name, test := range map[string]struct {
		handler fiber.Handler // nil for no route
		sent    int
		counts  bool
	}{
		"a success":                   {hello, 200, false},
		"a status":                    {func(c fiber.Ctx) error { return c.SendStatus(401) }, 401, true},
		"fiber's error":               {func(fiber.Ctx) error { return fiber.ErrUnauthorized }, 401, true},
		"an error that is mapped":     {func(fiber.Ctx) error { return errWrong }, 401, true},
		"an error that is not mapped": {func(fiber.Ctx) error { return errLost }, 500, true},
		"a panic":                     {func(fiber.Ctx) error { panic("a bug") }, 500, true},
		"an error that does not count": {func(fiber.Ctx) error {
			return fiber.ErrTeapot
		}, 418, false},
		"no route": {nil, 404, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			app := fiber.New(fiber.Config{ErrorHandler: func(c fiber.Ctx, err error) error {
				switch {
				case errors.Is(err, errWrong):
					return c.SendStatus(401)
				case errors.Is(err, errLost):
					return err
				}
				return fiber.DefaultErrorHandler(c, err)
			}})
			app.Use(recover.New())
			app.Use(newLimit(t, c, fiberlimit.Options{
				Descriptors: by(fiberlimit.Constant("failed", name)),
				CountIf:     func(status int) bool { return status == 401 || status == 500 },
			}))
			if test.handler != nil {
				app.Get("/", test.handler)
			}
			fourth := test.sent
			if test.counts {
				fourth = 429
			}
			wantStatuses(t, statuses(t, serve(t, app), "/", "/", "/", "/"), test.sent, test.sent, test.sent, fourth)
		})
	}
}

func TestErrorsAreHandledOnce(t *testing.T) {
	t.Parallel()
	c := connect(t)
	for name, countIf := range map[string]func(int) bool{"without CountIf": nil, "with CountIf": func(int) bool { return true }} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			handled := 0
			app := fiber.New(fiber.Config{ErrorHandler: func(c fiber.Ctx, err error) error {
				handled++
				return fiber.DefaultErrorHandler(c, err)
			}})
			limit := newLimit(t, c, fiberlimit.Options{Descriptors: by(fiberlimit.Constant("failed", name)), CountIf: countIf})
			app.Get("/", limit, func(fiber.Ctx) error { return fiber.ErrTeapot })
			got := serve(t, app)(t, guardtest.Request{})
			if got.Status != 418 || got.Header.Get("X-Ratelimit-Limit") != "3" || handled != 1 {
				t.Errorf("found %d %v, handled %d times", got.Status, got.Header, handled)
			}
		})
	}
}

func TestErrorOfOnDeniedIsFibersToRespondTo(t *testing.T) {
	t.Parallel()
	app := fiber.New()
	app.Get("/", newLimit(t, connect(t), fiberlimit.Options{
		Descriptors: by(fiberlimit.Header("user", "X-User")),
		OnMissing:   fiberlimit.Deny,
		OnDenied:    func(fiber.Ctx, fiberlimit.Verdict) error { return fiber.ErrPaymentRequired },
	}), hello)
	wantStatuses(t, statuses(t, serve(t, app), "/"), 402)
}
