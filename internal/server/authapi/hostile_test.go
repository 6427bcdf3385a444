package authapi_test

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/decide"
	"github.com/ratelimitd/ratelimitd/internal/server"
	"github.com/ratelimitd/ratelimitd/internal/server/authapi"
	"github.com/ratelimitd/ratelimitd/internal/server/servertest"
)

// Requests have the same bounds as over the other APIs.
func TestAuthRequestsAreBounded(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t, servertest.AuthLimits, servertest.WithAuth(t, servertest.AuthFile("caddy", "key: user, from: header, name: X-User", "key: site, value: s")),
		func(o *server.Options) { o.Requests.Bounds = decide.Bounds{Descriptors: 2, Entries: 1, Bytes: 1024} })
	if p := d.Auth("127.0.0.1", "GET", "n", "X-User: "+strings.Repeat("x", 900)); p.Code != 200 {
		t.Errorf("900 bytes: %d %s", p.Code, p.Body)
	}
	if p := d.Auth("127.0.0.1", "GET", "n", "X-User: "+strings.Repeat("x", 1100)); p.Code != 400 || !strings.Contains(p.Body, "grpc.max_bytes") {
		t.Errorf("1100 bytes: %d %s", p.Code, p.Body)
	}
	if p := d.Auth("127.0.0.1", "GET", "n", "X-User: "+strings.Repeat("x", 100_000)); p.Code != 431 {
		t.Errorf("100,000 bytes: %d", p.Code)
	}
	var many []string
	for i := range 500 {
		many = append(many, fmt.Sprintf("X-User: %d", i))
	}
	if p := d.Auth("127.0.0.1", "GET", "n", many...); p.Code != 429 {
		t.Errorf("500 headers: %d %s", p.Code, p.Body)
	}
}

// The daemon answers requests that no proxy sends, and lives on.
func TestAuthAnswersHostileRequests(t *testing.T) {
	t.Parallel()
	store := newKeys()
	d := servertest.Start(t, servertest.AuthLimits, servertest.On(store), servertest.WithAuth(t, servertest.AuthFile("caddy", "key: user, from: header, name: X-User", "key: client, from: client_address",
		"key: path, from: path, prefixes: [/]", "key: page, from: query, name: p")))
	for _, headers := range []string{
		"X-User: \x01\r\n", "X-User : a\r\n", "X-User: a\r\n b\r\n", "\xff\xfe: a\r\n",
		"X-Forwarded-For: " + strings.Repeat(",", 15000) + "\r\n", "X-Forwarded-For: " + strings.Repeat("10.0.0.1,", 1600) + "\r\n",
		"X-Forwarded-Uri: " + strings.Repeat("/..", 5000) + "\r\n", "X-Forwarded-Uri: " + strings.Repeat("/%2f", 3500) + "\r\n",
		"X-Forwarded-Uri: /?" + strings.Repeat("p&", 7000) + "\r\n", "X-Forwarded-Uri: " + strings.Repeat("%", 15000) + "\r\n",
		"Content-Length: 5\r\nContent-Length: 6\r\n", "Transfer-Encoding: chunked\r\nContent-Length: 6\r\n", "Expect: 100-continue\r\nContent-Length: 10\r\n",
	} {
		t.Run(fmt.Sprintf("%.40q", headers), func(t *testing.T) {
			conn, err := net.Dial("tcp", d.Server.Address("http"))
			if err != nil {
				t.Fatal(err)
			}
			_ = conn.SetDeadline(time.Now().Add(servertest.Patience))
			fmt.Fprintf(conn, "GET /auth/n HTTP/1.1\r\nHost: a\r\nConnection: close\r\n%s\r\n", headers)
			response, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Error(err)
			} else if !slices.Contains([]int{200, 400, 429}, response.StatusCode) {
				t.Errorf("got %s", response.Status)
			}
			_ = conn.Close()
		})
	}
	store.last()
	if p := d.Auth("127.0.0.1", "GET", "n", "X-User: b|=#{}%~"); p.Code != 200 || store.last() != "user=b%7C%3D%23%7B%7D%25%7E client= path= page=" {
		t.Errorf("and then: %+v", p)
	}
	d.WantMetrics(map[string]float64{"ratelimitd_panics_total": 0})
}

// newHandler returns forward auth by a file, without a port.
func newHandler(t testing.TB, store bucket.Store, file string) http.Handler {
	t.Helper()
	o := servertest.NewOptions(t, servertest.AuthLimits, servertest.On(store), servertest.WithAuth(t, file))
	mux := http.NewServeMux()
	mux.Handle("/auth/{name}", authapi.New(servertest.NewEndpoint(o, "auth"), o.HTTP.Auth))
	return mux
}

// FuzzAuthRequest sends any headers. No panic is recovered here.
func FuzzAuthRequest(f *testing.F) {
	handler := newHandler(f, newKeys(), servertest.AuthFile("caddy", "key: client, from: client_address, ipv6_prefix: 64",
		"key: path, from: path, prefixes: [/a, /]", "key: page, from: query, name: p, on_missing: omit"))
	for _, s := range []string{"", "/a?p=1", "/%2e%2e/a;x?%70=%ff&p", "1.2.3.4, ::1", "[::1%a]:5, 10.0.0.1,"} {
		f.Add(s, s)
	}
	f.Fuzz(func(t *testing.T, uri, forwarded string) {
		r, err := http.NewRequest(http.MethodGet, "/auth/n", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.RemoteAddr = "127.0.0.1:1"
		r.Header = http.Header{"X-Forwarded-Uri": {uri}, "X-Forwarded-For": {forwarded}}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if w.Code != 200 && w.Code != 429 && w.Code != 400 {
			t.Errorf("%q, %q: %d", uri, forwarded, w.Code)
		}
	})
}
