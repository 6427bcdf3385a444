package server_test

import (
	"context"
	"net"
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
	"github.com/ratelimitd/ratelimitd/internal/server/servertest"
)

func TestDrainingServerStillAnswers(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t, servertest.OneLimit)
	d.Stop <- time.Hour
	asynctest.Eventually(t, "NOT_SERVING", func() bool { return d.Check("") == "NOT_SERVING" })
	wantHealth(d, "NOT_SERVING")
	if p := d.Get("http", "/healthcheck"); p.Code != 500 || p.Body != "NOT_SERVING: stopping\n" {
		t.Errorf("/healthcheck: %d %s", p.Code, p.Body)
	}
	if p := d.Get("admin", "/healthz"); p.Code != 200 {
		t.Errorf("/healthz: %d", p.Code)
	}
	// New connections are answered too while load balancers still send them.
	servertest.WantShown(t, d.Ask("api", 1, "user=x"), "OK; OK u 5/HOUR remaining 4 reset 59m50s")
	d.Client.CloseIdleConnections()
	if p := d.Post(servertest.BodyX); p.Code != 200 {
		t.Errorf("/json: %d %s", p.Code, p.Body)
	}
	select {
	case <-d.Ended:
		t.Error("the drain delay was cut short")
	default:
	}
	d.Stop <- 0 // a second signal ends the delay
	d.Wait()
	for _, port := range []string{"grpc", "http", "admin"} {
		if c, err := net.Dial("tcp", d.Server.Address(port)); err == nil {
			c.Close()
			t.Errorf("the %s port is still open", port)
		}
	}
}

// Who opens connections while the daemon drains makes it hold no more than before.
func TestDrainingServerKeepsTheBoundOfMemory(t *testing.T) {
	t.Parallel()
	var metrics *prometheus.Registry
	d := servertest.Start(t, servertest.OneLimit, func(o *server.Options) {
		o.Requests.Memory = 1 << 20
		metrics = o.Metrics
	})
	d.Stop <- time.Hour
	asynctest.Eventually(t, "NOT_SERVING", func() bool { return d.Check("") == "NOT_SERVING" })
	for range 200 {
		c, err := net.Dial("tcp", d.Server.Address("http"))
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
	d.Stop <- 0
	d.Wait()
}

// stopWithTwoInFlight stops the daemon while the store has a request over gRPC
// and one over HTTP. It returns the channels of their errors.
func stopWithTwoInFlight(t *testing.T, d *servertest.Daemon, store *servertest.Waiting) <-chan error {
	t.Helper()
	answers := make(chan error, 2)
	go func() {
		_, err := d.Try(servertest.Request("api", 1, "user=x"))
		answers <- err
	}()
	go func() { answers <- d.PostUntil(context.Background(), servertest.BodyX) }()
	servertest.Within(t, "the first request", store.Taking)
	servertest.Within(t, "the second request", store.Taking)
	d.Stop <- 0
	return answers
}

// TestStuckRequestsAreCut uses a store that answers only callers that have
// gone.
func TestStuckRequestsAreCut(t *testing.T) {
	t.Parallel()
	store := servertest.NewWaiting()
	d := servertest.Start(t, servertest.OneLimit, servertest.On(store))
	answers := stopWithTwoInFlight(t, d, store)
	for range 2 {
		servertest.Within(t, "the store learns it", store.Gone)
		if err := servertest.Within(t, "an answer", answers); err == nil {
			t.Error("a decision from nowhere")
		}
	}
	d.Wait()
}

// healthWatch watches the health of a service. Each call returns the next
// status, or the error at the end.
func healthWatch(d *servertest.Daemon, service string) (next func() string) {
	d.T.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), servertest.Patience)
	d.T.Cleanup(cancel)
	w, err := d.Health.Watch(ctx, &healthpb.HealthCheckRequest{Service: service})
	if err != nil {
		d.T.Fatal(err)
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

// Requests in flight are answered after the ports have closed. Watches end with
// NOT_SERVING, and do not wait for them.
func TestRequestsInFlightAreAnsweredAtTheStopAndWatchesEnd(t *testing.T) {
	t.Parallel()
	store := servertest.NewWaiting()
	d := servertest.Start(t, servertest.OneLimit, servertest.On(store))
	known, unknown := healthWatch(d, "ratelimit"), healthWatch(d, "what?")
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
	for _, port := range []string{"grpc", "http"} {
		asynctest.Eventually(t, "the "+port+" port closes", func() bool {
			c, err := net.Dial("tcp", d.Server.Address(port))
			if err == nil {
				c.Close()
			}
			return err != nil
		})
	}
	close(store.Release)
	for range 2 {
		if err := servertest.Within(t, "an answer", answers); err != nil {
			t.Errorf("what was in flight: %v", err)
		}
	}
	d.Wait()
}

func TestWatchesLastThroughTheDrainDelay(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t, servertest.OneLimit)
	next := healthWatch(d, "")
	if got := next(); got != "SERVING" {
		t.Errorf("at first: %s", got)
	}
	d.Stop <- time.Hour
	if got := next(); got != "NOT_SERVING" {
		t.Errorf("at the stop: %s", got)
	}
	late := healthWatch(d, "") // the client comes meanwhile
	if got := late(); got != "NOT_SERVING" {
		t.Errorf("during the drain delay: %s", got)
	}
	d.Stop <- 0
	for _, next := range []func() string{next, late} {
		if got := next(); got != endOfWatch {
			t.Errorf("at the end: %s", got)
		}
	}
	d.Wait()
}

func TestSilentConnectionsDoNotHangTheStop(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t, servertest.OneLimit)
	for _, port := range []string{"grpc", "http", "admin"} {
		c, err := net.Dial("tcp", d.Server.Address(port))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	d.Stop <- 0
	d.Wait()
}

// TestStopLeavesNoGoroutine is not parallel: it looks at all goroutines.
func TestStopLeavesNoGoroutine(t *testing.T) {
	store := servertest.NewWaiting()
	close(store.Release)
	d := servertest.Start(t, servertest.OneLimit, servertest.On(store))
	d.Ask("api", 1, "user=x")
	d.Post(servertest.BodyX)
	d.Get("admin", "/rlconfig")
	if len(serverGoroutines()) == 0 {
		t.Fatal("a running server has no goroutines; this test would find none")
	}
	d.Stop <- 0
	d.Wait() // connections of clients are still open
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
	o := servertest.NewOptions(t, servertest.OneLimit)
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
			o := servertest.NewOptions(t, servertest.OneLimit)
			c.set(&o)
			if _, err := server.New(o); err == nil || !strings.HasPrefix(err.Error(), c.setting+": ") || !strings.Contains(err.Error(), "in use") {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestPortThatFailsEndsTheServer(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t, servertest.OneLimit)
	d.Server.BreakPorts()
	servertest.Within(t, "the end of Run", d.Ended)
	if d.Err == nil || !strings.Contains(d.Err.Error(), " port: ") {
		t.Errorf("Run: %v, want an error that names the port", d.Err)
	}
	d.Err = nil
}

func TestPortsThatAreOffHaveNoAddress(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t, servertest.OneLimit, func(o *server.Options) { o.HTTP.Address, o.Admin.Address = "", "" })
	d.Ask("api", 1, "user=x")
	for _, port := range []string{"http", "admin", "nothing"} {
		if got := d.Server.Address(port); got != "" {
			t.Errorf("the %s port has the address %s", port, got)
		}
	}
}
