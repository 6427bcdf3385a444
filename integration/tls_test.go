package integration

import (
	"net"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/certtest"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

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
