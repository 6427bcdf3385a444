// Package ginlimit limits requests to gin by ratelimitd.
//
//	limit, err := ginlimit.New(limiter, ginlimit.Options{
//		Domain: "api",
//		Descriptors: []ginlimit.Descriptor{
//			ginlimit.By(ginlimit.Header("user", "X-User"), ginlimit.Route("route")),
//		},
//	})
//	...
//	router := gin.New()
//	router.Use(gin.Recovery(), limit)
package ginlimit

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"net/netip"

	"github.com/gin-gonic/gin"

	"github.com/ratelimitd/ratelimitd/client"
	"github.com/ratelimitd/ratelimitd/client/guard"
)

type (
	// Options of the middleware. [guard.Options] documents the fields; a status
	// is an HTTP status.
	Options = guard.Options[*gin.Context, int, Handler]
	// Descriptor is a list of entries whose values come from a request.
	Descriptor = guard.Descriptor[*gin.Context]
	// Part is an entry's key and the source of its value.
	Part = guard.Part[*gin.Context]
	// Verdict is the decision about a request.
	Verdict = guard.Verdict
	// Handler responds to a refused request, which is aborted already.
	Handler func(c *gin.Context, v Verdict)
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
// middleware have returned; a panic is an internal error. A middleware that sets
// the status later, such as one that responds to c.Errors, must come after this
// one.
func New(c *client.Client, o Options) (gin.HandlerFunc, error) {
	if err := guard.SetHTTPDefaults(&o); err != nil {
		return nil, fmt.Errorf("ginlimit: %w", err)
	}
	if o.OnDenied == nil {
		o.OnDenied = responding(o.Status, o.Body)
	}
	if o.OnError == nil {
		o.OnError = responding(http.StatusServiceUnavailable, http.StatusText(http.StatusServiceUnavailable))
	}
	g, err := guard.New(c, o)
	if err != nil {
		return nil, fmt.Errorf("ginlimit: %w", err)
	}
	l := &limiter{guard: g}
	return l.handle, nil
}

func responding(status int, body string) Handler {
	return func(c *gin.Context, _ Verdict) { c.String(status, "%s\n", body) }
}

type limiter struct {
	guard *guard.Guard[*gin.Context, int, Handler]
}

func (l *limiter) handle(c *gin.Context) {
	v := l.guard.Ask(c.Request.Context(), c)
	l.guard.SetHeaders(v, c.Writer.Header().Set)
	refuse, isRefused := l.guard.Refusal(v)
	switch {
	case isRefused:
		c.Abort()
		refuse(c, v)
	case l.guard.Counts():
		l.serveAndCount(c, v)
	case v.Slot != nil:
		defer l.guard.Release(v)
		c.Next()
	}
}

// serveAndCount serves a request that counts by its status. If a handler panics
// before it writes, the status is that of an internal error.
func (l *limiter) serveAndCount(c *gin.Context, v Verdict) {
	seen := &writer{ResponseWriter: c.Writer}
	c.Writer = seen
	returned := false
	defer func() {
		c.Writer = seen.ResponseWriter
		status := c.Writer.Status()
		if seen.isHijacked {
			status = http.StatusSwitchingProtocols
		} else if !returned && !c.Writer.Written() {
			status = http.StatusInternalServerError
		}
		l.guard.Finish(c.Request.Context(), v, status)
	}()
	c.Next()
	returned = true
}

// writer notes whether the connection was hijacked before there was a status.
type writer struct {
	gin.ResponseWriter
	isHijacked bool
}

// Hijack implements http.Hijacker.
func (w *writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	wasWritten := w.Written()
	c, b, err := w.ResponseWriter.Hijack()
	if err == nil {
		w.isHijacked = !wasWritten
	}
	return c, b, err
}

// Unwrap is for http.ResponseController.
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// By returns the descriptor of these parts.
func By(parts ...Part) Descriptor { return guard.By(parts...) }

// InFlight returns the descriptor of these parts that counts requests in flight: each holds
// a slot until the handlers after the middleware have ended. holderKey is the last key of
// the rule.
func InFlight(holderKey string, parts ...Part) Descriptor { return guard.InFlight(holderKey, parts...) }

// Constant is an entry that is the same for all requests.
func Constant(key, value string) Part { return guard.Constant[*gin.Context](key, value) }

// Func is an entry whose value a function of the request returns.
func Func(key string, value func(*gin.Context) (string, bool)) Part {
	return Part{Key: key, Value: value}
}

// Header is an entry with the first value of a header.
func Header(key, name string) Part {
	return Func(key, func(c *gin.Context) (string, bool) { return guard.Header(c.Request, name) })
}

// Method is an entry with the request's method.
func Method(key string) Part {
	return Func(key, func(c *gin.Context) (string, bool) { return c.Request.Method, true })
}

// Route is an entry with the pattern of the route that gin found for the
// request, c.FullPath(), such as "/items/:id". Requests without a route lack it.
// The pattern has no method in it; add Method for that.
func Route(key string) Part {
	return Func(key, func(c *gin.Context) (string, bool) { return c.FullPath(), c.FullPath() != "" })
}

// ClientAddress is an entry with the IP address that the request came from. It
// believes X-Forwarded-For as far as trusted proxies wrote it.
//
// It differs from c.ClientIP(), and ignores gin's own trusted proxies: gin trusts
// every sender by default, so that a client could claim another address for each
// request.
func ClientAddress(key string, trusted ...netip.Prefix) Part {
	return Func(key, func(c *gin.Context) (string, bool) {
		return guard.ClientAddress(c.Request.RemoteAddr, c.Request.Header.Values("X-Forwarded-For"), trusted)
	})
}
