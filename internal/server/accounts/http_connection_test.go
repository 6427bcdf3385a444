package accounts

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
)

// Over HTTP/2 a connection has several requests at a time, each of which is charged as an
// open call is. One that ends gives back what is charged to it, and no more than its share
// of what was read.
func TestRequestsOfOneConnectionGiveBackTheirOwn(t *testing.T) {
	const reserved, read = 1 << 20, 80_000
	m := testMemory(1 << 30)
	conn, _ := net.Pipe()
	defer conn.Close()
	c := &httpConnection{Conn: conn, account: m.Open(0, func() {})}
	held := func(when string, want int64) {
		t.Helper()
		if got := m.Held(); got != want {
			t.Errorf("%s %d bytes are held; wanted: %d", when, got, want)
		}
	}
	ask := func(answer func(context.Context)) {
		r := httptest.NewRequestWithContext(WithConnection(t.Context(), c), "GET", "/", nil)
		r.ProtoMajor = 2
		ChargeHTTP(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { answer(r.Context()) })).ServeHTTP(nil, r)
	}
	ask(func(first context.Context) {
		if err := c.Reserve(first, reserved); err != nil {
			t.Fatal(err)
		}
		c.charge(read)
		held("before another begins", callCost+reserved+read)
		ask(func(second context.Context) {
			if err := c.Reserve(second, 2*reserved); err != nil {
				t.Fatal(err)
			}
			if err := c.Reserve(second, 100); err != nil {
				t.Fatal(err)
			}
			held("in the second", 2*callCost+3*reserved+100+read)
		})
		held("after the second", callCost+reserved+read/2)
		for range 100 {
			ask(func(context.Context) { c.charge(1000) })
		}
		if got := m.Held(); got < callCost+reserved || got > callCost+reserved+2000 {
			t.Errorf("after a hundred more %d bytes are held", got)
		}
	})
	held("in the end", 0)
}

// Requests that end beside others with bodies, which may wait unread, give back nothing of
// what these may hold.
func TestUnreadBodiesStayCharged(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name               string
		length, read, want int64
	}{
		{"whose length is told", 100_000, 1 << 20, 200_000},
		{"whose length is not told", -1, 1 << 20, 1 << 20},
		{"longer than what comes unread", 1 << 30, 3 << 20, 2 << 20},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m := testMemory(1 << 30)
			conn, _ := net.Pipe()
			defer conn.Close()
			charged := &httpConnection{Conn: conn, account: m.Open(0, func() {})}
			ask := func(method string, length int64, answer func()) {
				r := httptest.NewRequestWithContext(WithConnection(t.Context(), charged), method, "/", nil)
				r.ProtoMajor, r.ContentLength = 2, length
				ChargeHTTP(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { answer() })).ServeHTTP(nil, r)
			}
			ask("POST", c.length, func() {
				charged.charge(c.read)
				for range 100 {
					ask("GET", 0, func() {})
				}
				if got := m.Held() - callCost; got < c.want || got > c.want+2000 {
					t.Errorf("after a hundred others %d bytes are held; wanted: %d", got, c.want)
				}
			})
			if got := m.Held(); got != 0 {
				t.Errorf("in the end %d bytes are held", got)
			}
		})
	}
}
