package settings

import (
	"log/slog"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// section is a part of the table, with its title in help.
type section struct {
	title    string
	settings []setting
}

// setting is one row of the table.
type setting struct {
	name string // as in "redis.hash_tags"
	kind
	byDefault string
	help      string
}

// maxConnectionAge is a year.
const maxConnectionAge = 365 * 24 * time.Hour

// allSettings returns all rows of the table.
func allSettings() (all []setting) {
	for _, s := range sections() {
		all = append(all, s.settings...)
	}
	return all
}

// sections is the table of settings: the only place with their names, values, defaults
// and help, in this order. Fields of Settings, flags, variables and the file follow from
// the names. Help has a line of 80 columns for each; deploy/ratelimitd.yaml says the rest.
func sections() []section {
	const (
		cert        = "certificate chain in PEM"
		key         = "private key in PEM"
		clientCA    = "certificates that sign clients'"
		clientNames = "names that clients' must bear"
	)
	return []section{
		{"Limits", []setting{
			{"limits.source", choices(SourceFiles, SourceXDS), "files", "files, or an xDS server"},
			{"limits.path", requiredKind("a path"), "/etc/ratelimitd/limits", "file or folder"},
			{"limits.watch", boolKind, "true", "load files again when they change"},
			{"limits.merge_domains", boolKind, "false", "several files may share a domain"},
			{"limits.lenient", boolKind, "false", "accept what envoyproxy/ratelimit does"},
			{"limits.shadow_mode", boolKind, "false", "deny no request"},
			{"limits.quota_mode", boolKind, "false", "treat all limits as quotas"},
			{"limits.unmatched", choices(AllowUnmatched, DenyUnmatched), "allow", "what descriptors without a rule get"},
			{"limits.initial", choices(InitialRequired, InitialOptional), "required", "must limits load at start?"},
			{"limits.ready_when_empty", boolKind, "true", "be ready without any domain"},
			{"limits.ready_before_loaded", boolKind, "false", "be ready before limits are loaded"},
		}},
		{"Limits from an xDS server", []setting{
			{"limits.xds.address", dialKind, "", "the xDS server"},
			{"limits.xds.node_id", requiredKind("a name"), "ratelimitd", "this daemon's name there"},
			{"limits.xds.node_metadata", pairsKind, "", "what else the server is told"},
			{"limits.xds.headers", headersKind, "", "headers for it"},
			{"limits.xds.tls.enabled", boolKind, "false", "connect with TLS"},
			{"limits.xds.tls.ca", pathKind, "", "certificates that sign the server's"},
			{"limits.xds.tls.cert", pathKind, "", "own certificate chain"},
			{"limits.xds.tls.key", pathKind, "", "own private key"},
			{"limits.xds.tls.server_name", nameKind, "", "name in its certificate"},
			{"limits.xds.max_bytes", integers(64<<10, 1<<30), "67108864", "bytes of a configuration"},
			{"limits.cache_path", pathKind, "", "file for the server's last good limits"},
		}},
		{"Store", []setting{
			{"store", choices(StoreMemory, StoreRedis), "memory", "where state lives"},
			{"memory.max_keys", integers(1, 1_000_000_000), "1000000", "states that are kept at most"},
			{"memory.max_bytes", orAuto(integers(1<<20, 1<<40), int64(0)), "auto", "bytes that these take at most"},
			{"memory.when_full", choices(AllowWhenFull, DenyWhenFull, EvictWhenFull), "allow", "a new key when it is full"},
		}},
		{"Redis", []setting{
			{"redis.mode", choices(RedisSingle, RedisSentinel, RedisCluster), "single", "how Redis is run"},
			{"redis.addresses", addressesKind, "127.0.0.1:6379", "where it is"},
			{"redis.database", integers(0, 65535), "0", "number of the database; 0 on a cluster"},
			{"redis.username", nameKind, "", "ACL user"},
			{"redis.password", secretKind, "", "password"},
			{"redis.password_file", pathKind, "", "file of the password"},
			{"redis.sentinel_master", nameKind, "", "the master's name among the sentinels"},
			{"redis.sentinel_username", nameKind, "", "ACL user of the sentinels themselves"},
			{"redis.sentinel_password", secretKind, "", "password of the sentinels themselves"},
			{"redis.tls.enabled", boolKind, "false", "connect to Redis with TLS"},
			{"redis.tls.ca", pathKind, "", "certificates that sign Redis's"},
			{"redis.tls.cert", pathKind, "", "own certificate chain"},
			{"redis.tls.key", pathKind, "", "own private key"},
			{"redis.tls.server_name", nameKind, "", "name in Redis's certificate"},
			{"redis.tls.insecure_any_server_name", boolKind, "false", "take any name there"},
			{"redis.prefix", prefixKind, "rl", "start of every key"},
			{"redis.hash_tags", integers(1, 16384), "32", "hash tags that keys are spread over"},
			{"redis.timeout", durations(time.Millisecond, 10*time.Second), "100ms", "how long one operation may take"},
			{"redis.batch.size", integers(1, 10_000), "1000", "limits in one batch at most"},
			{"redis.batch.in_flight", integers(1, 64), "1", "batches on the way to a node"},
			{"redis.batch.queue", integers(1, 1_000_000), "10000", "requests that wait at most, a node"},
			{"redis.denial_memory", durations(0, time.Second), "1s", "how long a denial is known here"},
			{"redis.denial_bytes", integers(1<<20, 1<<30), "16777216", "bytes that denials take at most"},
			{"redis.max_clock_skew", durations(time.Second, time.Hour), "10s", "how far ahead a state may be"},
		}},
		{"While Redis does not answer", []setting{
			{"failure.mode", choicesOf(bucket.FailureMode.String, bucket.FailureModes()...), "local", "what answers in its place"},
			{"failure.replicas", orAuto(integers(1, 10_000), int64(0)), "auto", "daemons that share the limits"},
			{"failure.health", choices(HealthServing, HealthNotServing, HealthFirstAnswer), "serving", "what health says"},
		}},
		{"Assignments", []setting{
			{"assignments.path", pathKind, "/var/lib/ratelimitd/assignments.db", "the file"},
			{"assignments.cache_path", pathKind, "", "a snapshot of those in Redis"},
			{"assignments.max", integers(1, 10_000_000), "1000000", "assignments at most"},
			{"assignments.max_records", integers(1000, 10_000_000), "100000", "records of changes at most"},
			{"assignments.relief_times", integers(0, 100), "2", "relief by support, in times the number"},
			{"assignments.relief_for", durations(time.Second, 31*24*time.Hour), "24h", "how long it lasts at most"},
		}},
		{"gRPC port", []setting{
			{"grpc.address", listenKind, ":8081", "where gRPC listens"},
			{"grpc.socket", pathKind, "", "unix socket, instead of the address"},
			{"grpc.tls.cert", pathKind, "", cert},
			{"grpc.tls.key", pathKind, "", key},
			{"grpc.tls.client_ca", pathKind, "", clientCA},
			{"grpc.tls.client_names", certNamesKind, "", clientNames},
			{"grpc.max_connection_age", durations(0, maxConnectionAge), "30m", "age at which a connection ends"},
			{"grpc.max_connection_age_grace", durations(0, maxConnectionAge), "10s", "time for its last calls"},
			{"grpc.max_descriptors", integers(1, 10_000), "100", "descriptors of a request"},
			{"grpc.max_takes", integers(128, 10_000), "1000", "requests in one message"},
			{"grpc.max_entries", integers(1, 1_000), "32", "entries of a descriptor"},
			{"grpc.max_bytes", integers(1<<10, 1<<24), "1048576", "bytes of text in a request"},
		}},
		{"HTTP port", []setting{
			{"http.address", orEmpty(listenKind, "off"), ":8080", "where HTTP listens"},
			{"http.tls.cert", pathKind, "", cert},
			{"http.tls.key", pathKind, "", key},
			{"http.tls.client_ca", pathKind, "", clientCA},
			{"http.tls.client_names", certNamesKind, "", clientNames},
		}},
		{"APIs", []setting{
			{"api.refunds", boolKind, "true", "take refunds"},
			{"api.max_settle_within", durations(time.Second, bucket.MaxReservation), "24h", "how long takes can be settled"},
			{"api.callers_file", pathKind, "", "file that says who may ask limits"},
			{"api.dynamic_metadata", boolKind, "false", "repeat the request in the answer"},
			{"auth.path", pathKind, "", "file for forward auth"},
			{"headers.style", choices(HeadersNone, HeadersRateLimit, HeadersXRateLimit, HeadersIETF), "none", "headers for callers"},
			{"headers.limit", headerKind, "RateLimit-Limit", "header with the requests"},
			{"headers.remaining", headerKind, "RateLimit-Remaining", "header with the rest"},
			{"headers.reset", headerKind, "RateLimit-Reset", "header with the seconds"},
		}},
		{"Admin port", []setting{
			{"admin.address", orEmpty(listenKind, "off"), "127.0.0.1:6070", "where it listens"},
			{"admin.tokens_file", pathKind, "", "file that says who may do what"},
			{"admin.tls.cert", pathKind, "", cert},
			{"admin.tls.key", pathKind, "", key},
			{"admin.tls.client_ca", pathKind, "", clientCA},
			{"admin.tls.client_names", certNamesKind, "", clientNames},
			{"admin.pprof", boolKind, "true", "serve profiles, on loopback only"},
		}},
		{"Metrics", []setting{
			{"metrics.address", orEmpty(listenKind, "off"), "", "where a port for metrics alone listens"},
			{"metrics.path", urlPathKind, "/metrics", "path of the metrics there"},
			{"metrics.names", choices(NamesRatelimitd, NamesEnvoyproxy), "ratelimitd", "envoyproxy's names too"},
			{"metrics.near_ratio", ratios(", such as 0.8"), "0.8", "part of a limit that counts as near"},
			{"metrics.max_rules", integers(1, 100_000), "5000", "rules with series of their own"},
		}},
		{"Who had the most", []setting{
			{"top.subjects", choices(TopDenied, TopAll, TopOff), "denied", "whose subjects are kept for top"},
			{"top.memory", integers(1<<20, 1<<36), "67108864", "bytes that these take at most"},
		}},
		{"Tracing", []setting{
			{"tracing.enabled", boolKind, "false", "send spans over OTLP"},
			{"tracing.endpoint", endpointKind, "", "of the collector"},
			{"tracing.protocol", choices(TracingAuto, TracingHTTP, TracingGRPC), "auto", "protocol of OTLP"},
			{"tracing.sample_ratio", orAuto(ratios(""), -1.0), "auto", "share that is sampled"},
			{"tracing.propagators", wordsKind("tracecontext", "b3", "b3multi", "baggage", "none"), "", "formats of callers' traces"},
			{"tracing.service_name", nameKind, "", "service.name of spans"},
			{"tracing.service_namespace", nameKind, "", "service.namespace of spans"},
			{"tracing.service_instance_id", nameKind, "", "service.instance.id of spans"},
			{"tracing.values", boolKind, "false", "put values into spans"},
		}},
		{"Log of decisions", []setting{
			{"decisions.path", pathKind, "", "file of the log, or - for standard output"},
			{"decisions.sample.allowed", ratios(", such as 0.8"), "1", "share of allowed requests"},
			{"decisions.sample.denied", ratios(", such as 0.8"), "1", "share of all other requests"},
			{"decisions.per_subject", integers(0, 1_000_000), "10", "lines a second for one subject"},
			{"decisions.bytes_per_second", integers(0, 1<<40), "8388608", "bytes of lines a second"},
			{"decisions.values", choices(KeepValues, HashValues), "keep", "keep values, or hash them"},
			{"decisions.hash_key_file", pathKind, "", "file with the key for their hashes"},
			{"decisions.max_size", integers(0, 1<<40), "104857600", "bytes of a file; 0: any"},
			{"decisions.keep", integers(1, 10_000), "10", "rotated files that are kept"},
			{"decisions.compress", boolKind, "true", "compress rotated files with gzip"},
			{"decisions.buffer", integers(1<<20, 1<<30), "8388608", "bytes that may wait to be written"},
			{"decisions.otlp.endpoint", endpointKind, "", "collector that gets the lines"},
			{"decisions.otlp.protocol", choices(TracingAuto, TracingHTTP, TracingGRPC), "auto", "protocol of OTLP"},
		}},
		{"The process", []setting{
			{"statsd.address", dialKind, "", "the server that gets counts"},
			{"statsd.protocol", choices(StatsdUDP, StatsdTCP), "udp", "how they go there"},
			{"statsd.prefix", nameKind, "", "what stands before their names"},
			{"statsd.tags", pairsKind, "", "tags of all counts"},
			{"statsd.dog", boolKind, "false", "tags beside names: DogStatsD"},
			{"statsd.rules", statsdRulesKind, "", "rules that change names"},
			{"statsd.interval", durations(time.Second, time.Hour), "10s", "how often they are sent"},
			{"request_memory", orAuto(integers(16<<20, 1<<40), int64(0)), "auto", "bytes that all requests may hold"},
			{"drain_delay", durations(0, 10*time.Minute), "3s", "how long to go on answering after SIGTERM"},
			{"log.level", choicesOf(levelWord, slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError), "info", "least level that is logged"},
			{"log.format", choices(LogText, LogJSON), "text", "how log lines look"},
		}},
	}
}
