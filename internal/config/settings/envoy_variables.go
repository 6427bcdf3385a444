package settings

// envoyVariable is a variable of envoyproxy/ratelimit's environment.
type envoyVariable struct {
	name string
	// byDefault is its value in that service if it is not set.
	byDefault string
	kind      envoyKind
	// settings are the settings that it sets here.
	settings []string
	// copied reports whether its value is that of its setting as it is. nil means never:
	// how it forms settings is in envoy.go and the files beside it.
	copied func(*envoyEnvironment) bool
	// remark says how its setting differs, why it has none, or what to use instead.
	remark string
	// matters reports whether its value asks for something that is not done here. The
	// remark is then a warning. nil means never.
	matters func(*envoyEnvironment) bool
}

// envoyKind is how that service reads a value.
type envoyKind int

const (
	envoyText     envoyKind = iota // any text
	envoyInteger                   // as strconv.ParseInt reads it with base 0
	envoyBool                      // as strconv.ParseBool reads it
	envoyDuration                  // as time.ParseDuration reads it
	envoyNumber                    // as strconv.ParseFloat reads it
	envoyIdle                      // not read here
)

// defaultRedisSocket is where that service looks for Redis by default.
const defaultRedisSocket = "/var/run/nutcracker/ratelimit.sock"

// envoyVariables is the table of that service's environment: the only place with its
// names, its defaults and the resulting settings. How several of them form a setting
// together is in envoy.go and envoy_redis.go.
func envoyVariables() []envoyVariable {
	set := func(settings ...string) []string { return settings }
	const (
		onlyXDS  = "only with CONFIG_TYPE=GRPC_XDS_SOTW"
		tlsOfXDS = "only with CONFIG_TYPE=GRPC_XDS_SOTW and CONFIG_GRPC_XDS_SERVER_USE_TLS=true"
		pauses   = "not needed: pauses are 0.2s to 2s, at random"
		noMemory = "only with BACKEND_TYPE=memcache, which is refused"
		noSecond = "only with REDIS_PERSECOND=true, which is a warning"
		onlyOn   = "only with LIMIT_RESPONSE_HEADERS_ENABLED=true"
		onlySpan = "only with TRACING_ENABLED=true"
		batches  = "not needed: requests always travel to Redis in batches"
		onlyTLS  = "only with GRPC_SERVER_USE_TLS=true"
	)
	return []envoyVariable{
		{name: "HOST", byDefault: "0.0.0.0", kind: envoyText, settings: set("http.address"), remark: "with PORT"},
		{name: "PORT", byDefault: "8080", kind: envoyInteger, settings: set("http.address"), remark: "with HOST"},
		{name: "DEBUG_HOST", byDefault: "0.0.0.0", kind: envoyText, settings: set("admin.address"), remark: "with DEBUG_PORT; except on loopback, profiles are off, and so is the admin API without --admin-tokens-file"},
		{name: "DEBUG_PORT", byDefault: "6070", kind: envoyInteger, settings: set("admin.address"), remark: "with DEBUG_HOST; has /metrics instead of /stats"},
		{name: "GRPC_UDS", kind: envoyText, settings: set("grpc.socket"), copied: always, remark: "instead of GRPC_HOST and GRPC_PORT"},
		{name: "GRPC_HOST", byDefault: "0.0.0.0", kind: envoyText, settings: set("grpc.address"), remark: "with GRPC_PORT"},
		{name: "GRPC_PORT", byDefault: "8081", kind: envoyInteger, settings: set("grpc.address"), remark: "with GRPC_HOST"},
		{name: "GRPC_MAX_CONNECTION_AGE", byDefault: "24h", kind: envoyDuration, settings: set("grpc.max_connection_age"), copied: always},
		{name: "GRPC_MAX_CONNECTION_AGE_GRACE", byDefault: "1h", kind: envoyDuration, settings: set("grpc.max_connection_age_grace"), copied: always},
		{name: "GRPC_SERVER_USE_TLS", byDefault: "false", kind: envoyBool, settings: set("grpc.tls.cert", "grpc.tls.key"), remark: "true needs GRPC_SERVER_TLS_CERT and _KEY"},
		{name: "GRPC_SERVER_TLS_CERT", kind: envoyText, settings: set("grpc.tls.cert"), copied: (*envoyEnvironment).servesTLS, remark: onlyTLS},
		{name: "GRPC_SERVER_TLS_KEY", kind: envoyText, settings: set("grpc.tls.key"), copied: (*envoyEnvironment).servesTLS, remark: onlyTLS},
		{name: "GRPC_CLIENT_TLS_CACERT", kind: envoyText, settings: set("grpc.tls.client_ca"), copied: (*envoyEnvironment).servesTLS, remark: "an error without GRPC_SERVER_USE_TLS=true; replaces the CAs of the system"},
		{name: "GRPC_CLIENT_TLS_SAN", kind: envoyText, settings: set("grpc.tls.client_names"), copied: (*envoyEnvironment).servesTLS, remark: "an error without GRPC_CLIENT_TLS_CACERT; may also be an IP address or a URI"},
		{name: "LOG_LEVEL", byDefault: "WARN", kind: envoyText, settings: set("log.level"), remark: "panic and fatal are error, trace is debug"},
		{name: "LOG_FORMAT", byDefault: "text", kind: envoyText, settings: set("log.format"), remark: "json, in upper or lower case; anything else is text"},

		{name: "CONFIG_TYPE", byDefault: "FILE", kind: envoyText, settings: set("limits.source"), remark: "FILE, or GRPC_XDS_SOTW for limits from an xDS server"},
		{name: "FORCE_START_WITHOUT_INITIAL_CONFIG", byDefault: "false", kind: envoyBool, settings: set("limits.initial", "limits.ready_before_loaded"),
			remark: "true: starts without limits, and answers UNAVAILABLE until they load. false: ends if they do not load; with GRPC_XDS_SOTW it listens once the server has answered"},
		{name: "HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED", byDefault: "false", kind: envoyBool, settings: set("limits.ready_when_empty"), remark: "true: not ready without a domain. Before limits load, only GRPC_XDS_SOTW with FORCE_START_WITHOUT_INITIAL_CONFIG=true is ready"},
		{name: "CONFIG_GRPC_XDS_NODE_ID", byDefault: "default", kind: envoyText, settings: set("limits.xds.node_id"), copied: whenIs("CONFIG_TYPE", "GRPC_XDS_SOTW"), remark: onlyXDS},
		{name: "CONFIG_GRPC_XDS_NODE_METADATA", kind: envoyText, settings: set("limits.xds.node_metadata"), copied: whenIs("CONFIG_TYPE", "GRPC_XDS_SOTW"), remark: onlyXDS + "; key=value,key=value"},
		{name: "CONFIG_GRPC_XDS_SERVER_URL", byDefault: "localhost:18000", kind: envoyText, settings: set("limits.xds.address"), remark: onlyXDS + "; host:port, also behind dns:///"},
		{name: "CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL", byDefault: "3s", kind: envoyIdle, remark: pauses},
		{name: "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", kind: envoyText, settings: set("limits.xds.headers"), copied: whenIs("CONFIG_TYPE", "GRPC_XDS_SOTW"), remark: onlyXDS + "; name:value,name:value"},
		{name: "CONFIG_GRPC_XDS_SERVER_USE_TLS", byDefault: "false", kind: envoyBool, settings: set("limits.xds.tls.enabled"), copied: whenIs("CONFIG_TYPE", "GRPC_XDS_SOTW"), remark: onlyXDS},
		{name: "CONFIG_GRPC_XDS_CLIENT_TLS_CERT", kind: envoyText, settings: set("limits.xds.tls.cert"), copied: (*envoyEnvironment).wantsXDSTLS, remark: tlsOfXDS + "; read again when it changes"},
		{name: "CONFIG_GRPC_XDS_CLIENT_TLS_KEY", kind: envoyText, settings: set("limits.xds.tls.key"), copied: (*envoyEnvironment).wantsXDSTLS, remark: tlsOfXDS},
		{name: "CONFIG_GRPC_XDS_SERVER_TLS_CACERT", kind: envoyText, settings: set("limits.xds.tls.ca"), copied: (*envoyEnvironment).wantsXDSTLS, remark: tlsOfXDS},
		{name: "CONFIG_GRPC_XDS_SERVER_TLS_SAN", kind: envoyText, settings: set("limits.xds.tls.server_name"), copied: (*envoyEnvironment).wantsXDSTLS, remark: tlsOfXDS},
		{name: "XDS_CLIENT_BACKOFF_*", kind: envoyIdle, remark: pauses},
		{name: "XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", kind: envoyText, settings: set("limits.xds.max_bytes"), copied: (*envoyEnvironment).boundsXDS, remark: onlyXDS + "; empty or 0: 64 MiB, the default here"},

		{name: "RUNTIME_ROOT", byDefault: "/srv/runtime_data/current", kind: envoyText, settings: set("limits.path"), remark: "the folder is RUNTIME_ROOT/RUNTIME_SUBDIRECTORY/RUNTIME_APPDIRECTORY"},
		{name: "RUNTIME_SUBDIRECTORY", kind: envoyText, settings: set("limits.path")},
		{name: "RUNTIME_APPDIRECTORY", byDefault: "config", kind: envoyText, settings: set("limits.path"), remark: "files must end in .yaml, .yml or .json; others are a warning"},
		{name: "RUNTIME_IGNOREDOTFILES", byDefault: "false", kind: envoyBool, remark: "names that begin with a dot are always passed over here: give such files another name", matters: (*envoyEnvironment).wantsDotfiles},
		{name: "RUNTIME_WATCH_ROOT", byDefault: "true", kind: envoyBool, remark: "not needed: files, folders and all links to them are watched"},
		{name: "MERGE_DOMAIN_CONFIG", byDefault: "false", kind: envoyBool, settings: set("limits.merge_domains"), copied: always},
		{name: "SHADOW_MODE", byDefault: "false", kind: envoyBool, settings: set("limits.shadow_mode"), copied: always},
		{name: "QUOTA_MODE", byDefault: "false", kind: envoyBool, settings: set("limits.quota_mode"), copied: always},
		{name: "RESPONSE_DYNAMIC_METADATA", byDefault: "false", kind: envoyBool, settings: set("api.dynamic_metadata"), copied: always},
		{name: "LIMIT_RESPONSE_HEADERS_ENABLED", byDefault: "false", kind: envoyBool, settings: set("headers.style"), remark: "true: ratelimit; false: none. Denials have retry-after with both"},
		{name: "LIMIT_LIMIT_HEADER", byDefault: "RateLimit-Limit", kind: envoyText, settings: set("headers.limit"), copied: whenTrue("LIMIT_RESPONSE_HEADERS_ENABLED"), remark: onlyOn},
		{name: "LIMIT_REMAINING_HEADER", byDefault: "RateLimit-Remaining", kind: envoyText, settings: set("headers.remaining"), copied: whenTrue("LIMIT_RESPONSE_HEADERS_ENABLED"), remark: onlyOn},
		{name: "LIMIT_RESET_HEADER", byDefault: "RateLimit-Reset", kind: envoyText, settings: set("headers.reset"), copied: whenTrue("LIMIT_RESPONSE_HEADERS_ENABLED"), remark: onlyOn},

		{name: "BACKEND_TYPE", byDefault: "redis", kind: envoyText, settings: set("store"), remark: "redis; memory, which only ratelimitd has: limits of this daemon alone. memcache is an error"},
		{name: "REDIS_SOCKET_TYPE", byDefault: "unix", kind: envoyText, settings: set("redis.addresses"), remark: "unix or tcp; only with REDIS_TYPE=single"},
		{name: "REDIS_TYPE", byDefault: "SINGLE", kind: envoyText, settings: set("redis.mode"), remark: "single, sentinel or cluster, in upper or lower case"},
		{name: "REDIS_URL", byDefault: defaultRedisSocket, kind: envoyText, settings: set("redis.addresses", "redis.sentinel_master", "redis.username", "redis.password", "redis.database", "redis.tls.enabled"),
			remark: "a path, host:port, redis:// or rediss:// with user, password and database; with sentinel master,host:port,...; with cluster host:port,... An error if unset and the default is no socket"},
		{name: "REDIS_AUTH", kind: envoyText, settings: set("redis.username", "redis.password"), remark: "password, or user:password; overrides REDIS_URL"},
		{name: "REDIS_SENTINEL_AUTH", kind: envoyText, settings: set("redis.sentinel_username", "redis.sentinel_password"), remark: "password, or user:password"},
		{name: "REDIS_TLS", byDefault: "false", kind: envoyBool, settings: set("redis.tls.enabled"), copied: (*envoyEnvironment).wantsRedis},
		{name: "REDIS_TLS_CLIENT_CERT", kind: envoyText, settings: set("redis.tls.cert"), copied: (*envoyEnvironment).wantsRedis},
		{name: "REDIS_TLS_CLIENT_KEY", kind: envoyText, settings: set("redis.tls.key"), copied: (*envoyEnvironment).wantsRedis},
		{name: "REDIS_TLS_CACERT", kind: envoyText, settings: set("redis.tls.ca"), copied: (*envoyEnvironment).wantsRedis, remark: "replaces the CAs of the system"},
		{name: "REDIS_TLS_SKIP_HOSTNAME_VERIFICATION", byDefault: "false", kind: envoyBool, settings: set("redis.tls.insecure_any_server_name"), copied: (*envoyEnvironment).wantsRedis},
		{name: "REDIS_TIMEOUT", byDefault: "10s", kind: envoyDuration, settings: set("redis.timeout"), remark: "at most 10s here", matters: (*envoyEnvironment).redisTimeoutDiffers},
		{name: "REDIS_HEALTH_CHECK_ACTIVE_CONNECTION", byDefault: "false", kind: envoyBool, settings: set("failure.health"), remark: "true: not ready while Redis does not answer"},
		{name: "REDIS_POOL_*", kind: envoyIdle, remark: "not needed: each batch on its way has a connection, and a request waits for one within REDIS_TIMEOUT"},
		{name: "REDIS_PIPELINE_*", kind: envoyIdle, remark: batches},
		{name: "REDIS_USE_EXPLICIT_PIPELINE", byDefault: "false", kind: envoyIdle, remark: batches},
		{name: "REDIS_CLUSTER_PIPELINE_PARALLELISM", byDefault: "1", kind: envoyIdle, remark: "not needed: batches for the nodes of a cluster always travel at the same time"},
		{name: "REDIS_STARTUP_*", kind: envoyIdle, remark: "none of these is needed: the daemon starts without Redis, and keeps trying to reach it"},
		{name: "REDIS_PERSECOND", byDefault: "false", kind: envoyBool, remark: "the limits per second are kept in the Redis of REDIS_URL, beside the others; for more than one server can do, use a Redis Cluster", matters: whenTrue("REDIS_PERSECOND")},
		{name: "REDIS_PERSECOND_*", kind: envoyIdle, remark: noSecond},
		{name: "MEMCACHE_*", kind: envoyIdle, remark: noMemory},

		{name: "CACHE_KEY_PREFIX", kind: envoyText, settings: set("redis.prefix"), copied: (*envoyEnvironment).prefixesKeys, remark: "empty: rl, the default here; at most 32 characters, without spaces and braces"},
		{name: "EXPIRATION_JITTER_MAX_SECONDS", byDefault: "300", kind: envoyIdle, remark: "not needed: keys expire when they no longer matter"},
		{name: "LOCAL_CACHE_SIZE_IN_BYTES", byDefault: "0", kind: envoyIdle, remark: "not needed: a denial is always remembered, for up to redis.denial_memory"},
		{name: "USE_CALENDAR_MONTH_RATE_LIMIT", byDefault: "false", kind: envoyBool, remark: "a unit of month has 30 days here: write calendar: month in its place", matters: (*envoyEnvironment).wantsCalendarMonths},
		{name: "STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT", byDefault: "false", kind: envoyIdle, remark: "not needed: a denial is always free"},
		{name: "NEAR_LIMIT_RATIO", byDefault: "0.8", kind: envoyNumber, settings: set("metrics.near_ratio"), copied: always, remark: "0 to 1"},

		{name: "USE_STATSD", byDefault: "true", kind: envoyBool, settings: set("statsd.address"), remark: "only if it, STATSD_HOST or STATSD_PORT is set, without USE_PROMETHEUS=true; sends all counts except response times and those of caches, pools and the runtime"},
		{name: "STATSD_HOST", byDefault: "localhost", kind: envoyText, settings: set("statsd.address"), remark: "with STATSD_PORT"},
		{name: "STATSD_PORT", byDefault: "8125", kind: envoyText, settings: set("statsd.address"), remark: "with STATSD_HOST"},
		{name: "STATSD_PROTOCOL", byDefault: "tcp", kind: envoyText, settings: set("statsd.protocol"), copied: (*envoyEnvironment).wantsPlainStatsd, remark: "tcp or udp; with USE_DOG_STATSD=true always udp"},
		{name: "USE_DOG_STATSD", byDefault: "false", kind: envoyBool, settings: set("statsd.address", "statsd.protocol", "statsd.dog"), remark: "overrides USE_STATSD; may be used with USE_PROMETHEUS"},
		{name: "USE_DOG_STATSD_MOGRIFIERS", kind: envoyText, settings: set("statsd.rules"), remark: "names of rules; only with USE_DOG_STATSD=true. The first rule that matches applies"},
		{name: "DOG_STATSD_MOGRIFIER_*", kind: envoyIdle, settings: set("statsd.rules"), remark: "_NAME_PATTERN, _NAME_NAME and _NAME_TAGS of each NAME of USE_DOG_STATSD_MOGRIFIERS"},
		{name: "STATS_FLUSH_INTERVAL", byDefault: "10s", kind: envoyDuration, settings: set("statsd.interval"), copied: (*envoyEnvironment).wantsStatsd, remark: "1s to 1h; metrics that are scraped are always current"},
		{name: "DISABLE_STATS", byDefault: "false", kind: envoyBool, settings: set("statsd.address"), remark: "true: nothing is sent; metrics can still be scraped"},
		{name: "EXTRA_TAGS", kind: envoyText, settings: set("statsd.tags"), remark: "metrics that are fetched bear no labels of the environment: add them where Prometheus fetches (static_configs labels, or relabel_configs)", matters: (*envoyEnvironment).wantsTags},
		{name: "USE_PROMETHEUS", byDefault: "false", kind: envoyBool, settings: set("metrics.address", "metrics.path", "metrics.names"), remark: "true: serves the metrics of DEBUG_PORT there too, by both services' names"},
		{name: "PROMETHEUS_ADDR", byDefault: ":9090", kind: envoyText, settings: set("metrics.address"), copied: whenTrue("USE_PROMETHEUS"), remark: "only with USE_PROMETHEUS=true"},
		{name: "PROMETHEUS_PATH", byDefault: "/metrics", kind: envoyText, settings: set("metrics.path"), copied: whenTrue("USE_PROMETHEUS"), remark: "only with USE_PROMETHEUS=true"},
		{name: "PROMETHEUS_MAPPER_YAML", kind: envoyText, remark: "names and labels are those of that service's own mapping and of Envoy Gateway's, whatever the file says: rename them where Prometheus fetches (metric_relabel_configs)", matters: (*envoyEnvironment).wantsMapper},
		{name: "PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS", byDefault: "false", kind: envoyBool, remark: "ratelimit_service_response_time_seconds has seconds, as its name says", matters: (*envoyEnvironment).wantsMilliseconds},
		{name: "TRACING_ENABLED", byDefault: "false", kind: envoyBool, settings: set("tracing.enabled"), copied: always, remark: "configured by OTEL_EXPORTER_OTLP_*; spans do not have values of descriptors"},
		{name: "TRACING_SERVICE_NAME", byDefault: "RateLimit", kind: envoyText, settings: set("tracing.service_name"), copied: whenTrue("TRACING_ENABLED"), remark: onlySpan},
		{name: "TRACING_SERVICE_NAMESPACE", kind: envoyText, settings: set("tracing.service_namespace"), copied: whenTrue("TRACING_ENABLED"), remark: onlySpan},
		{name: "TRACING_SERVICE_INSTANCE_ID", kind: envoyText, settings: set("tracing.service_instance_id"), copied: whenTrue("TRACING_ENABLED"), remark: onlySpan + "; empty: a random UUID"},
		{name: "TRACING_EXPORTER_PROTOCOL", byDefault: "http", kind: envoyText, settings: set("tracing.protocol"), copied: whenTrue("TRACING_ENABLED"), remark: onlySpan + "; http or grpc"},
		{name: "TRACING_SAMPLING_RATE", byDefault: "1", kind: envoyNumber, settings: set("tracing.sample_ratio"), remark: onlySpan + "; the share of requests without a parent"},
	}
}
