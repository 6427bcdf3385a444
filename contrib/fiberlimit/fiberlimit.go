// Package fiberlimit limits requests to fiber by ratelimitd.
//
//	limit, err := fiberlimit.New(limiter, fiberlimit.Options{
//		Domain: "api",
//		Descriptors: []fiberlimit.Descriptor{
//			fiberlimit.By(fiberlimit.Header("user", "X-User"), fiberlimit.Route("route")),
//		},
//	})
//	...
//	app := fiber.New()
//	app.Get("/items/:id", limit, item)
package fiberlimit

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/gofiber/fiber/v3"

	"github.com/ratelimitd/ratelimitd/client"
	"github.com/ratelimitd/ratelimitd/client/guard"
)

type (
	// Options of the middleware. [guard.Options] documents the fields; a status
	// is an HTTP status.
	Options = guard.Options[fiber.Ctx, int, Handler]
	// Descriptor is a list of entries whose values come from a request.
	Descriptor = guard.Descriptor[fiber.Ctx]
	// Part is an entry's key and the source of its value.
	Part = guard.Part[fiber.Ctx]
	// Verdict is the decision about a request.
	Verdict = guard.Verdict
	// Handler responds to a refused request. If it returns an error, fiber
	// responds to that.
	Handler func(c fiber.Ctx, v Verdict) error
)

// Values of Options.OnMissing and Options.Headers; package guard documents them.
const (
	Empty = guard.Empty
	Omit  = guard.Omit
	Deny  = guard.Deny

	XRateLimit = guard.XRateLimit
	IETF       = guard.IETF
	None       = guard.None
)

// New returns a middleware that asks through c. Its error says which option is
// invalid.
//
// CountIf gets the status that the response has when the handlers after the
// middleware have returned; a panic is an internal error. If they return an
// error, there is no status yet. With CountIf, the middleware therefore calls the
// app's ErrorHandler itself, and handlers before the middleware see the response
// and no error.
//
// The functions of a Part may return memory of fiber, which it uses again for
// another request: the middleware copies their values.
func New(c *client.Client, o Options) (fiber.Handler, error) {
	if err := guard.SetHTTPDefaults(&o); err != nil {
		return nil, fmt.Errorf("fiberlimit: %w", err)
	}
	if o.OnDenied == nil {
		o.OnDenied = responding(o.Status, o.Body)
	}
	if o.OnError == nil {
		o.OnError = responding(http.StatusServiceUnavailable, http.StatusText(http.StatusServiceUnavailable))
	}
	o.Descriptors = copying(o.Descriptors)
	g, err := guard.New(c, o)
	if err != nil {
		return nil, fmt.Errorf("fiberlimit: %w", err)
	}
	l := &limiter{guard: g}
	return l.handle, nil
}

func responding(status int, body string) Handler {
	return func(c fiber.Ctx, _ Verdict) error { return c.Status(status).SendString(body + "\n") }
}

// copying returns descriptors whose values outlive their request.
func copying(descriptors []Descriptor) []Descriptor {
	descriptors = slices.Clone(descriptors)
	for i := range descriptors {
		parts := slices.Clone(descriptors[i].Parts)
		for j, p := range parts {
			if p.Value != nil {
				parts[j].Value = func(c fiber.Ctx) (string, bool) {
					value, ok := p.Value(c)
					return strings.Clone(value), ok
				}
			}
		}
		descriptors[i].Parts = parts
	}
	return descriptors
}

type limiter struct {
	guard *guard.Guard[fiber.Ctx, int, Handler]
}

func (l *limiter) handle(c fiber.Ctx) error {
	v := l.guard.Ask(c.Context(), c)
	l.guard.SetHeaders(v, c.Set)
	refuse, isRefused := l.guard.Refusal(v)
	switch {
	case isRefused:
		return refuse(c, v)
	case l.guard.Counts():
		return l.serveAndCount(c, v)
	default:
		defer l.guard.Release(v)
		return c.Next()
	}
}

// serveAndCount serves a request that counts by its status. If a handler panics,
// the status is that of an internal error.
func (l *limiter) serveAndCount(c fiber.Ctx, v Verdict) error {
	status := http.StatusInternalServerError
	defer func() { l.guard.Finish(c.Context(), v, status) }()
	if err := c.Next(); err != nil {
		if err := c.App().ErrorHandler(c, err); err != nil {
			return err // fiber responds with an internal error
		}
	}
	status = c.Response().StatusCode()
	return nil
}

// By returns the descriptor of these parts.
func By(parts ...Part) Descriptor { return guard.By(parts...) }

// InFlight returns the descriptor of these parts that counts requests in flight: each holds
// a slot until the handlers after the middleware have ended; a body that a stream writer
// sends comes after that. holderKey is the last key of the rule.
func InFlight(holderKey string, parts ...Part) Descriptor { return guard.InFlight(holderKey, parts...) }

// Constant is an entry that is the same for all requests.
func Constant(key, value string) Part { return guard.Constant[fiber.Ctx](key, value) }

// Func is an entry whose value a function of the request returns.
func Func(key string, value func(fiber.Ctx) (string, bool)) Part {
	return Part{Key: key, Value: value}
}

// Header is an entry with the first value of a header.
func Header(key, name string) Part {
	return Func(key, func(c fiber.Ctx) (string, bool) {
		values := c.Request().Header.PeekAll(name)
		if len(values) == 0 {
			return "", false
		}
		return string(values[0]), true
	})
}

// Method is an entry with the request's method.
func Method(key string) Part {
	return Func(key, func(c fiber.Ctx) (string, bool) { return c.Method(), true })
}

// Route is an entry with the path of the route that fiber found for the request,
// c.FullPath(), such as "/items/:id". The path has no method in it; add Method
// for that. The middleware must be among the route's handlers:
//
//	app.Get("/items/:id", limit, item)
//
// Within app.Use fiber does not know the route yet, only the prefix, and all
// requests below the prefix share it.
func Route(key string) Part {
	return Func(key, func(c fiber.Ctx) (string, bool) { return c.FullPath(), true })
}

// ClientAddress is an entry with the IP address that the request came from. It
// believes X-Forwarded-For as far as trusted proxies wrote it.
//
// It differs from c.IP(), and ignores fiber's TrustProxy and ProxyHeader: behind a
// proxy that fiber trusts, c.IP() is the beginning of the header, which clients
// can write themselves.
func ClientAddress(key string, trusted ...netip.Prefix) Part {
	return Func(key, func(c fiber.Ctx) (string, bool) {
		var forwardedFor []string
		for _, value := range c.Request().Header.PeekAll(fiber.HeaderXForwardedFor) {
			forwardedFor = append(forwardedFor, string(value))
		}
		return guard.ClientAddress(c.RequestCtx().RemoteAddr().String(), forwardedFor, trusted)
	})
}
