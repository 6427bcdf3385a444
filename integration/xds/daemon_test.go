package xds_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/bucket/builttest"
	"github.com/ratelimitd/ratelimitd/internal/certtest"
)

// binary is the daemon, by the name of envoyproxy/ratelimit.
var binary string

func TestMain(m *testing.M) {
	os.Exit(builttest.Run(func(built string) int {
		dir, err := os.MkdirTemp("", "xds-")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(dir)
		binary = filepath.Join(dir, "ratelimit")
		if err := os.Symlink(built, binary); err != nil {
			panic(err)
		}
		return m.Run()
	}))
}

// daemon is a process.
type daemon struct {
	t                 *testing.T
	cmd               *exec.Cmd
	log               asynctest.Buffer
	grpc, http, admin string
	client            rlsv3.RateLimitServiceClient
	ended             chan error
}

// freePort returns a port where nothing listens.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}

// launch starts a daemon that follows a server, with what else Envoy Gateway sets.
func launch(t *testing.T, m *management, environ ...string) *daemon {
	t.Helper()
	grpcPort, httpPort, adminPort := freePort(t), freePort(t), freePort(t)
	d := &daemon{t: t, grpc: "127.0.0.1:" + grpcPort, http: "http://127.0.0.1:" + httpPort, admin: "http://127.0.0.1:" + adminPort, ended: make(chan error, 1)}
	// Not the file of another daemon on this machine, which has it to itself.
	args := []string{"--assignments-path="}
	if i := slices.Index(environ, "--"); i >= 0 {
		environ, args = environ[:i], append(args, environ[i+1:]...)
	}
	d.cmd = exec.Command(binary, args...)
	d.cmd.Env = append([]string{
		"HOST=127.0.0.1", "GRPC_HOST=127.0.0.1", "DEBUG_HOST=127.0.0.1", "PORT=" + httpPort, "GRPC_PORT=" + grpcPort, "DEBUG_PORT=" + adminPort,
		"RUNTIME_ROOT=/data", "RUNTIME_SUBDIRECTORY=ratelimit", "RUNTIME_IGNOREDOTFILES=true", "RUNTIME_WATCH_ROOT=false",
		"LOG_LEVEL=info", "USE_STATSD=false", "BACKEND_TYPE=memory", "CONFIG_TYPE=GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_NODE_ID=" + nodeID,
		"CONFIG_GRPC_XDS_SERVER_URL=" + m.address,
	}, environ...)
	d.cmd.Stderr = &d.log
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { d.ended <- d.cmd.Wait() }()
	t.Cleanup(func() {
		_ = d.cmd.Process.Kill()
		if t.Failed() {
			t.Log(d.log.String())
		}
	})
	conn, err := grpc.NewClient(d.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	d.client = rlsv3.NewRateLimitServiceClient(conn)
	return d
}

// end tells the daemon to stop, and waits until it has.
func (d *daemon) end() {
	d.t.Helper()
	_ = d.cmd.Process.Signal(syscall.SIGINT) // without a drain delay
	select {
	case err := <-d.ended:
		if err != nil {
			d.t.Errorf("the daemon ended with %v", err)
		}
	case <-time.After(time.Minute):
		d.t.Fatal("the daemon does not end")
	}
}

// ask takes one request of a user.
func (d *daemon) ask(domain, user string) (rlsv3.RateLimitResponse_Code, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	r, err := d.client.ShouldRateLimit(ctx, &rlsv3.RateLimitRequest{Domain: domain, Descriptors: []*commonv3.RateLimitDescriptor{
		{Entries: []*commonv3.RateLimitDescriptor_Entry{{Key: "user", Value: user}}},
	}})
	return r.GetOverallCode(), err
}

// get returns the code and the body of a page, 0 where nothing listens.
func get(url string) (int, string) {
	r, err := http.Get(url)
	if err != nil {
		return 0, err.Error()
	}
	defer r.Body.Close()
	body, _ := io.ReadAll(r.Body)
	return r.StatusCode, string(body)
}

func (d *daemon) wantHealth(code int) {
	d.t.Helper()
	asynctest.Eventually(d.t, fmt.Sprintf("the health %d", code), func() bool { got, _ := get(d.http + "/healthcheck"); return got == code })
}

// wantDenied waits until a fresh user is denied after so many requests.
func (d *daemon) wantDenied(domain string, requests int) {
	d.t.Helper()
	round := 0
	asynctest.Eventually(d.t, fmt.Sprintf("a denial after %d requests", requests), func() bool {
		round++
		for i := 0; ; i++ {
			code, err := d.ask(domain, fmt.Sprint("u", round))
			if err != nil || i > requests {
				return false
			}
			if code == rlsv3.RateLimitResponse_OVER_LIMIT {
				return i == requests
			}
		}
	})
}

// Its health check is the liveness probe of Envoy Gateway's pod.
func TestADaemonThatMayStartWithoutLimitsIsHealthyAtOnce(t *testing.T) {
	t.Parallel()
	m := manage(t, nil)
	d := launch(t, m, "FORCE_START_WITHOUT_INITIAL_CONFIG=true")
	d.wantHealth(200)
	if _, err := d.ask("d", "a"); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "no limits are loaded yet") {
		t.Errorf("an answer without limits: %v", err)
	}
	asynctest.Eventually(t, "the connection", func() bool {
		_, page := get(d.admin + "/rlconfig")
		return strings.Contains(page, ": connected since ")
	})
	m.set("1", domain("d", 2))
	d.wantDenied("d", 2)
	var page string
	asynctest.Eventually(t, "the generation", func() bool { // which is shown once the load has ended
		_, page = get(d.admin + "/rlconfig")
		return strings.Contains(page, "# version 1 accepted ")
	})
	for _, want := range []string{"# limits from the xDS server " + m.address + " for the node envoy-ratelimit: connected since ", "# version 1 accepted ", "# generation 1, loaded ", "domain d (resource d)\n", "2 requests an hour"} {
		if !strings.Contains(page, want) {
			t.Errorf("%q is missing in\n%s", want, page)
		}
	}
	if code, err := d.ask("unknown", "a"); code != rlsv3.RateLimitResponse_OK || err != nil {
		t.Errorf("an unknown domain: %v %v", code, err)
	}
	m.set("2")
	asynctest.Eventually(t, "no limits", func() bool { code, err := d.ask("d", "u1"); return code == rlsv3.RateLimitResponse_OK && err == nil })
	d.wantHealth(200)
	m.stop()
	asynctest.Eventually(t, "no connection", func() bool {
		_, page := get(d.admin + "/metrics")
		return strings.Contains(page, "ratelimitd_xds_connected 0")
	})
	d.wantHealth(200)
	d.end()
}

