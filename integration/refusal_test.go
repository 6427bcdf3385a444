package integration

import (
	"context"
	"crypto/tls"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimitd/ratelimitd/internal/certtest"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

// A daemon that Redis refuses at the start ends, in every failure mode and
// Redis mode. One line names the fault and the setting.
func TestDaemonThatRedisRefusesAtTheStartEnds(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, "all.yaml", everyAlgorithm())
	guarded := redistest.Start(t, "--requirepass", "hunter2").Addr()
	cluster := redistest.StartCluster(t, 0).Addrs()
	operate(t, cluster[1], "", "acl", "setuser", "default", "resetpass", ">hunter2")
	sentinels, _, _ := redistest.StartSentinel(t, "limits")
	for _, addr := range sentinels {
		operate(t, addr, "", "acl", "setuser", "default", "resetpass", ">hunter2")
	}
	rights := redistest.Start(t).Addr()
	operate(t, rights, "", "acl", "setuser", "ratelimitd", "reset", "on", ">hunter2", "~rl{*", "+evalsha", "+eval", "+script|load", "+time", "+mget", "+del")
	strangers := certtest.New(t, "strangers")
	secure := serveTLS(t, guarded)
	for _, c := range []struct {
		name  string
		env   []string
		flags []string
		want  []string
	}{
		{"a wrong password", []string{"RATELIMITD_REDIS_PASSWORD=hunter3"}, redisFlags("single", guarded),
			[]string{guarded, "redis.password", "WRONGPASS"}},
		{"no password", nil, redisFlags("single", guarded), []string{guarded, "redis.password_file", "NOAUTH"}},
		{"no password at a node", nil, redisFlags("cluster", cluster...), []string{cluster[1], "redis.password", "NOAUTH"}},
		{"no password at the sentinels", nil, append(redisFlags("sentinel", sentinels...), "--redis-sentinel-master", "limits"),
			[]string{sentinels[0], "redis.sentinel_password", "NOAUTH"}},
		{"a right too few", []string{"RATELIMITD_REDIS_PASSWORD=hunter2"}, append(redisFlags("single", rights), "--redis-prefix", "rl", "--redis-username", "ratelimitd"),
			[]string{rights, "redis.username", "docs/redis.md", "NOPERM", "'set'"}},
		{"another mode", []string{"RATELIMITD_REDIS_PASSWORD=hunter2"}, redisFlags("cluster", guarded), []string{guarded, "redis.mode"}},
		{"another authority", []string{"RATELIMITD_REDIS_PASSWORD=hunter2"}, append(redisFlags("single", secure), "--redis-tls-enabled", "--redis-tls-ca", strangers.File),
			[]string{secure, "redis.tls.ca", "x509"}},
	} {
		for _, mode := range []string{"local", "error"} {
			t.Run(c.name+", "+mode, func(t *testing.T) {
				t.Parallel()
				args := slices.Concat([]string{"serve", "--limits-path", dir, "--failure-mode", mode,
					"--redis-timeout", "10s", // for Redis to answer on a busy machine
					"--grpc-address", "127.0.0.1:0", "--http-address", "127.0.0.1:0", "--admin-address", "127.0.0.1:0"}, c.flags)
				_, log, code := commandEnv(t, c.env, args...)
				lines := strings.Split(strings.TrimSpace(log), "\n")
				last := lines[len(lines)-1]
				if code != 1 || !strings.HasPrefix(last, "ratelimitd: redis: ") || strings.Contains(log, "msg=serving") {
					t.Fatalf("the daemon exits with %d and says\n%s", code, log)
				}
				for _, text := range c.want {
					if !strings.Contains(last, text) {
						t.Errorf("the last line lacks %q: %s", text, last)
					}
				}
			})
		}
	}
}

// operate runs a command at a server.
func operate(t testing.TB, addr, password string, command ...any) {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: addr, Password: password, Protocol: 2, DisableIdentity: true})
	defer c.Close()
	if err := c.Do(context.Background(), command...).Err(); err != nil {
		t.Fatalf("%v: %v", command, err)
	}
}

// serveTLS returns an address that reaches a server by TLS.
func serveTLS(t testing.TB, addr string) string {
	t.Helper()
	certFile, keyFile := certtest.New(t, "ca").IssueLoopback(t, "server").Files()
	cert, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{cert}})
	if err != nil {
		t.Fatal(err)
	}
	redistest.Forward(t, listener, addr)
	return listener.Addr().String()
}

// A daemon that runs before Redis comes stays when Redis refuses: it answers
// already. The log names the fault.
func TestDaemonThatRedisRefusesLaterStays(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--requirepass", "hunter2")
	f := launchBefore(t, server, "local", "--failure-replicas", "2")
	f.waitForHealth("SERVING")
	server.Restart()
	line := f.waitForLog("the store refuses the daemon")
	if !strings.Contains(line, "level=ERROR") || !strings.Contains(line, "redis.password") || !strings.Contains(line, "NOAUTH") {
		t.Errorf("the line is %s", line)
	}
	if got, want := f.askTen("few=a"), without("local"); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("it gives %q, want %q", got, want)
	}
	operate(t, server.Addr(), "hunter2", "config", "set", "requirepass", "")
	f.waitForLog("the store answers")
	f.waitForRedis()
}
