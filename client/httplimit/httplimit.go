// Package httplimit limits requests to net/http handlers by ratelimitd.
//
//	limit, err := httplimit.New(limiter, httplimit.Options{
//		Domain:      "api",
//		Descriptors: []httplimit.Descriptor{httplimit.By(httplimit.Header("user", "X-User"))},
//	})
//	...
//	http.ListenAndServe(":8000", limit(handler))
package httplimit

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"

	"github.com/felixge/httpsnoop"

	"github.com/ratelimitd/ratelimitd/client"
	"github.com/ratelimitd/ratelimitd/client/guard"
)

type (
	// Options of the middleware. [guard.Options] documents the fields; a status
	// is an HTTP status.
	Options = guard.Options[*http.Request, int, Handler]
	// Descriptor is a list of entries whose values come from a request.
	Descriptor = guard.Descriptor[*http.Request]
	// Part is an entry's key and the source of its value.
	Part = guard.Part[*http.Request]
	// Verdict is the decision about a request.
	Verdict = guard.Verdict
	// Handler responds to a refused request.
	Handler func(w http.ResponseWriter, r *http.Request, v Verdict)
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
func New(c *client.Client, o Options) (func(http.Handler) http.Handler, error) {
	if err := guard.SetHTTPDefaults(&o); err != nil {
		return nil, fmt.Errorf("httplimit: %w", err)
	}
	if o.OnDenied == nil {
		o.OnDenied = responding(o.Status, o.Body)
	}
	if o.OnError == nil {
		o.OnError = responding(http.StatusServiceUnavailable, http.StatusText(http.StatusServiceUnavailable))
	}
	g, err := guard.New(c, o)
	if err != nil {
		return nil, fmt.Errorf("httplimit: %w", err)
	}
	return func(next http.Handler) http.Handler {
		return &limiter{guard: g, next: next}
	}, nil
}

func responding(status int, body string) Handler {
	return func(w http.ResponseWriter, _ *http.Request, _ Verdict) {
		if w.Header().Get("Content-Type") == "" {
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body+"\n") // the caller may be gone
	}
}

type limiter struct {
	guard *guard.Guard[*http.Request, int, Handler]
	next  http.Handler
}

// ServeHTTP implements http.Handler.
func (l *limiter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	v := l.guard.Ask(r.Context(), r)
	l.guard.SetHeaders(v, w.Header().Set)
	refuse, isRefused := l.guard.Refusal(v)
	switch {
	case isRefused:
		refuse(w, r, v)
	case l.guard.Counts():
		l.serveAndCount(w, r, v)
	default:
		defer l.guard.Release(v)
		l.next.ServeHTTP(w, r)
	}
}

// serveAndCount serves a request, which counts by its status. If the handler panics
// before it writes, the status is that of an internal error.
func (l *limiter) serveAndCount(w http.ResponseWriter, r *http.Request, v Verdict) {
	status := 0
	seen := httpsnoop.Wrap(w, httpsnoop.Hooks{
		WriteHeader: func(next httpsnoop.WriteHeaderFunc) httpsnoop.WriteHeaderFunc {
			return func(code int) {
				// Informational responses come before the response.
				if status == 0 && (code >= 200 || code == http.StatusSwitchingProtocols) {
					status = code
				}
				next(code)
			}
		},
		Write: func(next httpsnoop.WriteFunc) httpsnoop.WriteFunc {
			return func(b []byte) (int, error) {
				status = or(status, http.StatusOK)
				return next(b)
			}
		},
		ReadFrom: func(next httpsnoop.ReadFromFunc) httpsnoop.ReadFromFunc {
			return func(src io.Reader) (int64, error) {
				status = or(status, http.StatusOK)
				return next(src)
			}
		},
		Flush: func(next httpsnoop.FlushFunc) httpsnoop.FlushFunc {
			return func() {
				status = or(status, http.StatusOK)
				next()
			}
		},
		Hijack: func(next httpsnoop.HijackFunc) httpsnoop.HijackFunc {
			return func() (net.Conn, *bufio.ReadWriter, error) {
				c, b, err := next()
				if err == nil {
					status = or(status, http.StatusSwitchingProtocols)
				}
				return c, b, err
			}
		},
	})
	returned := false
	defer func() {
		if !returned {
			status = or(status, http.StatusInternalServerError)
		}
		l.guard.Finish(r.Context(), v, or(status, http.StatusOK))
	}()
	l.next.ServeHTTP(seen, r)
	returned = true
}

func or(status, other int) int {
	if status == 0 {
		return other
	}
	return status
}

// By returns the descriptor of these parts.
func By(parts ...Part) Descriptor { return guard.By(parts...) }

// InFlight returns the descriptor of these parts that counts requests in flight: each holds
// a slot until its handler has ended. holderKey is the last key of the rule.
func InFlight(holderKey string, parts ...Part) Descriptor { return guard.InFlight(holderKey, parts...) }

// Constant is an entry that is the same for all requests.
func Constant(key, value string) Part { return guard.Constant[*http.Request](key, value) }

// Func is an entry whose value a function of the request returns.
func Func(key string, value func(*http.Request) (string, bool)) Part {
	return Part{Key: key, Value: value}
}

// Header is an entry with the first value of a header.
func Header(key, name string) Part {
	return Func(key, func(r *http.Request) (string, bool) { return guard.Header(r, name) })
}

// Method is an entry with the request's method.
func Method(key string) Part {
	return Func(key, func(r *http.Request) (string, bool) { return r.Method, true })
}

// Route is an entry with the pattern that a ServeMux found for the request, such
// as "GET /items/{id}". The middleware must wrap the handler of the pattern, because the
// pattern is unknown before the mux runs. RouteOf is for a middleware that wraps the mux.
func Route(key string) Part {
	return Func(key, func(r *http.Request) (string, bool) { return r.Pattern, r.Pattern != "" })
}

// RouteOf is an entry with the pattern that mux will find for the request.
func RouteOf(key string, mux *http.ServeMux) Part {
	return Func(key, func(r *http.Request) (string, bool) {
		_, pattern := mux.Handler(r)
		return pattern, pattern != ""
	})
}

// ClientAddress is an entry with the IP address that the request came from. It uses
// X-Forwarded-For only as far as trusted proxies wrote it.
func ClientAddress(key string, trusted ...netip.Prefix) Part {
	return Func(key, func(r *http.Request) (string, bool) {
		return guard.ClientAddress(r.RemoteAddr, r.Header.Values("X-Forwarded-For"), trusted)
	})
}

// ClientNetwork is ClientAddress with only the first bits of the address, such as
// 32 and 64: one customer usually has a whole /64 of IPv6.
func ClientNetwork(key string, ipv4Bits, ipv6Bits int, trusted ...netip.Prefix) Part {
	return Func(key, func(r *http.Request) (string, bool) {
		return guard.ClientNetwork(r.RemoteAddr, r.Header.Values("X-Forwarded-For"), trusted, ipv4Bits, ipv6Bits)
	})
}
