package overload_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ratelimitd/ratelimitd/internal/server/overload"
)

const (
	grpcCost, httpCost = 48 << 10, 24 << 10
	callCost           = 16 << 10
)

// pipes is a listener whose connections are pipes.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) { return <-p, nil }
func (p pipes) Close() error              { return nil }
func (p pipes) Addr() net.Addr            { return nil }

// pipe returns both ends of a connection that the listener made of pipes accepts.
func pipe(t *testing.T, listen func(pipes) net.Listener) (caller, served net.Conn) {
	t.Helper()
	p := make(pipes, 1)
	caller, other := net.Pipe()
	p <- other
	served, err := listen(p).Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { caller.Close(); served.Close() })
	return caller, served
}

// grpcCaller is a caller of gRPC and its connection to the guarded side.
type grpcCaller struct {
	t      *testing.T
	conn   *overload.Conn
	caller net.Conn
	served net.Conn
}

func newGRPCCaller(t *testing.T, g *overload.Guard) *grpcCaller {
	t.Helper()
	caller, served := pipe(t, func(p pipes) net.Listener { return overload.Listener{Listener: p, Guard: g} })
	conn := served.(*overload.Conn)
	c := &grpcCaller{t: t, conn: conn, caller: caller, served: conn.Follow(conn)}
	c.send(0, func(*http2.Framer) {}, []byte(http2.ClientPreface))
	return c
}

// frames returns bytes of HTTP/2.
func frames(write func(*http2.Framer)) []byte {
	var b bytes.Buffer
	write(http2.NewFramer(&b, nil))
	return b.Bytes()
}

// send has the served side read frames in parts of a size; 0 is all at once.
func (c *grpcCaller) send(part int, write func(*http2.Framer), before ...[]byte) {
	c.t.Helper()
	all := append(bytes.Join(before, nil), frames(write)...)
	go func() { _, _ = c.caller.Write(all) }()
	if part == 0 {
		part = len(all)
	}
	for len(all) > 0 {
		n := min(part, len(all))
		if _, err := io.ReadFull(c.served, make([]byte, n)); err != nil {
			c.t.Fatal(err)
		}
		all = all[n:]
	}
}

// answer has the served side write frames.
func (c *grpcCaller) answer(write func(*http2.Framer)) {
	c.t.Helper()
	all := frames(write)
	go func() { _, _ = io.ReadFull(c.caller, make([]byte, len(all))) }()
	if _, err := c.served.Write(all); err != nil {
		c.t.Fatal(err)
	}
}

// call makes a call that is answered.
func (c *grpcCaller) call(stream uint32) {
	c.t.Helper()
	c.send(0, headers(stream, false))
	c.answer(data(stream, 10))
	c.answer(headers(stream, true))
}

func headers(stream uint32, ends bool) func(*http2.Framer) {
	return func(f *http2.Framer) {
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: []byte("x"), EndHeaders: true, EndStream: ends})
	}
}

func data(stream uint32, bytes int) func(*http2.Framer) {
	return func(f *http2.Framer) { _ = f.WriteData(stream, false, make([]byte, bytes)) }
}

func reset(stream uint32) func(*http2.Framer) {
	return func(f *http2.Framer) { _ = f.WriteRSTStream(stream, http2.ErrCodeCancel) }
}

// wantHeld asserts what a guard counts, give or take what frames cost.
func wantHeld(t *testing.T, g *overload.Guard, when string, want int64) {
	t.Helper()
	if got := g.Held(); got < want || got > want+want/8+600 {
		t.Errorf("%s %d bytes are held; wanted: %d", when, got, want)
	}
}

