package pages_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/server/pages"
)

// longPage has 2 MB.
func longPage() http.Handler {
	line := []byte(strings.Repeat("x", 10_000))
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		out := pages.NewWriter(w)
		for range 200 {
			if _, err := out.Write(line); err != nil {
				return
			}
		}
		out.Flush()
	})
}

// smallBuffer is that of sockets, in bytes, so that a page does not fit in them.
const smallBuffer = 64 << 10

// served serves a handler over HTTP/1 and HTTP/2 without TLS, as the operators' port
// does.
func served(t *testing.T, h http.Handler) *httptest.Server {
	s := httptest.NewUnstartedServer(h)
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetHTTP1(true)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Config.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		if err := c.(*net.TCPConn).SetWriteBuffer(smallBuffer); err != nil {
			t.Error(err)
		}
		return ctx
	}
	s.Start()
	t.Cleanup(s.Close)
	return s
}

// askAndNotRead asks for the page, and does not read it.
func askAndNotRead(t *testing.T, s *httptest.Server, protocol func(*http.Protocols, bool)) {
	transport := &http.Transport{
		DisableCompression: true, Protocols: new(http.Protocols),
		HTTP2: &http.HTTP2Config{MaxReceiveBufferPerStream: smallBuffer},
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			c, err := new(net.Dialer).DialContext(ctx, network, address)
			if err == nil {
				err = c.(*net.TCPConn).SetReadBuffer(smallBuffer)
			}
			return c, err
		},
	}
	protocol(transport.Protocols, true)
	t.Cleanup(transport.CloseIdleConnections)
	r, err := (&http.Client{Transport: transport}).Get(s.URL)
	if err != nil {
		t.Error(err)
		return
	}
	t.Cleanup(func() { r.Body.Close() })
	if r.StatusCode != http.StatusOK {
		t.Error(r.Status)
	}
}

// Whoever asks for the metrics and does not read them keeps nobody out.
func TestReadersWhoDoNotReadGiveWay(t *testing.T) {
	t.Parallel()
	for name, protocol := range map[string]func(*http.Protocols, bool){
		"HTTP/1": (*http.Protocols).SetHTTP1,
		"HTTP/2": (*http.Protocols).SetUnencryptedHTTP2,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := &pages.Places{Max: 2, Wait: time.Minute, Patience: 20 * time.Millisecond, Pace: 1 << 20}
			s := served(t, p.Bound(longPage()))
			for range 8 {
				askAndNotRead(t, s, protocol)
			}
			reader := &http.Client{Transport: &http.Transport{DisableCompression: true}}
			for range 3 {
				r, err := reader.Get(s.URL)
				if err != nil {
					t.Fatal(err)
				}
				n, err := io.Copy(io.Discard, r.Body)
				r.Body.Close()
				if r.StatusCode != http.StatusOK || err != nil || n < 2_000_000 {
					t.Fatalf("%s, %d bytes, %v", r.Status, n, err)
				}
			}
		})
	}
}

// A long page takes its time, and is not cut while its client reads.
func TestWhoReadsALongPageGetsAllOfIt(t *testing.T) {
	t.Parallel()
	const patience, pace = time.Second, 256 << 10
	p := &pages.Places{Max: 1, Wait: time.Minute, Patience: patience, Pace: pace}
	s := served(t, p.Bound(longPage()))
	client := &http.Client{Transport: &http.Transport{DisableCompression: true, DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, address)
		if err == nil {
			err = c.(*net.TCPConn).SetReadBuffer(smallBuffer)
		}
		return c, err
	}}}
	r, err := client.Get(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	waiter := make(chan struct{})
	go func() {
		defer close(waiter)
		if other, err := client.Get(s.URL); err == nil { // which waits for the place
			other.Body.Close()
		}
	}()
	// It reads at four times the pace, so all in all it is slower than patience is.
	read := int64(0)
	for tick := time.Tick(patience / 4); err == nil; <-tick {
		var n int64
		n, err = io.CopyN(io.Discard, r.Body, pace)
		read += n
	}
	if err != io.EOF || read < 2_000_000 {
		t.Errorf("%d bytes, %v", read, err)
	}
	<-waiter
}

// Who finds no place is told so, and who leaves waits no more.
func TestPlacesAreFew(t *testing.T) {
	t.Parallel()
	release, entered := make(chan struct{}), make(chan struct{}, 10)
	var now, maxNow atomic.Int64
	p := &pages.Places{Max: 3, Wait: 30 * time.Millisecond, Patience: time.Hour, Pace: 1}
	s := served(t, p.Bound(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		n := now.Add(1)
		for was := maxNow.Load(); n > was && !maxNow.CompareAndSwap(was, n); was = maxNow.Load() {
		}
		entered <- struct{}{}
		<-release
		now.Add(-1)
	})))
	get := func() int {
		r, err := http.Get(s.URL)
		if err != nil {
			t.Error(err)
			return 0
		}
		r.Body.Close()
		return r.StatusCode
	}
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() { get() })
		<-entered
	}
	if code := get(); code != http.StatusServiceUnavailable {
		t.Errorf("a fourth gets %d", code)
	}
	gone, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(gone, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	gone.Close()
	close(release)
	all.Wait()
	for range 5 {
		if code := get(); code != http.StatusOK {
			t.Errorf("after that one gets %d", code)
		}
	}
	if n := maxNow.Load(); n != 3 {
		t.Errorf("%d at a time, want 3", n)
	}
}

// Who has no place comes before who has some, so that one with many requests keeps nobody
// out.
func TestPlacesAreShared(t *testing.T) {
	t.Parallel()
	p := &pages.Places{Max: 2, Wait: time.Minute, Patience: time.Hour, Pace: 1}
	enter := func(who string) *pages.Place {
		l, err := p.Enter(t.Context(), httptest.NewRecorder(), who)
		if err != nil {
			t.Error(err)
		}
		return l
	}
	greedy := []*pages.Place{enter("greedy"), enter("greedy")}
	order := make(chan string, 4)
	var all sync.WaitGroup
	for i, who := range []string{"greedy", "greedy", "greedy", "other"} {
		all.Go(func() {
			l := enter(who)
			order <- who
			l.Leave()
		})
		for p.Waiting() <= i {
			runtime.Gosched()
		}
	}
	greedy[0].Leave()
	if first := <-order; first != "other" {
		t.Errorf("the next is %s", first)
	}
	greedy[1].Leave()
	all.Wait()
}
