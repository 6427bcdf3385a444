package guardtest

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/client"
	"github.com/ratelimitd/ratelimitd/client/guard"
)

func (s *suite[R, S, H]) showsLimitsInRateLimitHeaders(t *testing.T) {
	server := s.serve(t, guard.Options[R, S, H]{
		Headers: guard.IETF,
		Descriptors: []guard.Descriptor[R]{
			guard.By(guard.Constant[R]("shadow", t.Name())),
			guard.By(guard.Constant[R]("two", t.Name())),
			guard.By(guard.Constant[R]("user", t.Name())),
		},
	})
	got := server.send(t)
	is(t, got, s.Allowed)
	has(t, got, "Ratelimit-Policy", `"short";q=1;w=1, "the \"long\"";q=100;w=3600, "user";q=2;w=3600`)
	has(t, got, "Ratelimit", `"short";r=0;t=1, "the \"long\"";r=99;t=3600, "user";r=1;t=3600`)
	has(t, got, "X-Ratelimit-Limit", "")
}

func (s *suite[R, S, H]) showsLimitsInNoHeader(t *testing.T) {
	server := s.serve(t, guard.Options[R, S, H]{
		Headers:     guard.None,
		Descriptors: by(guard.Constant[R]("user", t.Name())),
		Status:      s.Own,
		Body:        "later 100%", // a middleware must not use it as a format
	})
	server.statuses(t, 2, Request{})
	got := server.send(t)
	is(t, got, Response[S]{Status: s.Own, Body: "later 100%" + s.BodyEnd})
	for name := range got.Header {
		if !slices.Contains([]string{"Content-Type", "Content-Length", "Date"}, name) {
			t.Errorf("there is a header: %s: %s", name, got.Header.Get(name))
		}
	}
}

func (s *suite[R, S, H]) deniesByOnDenied(t *testing.T) {
	server := s.serve(t, guard.Options[R, S, H]{
		Descriptors: by(guard.Constant[R]("user", t.Name())),
		OnDenied:    s.Responding(func(v guard.Verdict) (S, string) { return s.Own, v.Result.Denier().Algorithm.String() }),
	})
	server.statuses(t, 2, Request{})
	is(t, server.send(t), Response[S]{
		Status: s.Own, Body: "sliding_window",
		Header: http.Header{"X-Ratelimit-Limit": {"2"}},
	})
	if n := server.served.Load(); n != 2 {
		t.Errorf("%d of 3 reached the handler, want 2", n)
	}
}

func (s *suite[R, S, H]) respondsByOnError(t *testing.T) {
	server := s.serveBy(t, Connect(t, UnusedAddress(t)), guard.Options[R, S, H]{
		Descriptors: by(guard.Constant[R]("user", "x")),
		OnError: s.Responding(func(v guard.Verdict) (S, string) {
			if v.Err == nil {
				t.Error("the verdict has no error")
			}
			return s.Own, "no idea"
		}),
	})
	is(t, server.send(t), Response[S]{Status: s.Own, Body: "no idea"})
	if n := server.served.Load(); n != 0 {
		t.Errorf("%d reached the handler", n)
	}
}

func (s *suite[R, S, H]) whenTheDaemonIsAway(t *testing.T) {
	unused := UnusedAddress(t)
	for _, row := range []struct {
		name   string
		choice client.Failure
		want   []Response[S]
	}{
		{"no choice is an error", client.Failure{}, []Response[S]{s.Undecided}},
		{"FailError is an error", client.FailError(), []Response[S]{s.Undecided}},
		{"FailAllow allows", client.FailAllow(), []Response[S]{s.Allowed}},
		{"FailDeny denies", client.FailDeny(), []Response[S]{s.Denied}},
		{
			"FailLocal has a limit of its own",
			client.FailLocal(client.Limit{Algorithm: client.FixedWindow, Requests: 1, Period: 366 * 24 * time.Hour}),
			[]Response[S]{s.Allowed, s.Denied},
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			c := Connect(t, unused)
			server := s.serveBy(t, c, guard.Options[R, S, H]{Descriptors: by(guard.Constant[R]("user", "x")), OnFailure: row.choice})
			limit := ""
			if row.choice.String() == "local" {
				limit = "1"
			}
			for _, want := range row.want {
				got := server.send(t)
				is(t, got, want)
				has(t, got, "X-Ratelimit-Limit", limit)
			}
			if n := c.Stats().Failed(); n != uint64(len(row.want)) {
				t.Errorf("the client counts %d failures, want %d", n, len(row.want))
			}
		})
	}
	t.Run("OnDenied learns that the denial is degraded", func(t *testing.T) {
		t.Parallel()
		server := s.serveBy(t, Connect(t, unused), guard.Options[R, S, H]{
			Descriptors: by(guard.Constant[R]("user", "x")),
			OnFailure:   client.FailDeny(),
			OnDenied: s.Responding(func(v guard.Verdict) (S, string) {
				if v.Err != nil || v.Result == nil || !v.Result.Degraded || v.Result.Failure == nil {
					t.Errorf("verdict: %+v", v)
				}
				return s.Own, "degraded"
			}),
		})
		is(t, server.send(t), Response[S]{Status: s.Own, Body: "degraded"})
	})
}

func (s *suite[R, S, H]) refusesInvalidOptions(t *testing.T) {
	type options = guard.Options[R, S, H]
	good := by(s.Method("m"))
	for _, row := range []struct {
		name    string
		options options
		want    string // the beginning of the error, after the package
	}{
		{"no domain", options{Descriptors: good}, "domain is empty"},
		{"no descriptors", options{Domain: "a"}, "descriptors is empty; there is at least one"},
		{"a descriptor without parts", options{Domain: "a", Descriptors: by[R]()}, "descriptors[0].parts is empty; a descriptor has"},
		{"a part without a value", options{Domain: "a", Descriptors: by(guard.Part[R]{Key: "a"})}, "descriptors[0].parts[0]: a key and a value are needed"},
		{"a part without a key", options{Domain: "a", Descriptors: by(guard.Constant[R]("", "a"))}, "descriptors[0].parts[0]: a key and a value are needed"},
		{"an unknown OnMissing", options{Domain: "a", Descriptors: good, OnMissing: 3}, "on missing: found 3; allowed: Empty, Omit, Deny"},
		{"unknown Headers", options{Domain: "a", Descriptors: good, Headers: 3}, "headers: found 3; allowed: XRateLimit, IETF, None"},
		{"an invalid limit of FailLocal", options{Domain: "a", Descriptors: good, OnFailure: client.FailLocal(client.Limit{Requests: 1, Period: time.Second})}, "the limit of FailLocal: algorithm: found Algorithm(0); "},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			s.isRefused(t, s.client, row.options, row.want)
		})
	}
	t.Run("no client", func(t *testing.T) {
		t.Parallel()
		s.isRefused(t, nil, options{Domain: "a", Descriptors: good}, "client is nil")
	})
}

func (s *suite[R, S, H]) isRefused(t *testing.T, c *client.Client, o guard.Options[R, S, H], want string) {
	t.Helper()
	want = s.Package + ": " + want
	if err := s.New(c, o); err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("found %v, want %q", err, want)
	}
}
