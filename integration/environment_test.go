package integration

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/redis/go-redis/v9"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/filetest"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

// yearlyOf is a file of envoyproxy/ratelimit's with one limit.
func yearlyOf(n int) string {
	return fmt.Sprintf("domain: api\ndescriptors:\n  - key: user\n    rate_limit:\n      unit: year\n      requests_per_unit: %d\n", n)
}

// runtimeRoot makes the folders of that service, current/app/config, and
// returns the root. swap replaces the target of the link current by a rename.
func runtimeRoot(t *testing.T, text string) (root string, swap func(text string)) {
	t.Helper()
	root = t.TempDir()
	version := 0
	swap = func(text string) {
		t.Helper()
		version++
		name := fmt.Sprintf("version-%d", version)
		config := filepath.Join(root, name, "app", "config")
		if err := os.MkdirAll(config, 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, config, "api.yaml", text)
		next := filepath.Join(root, "next")
		if err := os.Symlink(name, next); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(next, filepath.Join(root, "current")); err != nil {
			t.Fatal(err)
		}
	}
	swap(text)
	return root, swap
}

// envoyEnv is an environment of that service alone, on free ports.
func envoyEnv(root string, env ...string) []string {
	return append(env, "HOST=127.0.0.1", "PORT=0", "DEBUG_HOST=127.0.0.1", "DEBUG_PORT=0", "GRPC_HOST=127.0.0.1", "GRPC_PORT=0", "LOG_LEVEL=info",
		"USE_STATSD=false", "RUNTIME_ROOT="+root+"/current", "RUNTIME_SUBDIRECTORY=app", fmt.Sprintf("CACHE_KEY_PREFIX=it-%x", rand.Uint64()))
}

// asEnvoy returns a command by the name of envoyproxy/ratelimit.
func asEnvoy(t *testing.T, env []string, args ...string) *exec.Cmd {
	t.Helper()
	link := filepath.Join(t.TempDir(), "ratelimit")
	if err := os.Symlink(binary, link); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(link, args...)
	cmd.Env = env
	return cmd
}

func startAsEnvoy(t *testing.T, env []string, args ...string) *daemon {
	t.Helper()
	// Not the assignments of another daemon on this machine, which has the file to itself.
	d := launchCommand(t, asEnvoy(t, env, append([]string{"--assignments-path="}, args...)...))
	d.waitServing()
	return d
}

// wantLimit asks for one user until a limit of n is used up.
func (d *daemon) wantLimit(n uint32) {
	d.t.Helper()
	if r := d.ask("api", n, "user=a"); !ok(r) || degraded(r) || r.GetStatuses()[0].GetCurrentLimit().GetRequestsPerUnit() != n {
		d.t.Errorf("%d requests: %v", n, r)
	}
	if r := d.ask("api", 1, "user=a"); ok(r) || degraded(r) {
		d.t.Errorf("one more: %v", r)
	}
}

// valueOf returns the value of a variable.
func valueOf(env []string, name string) string {
	for _, assignment := range env {
		if n, value, _ := strings.Cut(assignment, "="); n == name {
			return value
		}
	}
	return ""
}

// What the daemon would say of an environment and its files can be seen without starting it.
func TestEnvoyEnvironmentIsChecked(t *testing.T) {
	t.Parallel()
	const mistaken = "domain: api\ndescriptors:\n  - key: user\n    rate_limit: {unit: minute, requests_per_unit: 3}\n    quota_mode: true\n    shadow_mode: true\n"
	for _, c := range []struct {
		name, limits        string
		env                 []string
		code                int
		out, stderr, hidden string
	}{
		{"good", yearlyOf(3), []string{"BACKEND_TYPE=memory"}, 0, "3 requests", "", ""},
		{"a mistake that service accepts", mistaken, []string{"BACKEND_TYPE=memory"}, 0, "3 requests", "quota_mode is ignored", ""},
		{"a variable without effect", yearlyOf(3), []string{"BACKEND_TYPE=memory", "REDIS_PERSECOND=true"}, 0, "3 requests", "REDIS_PERSECOND", ""},
		{"a backend that there is not", yearlyOf(3), []string{"BACKEND_TYPE=memcache"}, 1, "", "BACKEND_TYPE", "3 requests"},
		{"a wrong file", "domain: api\ndescriptors: 5\n", []string{"BACKEND_TYPE=memory"}, 1, "", "descriptors: found", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			root, _ := runtimeRoot(t, c.limits)
			cmd := asEnvoy(t, envoyEnv(root, c.env...), "check", "--failure-mode", "local")
			var stderr strings.Builder
			cmd.Stderr = &stderr
			out, err := cmd.Output()
			if code := cmd.ProcessState.ExitCode(); code != c.code || !strings.Contains(string(out), c.out) || !strings.Contains(stderr.String(), c.stderr) || c.stderr == "" && stderr.Len() > 0 ||
				c.hidden != "" && strings.Contains(string(out), c.hidden) {
				t.Errorf("check exits with %d (%v):\n%s\n%s", code, err, out, &stderr)
			}
		})
	}
}

