package integration

import (
	"context"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/fleet"
	"github.com/ratelimitd/ratelimitd/internal/redisconn"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

// `ratelimitd daemons` shows the daemons that are signed in.
func TestDaemonsShowsTheRegister(t *testing.T) {
	t.Parallel()
	onEachRedis(t, func(t *testing.T, flags []string) {
		args := append([]string{"daemons"}, flags...)
		out, stderr, code := command(t, args...)
		if code != 0 || !strings.HasPrefix(out, "no daemon is signed in under the prefix ") {
			t.Fatalf("with an empty register it exits with %d: %q %q", code, out, stderr)
		}

		conn, err := redisconn.New(redisconn.Options{
			Mode: redisconn.Mode(flagOf(flags, "--redis-mode")), Addresses: strings.Split(flagOf(flags, "--redis-addresses"), ","), Prefix: flagOf(flags, "--redis-prefix"), Timeout: 10 * time.Second,
		})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		register := fleet.Register{
			Redis: conn,
			// No entry expires while the command starts.
			Clock: func() int64 { return time.Now().Add(time.Hour).UnixMicro() },
		}
		signIn := func(address, rules string) {
			t.Helper()
			f := fleet.New(register, fleet.Options{
				Address: address, Version: "v1.2", HashTags: 48, StateFormat: 1, Reads: []int{1},
				Rules: func() string { return rules }, Change: func() string { return "7-1" },
			})
			if err := f.SignIn(context.Background()); err != nil {
				t.Fatal(err)
			}
		}
		signIn("web-2:8081", "aaa")
		signIn("web-1:8081", "aaa")
		out, stderr, code = command(t, args...)
		want := regexp.MustCompile(`^ID +ADDRESS +VERSION +TAGS +STATE +RULES +CHANGE +UP +SEEN\n` +
			`[0-9a-f]{16}  web-1:8081  v1.2     48    1      aaa    7-1     \d[\w.]* +\d[\w.]* ago\n` +
			`[0-9a-f]{16}  web-2:8081  v1.2     48    1      aaa    7-1     \d[\w.]* +\d[\w.]* ago\n$`)
		if code != 0 || !want.MatchString(out) {
			t.Errorf("with two daemons it exits with %d: %s\n%s", code, stderr, out)
		}

		signIn("web-3:8081", "bbb")
		out, stderr, code = command(t, args...)
		if code != 1 || !strings.Contains(out, "web-3:8081") || stderr != "rules differ: aaa at web-1:8081, web-2:8081, bbb at web-3:8081\n" {
			t.Errorf("with different rules it exits with %d: %q\n%s", code, stderr, out)
		}
		out, _, code = command(t, append(args, "--json")...)
		lines := strings.Split(strings.TrimSpace(out), "\n")
		if code != 1 || len(lines) != 3 {
			t.Fatalf("--json exits with %d:\n%s", code, out)
		}
		first := decodeJSON(t, lines[0])
		if first["address"] != "web-1:8081" || first["hash_tags"] != 48.0 || first["rules"] != "aaa" || first["change"] != "7-1" || first["seen"] == "" {
			t.Errorf("the first line is %v", first)
		}
	})
}

// flagOf returns the value that follows a flag.
func flagOf(flags []string, name string) string {
	for i, f := range flags {
		if f == name {
			return flags[i+1]
		}
	}
	return ""
}

// A daemon lists all through its admin API.
func TestDaemonsAsksADaemon(t *testing.T) {
	t.Parallel()
	flags := redisFlags("single", redistest.Single(t))
	dir := t.TempDir()
	write(t, dir, "api.yaml", limitsOf3)
	first := start(t, append(flags, "--limits-path", dir)...)
	start(t, append(flags, "--limits-path", dir)...)
	waitForFleet(t, flags, 2)
	fromRedis, _, _ := command(t, append([]string{"daemons"}, flags...)...)
	firstColumns := func(out string) string {
		var kept strings.Builder
		for line := range strings.Lines(out) {
			kept.WriteString(strings.Join(strings.Fields(line)[:6], " ") + "\n") // the others are times
		}
		return kept.String()
	}
	for name, c := range map[string]struct {
		env, args []string
	}{
		"by its address":     {nil, []string{"--admin-address", first.admin}},
		"by the environment": {[]string{"RATELIMITD_ADMIN_ADDRESS=" + first.admin}, nil},
	} {
		out, stderr, code := commandEnv(t, c.env, append([]string{"daemons"}, c.args...)...)
		if code != 0 || firstColumns(out) != firstColumns(fromRedis) || stderr != "" {
			t.Errorf("%s: it exits with %d: %s\n%s\nRedis says\n%s", name, code, stderr, out, fromRedis)
		}
	}
	out, _, code := command(t, "daemons", "--admin-address", first.admin, "--json")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if m := decodeJSON(t, lines[0]); code != 0 || len(lines) != 2 || m["hash_tags"] != 32.0 || m["state_format"] == 0.0 || len(m["reads"].([]any)) == 0 {
		t.Errorf("--json exits with %d:\n%s", code, out)
	}
	differ := t.TempDir()
	write(t, differ, "api.yaml", strings.Replace(limitsOf3, "3", "4", 1))
	start(t, append(flags, "--limits-path", differ)...)
	asynctest.Eventually(t, "the third is signed in", func() bool {
		_, stderr, code := command(t, "daemons", "--admin-address", first.admin)
		return code == 1 && strings.HasPrefix(stderr, "rules differ: ")
	})
	// One with a store in memory tells of itself.
	alone := start(t, "--limits-path", dir)
	if out, stderr, code := command(t, "daemons", "--admin-address", alone.admin); code != 0 || stderr != "" || strings.Count(out, "\n") != 2 || !strings.Contains(out, "  -     -      ") {
		t.Errorf("alone it exits with %d: %s\n%s", code, stderr, out)
	}
}

func TestDaemonsTellsWhyItFails(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		env  []string
		args []string
		want string
	}{
		{[]string{"RATELIMITD_ADMIN_ADDRESS=127.0.0.1:1"}, nil, "127.0.0.1:1 cannot be reached: "},
		{[]string{"RATELIMITD_ADMIN_ADDRESS="}, nil, "a daemon with this environment has no admin port: set admin.address, which is empty, or give --admin-address"},
		{[]string{"RATELIMITD_STORE=redis", "RATELIMITD_REDIS_ADDRESSES=127.0.0.1:1"}, []string{"--admin-address", "127.0.0.1:1"}, "say where one listens: with --admin-address"},
		{nil, redisFlags("single", "127.0.0.1:1"), "redis.addresses 127.0.0.1:1): redis: dial tcp 127.0.0.1:1: connect: connection refused"},
		{[]string{"RATELIMITD_REDIS_MODE=cluster", "RATELIMITD_REDIS_ADDRESSES=127.0.0.1:1,127.0.0.1:2"}, []string{"--store", "redis"},
			"the register of daemons cannot be read (redis.mode cluster, redis.addresses 127.0.0.1:1,127.0.0.1:2): redis: "},
		{nil, redisFlags("ring", "127.0.0.1:1"), `--redis-mode: found "ring"`},
	} {
		t.Run(tc.want, func(t *testing.T) {
			out, stderr, code := commandEnv(t, tc.env, append([]string{"daemons"}, tc.args...)...)
			if code != 1 || out != "" || !strings.Contains(stderr, tc.want) {
				t.Errorf("daemons %v exits with %d: %q %q, want %q", tc.args, code, out, stderr, tc.want)
			}
		})
	}
}

