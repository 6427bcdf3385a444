package server_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/server"
)

// postUntil posts to /json and returns an error unless the answer is 200.
func (d *daemon) postUntil(ctx context.Context, body string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+d.srv.Address("http")+"/json", strings.NewReader(body))
	if err != nil {
		return err
	}
	response, err := d.client.Do(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	if response.StatusCode != 200 {
		err = errors.Join(err, errors.New(response.Status))
	}
	return err
}

func TestDrainingServerStillAnswers(t *testing.T) {
	t.Parallel()
	d := start(t, oneLimit)
	d.stop <- time.Hour
	asynctest.Eventually(t, "NOT_SERVING", func() bool { return d.check("") == "NOT_SERVING" })
	d.wantHealth("NOT_SERVING")
	if p := d.get("http", "/healthcheck"); p.code != 500 || p.body != "NOT_SERVING: stopping\n" {
		t.Errorf("/healthcheck: %d %s", p.code, p.body)
	}
	if p := d.get("admin", "/healthz"); p.code != 200 {
		t.Errorf("/healthz: %d", p.code)
	}
	// New connections are answered too while load balancers still send them.
	wantShown(t, d.ask("api", 1, "user=x"), "OK; OK u 5/HOUR remaining 4 reset 59m50s")
	d.client.CloseIdleConnections()
	if p := d.post(bodyX); p.code != 200 {
		t.Errorf("/json: %d %s", p.code, p.body)
	}
	select {
	case <-d.ended:
		t.Error("the drain delay was cut short")
	default:
	}
	d.stop <- 0 // a second signal ends the delay
	d.wait()
	for _, port := range []string{"grpc", "http", "admin"} {
		if c, err := net.Dial("tcp", d.srv.Address(port)); err == nil {
			c.Close()
			t.Errorf("the %s port is still open", port)
		}
	}
}

