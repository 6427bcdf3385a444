// Package guardtest tests middlewares that are built on package guard. Run has tests for
// any framework; RunHTTP has those and more, for HTTP frameworks. The package of a
// middleware adds tests for the peculiarities of its framework.
//
// The tests ask a daemon, which is built when they begin; see WithDaemon.
//
// Package guardtest imports only the standard library and the client, so that the module
// of a middleware needs no other modules.
package guardtest

import (
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/ratelimitd/ratelimitd/client"
	"github.com/ratelimitd/ratelimitd/client/guard"
)

// Framework describes a middleware and its framework to the suite. R is the
// framework's request, S the status of its responses, and H the type of its
// handlers that respond to refused requests, as in package guard.
type Framework[R any, S comparable, H any] struct {
	// Package is the middleware's name, with which its errors begin.
	Package string
	// New returns the error of the middleware's New.
	New func(*client.Client, guard.Options[R, S, H]) error
	// Serve runs a server until the test ends. The server has the paths /,
	// /items/{id} and /other, if the framework has paths, with the middleware
	// before a handler that sends the response of h. If h panics, the response
	// has the status Panicked.
	Serve func(t testing.TB, c *client.Client, o guard.Options[R, S, H], h Handler[S]) Ask[S]

	// The middleware's functions of these names. ClientNetwork may be nil.
	Func          func(key string, value func(R) (string, bool)) guard.Part[R]
	Header        func(key, name string) guard.Part[R]
	Method        func(key string) guard.Part[R]
	ClientAddress func(key string, trusted ...netip.Prefix) guard.Part[R]
	ClientNetwork func(key string, ipv4Bits, ipv6Bits int, trusted ...netip.Prefix) guard.Part[R]

	// HeaderOf returns the first value of a request's header, or "".
	HeaderOf func(r R, name string) string
	// Responding returns a handler for OnDenied and OnError that sends the
	// response of say.
	Responding func(say func(guard.Verdict) (status S, body string)) H

	// Allowed is the usual response of the handler. Denied and Undecided are the
	// default responses of the middleware. Responses may have further headers.
	Allowed, Denied, Undecided Response[S]
	// Failed is a status of a handler that fails, and Panicked that of one that
	// panics. Own is any other status.
	Failed, Panicked, Own S
	// BodyEnd follows Options.Body in the body of a denial.
	BodyEnd string
}

// Handler returns the response to a request with these headers. It may panic.
type Handler[S any] func(header func(name string) string) (status S, body string)

// Ask sends a request to a server and returns the response.
type Ask[S any] func(testing.TB, Request) Response[S]

// Request is a request to a server.
type Request struct {
	// Path is / if it is empty. Frameworks without paths ignore it.
	Path string
	// IsOther asks for a different method, such as POST instead of GET.
	IsOther bool
	// Headers are of the form "name: value".
	Headers []string
}

// Response is the response to a Request.
type Response[S any] struct {
	Status S
	Header http.Header
	Body   string
}

// limits is the limits file of the suite's daemon.
const limits = `
domain: api
descriptors:
  - key: user
    rate_limit: {algorithm: sliding_window, requests: 2, period: 1h}
    descriptors:
      - key: part
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
  - key: tenant
    descriptors:
      - key: request
        rate_limit: {algorithm: concurrency, requests: 2, hold: 1h}
`

// Run tests a middleware.
func Run[R any, S comparable, H any](t *testing.T, f Framework[R, S, H]) {
	newSuite(t, f).run(t)
}

type suite[R any, S comparable, H any] struct {
	Framework[R, S, H]
	client *client.Client
}

func newSuite[R any, S comparable, H any](t *testing.T, f Framework[R, S, H]) *suite[R, S, H] {
	return &suite[R, S, H]{f, Connect(t, StartDaemon(t, limits))}
}

// behaviour is a test. All of them run in parallel on one daemon, so each asks
// about users of its own.
type behaviour struct {
	name string
	test func(*testing.T)
}

func runAll(t *testing.T, all []behaviour) {
	for _, b := range all {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			b.test(t)
		})
	}
}

