//go:build !race

package kubernetes

import (
	"context"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"

	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/bucket/builttest"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

// binary is the daemon.
var binary string

func TestMain(m *testing.M) {
	os.Exit(builttest.Run(func(built string) int {
		binary = built
		return m.Run()
	}))
}

// writeLimits writes the limits of a pod into a folder and returns it.
func writeLimits(t *testing.T, o objects) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range o.limits(t) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestLimitsAreGood(t *testing.T) {
	for name, o := range deployments(t) {
		if out, err := exec.Command(binary, "check", writeLimits(t, o)).CombinedOutput(); err != nil || !strings.Contains(string(out), "domain api") {
			t.Errorf("%s: check: %v\n%s", name, err, out)
		}
	}
}

// process is a daemon with the settings of a pod.
type process struct {
	t           *testing.T
	cmd         *exec.Cmd
	log         asynctest.Buffer
	grpc, admin string
	ended       chan error
}

// freeAddress returns an address where nothing listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// start starts the daemon as a pod does, on ports and folders of the test.
func start(t *testing.T, o objects, environ ...string) *process {
	t.Helper()
	p := &process{t: t, grpc: freeAddress(t), admin: freeAddress(t), ended: make(chan error, 1)}
	p.cmd = exec.Command(binary, "serve")
	data := t.TempDir()
	for name, value := range o.settings(t) {
		p.cmd.Env = append(p.cmd.Env, name+"="+strings.ReplaceAll(value, "/var/lib/ratelimitd", data))
	}
	// exec takes the last of two equal variables.
	p.cmd.Env = append(p.cmd.Env, "RATELIMITD_GRPC_ADDRESS="+p.grpc, "RATELIMITD_HTTP_ADDRESS="+freeAddress(t), "RATELIMITD_ADMIN_ADDRESS="+p.admin,
		"RATELIMITD_LIMITS_PATH="+writeLimits(t, o), "RATELIMITD_ASSIGNMENTS_PATH="+filepath.Join(data, "assignments.db"))
	p.cmd.Env = append(p.cmd.Env, environ...)
	p.cmd.Stderr = &p.log
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { p.ended <- p.cmd.Wait() }()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		if t.Failed() {
			t.Log(p.log.String())
		}
	})
	return p
}

// passes asks what the kubelet asks with a probe of type httpGet on the admin port.
func (p *process) passes(probe string) bool {
	r, err := http.Get("http://" + p.admin + probe)
	if err != nil {
		return false
	}
	r.Body.Close()
	return r.StatusCode == http.StatusOK
}

func dial(t *testing.T, address string, options ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(address, append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// health asks what the kubelet asks with a probe of type grpc.
func (p *process) health() healthv1.HealthCheckResponse_ServingStatus {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	r, err := healthv1.NewHealthClient(dial(p.t, p.grpc)).Check(ctx, &healthv1.HealthCheckRequest{})
	if err != nil {
		return healthv1.HealthCheckResponse_UNKNOWN
	}
	return r.GetStatus()
}

// A pod without Redis is alive, so nobody restarts it, and not ready.
func TestPodWaitsForRedis(t *testing.T) {
	o := kustomized(t, "")
	for name := range o.settings(t) {
		if name == "RATELIMITD_REDIS_ADDRESSES" {
			o.settings(t)[name] = freeAddress(t)
		}
	}
	p := start(t, o)
	asynctest.Eventually(t, "the daemon is alive", func() bool { return p.passes(container(t, o).LivenessProbe.HTTPGet.Path) })
	asynctest.Eventually(t, "it says that it is not ready", func() bool { return p.health() == healthv1.HealthCheckResponse_NOT_SERVING })
	if !p.passes(container(t, o).StartupProbe.HTTPGet.Path) {
		t.Error("it does not count as started")
	}
}

// callers ask a limit all the time, as programs do that balance over all ready pods.
type callers struct {
	served, failed atomic.Int64
	last           atomic.Value // of the errors
	stop           chan struct{}
	group          sync.WaitGroup
}

func startCallers(t *testing.T, pods ...*process) *callers {
	t.Helper()
	names := manual.NewBuilderWithScheme("headless")
	var state resolver.State
	for _, p := range pods {
		state.Endpoints = append(state.Endpoints, resolver.Endpoint{Addresses: []resolver.Address{{Addr: p.grpc}}})
	}
	names.InitialState(state)
	conn := dial(t, "headless:///ratelimitd", grpc.WithResolvers(names), grpc.WithDefaultServiceConfig(`{"loadBalancingConfig": [{"round_robin": {}}]}`))
	client := ratelimitv1.NewRateLimitServiceClient(conn)
	request := &ratelimitv1.TakeRequest{Domain: "api", Descriptors: []*ratelimitv1.Descriptor{{Entries: []*ratelimitv1.Entry{{Key: "user", Value: "alice"}}}}}
	c := &callers{stop: make(chan struct{})}
	for range 8 {
		c.group.Go(func() {
			for {
				select {
				case <-c.stop:
					return
				default:
				}
				ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
				if _, err := client.Take(ctx, request); err != nil {
					c.failed.Add(1)
					c.last.Store(err)
				} else {
					c.served.Add(1)
				}
				cancel()
			}
		})
	}
	t.Cleanup(c.end)
	return c
}

// end waits until nobody asks.
func (c *callers) end() {
	select {
	case <-c.stop:
	default:
		close(c.stop)
	}
	c.group.Wait()
}

// more waits until n more requests are answered.
func (c *callers) more(t *testing.T, n int64) {
	t.Helper()
	until := c.served.Load() + n
	asynctest.Eventually(t, "requests are answered", func() bool { return c.served.Load() >= until })
}

// A pod that is stopped answers until its drain delay is over, and callers that balance
// over the pods lose no request, though they look up the names only now and then.
func TestStoppedPodLosesNoRequest(t *testing.T) {
	o := rendered(t, memoryStore)
	first, second := start(t, o, "RATELIMITD_DRAIN_DELAY=1s"), start(t, o)
	for _, p := range []*process{first, second} {
		asynctest.Eventually(t, "the daemon is ready", func() bool { return p.health() == healthv1.HealthCheckResponse_SERVING })
	}
	c := startCallers(t, first, second)
	c.more(t, 100)
	if err := first.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	asynctest.Eventually(t, "its readiness ends", func() bool { return first.health() != healthv1.HealthCheckResponse_SERVING })
	c.more(t, 100)
	select {
	case err := <-first.ended:
		if err != nil {
			t.Errorf("the daemon ended with %v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("the daemon does not end")
	}
	c.more(t, 100)
	c.end()
	if failed := c.failed.Load(); failed > 0 {
		t.Errorf("%d requests failed, the last with %v", failed, c.last.Load())
	}
}
