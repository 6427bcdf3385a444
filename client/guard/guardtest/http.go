package guardtest

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/client/guard"
)

// RunHTTP tests an HTTP middleware. It sets the responses and statuses of f, which are
// the same for all of them. route is the middleware's Route.
func RunHTTP[R, H any](t *testing.T, f Framework[R, int, H], route func(key string) guard.Part[R]) {
	text := http.Header{"Content-Type": {"text/plain; charset=utf-8"}}
	f.Allowed = Response[int]{Status: 200, Body: "hello"}
	f.Denied = Response[int]{Status: 429, Body: "Too Many Requests\n", Header: text}
	f.Undecided = Response[int]{Status: 503, Body: "Service Unavailable\n", Header: text}
	f.Failed, f.Panicked, f.Own = 401, 500, 418
	f.BodyEnd = "\n"
	s := newSuite(t, f)
	s.run(t)
	runAll(t, []behaviour{
		{"asks by the route", func(t *testing.T) {
			server := s.serve(t, guard.Options[R, int, H]{Descriptors: own(t, route("part")), OnMissing: guard.Deny})
			s.isOneCounter(t, server, [3]Request{{Path: "/items/1"}, {Path: "/items/2"}, {Path: "/items/3"}}, Request{Path: "/other"})
		}},
		{"asks by the host", func(t *testing.T) {
			server := s.serve(t, guard.Options[R, int, H]{Descriptors: own(t, s.Header("part", "host")), OnMissing: guard.Deny})
			a := Request{Headers: []string{"Host: a.example"}}
			s.isOneCounter(t, server, [3]Request{a, a, a}, Request{Headers: []string{"Host: b.example"}})
		}},
		{"distinguishes headers that are not UTF-8", func(t *testing.T) {
			server := s.serve(t, guard.Options[R, int, H]{Descriptors: own(t, s.Header("part", "X-User"))})
			one := Request{Headers: []string{"X-User: a\xff"}}
			s.isOneCounter(t, server, [3]Request{one, one, one}, Request{Headers: []string{"X-User: a\xfe"}})
		}},
		{"refuses an invalid status", func(t *testing.T) {
			o := guard.Options[R, int, H]{Domain: "a", Descriptors: by(s.Method("m")), Status: 42}
			s.isRefused(t, s.client, o, "status: found 42; allowed: 200 to 999")
		}},
	})
}

// AskURL returns an Ask for the server at a URL. Requests are GET, or POST if
// IsOther is set.
func AskURL(t testing.TB, url string) Ask[int] {
	transport := new(http.Transport)
	t.Cleanup(transport.CloseIdleConnections)
	return func(t testing.TB, r Request) Response[int] {
		t.Helper()
		method := http.MethodGet
		if r.IsOther {
			method = http.MethodPost
		}
		request, err := http.NewRequestWithContext(t.Context(), method, url+r.Path, nil)
		if err != nil {
			t.Error(err)
			return Response[int]{}
		}
		for _, line := range r.Headers {
			name, value, _ := strings.Cut(line, ": ")
			if name == "Host" {
				request.Host = value
			} else {
				request.Header.Add(name, value)
			}
		}
		response, err := transport.RoundTrip(request)
		if err != nil {
			t.Error(err)
			return Response[int]{}
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err != nil {
			t.Error(err)
		}
		return Response[int]{Status: response.StatusCode, Header: response.Header, Body: string(body)}
	}
}