func (s *suite[R, S, H]) run(t *testing.T) {
	runAll(t, []behaviour{
		{"allows up to the limit", s.allowsUpToTheLimit},
		{"denies over the limit", s.deniesOverTheLimit},

		{"asks by a header", s.asksByAHeader},
		{"asks by a function", s.asksByAFunction},
		{"asks by the method", s.asksByTheMethod},
		{"asks by the client address", s.asksByTheClientAddress},
		{"asks by the client network", s.asksByTheClientNetwork},
		{"takes the request's cost", s.takesTheRequestsCost},
		{"takes the request's numbers", s.takesTheRequestsNumbers},
		{"skips requests", s.skipsRequests},
		{"requests that lack a value", s.requestsThatLackAValue},
		{"an empty value is not missing", s.anEmptyValueIsNotMissing},
		{"distinguishes values that are not UTF-8", s.distinguishesValuesThatAreNotUTF8},

		{"gives back what does not count", s.givesBackWhatDoesNotCount},
		{"counts what fails", s.countsWhatFails},
		{"takes before the handler runs", s.takesBeforeTheHandlerRuns},

		{"holds a slot while the handler runs", s.holdsASlotWhileTheHandlerRuns},
		{"frees the slot however the handler ends", s.freesTheSlotHoweverTheHandlerEnds},

		{"shows limits in RateLimit headers", s.showsLimitsInRateLimitHeaders},
		{"shows limits in no header", s.showsLimitsInNoHeader},
		{"denies by OnDenied", s.deniesByOnDenied},
		{"responds by OnError", s.respondsByOnError},

		{"when the daemon is away", s.whenTheDaemonIsAway},
		{"refuses invalid options", s.refusesInvalidOptions},
	})
}

// server has the middleware before a handler.
type server[S comparable] struct {
	ask Ask[S]
	// served counts requests that reached the handler.
	served atomic.Int64
	// entered gets a value from each handler that waits, and goOn ends one's wait.
	entered, goOn chan struct{}
}

// This header of a request makes the handler fail, panic or wait.
const (
	respondHeader = "X-Respond"
	respondFailed = "failed"
	respondPanic  = "panic"
	respondLate   = "late"
)

func (s *suite[R, S, H]) serve(t testing.TB, o guard.Options[R, S, H]) *server[S] {
	t.Helper()
	return s.serveBy(t, s.client, o)
}

func (s *suite[R, S, H]) serveBy(t testing.TB, c *client.Client, o guard.Options[R, S, H]) *server[S] {
	t.Helper()
	o.Domain = "api"
	server := &server[S]{entered: make(chan struct{}, 10), goOn: make(chan struct{})}
	server.ask = s.Serve(t, c, o, func(header func(string) string) (S, string) {
		server.served.Add(1)
		switch header(respondHeader) {
		case respondFailed:
			return s.Failed, respondFailed
		case respondPanic:
			panic("as the test wants")
		case respondLate:
			server.entered <- struct{}{}
			<-server.goOn
		}
		return s.Allowed.Status, s.Allowed.Body
	})
	return server
}

// send sends a request with headers of the form "name: value".
func (s *server[S]) send(t testing.TB, headers ...string) Response[S] {
	t.Helper()
	return s.ask(t, Request{Headers: headers})
}

// statuses sends a request n times.
func (s *server[S]) statuses(t testing.TB, n int, r Request) []S {
	t.Helper()
	var got []S
	for range n {
		got = append(got, s.ask(t, r).Status)
	}
	return got
}

// by returns the descriptors of one descriptor.
func by[R any](parts ...guard.Part[R]) []guard.Descriptor[R] {
	return []guard.Descriptor[R]{guard.By(parts...)}
}

// own returns the descriptors of a part that no other test counts.
func own[R any](t testing.TB, part guard.Part[R]) []guard.Descriptor[R] {
	return by(guard.Constant[R]("user", t.Name()), part)
}

// is reports an error unless a response has the status, the body and the headers
// of another.
func is[S comparable](t testing.TB, got, want Response[S]) {
	t.Helper()
	if got.Status != want.Status || got.Body != want.Body {
		t.Errorf("found %v %q %v, want %v %q", got.Status, got.Body, got.Header, want.Status, want.Body)
	}
	for name := range want.Header {
		has(t, got, name, want.Header.Get(name))
	}
}

// has reports an error unless a response has a header with this value. If want is
// empty, the response must not have the header.
func has[S comparable](t testing.TB, got Response[S], name, want string) {
	t.Helper()
	if value := strings.Join(got.Header.Values(name), ", "); value != want {
		t.Errorf("%s: found %q, want %q", name, value, want)
	}
}