// Commands work under this name too, what is none starts no daemon, and messages name what
// that environment can say.
func TestEnvoyEnvironmentHasItsOwnNames(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--requirepass", "hunter2")
	root, _ := runtimeRoot(t, yearlyOf(3))
	env := envoyEnv(root, "REDIS_SOCKET_TYPE=tcp", "REDIS_URL="+server.Addr(), "REDIS_PASSWORD=hunter2")
	file := write(t, t.TempDir(), "limits.yaml", yearlyOf(7))
	for _, c := range []struct {
		args      string
		code      int
		want, not string
	}{
		{"", 1, "REDIS_AUTH", "redis.password"},
		{"check", 0, "variable REDIS_PASSWORD: it is not read; set REDIS_AUTH", ""},
		{"check " + file, 0, "7 requests", ""},
		{"frobnicate", 1, `unknown command "frobnicate"; ratelimit --help lists them`, ""},
		{"explian --domain api user=a", 1, "", "serving"},
		{"--failure-mod local", 1, "did you mean --failure-mode?", ""},
		{"explain --domain api --admin-address 127.0.0.1:1 user=a", 1, "start a daemon there (ratelimit serve", "ratelimitd"},
		{"explain --help", 0, "  ratelimit explain --domain", "ratelimitd"},
	} {
		out, err := asEnvoy(t, env, strings.Fields(c.args)...).CombinedOutput()
		code := 0
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
			code = exit.ExitCode()
		}
		if text := string(out); code != c.code || !strings.Contains(text, c.want) || c.not != "" && strings.Contains(text, c.not) {
			t.Errorf("ratelimit %s exits with %d: %s", c.args, code, text)
		}
	}
}

func TestEnvoyEnvironmentIsFollowed(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--requirepass", "hunter2")
	root, swap := runtimeRoot(t, yearlyOf(3))
	env := envoyEnv(root, "REDIS_SOCKET_TYPE=tcp", "REDIS_URL="+server.Addr(), "REDIS_AUTH=hunter2", "REDIS_TYPE=SINGLE", "REDIS_POOL_SIZE=5",
		"USE_PROMETHEUS=true", "PROMETHEUS_ADDR=127.0.0.1:0", "PROMETHEUS_PATH=/stats/prometheus", "EXTRA_TAGS=a:b", "RATELIMITD_STORE=disk")
	d := startAsEnvoy(t, env)
	d.wantLimit(3)
	if code, body := get(t, "http://"+d.metrics+"/stats/prometheus"); code != 200 || !strings.Contains(body, `ratelimitd_decisions_total{domain="api",result="denied",rule="user",value=""} 1`) {
		t.Errorf("PROMETHEUS_ADDR: %d\n%s", code, body)
	}
	if code, body := get(t, "http://"+d.http+"/healthcheck"); code != 200 {
		t.Errorf("PORT: %d %s", code, body)
	}
	if code, body := get(t, "http://"+d.admin+"/rlconfig"); code != 200 || !strings.Contains(body, "3 requests") {
		t.Errorf("DEBUG_PORT: %d %s", code, body)
	}
	if n := strings.Count(d.logText(), "not followed to the letter"); n != 1 || !strings.Contains(d.logText(), "EXTRA_TAGS (") {
		t.Errorf("%d warnings of variables:\n%s", n, d.logText())
	}
	if strings.Contains(d.logText(), "hunter2") {
		t.Errorf("the password shows:\n%s", d.logText())
	}
	redis := redis.NewClient(&redis.Options{Addr: server.Addr(), Password: "hunter2", Protocol: 2, DisableIdentity: true})
	t.Cleanup(func() { redis.Close() })
	if keys, err := redis.Keys(t.Context(), "*").Result(); err != nil || len(keys) == 0 ||
		slices.ContainsFunc(keys, func(key string) bool { return !strings.HasPrefix(key, valueOf(env, "CACHE_KEY_PREFIX")) }) {
		t.Errorf("keys %q, %v", keys, err)
	}

	// The number of a limit changes, and its state goes on.
	swap(yearlyOf(5))
	asynctest.Eventually(t, "the swapped folder is loaded", func() bool {
		return d.ask("api", 1, "user=b").GetStatuses()[0].GetCurrentLimit().GetRequestsPerUnit() == 5
	})
	if r := d.ask("api", 2, "user=a"); !ok(r) || r.GetStatuses()[0].GetLimitRemaining() != 0 {
		t.Errorf("2 more of 5: %v", r)
	}

	// The health check needs no flags: it reads the port from the environment.
	health := asEnvoy(t, append(env, "GRPC_PORT="+portOf(t, d.grpc)), "health")
	if out, err := health.CombinedOutput(); err != nil || string(out) != "SERVING\n" {
		t.Errorf("ratelimit health: %v %s", err, out)
	}
	if code := d.stop(syscall.SIGTERM); code != 0 {
		t.Errorf("exit %d after SIGTERM", code)
	}
}