// Who opens connections while the daemon drains makes it hold no more than before.
func TestDrainingServerKeepsTheBoundOfMemory(t *testing.T) {
	t.Parallel()
	var metrics *prometheus.Registry
	d := start(t, oneLimit, func(o *server.Options) {
		o.Requests.Memory = 1 << 20
		metrics = o.Metrics
	})
	d.stop <- time.Hour
	asynctest.Eventually(t, "NOT_SERVING", func() bool { return d.check("") == "NOT_SERVING" })
	for range 200 {
		c, err := net.Dial("tcp", d.srv.Address("http"))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	asynctest.Eventually(t, "connections are cut", func() bool {
		families, err := metrics.Gather()
		if err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(families, func(f *dto.MetricFamily) bool {
			return f.GetName() == "ratelimitd_connections_cut_total" && f.GetMetric()[0].GetCounter().GetValue() > 0
		})
	})
	d.stop <- 0
	d.wait()
}

// stopWithTwoInFlight stops the daemon while the store has a request over gRPC
// and one over HTTP. It returns the channels of their errors.
func stopWithTwoInFlight(t *testing.T, d *daemon, store *waiting) <-chan error {
	t.Helper()
	answers := make(chan error, 2)
	go func() {
		_, err := d.try(request("api", 1, "user=x"))
		answers <- err
	}()
	go func() { answers <- d.postUntil(context.Background(), bodyX) }()
	within(t, "the first request", store.taking)
	within(t, "the second request", store.taking)
	d.stop <- 0
	return answers
}

func TestRequestsInFlightAreAnsweredAtTheStop(t *testing.T) {
	t.Parallel()
	store := newWaiting()
	d := start(t, oneLimit, on(store))
	answers := stopWithTwoInFlight(t, d, store)
	for _, port := range []string{"grpc", "http"} {
		asynctest.Eventually(t, "the "+port+" port closes", func() bool {
			c, err := net.Dial("tcp", d.srv.Address(port))
			if err == nil {
				c.Close()
			}
			return err != nil
		})
	}
	close(store.release)
	for range 2 {
		if err := within(t, "an answer", answers); err != nil {
			t.Errorf("what was in flight: %v", err)
		}
	}
	d.wait()
}

// TestStuckRequestsAreCut uses a store that answers only callers that have
// gone.
func TestStuckRequestsAreCut(t *testing.T) {
	t.Parallel()
	store := newWaiting()
	d := start(t, oneLimit, on(store))
	answers := stopWithTwoInFlight(t, d, store)
	for range 2 {
		within(t, "the store learns it", store.gone)
		if err := within(t, "an answer", answers); err == nil {
			t.Error("a decision from nowhere")
		}
	}
	d.wait()
}

// healthWatch watches the health of a service. Each call returns the next
// status, or the error at the end.
func (d *daemon) healthWatch(service string) (next func() string) {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	d.t.Cleanup(cancel)
	w, err := d.health.Watch(ctx, &healthpb.HealthCheckRequest{Service: service})
	if err != nil {
		d.t.Fatal(err)
	}
	return func() string {
		h, err := w.Recv()
		if err != nil {
			return err.Error()
		}
		return h.GetStatus().String()
	}
}

const endOfWatch = "rpc error: code = Unavailable desc = the daemon stops"

// TestWatchesEndAtTheStop stops the server with a request in flight. Watches
// end with NOT_SERVING and do not wait for the request.
func TestWatchesEndAtTheStop(t *testing.T) {
	t.Parallel()
	store := newWaiting()
	d := start(t, oneLimit, on(store))
	known, unknown := d.healthWatch("ratelimit"), d.healthWatch("what?")
	if got := known() + " " + unknown(); got != "SERVING SERVICE_UNKNOWN" {
		t.Errorf("at first: %s", got)
	}
	answers := stopWithTwoInFlight(t, d, store)
	if got := known(); got != "NOT_SERVING" {
		t.Errorf("at the stop: %s", got)
	}
	for _, next := range []func() string{known, unknown} {
		if got := next(); got != endOfWatch {
			t.Errorf("at the end: %s", got)
		}
	}
	close(store.release)
	for range 2 {
		if err := within(t, "an answer", answers); err != nil {
			t.Errorf("what was in flight: %v", err)
		}
	}
	d.wait()
}

func TestWatchesLastThroughTheDrainDelay(t *testing.T) {
	t.Parallel()
	d := start(t, oneLimit)
	next := d.healthWatch("")
	if got := next(); got != "SERVING" {
		t.Errorf("at first: %s", got)
	}
	d.stop <- time.Hour
	if got := next(); got != "NOT_SERVING" {
		t.Errorf("at the stop: %s", got)
	}
	late := d.healthWatch("") // the client comes meanwhile
	if got := late(); got != "NOT_SERVING" {
		t.Errorf("during the drain delay: %s", got)
	}
	d.stop <- 0
	for _, next := range []func() string{next, late} {
		if got := next(); got != endOfWatch {
			t.Errorf("at the end: %s", got)
		}
	}
	d.wait()
}

func TestSilentConnectionsDoNotHangTheStop(t *testing.T) {
	t.Parallel()
	d := start(t, oneLimit)
	for _, port := range []string{"grpc", "http", "admin"} {
		c, err := net.Dial("tcp", d.srv.Address(port))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	d.stop <- 0
	d.wait()
}

// TestStopLeavesNoGoroutine is not parallel: it looks at all goroutines.
func TestStopLeavesNoGoroutine(t *testing.T) {
	store := newWaiting()
	close(store.release)
	d := start(t, oneLimit, on(store))
	d.ask("api", 1, "user=x")
	d.post(bodyX)
	d.get("admin", "/rlconfig")
	if len(serverGoroutines()) == 0 {
		t.Fatal("a running server has no goroutines; this test would find none")
	}
	d.stop <- 0
	d.wait() // connections of clients are still open
	wantNoServerGoroutines(t)
}

// TestServerWithoutItsPortsLeavesNoGoroutine is not parallel: it looks at all
// goroutines.
func TestServerWithoutItsPortsLeavesNoGoroutine(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	d := &daemon{t: t, log: new(logged), clock: newClock()}
	o := d.options(oneLimit)
	o.Admin.Address = taken.Addr().String()
	if _, err := server.New(o); err == nil {
		t.Fatal("two listen on one port")
	}
	wantNoServerGoroutines(t)
}

// wantNoServerGoroutines waits for the end of all goroutines of servers, and shows
// those that do not end.
func wantNoServerGoroutines(t *testing.T) {
	t.Helper()
	var left []string
	defer func() {
		for _, stack := range left {
			t.Log(stack)
		}
	}()
	asynctest.Eventually(t, "the end of all goroutines", func() bool {
		left = serverGoroutines()
		return len(left) == 0
	})
}

// serverGoroutines returns the stacks that belong to a server.
func serverGoroutines() []string {
	buffer := make([]byte, 1<<20)
	buffer = buffer[:runtime.Stack(buffer, true)]
	var found []string
	for _, stack := range strings.Split(string(buffer), "\n\n") {
		for _, mark := range []string{"ratelimitd/internal/server.", "grpc.(*Server)", "transport.(*http2Server)", "http.(*conn).serve"} {
			if strings.Contains(stack, mark) && !strings.Contains(stack, "serverGoroutines") {
				found = append(found, stack)
				break
			}
		}
	}
	return found
}

func TestPortInUseIsAnErrorOfItsSetting(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for _, c := range []struct {
		setting string
		set     func(*server.Options)
	}{
		{"grpc.address", func(o *server.Options) { o.GRPC.Address = taken.Addr().String() }},
		{"http.address", func(o *server.Options) { o.HTTP.Address = taken.Addr().String() }},
		{"metrics.address", func(o *server.Options) { o.Admin.MetricsAddress = taken.Addr().String() }},
		{"admin.address", func(o *server.Options) { o.Admin.Address = taken.Addr().String() }},
	} {
		t.Run(c.setting, func(t *testing.T) {
			d := &daemon{t: t, log: new(logged), clock: newClock()}
			o := d.options(oneLimit)
			c.set(&o)
			if _, err := server.New(o); err == nil || !strings.HasPrefix(err.Error(), c.setting+": ") || !strings.Contains(err.Error(), "in use") {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestPortThatFailsEndsTheServer(t *testing.T) {
	t.Parallel()
	d := start(t, oneLimit)
	d.srv.BreakPorts()
	within(t, "the end of Run", d.ended)
	if d.err == nil || !strings.Contains(d.err.Error(), " port: ") {
		t.Errorf("Run: %v, want an error that names the port", d.err)
	}
	d.err = nil
}

func TestPortsThatAreOffHaveNoAddress(t *testing.T) {
	t.Parallel()
	d := start(t, oneLimit, func(o *server.Options) { o.HTTP.Address, o.Admin.Address = "", "" })
	d.ask("api", 1, "user=x")
	for _, port := range []string{"http", "admin", "nothing"} {
		if got := d.srv.Address(port); got != "" {
			t.Errorf("the %s port has the address %s", port, got)
		}
	}
}