// A daemon whose keys differ from those of a running one does not serve beside
// it. It serves once it is alone.
func TestDaemonWithOtherHashTagsDoesNotServe(t *testing.T) {
	t.Parallel()
	flags := steered(t, limitsOf3, redisFlags("single", redistest.Single(t))...)
	first := start(t, flags...)
	if _, stderr, code := first.steer("", "block", "--domain", "api", "user=assigned"); code != 0 {
		t.Fatal(stderr)
	}
	ports := []string{freeAddress(t), freeAddress(t)}
	second := launch(t, nil, append(flags, "--redis-hash-tags", "64", "--grpc-address", ports[0], "--http-address", ports[1])...)
	second.waitForLog("this daemon must not serve")
	second.dial(ports[0])
	want := regexp.MustCompile(`daemon 127\.0\.0\.1:\d+ .* redis\.hash_tags 32; this daemon \(` + regexp.QuoteMeta(ports[0]) + `\) has 64`)
	asynctest.Eventually(t, "its ports are open", func() bool {
		out, _, code := command(t, "health", "--address", ports[0])
		return code == 1 && out == "NOT_SERVING\n"
	})
	asynctest.Eventually(t, "/healthcheck says why", func() bool {
		status, body := get(t, "http://"+ports[1]+"/healthcheck")
		return status == 500 && want.MatchString(body)
	})
	if _, err := second.tryAsk("api", 1, "user=a"); status.Code(err) != codes.Unavailable || !want.MatchString(err.Error()) {
		t.Errorf("the second daemon says %v", err)
	}
	for range 3 {
		if !ok(first.ask("api", 1, "user=a")) {
			t.Error("the first daemon denies")
		}
	}
	// What is assigned is of no hash tags, and stays.
	if out, stderr, code := first.steer("", "unblock", "--domain", "api", "user=assigned"); code != 0 {
		t.Errorf("an assignment from before the second daemon is removed with %d: %s%s", code, out, stderr)
	}
	first.waitForLog("outcome=deleted")
	first.stop(os.Interrupt)
	second.waitForLog("msg=serving")
	if !ok(second.ask("api", 1, "user=a")) {
		t.Error("alone, the second daemon denies")
	}
	if n := strings.Count(second.logText(), "must not serve"); n != 1 {
		t.Errorf("its log says %d times that it must not serve", n)
	}
}