func TestEnvoyEnvironmentNamesSockets(t *testing.T) {
	t.Parallel()
	dir := filetest.SocketFolder(t)
	redis := redistest.Start(t, "--unixsocket", filepath.Join(dir, "redis"), "--requirepass", "hunter2")
	root, _ := runtimeRoot(t, yearlyOf(3))
	env := envoyEnv(root, "REDIS_URL="+dir+"/redis", "REDIS_AUTH=hunter2", "GRPC_UDS="+dir+"/grpc")
	d := startAsEnvoy(t, env)
	if d.grpc != "unix:"+dir+"/grpc" {
		t.Errorf("gRPC is at %s", d.grpc)
	}
	d.wantLimit(3)
	for _, args := range [][]string{{"health"}, {"take", "--domain", "api", "user=b"}} {
		t.Run(args[0], func(t *testing.T) {
			if out, err := asEnvoy(t, env, args...).CombinedOutput(); err != nil {
				t.Errorf("at the socket: %v %s", err, out)
			}
		})
	}
	redis.Kill()
	// Callers get an error, like there, and decide themselves.
	asynctest.Eventually(t, "calls fail", func() bool {
		_, err := d.tryAsk("api", 1, "user=b")
		return status.Code(err) == codes.Unavailable
	})
}

func TestEnvoyEnvironmentStartsWithoutLimits(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	env := envoyEnv(root, "BACKEND_TYPE=memory")
	if d := launchCommand(t, asEnvoy(t, env)); d.wait() != 1 || !strings.Contains(d.logText(), root+"/current/app/config") {
		t.Errorf("without limits: exit %d\n%s", d.cmd.ProcessState.ExitCode(), d.logText())
	}
	grpc := freeAddress(t)
	// A process gets the last of two variables of one name.
	d := launchCommand(t, asEnvoy(t, append(env, "GRPC_PORT="+portOf(t, grpc), "FORCE_START_WITHOUT_INITIAL_CONFIG=true")))
	d.waitForLog("requests are answered once limits can be loaded")
	d.dial(grpc)
	asynctest.Eventually(t, "calls are refused", func() bool {
		_, err := d.tryAsk("api", 1, "user=a")
		return status.Code(err) == codes.Unavailable && strings.Contains(err.Error(), "no limits are loaded yet")
	})
	config := filepath.Join(root, "current", "app", "config")
	if err := os.MkdirAll(config, 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, config, "api.yaml", yearlyOf(3))
	d.waitForLog("msg=serving")
	d.wantLimit(3)
}

// Others start that service with files in these ways.
func TestEnvoyEnvironmentStartsAsInTheExamplesOfOthers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		env  []string
	}{
		{"Istio's sample", []string{"LOG_LEVEL=debug", "USE_STATSD=false", "RUNTIME_WATCH_ROOT=false", "RUNTIME_IGNOREDOTFILES=true", "HOST=::", "GRPC_HOST=::"}},
		{"Contour's example", []string{"LOG_LEVEL=info", "USE_STATSD=false", "RUNTIME_WATCH_ROOT=false", "RUNTIME_IGNOREDOTFILES=true"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			root, _ := runtimeRoot(t, yearlyOf(3))
			env := append(c.env, "REDIS_SOCKET_TYPE=tcp", "REDIS_URL="+redistest.Start(t).Addr(), "RUNTIME_ROOT="+root+"/current", "RUNTIME_SUBDIRECTORY=app", "PORT=0", "GRPC_PORT=0", "DEBUG_PORT=0")
			d := startAsEnvoy(t, env)
			d.wantLimit(3)
		})
	}
}

// TestLongValuesDoNotEvadeALimit puts long values beside a limit. A client may
// choose them, and Envoy lets a failed call pass.
func TestLongValuesDoNotEvadeALimit(t *testing.T) {
	t.Parallel()
	root, _ := runtimeRoot(t, yearlyOf(3))
	d := startAsEnvoy(t, envoyEnv(root, "BACKEND_TYPE=memory"))
	d.wantLimit(3)
	long := strings.Repeat("x", 1<<20)
	asked := request("api", 1, "user=a")
	for range 2 {
		asked.Descriptors = append(asked.Descriptors, request("api", 1, "header="+long, "path=/").GetDescriptors()...)
	}
	r, err := d.client.ShouldRateLimit(t.Context(), asked)
	if err != nil || ok(r) || r.GetStatuses()[0].GetCode() != rlsv3.RateLimitResponse_OVER_LIMIT {
		t.Errorf("long values beside a limit that is used up: %v, %v", r.GetStatuses(), err)
	}
}