// A call holds what it has sent until an answer has left or it is reset.
func TestCallsHoldWhatTheyHaveSent(t *testing.T) {
	t.Parallel()
	for _, part := range []int{0, 1, 7, 1000} {
		g := overload.New(1<<30, func() {})
		c := newGRPCCaller(t, g)
		wantHeld(t, g, "a connection", grpcCost)
		c.send(part, headers(1, false))
		c.send(part, headers(3, false))
		wantHeld(t, g, "with two calls", grpcCost+2*callCost)
		c.send(part, data(1, 15_000))
		c.send(part, data(1, 15_000))
		c.send(part, data(3, 10_000))
		wantHeld(t, g, "with their messages", grpcCost+2*callCost+40_000)
		c.answer(headers(1, false))
		wantHeld(t, g, "before an answer", grpcCost+2*callCost+40_000)
		c.answer(data(1, 10))
		wantHeld(t, g, "after an answer", grpcCost+2*callCost+10_000)
		c.answer(headers(1, true))
		wantHeld(t, g, "after a call", grpcCost+callCost+10_000)
		c.send(part, headers(1, true)) // trailers open no other call
		c.send(part, data(1, 10_000))
		wantHeld(t, g, "with more of a call that has ended", grpcCost+callCost+10_000)
		c.send(part, reset(3))
		wantHeld(t, g, "after a reset", grpcCost)
		c.send(part, headers(5, false))
		c.answer(reset(5))
		wantHeld(t, g, "after a refusal", grpcCost)
		c.send(part, headers(7, false))
		c.conn.Add(500)
		c.served.Close()
		wantHeld(t, g, "at the end of the connection", callCost+500)
		c.conn.Add(-500)
		wantHeld(t, g, "after its handler", callCost)
	}
}

// No bytes break what follows frames, and it never counts less than nothing.
func FuzzFrames(f *testing.F) {
	f.Add(frames(headers(1, false)), frames(headers(1, true)))
	f.Add(frames(data(1, 100)), frames(reset(1)))
	f.Fuzz(func(t *testing.T, sent, answered []byte) {
		g := overload.New(1<<40, func() {})
		c := newGRPCCaller(t, g)
		c.send(0, func(*http2.Framer) {}, sent)
		if len(answered) > 0 {
			c.answer(func(f *http2.Framer) { _ = f.WriteRawFrame(http2.FrameHeaders, 0xff, 1, answered) })
		}
		if g.Held() < grpcCost {
			t.Errorf("%d bytes are held", g.Held())
		}
		if c.served.Close(); g.Held() < 0 {
			t.Errorf("in the end %d bytes are held", g.Held())
		}
	})
}

// Beyond the budget the connections that hold the most for each call that they finish are
// closed, and no more of them than it takes.
func TestTheLargestHoldersAreClosedFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cut := 0
		g := overload.New(2<<20, func() { cut++ })
		busy, large, small := newGRPCCaller(t, g), newGRPCCaller(t, g), newGRPCCaller(t, g)
		for i := range uint32(100) {
			busy.call(2*i + 1)
		}
		busy.conn.Add(1 << 20)
		large.conn.Add(700 << 10)
		small.conn.Add(100 << 10)
		small.send(0, headers(1, false))
		if cut != 0 {
			t.Fatalf("%d connections are closed while there is room", cut)
		}
		small.conn.Add(100 << 10)
		small.send(0, headers(3, false))
		if !isOpen(busy.served) || !isOpen(small.served) || isOpen(large.served) || cut != 1 {
			t.Errorf("open are the busy one: %t, the large one: %t, the small one: %t", isOpen(busy.served), isOpen(large.served), isOpen(small.served))
		}
	})
}

func isOpen(c net.Conn) bool { return c.SetDeadline(time.Now().Add(time.Hour)) == nil }

// Where connections by themselves take too much, the one that is idle for the longest is
// closed, and none that finishes calls.
func TestIdleConnectionsAreClosed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := overload.New(4*grpcCost, func() {})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go g.Run(ctx)
		busy, idle := newGRPCCaller(t, g), newGRPCCaller(t, g)
		for i := range uint32(3) {
			time.Sleep(time.Second)
			busy.call(2*i + 1)
		}
		var younger []*grpcCaller
		for range 3 {
			younger = append(younger, newGRPCCaller(t, g))
		}
		synctest.Wait()
		if isOpen(idle.served) || !isOpen(busy.served) || !isOpen(younger[2].served) {
			t.Errorf("open are the idle one: %t, the busy one: %t, the last one: %t", isOpen(idle.served), isOpen(busy.served), isOpen(younger[2].served))
		}
	})
}

