package integration

import (
	"net"
	"os"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/certtest"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

func TestMutualTLSLetsInKnownClients(t *testing.T) {
	t.Parallel()
	ca := certtest.New(t, "ca")
	serverCert, serverKey := ca.IssueLoopback(t, "server").Files()
	clientCert, clientKey := ca.IssueLoopback(t, "client").Files()
	strangers := certtest.New(t, "strangers")
	strangerCert, strangerKey := strangers.IssueLoopback(t, "stranger").Files()
	limits := t.TempDir()
	write(t, limits, "api.yaml", limitsOf3)

	tls := []string{"--limits-path", limits, "--grpc-tls-cert", serverCert, "--grpc-tls-key", serverKey, "--grpc-tls-client-ca", ca.File}
	if d := launch(t, nil, tls...); d.wait() != 1 || !strings.Contains(d.logText(), "http.") {
		t.Errorf("plain HTTP beside gRPC that asks for client certificates is accepted:\n%s", d.logText())
	}
	d := start(t, append(tls, "--http-address", "")...)
	query := func(args ...string) (string, string, int) {
		return command(t, append([]string{"query", "--address", d.grpc, "--domain", "api", "--tls-ca", ca.File, "user=a"}, args...)...)
	}
	if out, stderr, code := query("--tls-cert", clientCert, "--tls-key", clientKey); code != 0 {
		t.Errorf("with a good certificate: %d %q %q", code, out, stderr)
	}
	if _, _, code := query(); code != 1 {
		t.Errorf("without a certificate: %d", code)
	}
	if _, _, code := query("--tls-cert", strangerCert, "--tls-key", strangerKey); code != 1 {
		t.Errorf("with a stranger's certificate: %d", code)
	}
	// The container's health check needs no flags.
	env := []string{
		"RATELIMITD_GRPC_ADDRESS=" + d.grpc, "RATELIMITD_GRPC_TLS_CERT=" + serverCert, "RATELIMITD_GRPC_TLS_KEY=" + serverKey,
		"RATELIMITD_GRPC_TLS_CLIENT_CA=" + ca.File, "RATELIMITD_HTTP_ADDRESS=",
	}
	if out, stderr, code := commandEnv(t, env, "health"); code != 0 {
		t.Errorf("health with the daemon's environment: %d %q %q", code, out, stderr)
	}

	// The daemon shows the certificate of a new authority when its files change.
	newCert, newKey := strangers.IssueLoopback(t, "new").Files()
	for from, to := range map[string]string{newCert: serverCert, newKey: serverKey} {
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	asynctest.Eventually(t, "the new certificate is shown", func() bool {
		_, _, code := command(t, "query", "--address", d.grpc, "--domain", "api", "--tls-ca", strangers.File,
			"--tls-cert", clientCert, "--tls-key", clientKey, "user=b")
		return code != 1
	})
}

func TestRedisIsReachedOverTLS(t *testing.T) {
	t.Parallel()
	ca := certtest.New(t, "ca")
	cert, key := ca.IssueLoopback(t, "redis").Files()
	secure := freeAddress(t)
	_, port, _ := net.SplitHostPort(secure)
	redistest.Start(t, "--tls-port", port, "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", ca.File)
	limits := t.TempDir()
	write(t, limits, "api.yaml", limitsOf3)
	flags := append(redisFlags("single", secure), "--limits-path", limits, "--redis-tls-enabled", "--redis-tls-cert", cert, "--redis-tls-key", key)
	d := start(t, append(flags, "--redis-tls-ca", ca.File)...)
	if !ok(d.ask("api", 3, "user=a")) || ok(d.ask("api", 1, "user=a")) {
		t.Error("over TLS the limit of 3 does not hold")
	}
	wrong := launch(t, nil, append(flags, "--redis-tls-ca", certtest.New(t, "other").File)...)
	if line := wrong.waitForLog("redis.tls.ca"); !strings.Contains(line, "unknown authority") {
		t.Errorf("a server of an unknown authority gives the log %s", line)
	}
}
