package settings

import (
	"fmt"
	"log/slog"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/filetest"
)

const samplePath = "../../../deploy/ratelimitd.yaml"

// settingsIn writes a settings file and returns its path.
func settingsIn(t *testing.T, content string) string {
	t.Helper()
	return filetest.Write(t, t.TempDir(), "s.yaml", content)
}

// flagsOf parses args as serve would.
func flagsOf(t *testing.T, args ...string) *pflag.FlagSet {
	t.Helper()
	fs := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	BindFlags(fs)
	if err := fs.Parse(args); err != nil {
		t.Fatal(err)
	}
	return fs
}

func TestDefaultsNeedNoSource(t *testing.T) {
	got, warnings, err := Load(nil, nil, "")
	if err != nil || len(warnings) != 0 || !reflect.DeepEqual(got, Default()) {
		t.Errorf("Load of nothing:\n got %v, %q, %v\nwant %v", got, warnings, err, Default())
	}
	if got.Log.Level != slog.LevelInfo || got.Failure.Mode != bucket.FailLocal || got.Tracing.SampleRatio != -1 || got.Memory.MaxBytes != 0 {
		t.Errorf("defaults that are spelt otherwise: %v", got)
	}
}

// Each set of sources is given, one value from each.
func TestFlagsGoBeforeVariablesBeforeTheFile(t *testing.T) {
	for name, values := range map[string][3]string{
		"store":                   {"redis", "memory", "redis"},
		"limits.watch":            {"false", "true", "false"},
		"limits.path":             {"a", "b", "c"},
		"limits.xds.headers":      {"a:1", "b:2", "c:3"},
		"limits.xds.tls.enabled":  {"true", "false", "true"},
		"redis.addresses":         {"a:1", "b:2", "c:3"},
		"redis.password":          {"a", "b", "c"},
		"redis.batch.size":        {"1", "2", "3"},
		"redis.timeout":           {"1ms", "2ms", "3ms"},
		"failure.replicas":        {"1", "auto", "3"},
		"metrics.near_ratio":      {"0.1", "0.2", "0.3"},
		"http.address":            {":1", "", ":3"},
		"log.level":               {"warn", "error", "debug"},
		"decisions.sample.denied": {"0.1", "0.2", "0.3"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newLoader().lookup(name)
			for sources := range 8 {
				want, path := d.byDefault, ""
				var environ, args []string
				if sources&1 != 0 {
					want = values[0]
					path = settingsIn(t, inYAML(*d, want))
				}
				if sources&2 != 0 {
					want = values[1]
					environ = append(environ, "RATELIMITD_"+strings.ToUpper(strings.ReplaceAll(name, ".", "_"))+"="+want)
				}
				if sources&4 != 0 && !d.secret {
					want = values[2]
					args = append(args, "--"+strings.NewReplacer(".", "-", "_", "-").Replace(name)+"="+want)
				}
				// Not Load, which also checks what several settings do together.
				l := newLoader()
				l.addFile(path)
				l.addEnvironment(environ)
				l.addFlags(flagsOf(t, args...))
				if len(l.errs) != 0 || len(l.warnings) != 0 {
					t.Fatalf("sources %03b: %v %v", sources, l.errs, l.warnings)
				}
				base := newLoader()
				base.set(d, want, "")
				if got, expected := l.decode(), base.decode(); !reflect.DeepEqual(got, expected) {
					t.Errorf("sources %03b:\n got %v\nwant %v", sources, got, expected)
				}
			}
		})
	}
}

// inYAML writes one setting as the sample would.
func inYAML(d setting, value string) string {
	var b strings.Builder
	parts := strings.Split(d.name, ".")
	for i, part := range parts {
		fmt.Fprintf(&b, "%s%s:", strings.Repeat("  ", i), part)
		if i < len(parts)-1 {
			b.WriteByte('\n')
		}
	}
	fmt.Fprintf(&b, " %q\n", value)
	return b.String()
}

func TestSampleFileHasEachSettingWithItsDefault(t *testing.T) {
	got, warnings, err := Load(nil, nil, samplePath)
	if err != nil || len(warnings) != 0 {
		t.Fatalf("the sample does not load: %v %q", err, warnings)
	}
	if !reflect.DeepEqual(got, Default()) {
		t.Errorf("the sample's values are not the defaults:\n got %v\nwant %v", got, Default())
	}
	content, err := os.ReadFile(samplePath)
	if err != nil {
		t.Fatal(err)
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(content, &doc); err != nil {
		t.Fatal(err)
	}
	inSample := map[string]*yaml.Node{}
	var walk func(prefix string, n *yaml.Node)
	walk = func(prefix string, n *yaml.Node) {
		for i := 0; i+1 < len(n.Content); i += 2 {
			name, value := prefix+n.Content[i].Value, n.Content[i+1]
			if value.Kind == yaml.MappingNode {
				walk(name+".", value)
				continue
			}
			inSample[name] = value
		}
	}
	walk("", doc.Content[0])
	for _, d := range allSettings() {
		value := inSample[d.name]
		if value == nil {
			t.Errorf("the sample lacks %s", d.name)
			continue
		}
		text := value.Value
		for _, item := range value.Content {
			text = strings.TrimPrefix(text+","+item.Value, ",")
		}
		if text != d.byDefault {
			t.Errorf("the sample says %s: %q, the default is %q", d.name, text, d.byDefault)
		}
		delete(inSample, d.name)
	}
	for name := range inSample {
		t.Errorf("the sample has %s, which is no setting", name)
	}
	// The names and ranges in its comments, where a comment has them.
	if !strings.Contains(string(content), "RATELIMITD_MEMORY_MAX_KEYS    --memory-max-keys") {
		t.Error("the sample lacks the rule of names")
	}
}

func TestAListFlagGivenTwiceGrows(t *testing.T) {
	got, _, err := Load(flagsOf(t, "--redis-mode=cluster", "--redis-addresses=a:1, b:2", "--redis-addresses=[::1]:3"), nil, "")
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"a:1", "b:2", "[::1]:3"}; !reflect.DeepEqual(got.Redis.Addresses, want) {
		t.Errorf("got %q, want %q", got.Redis.Addresses, want)
	}
}

