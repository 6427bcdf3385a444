package settings

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/config/schematest"
)

// FILE stands for the settings file, DIR for a folder with a readable file "pem".
func TestEachErrorSaysWhereAndWhat(t *testing.T) {
	schema := schematest.Load(t, "settings.schema.json")
	for _, c := range []struct {
		name    string
		file    string
		environ []string
		args    []string
		want    []string
	}{
		{name: "unknown setting", file: "redis:\n  adresses: a:1\n",
			want: []string{"FILE: redis.adresses: found an unknown setting; did you mean redis.addresses?"}},
		{name: "unknown section", file: "reddis:\n  mode: single\n",
			want: []string{"FILE: reddis: found an unknown setting; did you mean redis?"}},
		{name: "another spelling", file: "memory: {maxKeys: 5, when-full: deny}",
			want: []string{
				"FILE: memory.maxKeys: found an unknown setting; did you mean memory.max_keys?",
				"FILE: memory.when-full: found an unknown setting; did you mean memory.when_full?",
			}},
		{name: "upper case", file: "Store: redis",
			want: []string{"FILE: Store: found an unknown setting; did you mean store?"}},
		{name: "dots and unknown", file: "redis.tls.cs: x",
			want: []string{"FILE: redis.tls.cs: found an unknown setting; did you mean redis.tls.ca?"}},
		{name: "duplicate", file: "store: redis\nlog: {level: info}\nstore: memory\n",
			want: []string{"FILE: settings: found a name twice, or one that is no text; allowed: a mapping of settings"}},
		{name: "two documents", file: "store: redis\n---\nstore: memory\n",
			want: []string{"FILE:2:1: found a second document; allowed: one document in a file"}},
		{name: "key that is none", file: "[a]: 1",
			want: []string{"FILE: settings: found a name twice, or one that is no text; allowed: a mapping of settings"}},
		{name: "no mapping", file: "- store",
			want: []string{"FILE: settings: found a list; allowed: a mapping of settings"}},
		{name: "no mapping in a section", file: "redis: true",
			want: []string{"FILE: redis: found a text, a number or a boolean; allowed: a mapping of settings"}},
		{name: "alias in itself", file: "redis: &r\n  tls: *r\n",
			want: []string{"FILE:2:8: found *r inside its own anchor; allowed: an alias after what it names"}},
		{name: "syntax", file: "redis:\n  mode: single\n mode: x\n",
			want: []string{"FILE:3:2: found no YAML: did not find expected key; allowed: as many blanks in front as the keys beside it have; quotes around all of a text, and none that stays open above"}},
		{name: "tab", file: "redis:\n\tmode: single\n",
			want: []string{"FILE:2:1: found a tab in the indentation; allowed: blanks; YAML takes no tab there"}},
		{name: "no anchor", file: "store: redis\nredis:\n  username: *me\n",
			want: []string{"FILE:3:15: found no YAML: an alias without its anchor; allowed: quotes around a text that begins with *"}},
		{name: "control characters", file: "store: \x01",
			want: []string{`FILE:1:8: found the character U+0001; allowed: text; other characters stand as \x or \u escapes in double quotes`}},

		{name: "null", file: "http:\n  address:\nlimits: {path: ~}\n",
			want: []string{
				`FILE: http.address: found no value; allowed: host:port, or :port for all addresses, port 0 to 65535, or empty for off`,
				`FILE: limits.path: found no value; allowed: a path`,
			}},
		{name: "wrong types", file: "limits: {watch: yes, path: [a]}\nredis: {database: 1.5, timeout: {a: b}}",
			want: []string{
				`FILE: limits.path: found a list; allowed: a path`,
				`FILE: limits.watch: found "yes"; allowed: true or false`,
				`FILE: redis.database: found "1.5"; allowed: an integer from 0 to 65535`,
				`FILE: redis.timeout: found a mapping; allowed: a duration from 1ms to 10s`,
			}},
		{name: "octal", file: "grpc: {max_entries: 010}",
			want: []string{`FILE: grpc.max_entries: found "010"; allowed: an integer from 1 to 1000`}},
		{name: "list", file: "redis:\n  addresses:\n    - a:1\n    - [b]\n",
			want: []string{`FILE: redis.addresses: found a list; allowed: one or more host:port, port 1 to 65535, or unix:/path`}},
		{name: "empty list", file: "redis: {addresses: []}",
			want: []string{`FILE: redis.addresses: found ""; allowed: one or more host:port, port 1 to 65535, or unix:/path`}},

		{name: "integers", environ: []string{"RATELIMITD_MEMORY_MAX_KEYS=0", "RATELIMITD_REDIS_HASH_TAGS=16385", "RATELIMITD_GRPC_MAX_BYTES=", "RATELIMITD_GRPC_MAX_ENTRIES=99999999999999999999"},
			want: []string{
				`variable RATELIMITD_MEMORY_MAX_KEYS: found "0"; allowed: an integer from 1 to 1000000000`,
				`variable RATELIMITD_REDIS_HASH_TAGS: found "16385"; allowed: an integer from 1 to 16384`,
				`variable RATELIMITD_GRPC_MAX_BYTES: found ""; allowed: an integer from 1024 to 16777216`,
				`variable RATELIMITD_GRPC_MAX_ENTRIES: found "99999999999999999999"; allowed: an integer from 1 to 1000`,
			}},
		{name: "durations", file: "drain_delay: 5", environ: []string{"RATELIMITD_REDIS_TIMEOUT=100"}, args: []string{"--drain-delay=11m", "--redis-timeout=soon"},
			want: []string{
				`FILE: drain_delay: found "5"; allowed: a duration from 0s to 10m`,
				`variable RATELIMITD_REDIS_TIMEOUT: found "100"; allowed: a duration from 1ms to 10s`,
				`flag --redis-timeout: found "soon"; allowed: a duration from 1ms to 10s`,
				`flag --drain-delay: found "11m"; allowed: a duration from 0s to 10m`,
			}},
		{name: "choices", args: []string{"--store=disk", "--log-level=INFO", "--memory-when-full="},
			want: []string{
				`flag --store: found "disk"; allowed: memory or redis`,
				`flag --memory-when-full: found ""; allowed: allow, deny or evict`,
				`flag --log-level: found "INFO"; allowed: debug, info, warn or error`,
			}},
		{name: "auto or a number", file: "failure: {replicas: 0}", environ: []string{"RATELIMITD_FAILURE_REPLICAS=10001"}, args: []string{"--failure-replicas=Auto"},
			want: []string{
				`FILE: failure.replicas: found "0"; allowed: auto or an integer from 1 to 10000`,
				`variable RATELIMITD_FAILURE_REPLICAS: found "10001"; allowed: auto or an integer from 1 to 10000`,
				`flag --failure-replicas: found "Auto"; allowed: auto or an integer from 1 to 10000`,
			}},
		{name: "batches and failures", file: "redis:\n  batch: {size: 10001, in_flight: 0}\n  denial_memory: 1001ms\n  max_clock_skew: 999ms\nfailure: {mode: open, health: not-serving, replica: 3}",
			want: []string{
				`FILE: failure.health: found "not-serving"; allowed: serving, not_serving or first_answer`,
				`FILE: failure.mode: found "open"; allowed: local, allow, deny or error`,
				`FILE: failure.replica: found an unknown setting; did you mean failure.replicas?`,
				`FILE: redis.batch.in_flight: found "0"; allowed: an integer from 1 to 64`,
				`FILE: redis.batch.size: found "10001"; allowed: an integer from 1 to 10000`,
				`FILE: redis.denial_memory: found "1001ms"; allowed: a duration from 0s to 1s`,
				`FILE: redis.max_clock_skew: found "999ms"; allowed: a duration from 1s to 1h`,
			}},
		{name: "bools", args: []string{"--limits-watch=maybe"},
			want: []string{`flag --limits-watch: found "maybe"; allowed: true or false`}},
		{name: "addresses to listen on", args: []string{"--grpc-address=", "--http-address=8080", "--admin-address=::1"},
			want: []string{
				`flag --grpc-address: found ""; allowed: host:port, or :port for all addresses, port 0 to 65535`,
				`flag --http-address: found "8080"; allowed: host:port, or :port for all addresses, port 0 to 65535, or empty for off`,
				`flag --admin-address: found "::1"; allowed: host:port, or :port for all addresses, port 0 to 65535, or empty for off`,
			}},
		{name: "ports", args: []string{"--grpc-address=:65536", "--http-address=:http", "--redis-addresses=a:0"},
			want: []string{
				`flag --redis-addresses: found "a:0"; allowed: one or more host:port, port 1 to 65535, or unix:/path`,
				`flag --grpc-address: found ":65536"; allowed: host:port, or :port for all addresses, port 0 to 65535`,
				`flag --http-address: found ":http"; allowed: host:port, or :port for all addresses, port 0 to 65535, or empty for off`,
			}},
		{name: "URL", environ: []string{"RATELIMITD_REDIS_ADDRESSES=a:1,redis://me:hunter2@b:2"},
			want: []string{`variable RATELIMITD_REDIS_ADDRESSES: found "***@b:2"; allowed: one or more host:port, port 1 to 65535, or unix:/path`}},
		{name: "port alone", environ: []string{"RATELIMITD_REDIS_ADDRESSES=6379"},
			want: []string{`variable RATELIMITD_REDIS_ADDRESSES: found "6379"; allowed: one or more host:port, port 1 to 65535, or unix:/path`}},
		{name: "trailing comma", environ: []string{"RATELIMITD_REDIS_ADDRESSES=a:1,"},
			want: []string{`variable RATELIMITD_REDIS_ADDRESSES: found "a:1,"; allowed: one or more host:port, port 1 to 65535, or unix:/path`}},
		{name: "no host", environ: []string{"RATELIMITD_REDIS_ADDRESSES=:6379"},
			want: []string{`variable RATELIMITD_REDIS_ADDRESSES: found ":6379"; allowed: one or more host:port, port 1 to 65535, or unix:/path`}},
		{name: "sockets", file: "redis: {addresses: /run/r.sock}", environ: []string{"RATELIMITD_REDIS_ADDRESSES=unix:r.sock"}, args: []string{"--redis-addresses=unix:///run/r.sock"},
			want: []string{
				`FILE: redis.addresses: found "/run/r.sock"; allowed: one or more host:port, port 1 to 65535, or unix:/path`,
				`variable RATELIMITD_REDIS_ADDRESSES: found "unix:r.sock"; allowed: one or more host:port, port 1 to 65535, or unix:/path`,
				`flag --redis-addresses: found "unix:///run/r.sock"; allowed: one or more host:port, port 1 to 65535, or unix:/path`,
			}},
		{name: "paths of metrics", file: "metrics: {path: /a/../b}", environ: []string{"RATELIMITD_METRICS_PATH=metrics"}, args: []string{"--metrics-path=/{x}"},
			want: []string{
				`FILE: metrics.path: found "/a/../b"; allowed: / and a path of letters, digits, dots, dashes, underscores and slashes`,
				`variable RATELIMITD_METRICS_PATH: found "metrics"; allowed: / and a path of letters, digits, dots, dashes, underscores and slashes`,
				`flag --metrics-path: found "/{x}"; allowed: / and a path of letters, digits, dots, dashes, underscores and slashes`,
			}},
		{name: "ratios", file: "metrics: {near_ratio: 1.01}", environ: []string{"RATELIMITD_METRICS_NEAR_RATIO=-0.1"}, args: []string{"--metrics-near-ratio=NaN"},
			want: []string{
				`FILE: metrics.near_ratio: found "1.01"; allowed: a number from 0 to 1`,
				`variable RATELIMITD_METRICS_NEAR_RATIO: found "-0.1"; allowed: a number from 0 to 1`,
				`flag --metrics-near-ratio: found "NaN"; allowed: a number from 0 to 1`,
			}},
		{name: "prefix", args: []string{"--redis-prefix=a{b"}, environ: []string{"RATELIMITD_REDIS_PREFIX="}, file: "redis: {prefix: a b}",
			want: []string{
				`FILE: redis.prefix: found "a b"; allowed: 1 to 32 printable ASCII characters without spaces and braces`,
				`variable RATELIMITD_REDIS_PREFIX: found ""; allowed: 1 to 32 printable ASCII characters without spaces and braces`,
				`flag --redis-prefix: found "a{b"; allowed: 1 to 32 printable ASCII characters without spaces and braces`,
			}},
		{name: "long prefix", args: []string{"--redis-prefix=" + strings.Repeat("é", 70)},
			want: []string{`flag --redis-prefix: found "` + strings.Repeat("é", 60) + `..."; allowed: 1 to 32 printable ASCII characters without spaces and braces`}},
		{name: "empty path", args: []string{"--limits-path="}, want: []string{`flag --limits-path: found ""; allowed: a path`}},
		{name: "NUL in a path", args: []string{"--limits-path=a\x00"}, want: []string{`flag --limits-path: found "a\x00"; allowed: a path`}},
		{name: "overridden and still wrong", file: "store: disk", args: []string{"--store=redis"},
			want: []string{`FILE: store: found "disk"; allowed: memory or redis`}},

		{name: "sentinel without a master", file: "store: redis\nredis:\n  mode: sentinel\n",
			want: []string{"FILE: redis.mode is sentinel and redis.sentinel_master is not set; it is the name that sentinel.conf gives the master"}},
		{name: "two passwords", file: "store: redis\nredis: {password: hunter2}", args: []string{"--redis-password-file=DIR/pem"},
			want: []string{"FILE: redis.password and redis.password_file are both set; leave one empty"}},
		{name: "several servers", args: []string{"--store=redis", "--redis-addresses=a:1,b:2"},
			want: []string{"flag --redis-addresses: redis.addresses are several and redis.mode is single, which has one; is it cluster (or sentinel)?"}},
		{name: "a socket of a cluster", args: []string{"--store=redis", "--redis-addresses=unix:/r.sock,a:1", "--redis-mode=cluster"},
			want: []string{"flag --redis-addresses: redis.addresses name a unix socket and redis.mode is cluster, which leads to other machines; a socket is for mode single"}},
		{name: "TLS over a socket", args: []string{"--store=redis", "--redis-addresses=unix:/r.sock", "--redis-tls-enabled"},
			want: []string{"flag --redis-addresses: redis.addresses name a unix socket, which has no host name to hold against the certificate; set redis.tls.server_name"}},
		{name: "database of a cluster", environ: []string{"RATELIMITD_STORE=redis", "RATELIMITD_REDIS_MODE=cluster", "RATELIMITD_REDIS_DATABASE=1"},
			want: []string{"variable RATELIMITD_REDIS_DATABASE: redis.database is not 0 and redis.mode is cluster, which has database 0 only"}},
		{name: "half a pair for Redis", args: []string{"--store=redis", "--redis-tls-enabled", "--redis-tls-key=DIR/pem"},
			want: []string{"flag --redis-tls-key: redis.tls.key is set and redis.tls.cert is not; they come together"}},
		{name: "half a pair", args: []string{"--grpc-tls-cert=DIR/pem", "--http-tls-key=DIR/pem"},
			want: []string{
				"flag --grpc-tls-cert: grpc.tls.cert is set and grpc.tls.key is not; they come together",
				"flag --http-tls-key: http.tls.key is set and http.tls.cert is not; they come together",
			}},
		{name: "client CA without TLS", args: []string{"--http-tls-client-ca=DIR/pem"},
			want: []string{"flag --http-tls-client-ca: http.tls.client_ca is set and http.tls.cert and http.tls.key are not; without TLS there are no client certificates"}},
		{name: "names of clients without a CA", args: []string{"--grpc-tls-cert=DIR/pem", "--grpc-tls-key=DIR/pem", "--grpc-tls-client-names=a.test"},
			want: []string{"flag --grpc-tls-client-names: grpc.tls.client_names is set and grpc.tls.client_ca is not; without it clients are not asked for certificates"}},
		{name: "HTTP is the way around the names", args: []string{"--grpc-tls-cert=DIR/pem", "--grpc-tls-key=DIR/pem", "--grpc-tls-client-ca=DIR/pem", "--grpc-tls-client-names=a.test",
			"--http-tls-cert=DIR/pem", "--http-tls-key=DIR/pem", "--http-tls-client-ca=DIR/pem"},
			want: []string{`flag --grpc-tls-client-names: grpc.tls.client_names says who may ask over gRPC, and HTTP on ":8080" would take the same requests from other clients; set http.tls.client_names too, or http.address to empty`}},
		{name: "names that none bears", args: []string{"--grpc-tls-client-names=a.test,*.b.test", "--http-tls-client-names=a.test,"},
			want: []string{
				`flag --grpc-tls-client-names: found "a.test,*.b.test"; allowed: DNS names, IP addresses or URIs, or empty for none`,
				`flag --http-tls-client-names: found "a.test,"; allowed: DNS names, IP addresses or URIs, or empty for none`,
			}},
		{name: "any name and one", args: []string{"--store=redis", "--redis-tls-enabled", "--redis-tls-insecure-any-server-name", "--redis-tls-server-name=r"},
			want: []string{"flag --redis-tls-insecure-any-server-name: redis.tls.insecure_any_server_name is true and redis.tls.server_name is set; leave one out"}},
		{name: "HTTP is the way around", args: []string{"--grpc-tls-cert=DIR/pem", "--grpc-tls-key=DIR/pem", "--grpc-tls-client-ca=DIR/pem", "--http-tls-cert=DIR/pem", "--http-tls-key=DIR/pem"},
			want: []string{`flag --grpc-tls-client-ca: grpc.tls.client_ca asks gRPC's clients for certificates, and HTTP on ":8080" would take the same requests from anyone; set http.tls.cert, http.tls.key and http.tls.client_ca too, or http.address to empty`}},
		{name: "headers that are none", args: []string{"--headers-style=ietf2", "--headers-limit=", "--headers-remaining=X Rate", "--headers-reset=Ré"},
			want: []string{
				`flag --headers-style: found "ietf2"; allowed: none, ratelimit, x-ratelimit or ietf`,
				"flag --headers-limit: found \"\"; allowed: 1 to 64 letters, digits and !#$%&'*+-.^_`|~",
				"flag --headers-remaining: found \"X Rate\"; allowed: 1 to 64 letters, digits and !#$%&'*+-.^_`|~",
				"flag --headers-reset: found \"Ré\"; allowed: 1 to 64 letters, digits and !#$%&'*+-.^_`|~",
			}},
		{name: "a header twice", args: []string{"--headers-style=ratelimit", "--headers-reset=ratelimit-LIMIT", "--headers-remaining=Retry-After"},
			want: []string{
				`flag --headers-remaining: headers.remaining is "Retry-After", which HTTP uses; name another header`,
				`flag --headers-reset: headers.reset is "ratelimit-LIMIT", which headers.limit uses; name another header`,
			}},
		{name: "headers of HTTP itself", args: []string{"--headers-style=ratelimit", "--headers-limit=Content-Length", "--headers-reset=connection"},
			want: []string{
				`flag --headers-limit: headers.limit is "Content-Length", which HTTP uses; name another header`,
				`flag --headers-reset: headers.reset is "connection", which HTTP uses; name another header`,
			}},
		{name: "pprof for all", file: "admin:\n  pprof: true\n", args: []string{"--admin-address=:6070"},
			want: []string{`FILE: admin.pprof is true and admin.address ":6070" is not loopback: profiles contain what is in memory, secrets too, and are served on loopback only; set admin.pprof to false or admin.address to 127.0.0.1:6070`}},
		{name: "missing files", file: "grpc: {tls: {cert: DIR/none, key: DIR/pem}}", args: []string{"--store=redis", "--redis-password-file=DIR"},
			want: []string{
				"flag --redis-password-file: redis.password_file: found a file that can't be read: read DIR: is a directory",
				"FILE: grpc.tls.cert: found a file that can't be read: open DIR/none: no such file or directory",
			}},
		{name: "forward auth without HTTP and its file", file: "auth: {path: DIR/none}\nhttp: {address: ''}",
			want: []string{
				"FILE: auth.path is set and http.address is empty, which is where proxies ask; set it, or auth.path to empty",
				"FILE: auth.path: found a file that can't be read: open DIR/none: no such file or directory",
			}},
		{name: "values and what they do together", file: "store: redis\nredis: {mode: sentinel, addresses: x}", args: []string{"--grpc-tls-cert=DIR/pem"},
			want: []string{
				`FILE: redis.addresses: found "x"; allowed: one or more host:port, port 1 to 65535, or unix:/path`,
				"flag --grpc-tls-cert: grpc.tls.cert is set and grpc.tls.key is not; they come together",
				"FILE: redis.mode is sentinel and redis.sentinel_master is not set; it is the name that sentinel.conf gives the master",
			}},
		{name: "no wrong conclusion from a wrong value", args: []string{"--store=redis", "--redis-mode=clusters", "--redis-addresses=a:1,b:2"},
			want: []string{"flag --redis-mode: found \"clusters\"; allowed: single, sentinel or cluster"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "pem"), []byte("x"), 0o600); err != nil {
				t.Fatal(err)
			}
			for i := range c.args {
				c.args[i] = strings.ReplaceAll(c.args[i], "DIR", dir)
			}
			path := ""
			if c.file != "" {
				refusedBySchema(t, schema, c.name, c.file)
				path = settingsIn(t, strings.ReplaceAll(c.file, "DIR", dir))
			}
			_, warnings, err := Load(flagsOf(t, c.args...), c.environ, path)
			if err == nil {
				t.Fatal("no error")
			}
			got := strings.ReplaceAll(err.Error(), dir, "DIR")
			if path != "" {
				got = strings.ReplaceAll(got, path, "FILE")
			}
			if want := strings.Join(c.want, "\n"); got != want {
				t.Errorf("\n got %s\nwant %s", got, want)
			}
			if len(warnings) != 0 {
				t.Errorf("warnings %q", warnings)
			}
		})
	}
}

