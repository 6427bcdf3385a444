package server_test

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/server/servertest"
)

// wantCutOff reads until the server closes the connection, and returns the
// text before that.
func wantCutOff(t *testing.T, c net.Conn) string {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(servertest.Patience)); err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(c)
	if timeout, ok := err.(net.Error); ok && timeout.Timeout() {
		t.Error("the connection stays open")
	}
	return string(text)
}

func connect(d *servertest.Daemon, port string) net.Conn {
	d.T.Helper()
	c, err := net.Dial("tcp", d.Server.Address(port))
	if err != nil {
		d.T.Fatal(err)
	}
	d.T.Cleanup(func() { c.Close() })
	return c
}

func TestGarbageEndsItsConnection(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t, servertest.OneLimit)
	garbage := map[string]string{
		"zeros":              strings.Repeat("\x00", 4096),
		"bytes":              strings.Repeat("\xff\x00\xfe\r\n\r\n", 2000),
		"a TLS hello":        "\x16\x03\x01\x00\xf4\x01\x00\x00\xf0\x03\x03" + strings.Repeat("x", 233),
		"HTTP/1":             "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
		"HTTP/2, then bytes": "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + strings.Repeat("\xff", 100),
		"a long request":     "GET /" + strings.Repeat("x", 64<<10) + " HTTP/1.1\r\nHost: x\r\n\r\n",
		"headers":            "GET / HTTP/1.1\r\nHost: x\r\n" + strings.Repeat("X: yyyyyyyy\r\n", 5000) + "\r\n",
		"no length":          "POST /json HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
		"a length below 0":   "POST /json HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
	}
	for _, port := range []string{"grpc", "http", "admin"} {
		for name, text := range garbage {
			t.Run(port+" "+name, func(t *testing.T) {
				t.Parallel()
				c := connect(d, port)
				// The server may hang up before it has read all.
				_, _ = io.WriteString(c, text)
				_ = c.(*net.TCPConn).CloseWrite()
				said := wantCutOff(t, c)
				if strings.HasPrefix(said, "HTTP/1.1 5") && !strings.HasPrefix(said, "HTTP/1.1 505") {
					t.Errorf("it says %.80q", said)
				}
			})
		}
	}
	t.Cleanup(func() {
		wantHealth(d, "SERVING")
		servertest.WantShown(t, d.Ask("api", 1, "user=x"), "OK; OK u 5/HOUR remaining 4 reset 59m50s")
		if p := d.Post(servertest.BodyX); p.Code != 200 {
			t.Errorf("HTTP: %d %s", p.Code, p.Body)
		}
		if p := d.Get("admin", "/rlconfig"); p.Code != 200 {
			t.Errorf("admin: %d %s", p.Code, p.Body)
		}
		if lines := d.Log.Lines("panic"); len(lines) > 0 {
			t.Errorf("panics: %v", lines)
		}
	})
}

// TestSlowClientsAreCutOff sends too little and then nothing.
func TestSlowClientsAreCutOff(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t, servertest.OneLimit)
	slow := []struct{ name, port, sent, said string }{
		{"nothing", "grpc", "", ""},
		{"half a preface", "grpc", "PRI * HTTP", ""},
		{"nothing", "http", "", ""},
		{"half a header", "http", "POST /json HTTP/1.1\r\nHost: x\r\nX-", ""},
		{"half a body", "http", "POST /json HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{", "HTTP/1.1 400 "},
		{"half a chunk", "http", "POST /json HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n10\r\n{", "HTTP/1.1 400 "},
		{"nothing", "admin", "", ""},
		{"half a header", "admin", "GET /rlconfig HT", ""},
	}
	// All clients wait together.
	var conns []net.Conn
	for _, c := range slow {
		conn := connect(d, c.port)
		if _, err := io.WriteString(conn, c.sent); err != nil {
			t.Fatal(err)
		}
		conns = append(conns, conn)
	}
	for i, c := range slow {
		t.Run(c.port+" "+c.name, func(t *testing.T) {
			if said := wantCutOff(t, conns[i]); !strings.HasPrefix(said, c.said) {
				t.Errorf("it says %.200q", said)
			}
		})
	}
}
