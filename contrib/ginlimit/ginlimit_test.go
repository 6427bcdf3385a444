package ginlimit_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/ratelimitd/ratelimitd/client"
	"github.com/ratelimitd/ratelimitd/client/guard/guardtest"
	"github.com/ratelimitd/ratelimitd/contrib/ginlimit"
)

func TestMain(m *testing.M) {
	gin.SetMode(gin.ReleaseMode)
	os.Exit(guardtest.WithDaemon(m).Run())
}

func TestMiddleware(t *testing.T) {
	t.Parallel()
	guardtest.RunHTTP(t, guardtest.Framework[*gin.Context, int, ginlimit.Handler]{
		Package: "ginlimit",
		New: func(c *client.Client, o ginlimit.Options) error {
			_, err := ginlimit.New(c, o)
			return err
		},
		Serve:         serve,
		Func:          ginlimit.Func,
		Header:        ginlimit.Header,
		Method:        ginlimit.Method,
		ClientAddress: ginlimit.ClientAddress,
		HeaderOf:      func(c *gin.Context, name string) string { return c.GetHeader(name) },
		Responding: func(say func(ginlimit.Verdict) (int, string)) ginlimit.Handler {
			return func(c *gin.Context, v ginlimit.Verdict) {
				status, body := say(v)
				c.String(status, "%s", body)
			}
		},
	}, ginlimit.Route)
}

// serve runs a router that believes X-Forwarded-For from anybody, as gin's routers
// do by default. ClientAddress must not.
func serve(t testing.TB, c *client.Client, o ginlimit.Options, h guardtest.Handler[int]) guardtest.Ask[int] {
	r := router(t, c, o)
	for _, path := range []string{"/", "/items/:id", "/other"} {
		r.Any(path, func(c *gin.Context) {
			status, body := h(c.GetHeader)
			c.String(status, "%s", body)
		})
	}
	s := httptest.NewServer(r)
	t.Cleanup(s.Close)
	return guardtest.AskURL(t, s.URL)
}

// router returns a router that survives panics. Its middleware also gets requests
// without a route.
func router(t testing.TB, c *client.Client, o ginlimit.Options) *gin.Engine {
	t.Helper()
	o.Domain = "api"
	limit, err := ginlimit.New(c, o)
	if err != nil {
		t.Fatal(err)
	}
	r := gin.New()
	r.Use(gin.CustomRecoveryWithWriter(io.Discard, func(c *gin.Context, _ any) { c.AbortWithStatus(500) }))
	r.Use(limit)
	return r
}

const limits = `
domain: api
descriptors:
  - key: failed
    rate_limit: {algorithm: sliding_window, requests: 3, period: 1h}
`

func connect(t testing.TB) *client.Client {
	t.Helper()
	return guardtest.Connect(t, guardtest.StartDaemon(t, limits))
}

func by(parts ...ginlimit.Part) []ginlimit.Descriptor {
	return []ginlimit.Descriptor{ginlimit.By(parts...)}
}

// get returns the status of a request.
func get(h http.Handler, path string) int {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
	return w.Code
}

// A denied request reaches no handler, even if OnDenied does not abort it.
func TestDeniedRequestsAreAborted(t *testing.T) {
	t.Parallel()
	c := connect(t)
	for name, onDenied := range map[string]ginlimit.Handler{
		"the default": nil,
		"OnDenied":    func(c *gin.Context, _ ginlimit.Verdict) { c.Status(429) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			served := 0
			r := router(t, c, ginlimit.Options{Descriptors: by(ginlimit.Header("user", "X-User")), OnMissing: ginlimit.Deny, OnDenied: onDenied})
			r.GET("/", func(c *gin.Context) { served++; c.String(200, "served") })
			if status := get(r, "/"); status != 429 || served != 0 {
				t.Errorf("found %d, %d served", status, served)
			}
		})
	}
}

func TestRequestWithoutARouteLacksIt(t *testing.T) {
	t.Parallel()
	r := router(t, connect(t), ginlimit.Options{Descriptors: by(ginlimit.Route("route")), OnMissing: ginlimit.Deny})
	r.GET("/", func(c *gin.Context) { c.String(200, "hello") })
	if status := get(r, "/nowhere"); status != 429 {
		t.Errorf("no route: found %d, want 429", status)
	}
	if status := get(r, "/"); status != 200 {
		t.Errorf("a route: found %d, want 200", status)
	}
}

func TestCountIfIsToldTheStatusThatIsSent(t *testing.T) {
	t.Parallel()
	c := connect(t)
	for name, test := range map[string]struct {
		handler gin.HandlerFunc // nil for no route
		sent    int
	}{
		"nothing is written": {func(*gin.Context) {}, 200},
		"only a status":      {func(c *gin.Context) { c.Status(401) }, 401},
		"aborted":            {func(c *gin.Context) { c.AbortWithStatusJSON(401, gin.H{"error": "wrong"}) }, 401},
		"a panic":            {func(*gin.Context) { panic("a bug") }, 500},
		"no route":           {nil, 404},
		"a status that is too late": {func(c *gin.Context) {
			c.String(200, "welcome")
			c.Status(401)
		}, 200},
		"a connection that cannot be hijacked": {func(c *gin.Context) {
			if _, _, err := c.Writer.Hijack(); err == nil {
				t.Error("hijacked")
			}
			c.String(200, "no")
		}, 200},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			counted := 0
			r := router(t, c, ginlimit.Options{
				Descriptors: by(ginlimit.Constant("unlimited", "x")),
				CountIf:     func(status int) bool { counted = status; return true },
			})
			if test.handler != nil {
				r.GET("/", test.handler)
			}
			w := httptest.NewRecorder()
			r.ServeHTTP(unhijackable{w}, httptest.NewRequest("GET", "/", nil))
			if counted != test.sent || w.Code != test.sent {
				t.Errorf("counted is %d, sent %d; want %d", counted, w.Code, test.sent)
			}
		})
	}
}

// unhijackable has a Hijack that fails, as that of a wrapping writer may.
type unhijackable struct{ *httptest.ResponseRecorder }

func (unhijackable) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return nil, nil, http.ErrNotSupported
}

// The middleware must not hide abilities of a handler's writer.
// A hijacked connection counts as one that switched protocols.
func TestWritersStayHijackersAndHaveDeadlines(t *testing.T) {
	t.Parallel()
	counted := make(chan int, 1)
	r := router(t, connect(t), ginlimit.Options{
		Descriptors: by(ginlimit.Constant("failed", "x")),
		CountIf:     func(status int) bool { counted <- status; return false },
	})
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
	t.Cleanup(s.Close)
	if got := guardtest.AskURL(t, s.URL)(t, guardtest.Request{}); got.Status != 204 {
		t.Errorf("found %d, want 204", got.Status)
	}
	if got := <-counted; got != 101 {
		t.Errorf("the status of a hijacked connection is %d", got)
	}
}