func TestSettingsThatLookLikeConflictsAreGood(t *testing.T) {
	pem := settingsIn(t, "x")
	for name, args := range map[string][]string{
		"Redis half set up, and not used": {"--redis-mode=sentinel", "--redis-addresses=a:1,b:2", "--redis-password-file=/none", "--redis-tls-cert=/none"},
		"client CA with HTTP off":         {"--grpc-tls-cert=" + pem, "--grpc-tls-key=" + pem, "--grpc-tls-client-ca=" + pem, "--http-address="},
		"client CA on both": {"--grpc-tls-cert=" + pem, "--grpc-tls-key=" + pem, "--grpc-tls-client-ca=" + pem,
			"--http-tls-cert=" + pem, "--http-tls-key=" + pem, "--http-tls-client-ca=" + pem},
		"files of HTTP that is off": {"--http-address=", "--http-tls-cert=/none", "--http-tls-key=/none"},
		"sentinels":                 {"--store=redis", "--redis-mode=sentinel", "--redis-sentinel-master=m", "--redis-addresses=a:1,b:2", "--redis-database=3"},
		"a socket":                  {"--store=redis", "--redis-addresses=unix:/r.sock"},
		"any name over a socket":    {"--store=redis", "--redis-addresses=unix:/r.sock", "--redis-tls-enabled", "--redis-tls-insecure-any-server-name"},
		"names of clients on both": {"--grpc-tls-cert=" + pem, "--grpc-tls-key=" + pem, "--grpc-tls-client-ca=" + pem, "--grpc-tls-client-names=a.test",
			"--http-tls-cert=" + pem, "--http-tls-key=" + pem, "--http-tls-client-ca=" + pem, "--http-tls-client-names=b.test"},
		"TLS over a socket":       {"--store=redis", "--redis-addresses=unix:/r.sock", "--redis-tls-enabled", "--redis-tls-server-name=r"},
		"cluster":                 {"--store=redis", "--redis-mode=cluster", "--redis-addresses=a:1,b:2"},
		"not serving under error": {"--store=redis", "--failure-mode=error", "--failure-health=not_serving"},
		"a first answer":          {"--store=redis", "--failure-mode=local", "--failure-health=first_answer"},
		"health of an idle Redis": {"--failure-health=not_serving"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, warnings, err := Load(flagsOf(t, args...), nil, ""); err != nil || len(warnings) != 0 {
				t.Errorf("%s: %v %q", name, err, warnings)
			}
		})
	}
}

