package httplimit_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/ratelimitd/ratelimitd/client"
	"github.com/ratelimitd/ratelimitd/client/guard/guardtest"
	"github.com/ratelimitd/ratelimitd/client/httplimit"
	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(asynctest.Settling{Tests: guardtest.WithDaemon(m), IsSettled: func() bool { return goleak.Find() == nil }})
}

func TestMiddleware(t *testing.T) {
	t.Parallel()
	guardtest.RunHTTP(t, guardtest.Framework[*http.Request, int, httplimit.Handler]{
		Package: "httplimit",
		New: func(c *client.Client, o httplimit.Options) error {
			_, err := httplimit.New(c, o)
			return err
		},
		Serve:         serve,
		Func:          httplimit.Func,
		Header:        httplimit.Header,
		Method:        httplimit.Method,
		ClientAddress: httplimit.ClientAddress,
		ClientNetwork: httplimit.ClientNetwork,
		HeaderOf:      func(r *http.Request, name string) string { return r.Header.Get(name) },
		Responding: func(say func(httplimit.Verdict) (int, string)) httplimit.Handler {
			return func(w http.ResponseWriter, _ *http.Request, v httplimit.Verdict) {
				status, body := say(v)
				w.WriteHeader(status)
				_, _ = io.WriteString(w, body)
			}
		},
	}, httplimit.Route)
}

func serve(t testing.TB, c *client.Client, o httplimit.Options, h guardtest.Handler[int]) guardtest.Ask[int] {
	limited := limit(t, c, o, func(w http.ResponseWriter, r *http.Request) {
		status, body := h(r.Header.Get)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	})
	mux := http.NewServeMux()
	for _, pattern := range []string{"/{$}", "/items/{id}", "/other"} {
		mux.Handle(pattern, limited)
	}
	s := httptest.NewServer(surviving(mux))
	t.Cleanup(s.Close)
	return guardtest.AskURL(t, s.URL)
}

// limit returns a handler behind the middleware.
func limit(t testing.TB, c *client.Client, o httplimit.Options, next http.HandlerFunc) http.Handler {
	t.Helper()
	o.Domain = "api"
	limit, err := httplimit.New(c, o)
	if err != nil {
		t.Fatal(err)
	}
	return limit(next)
}

// surviving responds with an internal error when next panics.
func surviving(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if recover() != nil {
				w.WriteHeader(http.StatusInternalServerError)
			}
		}()
		next.ServeHTTP(w, r)
	})
}

const limits = `
domain: api
descriptors:
  - key: failed
    rate_limit: {algorithm: sliding_window, requests: 3, period: 1h}
  - key: route
    rate_limit: {algorithm: sliding_window, requests: 2, period: 1h}
  - key: tenant
    descriptors:
      - key: request
        rate_limit: {algorithm: concurrency, requests: 1, hold: 1h}
`

func connect(t testing.TB) *client.Client {
	t.Helper()
	return guardtest.Connect(t, guardtest.StartDaemon(t, limits))
}

func by(parts ...httplimit.Part) []httplimit.Descriptor {
	return []httplimit.Descriptor{httplimit.By(parts...)}
}

// get returns the status of a request.
func get(h http.Handler, path string) int {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
	return w.Code
}

func TestRouteOfIsKnownAroundTheMux(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	hello := func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }
	mux.HandleFunc("GET /items/{id}", hello)
	mux.HandleFunc("GET /other", hello)
	h := limit(t, connect(t), httplimit.Options{
		Descriptors: by(httplimit.RouteOf("route", mux)),
		OnMissing:   httplimit.Deny,
	}, mux.ServeHTTP)
	for _, request := range []struct {
		path string
		want int
	}{{"/items/1", 200}, {"/items/2", 200}, {"/items/3", 429}, {"/other", 200}, {"/nowhere", 429}} {
		if got := get(h, request.path); got != request.want {
			t.Errorf("%s: found %d, want %d", request.path, got, request.want)
		}
	}
}

