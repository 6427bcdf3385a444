package integration

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
)

// slowBackend answers a request when a test says so, or after some time, and knows how many
// it had at once.
type slowBackend struct {
	addr string
	// takes is how long a request takes; 0 means until the backend is closed.
	takes time.Duration

	mu     sync.Mutex
	active map[*http.Request]bool
	most   int
	served int
	closed chan struct{}
}

// startSlowBackend starts a backend for HTTP/2, so that Envoy has one connection to it and
// the end of a request comes before the beginning of the next.
func startSlowBackend(t testing.TB, takes time.Duration) *slowBackend {
	t.Helper()
	b := &slowBackend{takes: takes, active: make(map[*http.Request]bool), closed: make(chan struct{})}
	server := httptest.NewUnstartedServer(b)
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	t.Cleanup(func() {
		close(b.closed)
		server.Close()
	})
	b.addr = server.Listener.Addr().String()
	return b
}

func (b *slowBackend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.begin(r)
	defer b.end(r)
	var done <-chan time.Time
	if b.takes > 0 {
		done = time.After(b.takes)
	}
	select {
	case <-done:
		fmt.Fprintln(w, "served")
	case <-r.Context().Done():
	case <-b.closed:
	}
}

func (b *slowBackend) begin(r *http.Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.active[r] = true
	n := 0
	for other := range b.active {
		if other.Context().Err() == nil { // else it was reset, and its handler is about to know
			n++
		}
	}
	b.most = max(b.most, n)
}

func (b *slowBackend) end(r *http.Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.active, r)
	if r.Context().Err() == nil {
		b.served++
	}
}

// counts returns how many requests the backend has, had at once, and has served.
func (b *slowBackend) counts() (active, most, served int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.active), b.most, b.served
}

// startInFlight starts the example of requests in flight with another hold and with a
// backend of the test's own.
func startInFlight(t *testing.T, hold string, b *slowBackend) (*envoy, *daemon) {
	t.Helper()
	needEnvoy(t)
	dir := filepath.Join(projectRoot, "deploy/envoy/concurrency")
	limits, err := os.ReadFile(filepath.Join(dir, "limits.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	d := start(t, "--limits-path", write(t, t.TempDir(), "limits.yaml", strings.Replace(string(limits), "hold: 60s", "hold: "+hold, 1)))
	text := patientExample(t, "concurrency", freePorts(t, "8081", portOf(t, d.grpc)))
	// The cluster backend is the last one.
	front, backend, found := cutLast(text, "    - name: backend\n")
	if !found {
		t.Fatal("the example has no cluster backend")
	}
	address, _, _ := strings.Cut(backend[strings.Index(backend, "port_value: "):], "}")
	backend = strings.Replace(backend, address, "port_value: "+portOf(t, b.addr), 1)
	const protocol = `      typed_extension_protocol_options:
        envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
          "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
          explicit_http_config: {http2_protocol_options: {}}
`
	return startEnvoy(t, front+"    - name: backend\n"+protocol+backend), d
}

func cutLast(text, sep string) (before, after string, found bool) {
	i := strings.LastIndex(text, sep)
	if i < 0 {
		return text, "", false
	}
	return text[:i], text[i+len(sep):], true
}

// Of fifty slow requests, some of which are reset at any moment, never more than five are
// at the backend; and all slots are free afterwards, those of resets that crossed with the
// answer once they lapse.
func TestEnvoyHoldsRequestsInFlight(t *testing.T) {
	t.Parallel()
	b := startSlowBackend(t, 50*time.Millisecond)
	e, d := startInFlight(t, "5s", b)
	clients := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 50}}
	t.Cleanup(clients.CloseIdleConnections)
	send := func(ctx context.Context) (int, error) {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, e.url("front", "/"), nil)
		if err != nil {
			return 0, err
		}
		r.Header.Set("x-tenant", "acme")
		r.Header.Set("x-request-id", "mine") // which Envoy replaces
		response, err := clients.Do(r)
		if err != nil {
			return 0, err
		}
		defer response.Body.Close()
		_, err = io.Copy(io.Discard, response.Body)
		return response.StatusCode, err
	}
	var all sync.WaitGroup
	for i := range 50 {
		all.Go(func() {
			random := rand.New(rand.NewPCG(uint64(i), 0))
			deadline := time.Now().Add(answerTimeout)
			for served := 0; served < 2; {
				if time.Now().After(deadline) {
					t.Errorf("request %d was served %d times", i, served)
					return
				}
				ctx, cancel := context.WithCancel(t.Context())
				if random.IntN(3) == 0 { // at once, while Envoy asks, or while it is served
					time.AfterFunc(time.Duration(random.IntN(3)*random.IntN(30))*time.Millisecond, cancel)
				}
				code, err := send(ctx)
				cancel()
				switch {
				case err != nil && !errors.Is(err, context.Canceled):
					t.Errorf("request %d: %v", i, err)
					return
				case code == http.StatusOK:
					served++
				case err == nil && code != http.StatusTooManyRequests:
					t.Errorf("request %d gets %d", i, code)
				}
			}
		})
	}
	all.Wait()
	// A busy machine may never have all five there at a time.
	if _, most, served := b.counts(); most > 5 || most < 2 || served < 100 {
		t.Errorf("at most %d were at the backend at once, want up to 5, and %d were served", most, served)
	}
	asynctest.Eventually(t, "all slots are free", func() bool {
		r := d.ask("edge", 1, "tenant=acme", "request_id=look")
		release := d.total("ratelimitd_limit_slots_total", `event="released"`)
		return ok(r) && r.GetStatuses()[0].GetLimitRemaining() >= 4 && release > 0
	})
}

// Slots of an Envoy that is killed are free after the hold, and not before.
func TestSlotsOfAKilledEnvoyLapse(t *testing.T) {
	t.Parallel()
	b := startSlowBackend(t, 0)
	e, d := startInFlight(t, "3s", b)
	for range 5 {
		go func() {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, e.url("front", "/"), nil)
			if err != nil {
				return
			}
			r.Header.Set("x-tenant", "acme")
			if response, err := http.DefaultClient.Do(r); err == nil {
				response.Body.Close()
			}
		}()
	}
	asynctest.Eventually(t, "five requests are at the backend", func() bool { active, _, _ := b.counts(); return active == 5 })
	e.kill()
	if a := d.ask("edge", 1, "tenant=acme", "request_id=other"); ok(a) {
		t.Error("a slot is free right after Envoy was killed")
	}
	asynctest.Eventually(t, "all slots are free", func() bool {
		r := d.ask("edge", 1, "tenant=acme", "request_id=other")
		return ok(r) && r.GetStatuses()[0].GetLimitRemaining() == 4
	})
}
