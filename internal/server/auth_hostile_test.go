package server_test

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

	"github.com/ratelimitd/ratelimitd/internal/decide"
	"github.com/ratelimitd/ratelimitd/internal/server"
)

// Requests have the same bounds as over the other APIs.
func TestAuthRequestsAreBounded(t *testing.T) {
	t.Parallel()
	d := start(t, authLimits, withAuth(t, authFile("caddy", "key: user, from: header, name: X-User", "key: site, value: s")),
		func(o *server.Options) { o.Requests.Bounds = decide.Bounds{Descriptors: 2, Entries: 1, Bytes: 1024} })
	if p := d.auth("127.0.0.1", "GET", "n", "X-User: "+strings.Repeat("x", 900)); p.code != 200 {
		t.Errorf("900 bytes: %d %s", p.code, p.body)
	}
	if p := d.auth("127.0.0.1", "GET", "n", "X-User: "+strings.Repeat("x", 1100)); p.code != 400 || !strings.Contains(p.body, "grpc.max_bytes") {
		t.Errorf("1100 bytes: %d %s", p.code, p.body)
	}
	if p := d.auth("127.0.0.1", "GET", "n", "X-User: "+strings.Repeat("x", 100_000)); p.code != 431 {
		t.Errorf("100,000 bytes: %d", p.code)
	}
	var many []string
	for i := range 500 {
		many = append(many, fmt.Sprintf("X-User: %d", i))
	}
	if p := d.auth("127.0.0.1", "GET", "n", many...); p.code != 429 {
		t.Errorf("500 headers: %d %s", p.code, p.body)
	}
}

// The daemon answers requests that no proxy sends, and lives on.
func TestAuthAnswersHostileRequests(t *testing.T) {
	t.Parallel()
	store := newKeys()
	d := start(t, authLimits, on(store), withAuth(t, authFile("caddy", "key: user, from: header, name: X-User", "key: client, from: client_address",
		"key: path, from: path, prefixes: [/]", "key: page, from: query, name: p")))
	for _, headers := range []string{
		"X-User: \x01\r\n", "X-User : a\r\n", "X-User: a\r\n b\r\n", "\xff\xfe: a\r\n",
		"X-Forwarded-For: " + strings.Repeat(",", 15000) + "\r\n", "X-Forwarded-For: " + strings.Repeat("10.0.0.1,", 1600) + "\r\n",
		"X-Forwarded-Uri: " + strings.Repeat("/..", 5000) + "\r\n", "X-Forwarded-Uri: " + strings.Repeat("/%2f", 3500) + "\r\n",
		"X-Forwarded-Uri: /?" + strings.Repeat("p&", 7000) + "\r\n", "X-Forwarded-Uri: " + strings.Repeat("%", 15000) + "\r\n",
		"Content-Length: 5\r\nContent-Length: 6\r\n", "Transfer-Encoding: chunked\r\nContent-Length: 6\r\n", "Expect: 100-continue\r\nContent-Length: 10\r\n",
	} {
		t.Run(fmt.Sprintf("%.40q", headers), func(t *testing.T) {
			conn, err := net.Dial("tcp", d.srv.Address("http"))
			if err != nil {
				t.Fatal(err)
			}
			_ = conn.SetDeadline(time.Now().Add(patience))
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
	if p := d.auth("127.0.0.1", "GET", "n", "X-User: b|=#{}%~"); p.code != 200 || store.last() != "user=b%7C%3D%23%7B%7D%25%7E client= path= page=" {
		t.Errorf("and then: %+v", p)
	}
	d.wantMetrics(map[string]float64{"ratelimitd_panics_total": 0})
}

func FuzzAuthRequest(f *testing.F) {
	store := newKeys()
	d := start(f, authLimits, on(store), withAuth(f, authFile("caddy", "key: client, from: client_address, ipv6_prefix: 64",
		"key: path, from: path, prefixes: [/a, /]", "key: page, from: query, name: p, on_missing: omit")))
	handler := d.srv.HTTP()
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
		if panics := d.log.lines("msg=panic"); len(panics) > 0 {
			t.Errorf("%q, %q: %s", uri, forwarded, panics)
		}
	})
}