func TestADaemonThatNeedsLimitsOpensNoPortBefore(t *testing.T) {
	t.Parallel()
	m := manage(t, nil)
	d := launch(t, m)
	asynctest.Eventually(t, "the daemon waits", func() bool { return len(m.asked()) == 1 })
	if code, _ := get(d.http + "/healthcheck"); code != 0 {
		t.Errorf("a port is open: %d", code)
	}
	m.set("1", domain("d", 2))
	d.wantHealth(200)
	d.wantDenied("d", 2)
	d.end()

	waits := launch(t, manage(t, nil))
	asynctest.Eventually(t, "the daemon waits", func() bool { return waits.log.Count("waiting for the limits") == 1 })
	waits.end()
}

func TestARefusedFirstConfigurationEndsTheWaiting(t *testing.T) {
	t.Parallel()
	m := manage(t, nil)
	m.set("1", domain("", 2))
	d := launch(t, m)
	d.wantHealth(500)
	if _, err := d.ask("d", "a"); status.Code(err) != codes.Unavailable {
		t.Errorf("an answer without limits: %v", err)
	}
	m.set("2", domain("d", 2))
	d.wantHealth(200)
}

func TestADaemonThatNeedsADomainIsHealthyWithOne(t *testing.T) {
	t.Parallel()
	m := manage(t, nil)
	d := launch(t, m, "FORCE_START_WITHOUT_INITIAL_CONFIG=true", "HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED=true")
	d.wantHealth(500)
	m.set("1")
	asynctest.Eventually(t, "an answer", func() bool { return len(m.answers()) == 1 })
	d.wantHealth(500)
	m.set("2", domain("d", 2))
	d.wantHealth(200)
	m.set("3")
	d.wantHealth(500)
}

// The variables and the files of Envoy Gateway's pod.
func TestADaemonFollowsAServerThatRequiresACertificate(t *testing.T) {
	t.Parallel()
	ca := certtest.New(t, "gateway")
	m := manageTLS(t, ca)
	m.set("1", domain("d", 2))
	pair := clientTLS(t, ca)
	d := launch(t, m, "FORCE_START_WITHOUT_INITIAL_CONFIG=true", "CONFIG_GRPC_XDS_SERVER_USE_TLS=true", "CONFIG_GRPC_XDS_SERVER_TLS_CACERT="+ca.File,
		"CONFIG_GRPC_XDS_CLIENT_TLS_CERT="+pair.Cert, "CONFIG_GRPC_XDS_CLIENT_TLS_KEY="+pair.Key, "CONFIG_GRPC_XDS_SERVER_TLS_SAN=envoy-gateway",
		"CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS=x-token:secret", "CONFIG_GRPC_XDS_NODE_METADATA=zone=a")
	d.wantDenied("d", 2)
	if r := m.asked()[0]; r.GetNode().GetMetadata().GetFields()["zone"].GetStringValue() != "a" {
		t.Errorf("the node is %v", r.GetNode())
	}
	if d.log.Count("secret") != 0 {
		t.Error("a header's value is in the log")
	}
	d.end()
}