func TestAMissingFileIsToldWithOtherErrors(t *testing.T) {
	path := filepath.Join(t.TempDir(), "none.yaml")
	_, _, err := Load(flagsOf(t, "--store=disk"), nil, path)
	want := "read the settings file: open " + path + ": no such file or directory\n" +
		`flag --store: found "disk"; allowed: memory or redis`
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestUnknownVariablesAreWarnings(t *testing.T) {
	for _, c := range []struct{ assignment, want string }{
		{"RATELIMITD_REDIS_ADRESSES=a:1", "variable RATELIMITD_REDIS_ADRESSES: no setting has this name; did you mean RATELIMITD_REDIS_ADDRESSES?"},
		{"RATELIMITD_MEMORY_MAXKEYS=1", "variable RATELIMITD_MEMORY_MAXKEYS: no setting has this name; did you mean RATELIMITD_MEMORY_MAX_KEYS?"},
		{"RATELIMITD_CONFIGS=x", "variable RATELIMITD_CONFIGS: no setting has this name; did you mean RATELIMITD_CONFIG?"},
		{"RATELIMITD_ZEBRAS_IN_THE_STREET=x", "variable RATELIMITD_ZEBRAS_IN_THE_STREET: no setting has this name"},
		{"RATELIMITD_=x", "variable RATELIMITD_: no setting has this name"},
		{"RATELIMITD_CONFIG=/etc/x.yaml", ""},
		{"RATELIMITD_TOKEN=secret", ""},
		{"RATELIMITD=x", ""},
		{"ratelimitd_store=x", ""},
		{"OTHER_STORE=x", ""},
		{"RATELIMITD_SERVICE_HOST=10.0.0.1", ""},
		{"RATELIMITD_PORT=tcp://10.0.0.1:8081", ""},
		{"RATELIMITD_PORT_8081_TCP=tcp://10.0.0.1:8081", ""},
		{"RATELIMITD_GRPC_SERVICE_PORT_HTTP_JSON=8080", ""},
		{"RATELIMITD_GRPC_PORT=tcp://10.0.0.1:8081", ""},
	} {
		t.Run(c.assignment, func(t *testing.T) {
			_, warnings, err := Load(nil, []string{c.assignment}, "")
			if got := strings.Join(warnings, "\n"); err != nil || got != c.want {
				t.Errorf("%s: got %q, %v, want %q", c.assignment, got, err, c.want)
			}
		})
	}
}

func TestSettingsThatDoNothingAreWarnings(t *testing.T) {
	_, warnings, err := Load(flagsOf(t, "--store=redis", "--redis-tls-ca=/ca.pem"), nil, "")
	want := "flag --redis-tls-ca: redis.tls.ca is set and redis.tls.enabled is false: the connection to Redis is without TLS"
	if err != nil || strings.Join(warnings, "\n") != want {
		t.Errorf("idle TLS: got %q, %v", warnings, err)
	}
	_, warnings, err = Load(flagsOf(t, "--store=redis", "--failure-mode=deny"), []string{"RATELIMITD_FAILURE_HEALTH=not_serving"}, "")
	want = "variable RATELIMITD_FAILURE_HEALTH: failure.health is not_serving and failure.mode is deny: the daemon answers without Redis and stays serving; failure.health counts with the mode error only"
	if err != nil || strings.Join(warnings, "\n") != want {
		t.Errorf("idle health: got %q, %v", warnings, err)
	}
}

// os.Getenv takes the first too.
func TestTheFirstOfTwoEqualVariablesCounts(t *testing.T) {
	got, _, err := Load(nil, []string{"RATELIMITD_STORE=redis", "RATELIMITD_STORE=memory"}, "")
	if err != nil || got.Store != "redis" {
		t.Errorf("got %s, %v", got.Store, err)
	}
}
