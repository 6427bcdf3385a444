package settings

import (
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// maxConnectionAge is a year.
const maxConnectionAge = 365 * 24 * time.Hour

// allSettings is the table of settings: the only place with their names, defaults, kinds
// and help. Flags, variables and the file follow from it. Help has a line of 80 columns
// for each; deploy/ratelimitd.yaml says the rest.
func allSettings() []setting {
	cert := "certificate chain in PEM"
	key := "private key in PEM"
	clientCA := "certificates that sign clients'"
	clientNames := "names that clients' must bear"
	return []setting{
		defineSetting("limits.source", choiceSetting(SourceFiles, SourceXDS), "files",
			"files, or an xDS server", func(s *Settings) *Source { return &s.Limits.Source }),
		defineSetting("limits.path", textSetting("a path", true), "/etc/ratelimitd/limits",
			"file or folder", func(s *Settings) *string { return &s.Limits.Path }),
		defineSetting("limits.watch", boolSetting(), "true",
			"load files again when they change", func(s *Settings) *bool { return &s.Limits.Watch }),
		defineSetting("limits.merge_domains", boolSetting(), "false",
			"several files may share a domain", func(s *Settings) *bool { return &s.Limits.MergeDomains }),
		defineSetting("limits.lenient", boolSetting(), "false",
			"accept what envoyproxy/ratelimit does", func(s *Settings) *bool { return &s.Limits.Lenient }),
		defineSetting("limits.shadow_mode", boolSetting(), "false",
			"deny no request", func(s *Settings) *bool { return &s.Limits.ShadowMode }),
		defineSetting("limits.quota_mode", boolSetting(), "false",
			"treat all limits as quotas", func(s *Settings) *bool { return &s.Limits.QuotaMode }),
		defineSetting("limits.unmatched", choiceSetting(AllowUnmatched, DenyUnmatched), "allow",
			"what descriptors without a rule get", func(s *Settings) *Unmatched { return &s.Limits.Unmatched }),
		defineSetting("limits.initial", choiceSetting(InitialRequired, InitialOptional), "required",
			"must limits load at start?", func(s *Settings) *Initial { return &s.Limits.Initial }),
		defineSetting("limits.ready_when_empty", boolSetting(), "true",
			"be ready without any domain", func(s *Settings) *bool { return &s.Limits.ReadyWhenEmpty }),
		defineSetting("limits.ready_before_loaded", boolSetting(), "false",
			"be ready before limits are loaded", func(s *Settings) *bool { return &s.Limits.ReadyBeforeLoaded }),
		defineSetting("limits.xds.address", dialSetting(), "",
			"the xDS server", func(s *Settings) *string { return &s.Limits.XDS.Address }),
		defineSetting("limits.xds.node_id", textSetting("a name", true), "ratelimitd",
			"this daemon's name there", func(s *Settings) *string { return &s.Limits.XDS.NodeID }),
		defineSetting("limits.xds.node_metadata", pairsSetting(), "",
			"what else the server is told", func(s *Settings) *map[string]string { return &s.Limits.XDS.NodeMetadata }),
		defineSetting("limits.xds.headers", headersSetting(), "",
			"headers for it", func(s *Settings) *HeaderSecrets { return &s.Limits.XDS.Headers }),
		defineSetting("limits.xds.tls.enabled", boolSetting(), "false",
			"connect with TLS", func(s *Settings) *bool { return &s.Limits.XDS.TLS.Enabled }),
		defineSetting("limits.xds.tls.ca", textSetting("a path", false), "",
			"certificates that sign the server's", func(s *Settings) *string { return &s.Limits.XDS.TLS.CA }),
		defineSetting("limits.xds.tls.cert", textSetting("a path", false), "",
			"own certificate chain", func(s *Settings) *string { return &s.Limits.XDS.TLS.Cert }),
		defineSetting("limits.xds.tls.key", textSetting("a path", false), "",
			"own private key", func(s *Settings) *string { return &s.Limits.XDS.TLS.Key }),
		defineSetting("limits.xds.tls.server_name", textSetting("a name", false), "",
			"name in its certificate", func(s *Settings) *string { return &s.Limits.XDS.TLS.ServerName }),
		defineSetting("limits.xds.max_bytes", integerSetting[int](64<<10, 1<<30), "67108864",
			"bytes of a configuration", func(s *Settings) *int { return &s.Limits.XDS.MaxBytes }),
		defineSetting("limits.cache_path", textSetting("a path", false), "",
			"file for the server's last good limits", func(s *Settings) *string { return &s.Limits.CachePath }),

		defineSetting("store", choiceSetting(StoreMemory, StoreRedis), "memory",
			"where state lives", func(s *Settings) *Store { return &s.Store }),
		defineSetting("memory.max_keys", integerSetting[int64](1, 1_000_000_000), "1000000",
			"states that are kept at most", func(s *Settings) *int64 { return &s.Memory.MaxKeys }),
		defineSetting("memory.max_bytes", autoSetting(1<<20, 1<<40), "auto",
			"bytes that these take at most", func(s *Settings) *int { return &s.Memory.MaxBytes }),
		defineSetting("memory.when_full", choiceSetting(AllowWhenFull, DenyWhenFull, EvictWhenFull), "allow",
			"a new key when it is full", func(s *Settings) *WhenFull { return &s.Memory.WhenFull }),

		defineSetting("redis.mode", choiceSetting(RedisSingle, RedisSentinel, RedisCluster), "single",
			"how Redis is run", func(s *Settings) *RedisMode { return &s.Redis.Mode }),
		defineSetting("redis.addresses", addressesSetting(), "127.0.0.1:6379",
			"where it is", func(s *Settings) *[]string { return &s.Redis.Addresses }),
		defineSetting("redis.database", integerSetting[int](0, 65535), "0",
			"number of the database; 0 on a cluster", func(s *Settings) *int { return &s.Redis.Database }),
		defineSetting("redis.username", textSetting("a name", false), "",
			"ACL user", func(s *Settings) *string { return &s.Redis.Username }),
		defineSetting("redis.password", secretSetting(), "",
			"password", func(s *Settings) *Secret { return &s.Redis.Password }),
		defineSetting("redis.password_file", textSetting("a path", false), "",
			"file of the password", func(s *Settings) *string { return &s.Redis.PasswordFile }),
		defineSetting("redis.sentinel_master", textSetting("a name", false), "",
			"the master's name among the sentinels", func(s *Settings) *string { return &s.Redis.SentinelMaster }),
		defineSetting("redis.sentinel_username", textSetting("a name", false), "",
			"ACL user of the sentinels themselves", func(s *Settings) *string { return &s.Redis.SentinelUsername }),
		defineSetting("redis.sentinel_password", secretSetting(), "",
			"password of the sentinels themselves", func(s *Settings) *Secret { return &s.Redis.SentinelPassword }),
		defineSetting("redis.tls.enabled", boolSetting(), "false",
			"connect to Redis with TLS", func(s *Settings) *bool { return &s.Redis.TLS.Enabled }),
		defineSetting("redis.tls.ca", textSetting("a path", false), "",
			"certificates that sign Redis's", func(s *Settings) *string { return &s.Redis.TLS.CA }),
		defineSetting("redis.tls.cert", textSetting("a path", false), "",
			"own certificate chain", func(s *Settings) *string { return &s.Redis.TLS.Cert }),
		defineSetting("redis.tls.key", textSetting("a path", false), "",
			"own private key", func(s *Settings) *string { return &s.Redis.TLS.Key }),
		defineSetting("redis.tls.server_name", textSetting("a name", false), "",
			"name in Redis's certificate", func(s *Settings) *string { return &s.Redis.TLS.ServerName }),
		defineSetting("redis.tls.insecure_any_server_name", boolSetting(), "false",
			"take any name there", func(s *Settings) *bool { return &s.Redis.TLS.InsecureAnyServerName }),
		defineSetting("redis.prefix", prefixSetting(), "rl",
			"start of every key", func(s *Settings) *string { return &s.Redis.Prefix }),
		defineSetting("redis.hash_tags", integerSetting[int](1, 16384), "32",
			"hash tags that keys are spread over", func(s *Settings) *int { return &s.Redis.HashTags }),
		defineSetting("redis.timeout", durationSetting(time.Millisecond, 10*time.Second), "100ms",
			"how long one operation may take", func(s *Settings) *time.Duration { return &s.Redis.Timeout }),
		defineSetting("redis.batch.size", integerSetting[int](1, 10_000), "1000",
			"limits in one batch at most", func(s *Settings) *int { return &s.Redis.Batch.Size }),
		defineSetting("redis.batch.in_flight", integerSetting[int](1, 64), "1",
			"batches on the way to a node", func(s *Settings) *int { return &s.Redis.Batch.InFlight }),
		defineSetting("redis.batch.queue", integerSetting[int](1, 1_000_000), "10000",
			"requests that wait at most, a node", func(s *Settings) *int { return &s.Redis.Batch.Queue }),
		defineSetting("redis.denial_memory", durationSetting(0, time.Second), "1s",
			"how long a denial is known here", func(s *Settings) *time.Duration { return &s.Redis.DenialMemory }),
		defineSetting("redis.denial_bytes", integerSetting[int](1<<20, 1<<30), "16777216",
			"bytes that denials take at most", func(s *Settings) *int { return &s.Redis.DenialBytes }),
		defineSetting("redis.max_clock_skew", durationSetting(time.Second, time.Hour), "10s",
			"how far ahead a state may be", func(s *Settings) *time.Duration { return &s.Redis.MaxClockSkew }),

		defineSetting("assignments.path", textSetting("a path", false), "/var/lib/ratelimitd/assignments.db",
			"the file", func(s *Settings) *string { return &s.Assignments.Path }),
		defineSetting("assignments.cache_path", textSetting("a path", false), "",
			"a snapshot of those in Redis", func(s *Settings) *string { return &s.Assignments.CachePath }),
		defineSetting("assignments.max", integerSetting[int](1, 10_000_000), "1000000",
			"assignments at most", func(s *Settings) *int { return &s.Assignments.Max }),
		defineSetting("assignments.max_records", integerSetting[int](1000, 10_000_000), "100000",
			"records of changes at most", func(s *Settings) *int { return &s.Assignments.MaxRecords }),

		defineSetting("failure.mode", choiceSettingOf(bucket.FailureMode.String, bucket.FailureModes()...), "local",
			"what answers in its place", func(s *Settings) *bucket.FailureMode { return &s.Failure.Mode }),
		defineSetting("failure.replicas", autoSetting(1, 10_000), "auto",
			"daemons that share the limits", func(s *Settings) *int { return &s.Failure.Replicas }),
		defineSetting("failure.health", choiceSetting(HealthServing, HealthNotServing, HealthFirstAnswer), "serving",
			"what health says", func(s *Settings) *Health { return &s.Failure.Health }),

		defineSetting("grpc.address", listenSetting(false), ":8081",
			"where gRPC listens", func(s *Settings) *string { return &s.GRPC.Address }),
		defineSetting("grpc.socket", textSetting("a path", false), "",
			"unix socket, instead of the address", func(s *Settings) *string { return &s.GRPC.Socket }),
		defineSetting("grpc.tls.cert", textSetting("a path", false), "",
			cert, func(s *Settings) *string { return &s.GRPC.TLS.Cert }),
		defineSetting("grpc.tls.key", textSetting("a path", false), "",
			key, func(s *Settings) *string { return &s.GRPC.TLS.Key }),
		defineSetting("grpc.tls.client_ca", textSetting("a path", false), "",
			clientCA, func(s *Settings) *string { return &s.GRPC.TLS.ClientCA }),
		defineSetting("grpc.tls.client_names", namesSetting(), "",
			clientNames, func(s *Settings) *[]string { return &s.GRPC.TLS.ClientNames }),
		defineSetting("grpc.max_connection_age", durationSetting(0, maxConnectionAge), "30m",
			"age at which a connection ends", func(s *Settings) *time.Duration { return &s.GRPC.MaxConnectionAge }),
		defineSetting("grpc.max_connection_age_grace", durationSetting(0, maxConnectionAge), "10s",
			"time for its last calls", func(s *Settings) *time.Duration { return &s.GRPC.MaxConnectionAgeGrace }),
		defineSetting("grpc.max_descriptors", integerSetting[int](1, 10_000), "100",
			"descriptors of a request", func(s *Settings) *int { return &s.GRPC.MaxDescriptors }),
		defineSetting("grpc.max_takes", integerSetting[int](128, 10_000), "1000",
			"requests in one message", func(s *Settings) *int { return &s.GRPC.MaxTakes }),
		defineSetting("grpc.max_entries", integerSetting[int](1, 1_000), "32",
			"entries of a descriptor", func(s *Settings) *int { return &s.GRPC.MaxEntries }),
		defineSetting("grpc.max_bytes", integerSetting[int](1<<10, 1<<24), "1048576",
			"bytes of text in a request", func(s *Settings) *int { return &s.GRPC.MaxBytes }),

		defineSetting("http.address", listenSetting(true), ":8080",
			"where HTTP listens", func(s *Settings) *string { return &s.HTTP.Address }),
		defineSetting("http.tls.cert", textSetting("a path", false), "",
			cert, func(s *Settings) *string { return &s.HTTP.TLS.Cert }),
		defineSetting("http.tls.key", textSetting("a path", false), "",
			key, func(s *Settings) *string { return &s.HTTP.TLS.Key }),
		defineSetting("http.tls.client_ca", textSetting("a path", false), "",
			clientCA, func(s *Settings) *string { return &s.HTTP.TLS.ClientCA }),
		defineSetting("http.tls.client_names", namesSetting(), "",
			clientNames, func(s *Settings) *[]string { return &s.HTTP.TLS.ClientNames }),

		defineSetting("api.refunds", boolSetting(), "true",
			"take refunds", func(s *Settings) *bool { return &s.API.Refunds }),
		defineSetting("api.max_settle_within", durationSetting(time.Second, bucket.MaxReservation), "24h",
			"how long takes can be settled", func(s *Settings) *time.Duration { return &s.API.MaxSettleWithin }),
		defineSetting("api.callers_file", textSetting("a path", false), "",
			"file that says who may ask limits", func(s *Settings) *string { return &s.API.CallersFile }),
		defineSetting("api.dynamic_metadata", boolSetting(), "false",
			"repeat the request in the answer", func(s *Settings) *bool { return &s.API.DynamicMetadata }),

		defineSetting("auth.path", textSetting("a path", false), "",
			"file for forward auth", func(s *Settings) *string { return &s.Auth.Path }),

		defineSetting("headers.style", choiceSetting(HeadersNone, HeadersRateLimit, HeadersXRateLimit, HeadersIETF), "none",
			"headers for callers", func(s *Settings) *HeaderStyle { return &s.Headers.Style }),
		defineSetting("headers.limit", headerSetting(), "RateLimit-Limit",
			"header with the requests", func(s *Settings) *string { return &s.Headers.Limit }),
		defineSetting("headers.remaining", headerSetting(), "RateLimit-Remaining",
			"header with the rest", func(s *Settings) *string { return &s.Headers.Remaining }),
		defineSetting("headers.reset", headerSetting(), "RateLimit-Reset",
			"header with the seconds", func(s *Settings) *string { return &s.Headers.Reset }),

		defineSetting("admin.address", listenSetting(true), "127.0.0.1:6070",
			"where it listens", func(s *Settings) *string { return &s.Admin.Address }),
		defineSetting("admin.tokens_file", textSetting("a path", false), "",
			"file that says who may do what", func(s *Settings) *string { return &s.Admin.TokensFile }),
		defineSetting("admin.tls.cert", textSetting("a path", false), "",
			cert, func(s *Settings) *string { return &s.Admin.TLS.Cert }),
		defineSetting("admin.tls.key", textSetting("a path", false), "",
			key, func(s *Settings) *string { return &s.Admin.TLS.Key }),
		defineSetting("admin.tls.client_ca", textSetting("a path", false), "",
			clientCA, func(s *Settings) *string { return &s.Admin.TLS.ClientCA }),
		defineSetting("admin.tls.client_names", namesSetting(), "",
			clientNames, func(s *Settings) *[]string { return &s.Admin.TLS.ClientNames }),
		defineSetting("admin.pprof", boolSetting(), "true",
			"serve profiles, on loopback only", func(s *Settings) *bool { return &s.Admin.Pprof }),

		defineSetting("metrics.address", listenSetting(true), "",
			"where a port for metrics alone listens", func(s *Settings) *string { return &s.Metrics.Address }),
		defineSetting("metrics.path", urlPathSetting(), "/metrics",
			"path of the metrics there", func(s *Settings) *string { return &s.Metrics.Path }),
		defineSetting("metrics.names", choiceSetting(NamesRatelimitd, NamesEnvoyproxy), "ratelimitd",
			"envoyproxy's names too", func(s *Settings) *MetricNames { return &s.Metrics.Names }),
		defineSetting("metrics.near_ratio", ratioSetting[float32](32), "0.8",
			"part of a limit that counts as near", func(s *Settings) *float32 { return &s.Metrics.NearRatio }),

		defineSetting("statsd.address", dialSetting(), "",
			"the server that gets counts", func(s *Settings) *string { return &s.Statsd.Address }),
		defineSetting("statsd.protocol", choiceSetting(StatsdUDP, StatsdTCP), "udp",
			"how they go there", func(s *Settings) *StatsdProtocol { return &s.Statsd.Protocol }),
		defineSetting("statsd.prefix", textSetting("a name", false), "",
			"what stands before their names", func(s *Settings) *string { return &s.Statsd.Prefix }),
		defineSetting("statsd.tags", pairsSetting(), "",
			"tags of all counts", func(s *Settings) *map[string]string { return &s.Statsd.Tags }),
		defineSetting("statsd.dog", boolSetting(), "false",
			"tags beside names: DogStatsD", func(s *Settings) *bool { return &s.Statsd.Dog }),
		defineSetting("statsd.rules", statsdRulesSetting(), "",
			"rules that change names", func(s *Settings) *[]StatsdRule { return &s.Statsd.Rules }),
		defineSetting("statsd.interval", durationSetting(time.Second, time.Hour), "10s",
			"how often they are sent", func(s *Settings) *time.Duration { return &s.Statsd.Interval }),

		defineSetting("top.subjects", choiceSetting(TopDenied, TopAll, TopOff), "denied",
			"whose subjects are kept for top", func(s *Settings) *TopSubjects { return &s.Top.Subjects }),
		defineSetting("top.memory", integerSetting[int64](1<<20, 1<<36), "67108864",
			"bytes that these take at most", func(s *Settings) *int64 { return &s.Top.Memory }),

		defineSetting("tracing.enabled", boolSetting(), "false",
			"send spans over OTLP", func(s *Settings) *bool { return &s.Tracing.Enabled }),
		defineSetting("tracing.endpoint", endpointSetting(), "",
			"of the collector", func(s *Settings) *string { return &s.Tracing.Endpoint }),
		defineSetting("tracing.protocol", choiceSetting(TracingAuto, TracingHTTP, TracingGRPC), "auto",
			"protocol of OTLP", func(s *Settings) *TracingProtocol { return &s.Tracing.Protocol }),
		defineSetting("tracing.sample_ratio", autoRatioSetting(), "auto",
			"share that is sampled", func(s *Settings) *float64 { return &s.Tracing.SampleRatio }),
		defineSetting("tracing.propagators", wordsSetting("tracecontext", "b3", "b3multi", "baggage", "none"), "",
			"formats of callers' traces", func(s *Settings) *[]string { return &s.Tracing.Propagators }),
		defineSetting("tracing.service_name", textSetting("a name", false), "",
			"service.name of spans", func(s *Settings) *string { return &s.Tracing.ServiceName }),
		defineSetting("tracing.service_namespace", textSetting("a name", false), "",
			"service.namespace of spans", func(s *Settings) *string { return &s.Tracing.ServiceNamespace }),
		defineSetting("tracing.service_instance_id", textSetting("a name", false), "",
			"service.instance.id of spans", func(s *Settings) *string { return &s.Tracing.ServiceInstanceID }),
		defineSetting("tracing.values", boolSetting(), "false",
			"put values into spans", func(s *Settings) *bool { return &s.Tracing.Values }),

		defineSetting("decisions.path", textSetting("a path", false), "",
			"file of the log, or - for standard output", func(s *Settings) *string { return &s.Decisions.Path }),
		defineSetting("decisions.sample.allowed", ratioSetting[float64](64), "1",
			"share of allowed requests", func(s *Settings) *float64 { return &s.Decisions.Sample.Allowed }),
		defineSetting("decisions.sample.denied", ratioSetting[float64](64), "1",
			"share of all other requests", func(s *Settings) *float64 { return &s.Decisions.Sample.Denied }),
		defineSetting("decisions.per_subject", integerSetting[int](0, 1_000_000), "10",
			"lines a second for one subject", func(s *Settings) *int { return &s.Decisions.PerSubject }),
		defineSetting("decisions.bytes_per_second", integerSetting[int](0, 1<<40), "8388608",
			"bytes of lines a second", func(s *Settings) *int { return &s.Decisions.BytesPerSecond }),
		defineSetting("decisions.values", choiceSetting(KeepValues, HashValues), "keep",
			"keep values, or hash them", func(s *Settings) *Values { return &s.Decisions.Values }),
		defineSetting("decisions.hash_key_file", textSetting("a path", false), "",
			"file with the key for their hashes", func(s *Settings) *string { return &s.Decisions.HashKeyFile }),
		defineSetting("decisions.max_size", integerSetting[int64](0, 1<<40), "104857600",
			"bytes of a file; 0: any", func(s *Settings) *int64 { return &s.Decisions.MaxSize }),
		defineSetting("decisions.keep", integerSetting[int](1, 10_000), "10",
			"rotated files that are kept", func(s *Settings) *int { return &s.Decisions.Keep }),
		defineSetting("decisions.compress", boolSetting(), "true",
			"compress rotated files with gzip", func(s *Settings) *bool { return &s.Decisions.Compress }),
		defineSetting("decisions.buffer", integerSetting[int](1<<20, 1<<30), "8388608",
			"bytes that may wait to be written", func(s *Settings) *int { return &s.Decisions.Buffer }),
		defineSetting("decisions.otlp.endpoint", endpointSetting(), "",
			"collector that gets the lines", func(s *Settings) *string { return &s.Decisions.OTLP.Endpoint }),
		defineSetting("decisions.otlp.protocol", choiceSetting(TracingAuto, TracingHTTP, TracingGRPC), "auto",
			"protocol of OTLP", func(s *Settings) *TracingProtocol { return &s.Decisions.OTLP.Protocol }),

		defineSetting("request_memory", autoSetting(16<<20, 1<<40), "auto",
			"bytes that all requests may hold", func(s *Settings) *int { return &s.RequestMemory }),
		defineSetting("drain_delay", durationSetting(0, 10*time.Minute), "3s",
			"how long to go on answering after SIGTERM", func(s *Settings) *time.Duration { return &s.DrainDelay }),
		defineSetting("log.level", choiceSettingOf(levelWord, slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError), "info",
			"least level that is logged", func(s *Settings) *slog.Level { return &s.Log.Level }),
		defineSetting("log.format", choiceSetting(LogText, LogJSON), "text",
			"how log lines look", func(s *Settings) *LogFormat { return &s.Log.Format }),
	}
}

// Default returns the settings in force if none is given.
func Default() Settings {
	var s Settings
	for _, d := range allSettings() {
		assign, complaint := d.parse(d.byDefault)
		if complaint != nil {
			panic("config: the default of " + d.name + " is none: " + complaint.found)
		}
		assign(&s)
	}
	return s
}

// String lists all settings as name=value, secrets as stars.
func (s Settings) String() string {
	var b strings.Builder
	for i, d := range allSettings() {
		if i > 0 {
			b.WriteByte(' ')
		}
		fmt.Fprintf(&b, "%s=%s", d.name, d.show(&s))
	}
	return b.String()
}

// LogValue gives slog one attribute for each setting, secrets as stars.
func (s Settings) LogValue() slog.Value {
	var attrs []slog.Attr
	for _, d := range allSettings() {
		attrs = append(attrs, slog.String(d.name, d.show(&s)))
	}
	return slog.GroupValue(attrs...)
}