// What has no room is refused at once, except to those who finish calls and hold little.
func TestWhatHasNoRoomIsRefused(t *testing.T) {
	t.Parallel()
	const budget = 1 << 20
	g := overload.New(budget, func() {})
	used, fresh, other := newGRPCCaller(t, g), newGRPCCaller(t, g), newGRPCCaller(t, g)
	used.call(1)
	other.conn.Add(budget)
	for _, c := range []struct {
		who   string
		conn  *overload.Conn
		bytes int64
		want  codes.Code
	}{
		{"who finishes calls and holds little", used.conn, 100 << 10, codes.OK},
		{"who finishes calls, much more", used.conn, 300 << 10, codes.ResourceExhausted},
		{"who finished none", fresh.conn, 100 << 10, codes.ResourceExhausted},
		{"who finished none, as much as any call", fresh.conn, callCost, codes.OK},
		{"no connection", nil, budget, codes.OK},
	} {
		if err := c.conn.Reserve(c.bytes); status.Code(err) != c.want {
			t.Errorf("%s gets %v", c.who, err)
		}
	}
	other.conn.Add(-budget)
	if err := used.conn.Reserve(300 << 10); err != nil {
		t.Errorf("with room again: %v", err)
	}
}

// Once a part of the budget is held, connections that hold much are read slowly, and others
// without a delay.
func TestOnlyHoldersAreReadSlowly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := overload.New(2<<20, func() {})
		large, small := newGRPCCaller(t, g), newGRPCCaller(t, g)
		large.conn.Add(1 << 20)
		for _, c := range []struct {
			caller *grpcCaller
			slow   bool
		}{{small, false}, {large, true}} {
			start := time.Now()
			if c.caller.send(0, headers(1, false)); time.Since(start) > 0 != c.slow {
				t.Errorf("it is read after %v; slow: %t", time.Since(start), c.slow)
			}
		}
	})
}

// A request of HTTP holds what was read for it, and what its handler reserves, until it is
// answered. Of several on a connection each gives back the mean of what was read.
func TestRequestsOfHTTPHoldUntilTheyAreAnswered(t *testing.T) {
	t.Parallel()
	g := overload.New(1<<30, func() {})
	caller, served := pipe(t, func(p pipes) net.Listener { return overload.HTTPListener{Listener: p, Guard: g} })
	read := func(n int) {
		t.Helper()
		go func() { _, _ = io.Copy(caller, strings.NewReader(strings.Repeat("x", n))) }()
		if _, err := io.ReadFull(served, make([]byte, n)); err != nil {
			t.Fatal(err)
		}
	}
	ask := func(answer func(context.Context)) {
		r := httptest.NewRequestWithContext(overload.WithConn(t.Context(), served), "GET", "/", nil)
		overload.HTTP(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { answer(r.Context()) })).ServeHTTP(nil, r)
	}
	reserve := func(ctx context.Context, bytes int64) {
		t.Helper()
		if err := overload.Reserve(ctx, bytes); err != nil {
			t.Error(err)
		}
	}
	wantHeld(t, g, "a connection", httpCost)
	read(1000)
	ask(func(first context.Context) {
		read(1 << 20)
		const head, body = 24 * 1000, 2 << 20
		wantHeld(t, g, "in the first", httpCost+head+body+callCost)
		reserve(first, 1<<20)
		ask(func(second context.Context) { reserve(second, 1<<20) })
		wantHeld(t, g, "after a second beside it", httpCost+(head+body)/2+callCost+1<<20)
	})
	wantHeld(t, g, "after both", httpCost)
	served.Close()
	wantHeld(t, g, "in the end", 0)
}