func TestABooleanFlagNeedsNoValue(t *testing.T) {
	got, _, err := Load(flagsOf(t, "--redis-tls-enabled", "--limits-watch=false"), nil, "")
	if err != nil || !got.Redis.TLS.Enabled || got.Limits.Watch {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestFlagsOfOthersAreNoSettings(t *testing.T) {
	fs := pflag.NewFlagSet("query", pflag.ContinueOnError)
	fs.String("store", "", "something else")
	if err := fs.Parse([]string{"--store=shop"}); err != nil {
		t.Fatal(err)
	}
	if got, _, err := Load(fs, nil, ""); err != nil || got.Store != "memory" {
		t.Errorf("got %v, %v", got.Store, err)
	}
}

// Unless it is asked for, it is off elsewhere without a word.
func TestPprofIsOnOnLoopbackOnly(t *testing.T) {
	for address, want := range map[string]bool{
		"127.0.0.1:6070": true, "127.8.8.8:1": true, "[::1]:6070": true, "localhost:0": true,
		":6070": false, "0.0.0.0:6070": false, "[::]:6070": false, "10.0.0.1:6070": false, "example.com:6070": false, "": false,
	} {
		t.Run(address, func(t *testing.T) {
			got, warnings, err := Load(nil, []string{"RATELIMITD_ADMIN_ADDRESS=" + address}, "")
			if err != nil || len(warnings) != 0 || got.Admin.Address != address || got.Admin.Pprof != want {
				t.Errorf("%q: got %v, %q, %v; want pprof %v", address, got.Admin, warnings, err, want)
			}
		})
	}
	if got, _, err := Load(nil, []string{"RATELIMITD_ADMIN_PPROF=false"}, ""); err != nil || got.Admin.Pprof {
		t.Errorf("off by wish: got %v, %v", got.Admin, err)
	}
}

func TestEachKindTakesItsValuesFromAFile(t *testing.T) {
	for _, c := range []struct{ yaml, show string }{
		{"memory: {max_keys: 2_000_000}", "memory.max_keys=2000000"},
		{"drain_delay: 0", "drain_delay=0s"},
		{"redis: {denial_memory: 0}", "redis.denial_memory=0s"},
		{"redis: {max_clock_skew: 1m}", "redis.max_clock_skew=1m"},
		{"redis: {batch: {size: 1, in_flight: 64, queue: 1_000_000}}", "redis.batch.size=1 redis.batch.in_flight=64 redis.batch.queue=1000000 "},
		{"failure: {replicas: 3}", "failure.replicas=3 "},
		{"failure: {replicas: '10000'}", "failure.replicas=10000 "},
		{"failure: {replicas: auto}", "failure.replicas=auto "},
		{"drain_delay: 10m", "drain_delay=10m"},
		{"redis: {timeout: 1.5s}", "redis.timeout=1.5s"},
		{"redis: {username: 007}", "redis.username=007"},
		{"redis: {username: 'true'}", "redis.username=true"},
		{"redis: {addresses: 'a:1'}", "redis.addresses=a:1"},
		{"redis: {addresses: 'unix:/run/r.sock'}", "redis.addresses=unix:/run/r.sock "},
		{"redis: {mode: cluster, addresses: 'a:1 , b:2'}", "redis.addresses=a:1,b:2"},
		{"redis: {mode: cluster, addresses: [a:1, 'b:2']}", "redis.addresses=a:1,b:2"},
		{"redis: {password: 12345}", "redis.password=***"},
		{"redis:", "redis.mode=single"},
		{"redis:\n  # all of it commented out\nstore: redis", "store=redis"},
		{"# nothing", "store=memory"},
		{"", "store=memory"},
		{"http: {address: ''}", "http.address= "},
		{"grpc: {address: '[::1]:0'}", "grpc.address=[::1]:0"},
		{"limits: {xds: {node_metadata: 'Zone=A,b=C'}}", "limits.xds.node_metadata=Zone=A,b=C "},
		{"memory: {max_keys: '5'}\nlimits: {watch: 'false'}", "memory.max_keys=5 "}, // quotes do not matter
		{"x: &a redis\nstore: *a", ""},                                              // an anchor needs a setting of its own
		{"log: {level: &l error}\nlimits: {path: *l}", "limits.path=error"},
		{"{store: redis, redis: {prefix: 'a-b_c:~'}}", "redis.prefix=a-b_c:~"},
	} {
		t.Run(c.yaml, func(t *testing.T) {
			got, _, err := Load(nil, nil, settingsIn(t, c.yaml))
			if c.show == "" {
				if err == nil {
					t.Errorf("%q loads", c.yaml)
				}
				return
			}
			if err != nil || !strings.Contains(got.String()+" ", c.show) {
				t.Errorf("%q: got %v, %v; want %s", c.yaml, got, err, c.show)
			}
		})
	}
}

// YAML would read 0123 as a number of base eight.
func TestATextIsTakenAsItIsWritten(t *testing.T) {
	got, _, err := Load(nil, nil, settingsIn(t, "redis: {password: 0123}"))
	if err != nil || got.Redis.Password.Reveal() != "0123" {
		t.Errorf("got %q, %v", got.Redis.Password.Reveal(), err)
	}
}
