package adminapi_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/filetest"
	"github.com/ratelimitd/ratelimitd/internal/server/servertest"
)

// begin sends the beginning of a request to the admin API, up to so many bytes of its body,
// and returns the connection.
func begin(d *servertest.Daemon, method, path, token, body string, sent int) net.Conn {
	d.T.Helper()
	conn, err := net.Dial("tcp", d.Server.Address("admin"))
	if err != nil {
		d.T.Fatal(err)
	}
	d.T.Cleanup(func() { _ = conn.Close() })
	_, err = fmt.Fprintf(conn, "%s /admin/v1%s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\nExpect: 100-continue\r\n\r\n%s",
		method, path, token, len(body), body[:sent])
	if err != nil {
		d.T.Fatal(err)
	}
	return conn
}

// Bodies that come slowly hold up nobody but who sends them.
func TestSlowBodiesHoldUpNobodyElse(t *testing.T) {
	t.Parallel()
	d, f := startAssigning(t)
	const body = `{"domain":"api","entries":[{"key":"user","value":"x"}]}`
	for range 100 {
		begin(d, "POST", "/inspect", "help", body, 1)
	}
	for i := range 20 {
		if p := d.AskAdmin("PUT", fmt.Sprint("/assignment?domain=api&entry=user=", i), "run", `{"blocked":true}`); p.Code != 201 {
			t.Fatalf("an operator's change: %d %s", p.Code, p.Body)
		}
	}
	for _, ask := range [][4]string{{"GET", "/domains", "help"}, {"GET", "/assignments", "view"}, {"POST", "/inspect", "run", body}} {
		if p := d.AskAdmin(ask[0], ask[1], ask[2], ask[3]); p.Code != 200 {
			t.Errorf("%s: %d %s", ask, p.Code, p.Body)
		}
	}
	if n := f.Table().Len(); n != 20 {
		t.Errorf("there are %d assignments", n)
	}
}

// While others take all places that there are, an operator's changes have some.
func TestOperatorsChangesHavePlacesOfTheirOwn(t *testing.T) {
	t.Parallel()
	f := servertest.NewAssignments(t)
	f.Held = make(chan struct{})
	members, _, _ := servertest.WithMembers(t, servertest.SomeMembers())
	d := servertest.Start(t, servertest.OneLimit, members, servertest.WithAssignments(f))
	var all sync.WaitGroup
	const resets, places = 40, 16
	for range resets {
		all.Go(func() {
			// Those without a place give up, or come later.
			if p := d.AskAdmin("POST", "/reset", "help", `{"domain":"api","entries":[{"key":"user","value":"x"}]}`); p.Code != 200 && p.Code != 429 {
				t.Errorf("a reset: %d %s", p.Code, p.Body)
			}
		})
	}
	asynctest.Eventually(t, "all places are taken", func() bool { return f.Resets.Load() == places })
	if p := d.AskAdmin("PUT", "/assignment?domain=api&entry=user=x", "run", `{"blocked":true}`); p.Code != 201 {
		t.Errorf("%d %s", p.Code, p.Body)
	}
	if n := f.Resets.Load(); n != places {
		t.Errorf("%d resets at a time, want %d", n, places)
	}
	close(f.Held)
	all.Wait()
}

// A token that is taken back while the body of a request comes is good for nothing.
func TestBodiesAreReadForWhoMayStillAsk(t *testing.T) {
	t.Parallel()
	f := servertest.NewAssignments(t)
	members, live, path := servertest.WithMembers(t, servertest.SomeMembers())
	d := servertest.Start(t, servertest.OneLimit, members, servertest.WithAssignments(f))
	const body = `{"blocked":true}`
	conn := begin(d, "PUT", "/assignment?domain=api&entry=user=x", "run", body, 4)
	in := bufio.NewReader(conn)
	if line, err := in.ReadString('\n'); line != "HTTP/1.1 100 Continue\r\n" { // the body is being read
		t.Fatalf("%q, %v", line, err)
	}
	if _, err := in.Discard(2); err != nil {
		t.Fatal(err)
	}
	filetest.Write(t, filepath.Dir(path), filepath.Base(path), "[]\n")
	if err := live.Reload(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, body[4:]); err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusUnauthorized || f.Table().Len() != 0 {
		t.Errorf("%s, and there are %d assignments", response.Status, f.Table().Len())
	}
}
