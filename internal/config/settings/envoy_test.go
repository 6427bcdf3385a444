package settings

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// overTCP is the least environment with which that service runs.
var overTCP = []string{"REDIS_SOCKET_TYPE=tcp", "REDIS_URL=redis:6379"}

// The environment says where Redis is, and nothing else.
func TestEnvoyHasTheDefaultsOfThatService(t *testing.T) {
	got, warnings, err := LoadEnvoy(nil, overTCP)
	if err != nil || len(warnings) != 0 {
		t.Fatalf("%v %q", err, warnings)
	}
	want := Default()
	want.Limits.Path = "/srv/runtime_data/current/config"
	want.Limits.Lenient = true
	want.Store = "redis"
	want.Redis.Addresses = []string{"redis:6379"}
	want.Redis.Timeout = 10 * time.Second
	want.Failure.Mode = bucket.FailError
	want.GRPC.Address, want.HTTP.Address, want.Admin.Address = "0.0.0.0:8081", "0.0.0.0:8080", "0.0.0.0:6070"
	want.GRPC.MaxConnectionAge, want.GRPC.MaxConnectionAgeGrace = 24*time.Hour, time.Hour
	want.GRPC.MaxBytes = 4 << 20
	want.Admin.Pprof = false
	want.Log.Level = slog.LevelWarn
	if got.String() != want.String() {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
}

// changed lists the settings that an environment beside overTCP changes.
func changed(t *testing.T, s Settings) string {
	t.Helper()
	base, _, err := LoadEnvoy(nil, overTCP)
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, d := range allSettings() {
		if now := d.show(d.valueIn(&s)); now != d.show(d.valueIn(&base)) {
			list = append(list, d.name+"="+now)
		}
	}
	return strings.Join(list, " ")
}

func TestEnvoyCredentialsAreRead(t *testing.T) {
	for _, c := range []struct{ auth, url, username, password string }{
		{"hunter2", "r:1", "", "hunter2"},
		{"me:hunter2:x", "r:1", "me", "hunter2:x"},
		{":hunter2", "r:1", "", "hunter2"},
		{"", "redis://me:hunter%322@r:1", "me", "hunter22"},
		{"hunter2", "redis://me:other@r:1", "", "hunter2"},
	} {
		t.Run(c.auth+" "+c.url, func(t *testing.T) {
			s, _, err := LoadEnvoy(nil, []string{"REDIS_SOCKET_TYPE=tcp", "REDIS_AUTH=" + c.auth, "REDIS_URL=" + c.url})
			if err != nil || s.Redis.Username != c.username || s.Redis.Password.Reveal() != c.password {
				t.Errorf("%q and %q: %q, %q, %v", c.auth, c.url, s.Redis.Username, s.Redis.Password.Reveal(), err)
			}
		})
	}
}

// A password under another service's name is not passed over, unless there is one.
func TestEnvoyWarnsOfMistakenVariables(t *testing.T) {
	const want = "variable REDIS_PASSWORD: it is not read; set REDIS_AUTH to the password, or to user:password"
	for _, c := range []struct {
		env  []string
		want []string
	}{
		{[]string{"REDIS_PASSWORD=hunter2"}, []string{want}},
		{[]string{"REDIS_PASSWORD=hunter2", "REDIS_AUTH=hunter2"}, nil},
		{[]string{"REDIS_PASSWORD=hunter2", "BACKEND_TYPE=memory"}, nil},
	} {
		_, warnings, err := LoadEnvoy(nil, append(c.env, overTCP...))
		if err != nil || !slices.Equal(warnings, c.want) {
			t.Errorf("%v: %q, %v", c.env, warnings, err)
		}
	}
}

// Messages name what the environment can say.
func TestSettingsHaveTheNamesOfTheEnvironment(t *testing.T) {
	for text, want := range map[string]string{
		"see redis.username and redis.password or redis.password_file": "see REDIS_AUTH and REDIS_AUTH or --redis-password-file",
		"see redis.sentinel_username and redis.sentinel_password":      "see REDIS_SENTINEL_AUTH and REDIS_SENTINEL_AUTH",
		"see redis.database; redis.mode; redis.sentinel_master":        "see REDIS_URL; REDIS_TYPE; REDIS_URL",
		"see redis.tls.enabled, redis.tls.ca and redis.addresses":      "see REDIS_TLS, REDIS_TLS_CACERT and REDIS_URL",
		"set admin.tokens_file to FILE":                                "set --admin-tokens-file to FILE",
		"redis.example.com refuses":                                    "redis.example.com refuses",
	} {
		if got := InEnvoyNames(text); got != want {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
	}
}

func TestEnvoyWithoutRedisURLIsAnError(t *testing.T) {
	_, _, err := LoadEnvoy(nil, nil)
	want := "variable REDIS_URL: it is not set; allowed: a socket's path, or host:port with REDIS_SOCKET_TYPE=tcp;" +
		" BACKEND_TYPE=memory does without Redis and keeps the limits of this daemon alone"
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestEnvoyReportsAllErrorsAndIgnoredVariables(t *testing.T) {
	_, warnings, err := LoadEnvoy(flagsOf(t, "--log-level=loud"), []string{
		"PORT=abc", "BACKEND_TYPE=memcache", "CONFIG_TYPE=REDIS", "SOMETHING_ELSE=x", "REDIS_PORT=tcp://10.0.0.1:6379",
		"EXTRA_TAGS=a:b", "REDIS_PERSECOND=true", "RATELIMITD_STORE=disk",
	})
	want := []string{
		`variable PORT: found "abc"; allowed: an integer from 0 to 65535`,
		`variable CONFIG_TYPE: found "REDIS"; allowed: FILE, or GRPC_XDS_SOTW for limits from an xDS server`,
		`variable BACKEND_TYPE: found "memcache"; allowed: redis, or memory for limits of this daemon alone, which only ratelimitd has; memcache is an error`,
		`flag --log-level: found "loud"; allowed: debug, info, warn or error`,
	}
	if err == nil || err.Error() != strings.Join(want, "\n") {
		t.Errorf("got\n%v\nwant\n%s", err, strings.Join(want, "\n"))
	}
	if len(warnings) != 2 || !strings.Contains(warnings[0], "REDIS_PERSECOND (") || !strings.Contains(warnings[0], "; EXTRA_TAGS (") {
		t.Errorf("warnings %q", warnings)
	}
	if want := "variables of the daemon's own settings, which are not read under the name ratelimit: RATELIMITD_STORE (use --store)"; warnings[1] != want {
		t.Errorf("got %s, want %s", warnings[1], want)
	}
}

func TestFlagsGoBeforeTheEnvoyEnvironment(t *testing.T) {
	s, _, err := LoadEnvoy(flagsOf(t, "--failure-mode=local", "--http-address=", "--redis-timeout=50ms"), overTCP)
	if err != nil || s.Failure.Mode != bucket.FailLocal || s.HTTP.Address != "" || s.Redis.Timeout != 50*time.Millisecond {
		t.Errorf("%v, %v", s, err)
	}
}

// With a tokens file the admin API is on at any address.
func TestATokensFileOpensTheAdminAPIOfDebugHost(t *testing.T) {
	tokens := filepath.Join(t.TempDir(), "tokens.yaml")
	if err := os.WriteFile(tokens, []byte("[]"), 0o600); err != nil {
		t.Fatal(err)
	}
	fs := pflag.NewFlagSet("ratelimit", pflag.ContinueOnError)
	BindFlags(fs)
	if err := fs.Parse([]string{"--admin-tokens-file", tokens}); err != nil {
		t.Fatal(err)
	}
	_, warnings, err := LoadEnvoy(fs, append([]string{"DEBUG_HOST=0.0.0.0"}, overTCP...))
	if err != nil || strings.Contains(strings.Join(warnings, "\n"), "is off") {
		t.Errorf("%v, %q", err, warnings)
	}
}