func TestCountIfIsToldTheStatusThatIsSent(t *testing.T) {
	t.Parallel()
	c := connect(t)
	for name, test := range map[string]struct {
		handler http.HandlerFunc
		sent    int
	}{
		"nothing is written": {func(http.ResponseWriter, *http.Request) {}, 200},
		"only a status":      {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(401) }, 401},
		"a status that is too late": {func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "welcome")
			w.WriteHeader(401) // superfluous
		}, 200},
		"early hints come before": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(103)
			w.WriteHeader(401)
		}, 401},
		"switched": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(101) }, 101},
		"a panic": {func(http.ResponseWriter, *http.Request) {
			panic(http.ErrAbortHandler)
		}, 500},
		"flushed before a panic": {func(w http.ResponseWriter, _ *http.Request) {
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}, 200},
		"flushed by a controller before a panic": {func(w http.ResponseWriter, _ *http.Request) {
			if err := http.NewResponseController(w).Flush(); err != nil {
				t.Error(err)
			}
			panic(http.ErrAbortHandler)
		}, 200},
		"a connection that cannot be hijacked": {func(w http.ResponseWriter, _ *http.Request) {
			if _, _, err := w.(http.Hijacker).Hijack(); err != nil {
				w.WriteHeader(500)
			}
		}, 500},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			counted := 0
			h := limit(t, c, httplimit.Options{
				Descriptors: by(httplimit.Constant("unlimited", "x")),
				CountIf:     func(status int) bool { counted = status; return true },
			}, test.handler)
			w := &recorder{ResponseRecorder: httptest.NewRecorder()}
			surviving(h).ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
			if w.sent == 0 {
				w.sent = http.StatusOK
			}
			if counted != test.sent || w.sent != test.sent {
				t.Errorf("counted is %d, sent %d; want %d", counted, w.sent, test.sent)
			}
		})
	}
}

// recorder records the first final status, the one that a server sends. Its
// Hijack fails, as that of a wrapping writer may.
type recorder struct {
	*httptest.ResponseRecorder
	sent int
}

func (r *recorder) WriteHeader(status int) {
	if r.sent == 0 && (status >= 200 || status == http.StatusSwitchingProtocols) {
		r.sent = status
	}
}

func (r *recorder) Write(b []byte) (int, error) {
	r.WriteHeader(http.StatusOK)
	return r.ResponseRecorder.Write(b)
}

func (r *recorder) Flush() { r.WriteHeader(http.StatusOK) }

func (*recorder) Hijack() (net.Conn, *bufio.ReadWriter, error) { return nil, nil, http.ErrNotSupported }

// The middleware must not hide abilities of a handler's writer.
func TestWritersStayFlushersReadersAndHijackers(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(limit(t, connect(t), httplimit.Options{
		Descriptors: by(httplimit.Constant("failed", "x")),
		CountIf:     func(int) bool { return false },
	}, func(w http.ResponseWriter, _ *http.Request) {
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
	}))
	t.Cleanup(s.Close)
	if got := guardtest.AskURL(t, s.URL)(t, guardtest.Request{}); got.Status != 204 {
		t.Errorf("found %d, want 204", got.Status)
	}
}

// A caller that disconnects leaves no slot behind.
func TestSlotOfACallerThatDisconnects(t *testing.T) {
	t.Parallel()
	entered := make(chan struct{}, 1)
	s := httptest.NewServer(limit(t, connect(t), httplimit.Options{
		Descriptors: []httplimit.Descriptor{httplimit.InFlight("request", httplimit.Constant("tenant", "x"))},
	}, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/late" {
			entered <- struct{}{}
			<-r.Context().Done()
		}
	}))
	t.Cleanup(s.Close)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+"/late", nil)
	if err != nil {
		t.Fatal(err)
	}
	var late sync.WaitGroup
	late.Go(func() {
		if response, err := s.Client().Do(r); err == nil {
			response.Body.Close()
			t.Error("there is a response")
		}
	})
	<-entered
	if got := guardtest.AskURL(t, s.URL)(t, guardtest.Request{}).Status; got != http.StatusTooManyRequests {
		t.Errorf("while one is in flight: %d", got)
	}
	cancel()
	late.Wait()
	asynctest.Eventually(t, "the slot is free", func() bool {
		return guardtest.AskURL(t, s.URL)(t, guardtest.Request{}).Status == http.StatusOK
	})
}
