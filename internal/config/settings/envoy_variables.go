package settings

// envoyVariable is a variable of envoyproxy/ratelimit's environment.
type envoyVariable struct {
	name string
	// byDefault is its value there if it is not set.
	byDefault string
	kind      envoyKind
	// settings are those that it sets here.
	settings []string
	// remark says how its setting differs, why it has none, or what to use
	// instead.
	remark string
	// matters reports whether its value asks for something that is not done here.
	// The remark is then a warning. nil means never.
	matters func(*envoyEnvironment) bool
}

// envoyKind is how that service reads a value.
type envoyKind int

const (
	envoyText     envoyKind = iota // any text
	envoyInteger                   // as strconv.ParseInt has it with the base 0
	envoyBool                      // as strconv.ParseBool has it
	envoyDuration                  // as time.ParseDuration has it
	envoyNumber                    // as strconv.ParseFloat has it
	envoyIdle                      // not read here
)

// defaultRedisSocket is where that service looks for Redis by default.
const defaultRedisSocket = "/var/run/nutcracker/ratelimit.sock"

// envoyVariables is the table of that service's environment: the one place with
// its names and defaults, and the settings that they make. How several of them
// make a setting together stands in envoy.go and envoy_redis.go.
func envoyVariables() []envoyVariable {
	set := func(settings ...string) []string { return settings }
	const (
		onlyXDS  = "counts with CONFIG_TYPE=GRPC_XDS_SOTW"
		tlsOfXDS = "counts with CONFIG_TYPE=GRPC_XDS_SOTW and CONFIG_GRPC_XDS_SERVER_USE_TLS=true"
		pauses   = "needs none: after 0.2s, with pauses that grow to 10s and vary"
		noMemory = "counts with BACKEND_TYPE=memcache, which is refused"
		noSecond = "counts with REDIS_PERSECOND=true, which has a warning"
		onlyOn   = "counts with LIMIT_RESPONSE_HEADERS_ENABLED=true"
		onlySpan = "counts with TRACING_ENABLED=true"
		batches  = "needs none: requests always travel to Redis in batches"
		onlyTLS  = "counts with GRPC_SERVER_USE_TLS=true only"
	)
	return []envoyVariable{
		{"HOST", "0.0.0.0", envoyText, set("http.address"), "with PORT", nil},
		{"PORT", "8080", envoyInteger, set("http.address"), "with HOST", nil},
		{"DEBUG_HOST", "0.0.0.0", envoyText, set("admin.address"), "with DEBUG_PORT; beyond loopback there are no profiles, and the admin API is off without --admin-tokens-file", nil},
		{"DEBUG_PORT", "6070", envoyInteger, set("admin.address"), "with DEBUG_HOST; /metrics in place of /stats", nil},
		{"GRPC_UDS", "", envoyText, set("grpc.socket"), "instead of GRPC_HOST and GRPC_PORT", nil},
		{"GRPC_HOST", "0.0.0.0", envoyText, set("grpc.address"), "with GRPC_PORT", nil},
		{"GRPC_PORT", "8081", envoyInteger, set("grpc.address"), "with GRPC_HOST", nil},
		{"GRPC_MAX_CONNECTION_AGE", "24h", envoyDuration, set("grpc.max_connection_age"), "", nil},
		{"GRPC_MAX_CONNECTION_AGE_GRACE", "1h", envoyDuration, set("grpc.max_connection_age_grace"), "", nil},
		{"GRPC_SERVER_USE_TLS", "false", envoyBool, set("grpc.tls.cert", "grpc.tls.key"), "true needs GRPC_SERVER_TLS_CERT and _KEY", nil},
		{"GRPC_SERVER_TLS_CERT", "", envoyText, set("grpc.tls.cert"), onlyTLS, nil},
		{"GRPC_SERVER_TLS_KEY", "", envoyText, set("grpc.tls.key"), onlyTLS, nil},
		{"GRPC_CLIENT_TLS_CACERT", "", envoyText, set("grpc.tls.client_ca"), "without GRPC_SERVER_USE_TLS=true an error; the CAs of the system do not count beside it", nil},
		{"GRPC_CLIENT_TLS_SAN", "", envoyText, set("grpc.tls.client_names"), "without GRPC_CLIENT_TLS_CACERT an error; also an IP address or a URI", nil},
		{"LOG_LEVEL", "WARN", envoyText, set("log.level"), "panic and fatal are error, trace is debug", nil},
		{"LOG_FORMAT", "text", envoyText, set("log.format"), "json in any case of letters; all else is text", nil},

		{"CONFIG_TYPE", "FILE", envoyText, set("limits.source"), "FILE, or GRPC_XDS_SOTW for limits of an xDS server", nil},
		{"FORCE_START_WITHOUT_INITIAL_CONFIG", "false", envoyBool, set("limits.initial", "limits.ready_before_loaded"),
			"true: starts also where the folder is missing or a file is wrong, and answers UNAVAILABLE until that is mended; false: ends. With GRPC_XDS_SOTW true: starts at once, healthy, and answers UNAVAILABLE until limits came; false: listens once the server has answered", nil},
		{"HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED", "false", envoyBool, set("limits.ready_when_empty"), "true: not ready without a domain. Before limits are loaded no daemon is ready here, except with GRPC_XDS_SOTW and FORCE_START_WITHOUT_INITIAL_CONFIG=true", nil},
		{"CONFIG_GRPC_XDS_NODE_ID", "default", envoyText, set("limits.xds.node_id"), onlyXDS, nil},
		{"CONFIG_GRPC_XDS_NODE_METADATA", "", envoyText, set("limits.xds.node_metadata"), onlyXDS + "; key=value,key=value", nil},
		{"CONFIG_GRPC_XDS_SERVER_URL", "localhost:18000", envoyText, set("limits.xds.address"), onlyXDS + "; host:port, also behind dns:///", nil},
		{"CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL", "3s", envoyIdle, nil, pauses, nil},
		{"CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", "", envoyText, set("limits.xds.headers"), onlyXDS + "; name:value,name:value", nil},
		{"CONFIG_GRPC_XDS_SERVER_USE_TLS", "false", envoyBool, set("limits.xds.tls.enabled"), onlyXDS, nil},
		{"CONFIG_GRPC_XDS_CLIENT_TLS_CERT", "", envoyText, set("limits.xds.tls.cert"), tlsOfXDS + "; read again when it changes", nil},
		{"CONFIG_GRPC_XDS_CLIENT_TLS_KEY", "", envoyText, set("limits.xds.tls.key"), tlsOfXDS, nil},
		{"CONFIG_GRPC_XDS_SERVER_TLS_CACERT", "", envoyText, set("limits.xds.tls.ca"), tlsOfXDS, nil},
		{"CONFIG_GRPC_XDS_SERVER_TLS_SAN", "", envoyText, set("limits.xds.tls.server_name"), tlsOfXDS, nil},
		{"XDS_CLIENT_BACKOFF_INITIAL_INTERVAL", "10s", envoyIdle, nil, pauses, nil},
		{"XDS_CLIENT_BACKOFF_MAX_INTERVAL", "60s", envoyIdle, nil, pauses, nil},
		{"XDS_CLIENT_BACKOFF_RANDOM_FACTOR", "0.5", envoyIdle, nil, pauses, nil},
		{"XDS_CLIENT_BACKOFF_JITTER", "true", envoyIdle, nil, pauses, nil},
		{"XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", "", envoyText, set("limits.xds.max_bytes"), onlyXDS + "; empty or 0: 64 MiB, the default here", nil},

		{"RUNTIME_ROOT", "/srv/runtime_data/current", envoyText, set("limits.path"), "the folder RUNTIME_ROOT/RUNTIME_SUBDIRECTORY/RUNTIME_APPDIRECTORY", nil},
		{"RUNTIME_SUBDIRECTORY", "", envoyText, set("limits.path"), "", nil},
		{"RUNTIME_APPDIRECTORY", "config", envoyText, set("limits.path"), "files must end in .yaml, .yml or .json; of others there is a warning", nil},
		{"RUNTIME_IGNOREDOTFILES", "false", envoyBool, nil, "names that begin with a dot are always passed over here: give such files another name", (*envoyEnvironment).wantsDotfiles},
		{"RUNTIME_WATCH_ROOT", "true", envoyBool, nil, "needs none: files, folders and all links to them are watched", nil},
		{"MERGE_DOMAIN_CONFIG", "false", envoyBool, set("limits.merge_domains"), "", nil},
		{"SHADOW_MODE", "false", envoyBool, set("limits.shadow_mode"), "", nil},
		{"QUOTA_MODE", "false", envoyBool, set("limits.quota_mode"), "", nil},
		{"RESPONSE_DYNAMIC_METADATA", "false", envoyBool, set("api.dynamic_metadata"), "", nil},
		{"LIMIT_RESPONSE_HEADERS_ENABLED", "false", envoyBool, set("headers.style"), "true: ratelimit; false: none. A denial has retry-after in any case", nil},
		{"LIMIT_LIMIT_HEADER", "RateLimit-Limit", envoyText, set("headers.limit"), onlyOn, nil},
		{"LIMIT_REMAINING_HEADER", "RateLimit-Remaining", envoyText, set("headers.remaining"), onlyOn, nil},
		{"LIMIT_RESET_HEADER", "RateLimit-Reset", envoyText, set("headers.reset"), onlyOn, nil},

		{"BACKEND_TYPE", "redis", envoyText, set("store"), "redis, or, here only, memory: limits of this daemon alone, without Redis. memcache is an error", nil},
		{"REDIS_SOCKET_TYPE", "unix", envoyText, set("redis.addresses"), "unix or tcp; counts with REDIS_TYPE=single", nil},
		{"REDIS_TYPE", "SINGLE", envoyText, set("redis.mode"), "single, sentinel or cluster, in any case of letters", nil},
		{"REDIS_URL", defaultRedisSocket, envoyText, set("redis.addresses", "redis.sentinel_master", "redis.username", "redis.password", "redis.database", "redis.tls.enabled"),
			"a path; host:port; redis:// or rediss:// with user, password and database; master,host:port,... with REDIS_TYPE=sentinel; host:port,... with cluster. Where it is not set, and its default is no socket, an error", nil},
		{"REDIS_AUTH", "", envoyText, set("redis.username", "redis.password"), "password, or user:password; comes before those in REDIS_URL", nil},
		{"REDIS_SENTINEL_AUTH", "", envoyText, set("redis.sentinel_username", "redis.sentinel_password"), "password, or user:password", nil},
		{"REDIS_TLS", "false", envoyBool, set("redis.tls.enabled"), "", nil},
		{"REDIS_TLS_CLIENT_CERT", "", envoyText, set("redis.tls.cert"), "", nil},
		{"REDIS_TLS_CLIENT_KEY", "", envoyText, set("redis.tls.key"), "", nil},
		{"REDIS_TLS_CACERT", "", envoyText, set("redis.tls.ca"), "the CAs of the system do not count beside it", nil},
		{"REDIS_TLS_SKIP_HOSTNAME_VERIFICATION", "false", envoyBool, set("redis.tls.insecure_any_server_name"), "", nil},
		{"REDIS_TIMEOUT", "10s", envoyDuration, set("redis.timeout"), "at most 10s here", (*envoyEnvironment).redisTimeoutDiffers},
		{"REDIS_HEALTH_CHECK_ACTIVE_CONNECTION", "false", envoyBool, set("failure.health"), "true: not ready while Redis does not answer", nil},
		{"REDIS_POOL_SIZE", "10", envoyIdle, nil, "needs none: there are as many connections as batches are on their way", nil},
		{"REDIS_POOL_ON_EMPTY_BEHAVIOR", "WAIT", envoyIdle, nil, "needs none: a request without a connection waits for one, within REDIS_TIMEOUT", nil},
		{"REDIS_PIPELINE_WINDOW", "0", envoyIdle, nil, batches, nil},
		{"REDIS_PIPELINE_LIMIT", "0", envoyIdle, nil, batches, nil},
		{"REDIS_USE_EXPLICIT_PIPELINE", "false", envoyIdle, nil, batches, nil},
		{"REDIS_CLUSTER_PIPELINE_PARALLELISM", "1", envoyIdle, nil, "needs none: batches for the nodes of a cluster always travel at the same time", nil},
		{"REDIS_STARTUP_*", "", envoyIdle, nil, "all names that begin so need none: the daemon starts without Redis, and goes on trying to reach it", nil},
		{"REDIS_PERSECOND", "false", envoyBool, nil, "the limits per second are kept in the Redis of REDIS_URL, beside the others; for more than one server can do, use a Redis Cluster", whenTrue("REDIS_PERSECOND")},
		{"REDIS_PERSECOND_SOCKET_TYPE", "unix", envoyIdle, nil, noSecond, nil},
		{"REDIS_PERSECOND_TYPE", "SINGLE", envoyIdle, nil, noSecond, nil},
		{"REDIS_PERSECOND_URL", "/var/run/nutcracker/ratelimitpersecond.sock", envoyIdle, nil, noSecond, nil},
		{"REDIS_PERSECOND_POOL_SIZE", "10", envoyIdle, nil, noSecond, nil},
		{"REDIS_PERSECOND_POOL_ON_EMPTY_BEHAVIOR", "WAIT", envoyIdle, nil, noSecond, nil},
		{"REDIS_PERSECOND_AUTH", "", envoyIdle, nil, noSecond, nil},
		{"REDIS_PERSECOND_SENTINEL_AUTH", "", envoyIdle, nil, noSecond, nil},
		{"REDIS_PERSECOND_TLS", "false", envoyIdle, nil, noSecond, nil},
		{"REDIS_PERSECOND_TIMEOUT", "10s", envoyIdle, nil, noSecond, nil},
		{"REDIS_PERSECOND_PIPELINE_WINDOW", "0", envoyIdle, nil, noSecond, nil},
		{"REDIS_PERSECOND_PIPELINE_LIMIT", "0", envoyIdle, nil, noSecond, nil},
		{"REDIS_PERSECOND_USE_EXPLICIT_PIPELINE", "false", envoyIdle, nil, noSecond, nil},
		{"REDIS_PERSECOND_CLUSTER_PIPELINE_PARALLELISM", "1", envoyIdle, nil, noSecond, nil},
		{"MEMCACHE_HOST_PORT", "", envoyIdle, nil, noMemory, nil},
		{"MEMCACHE_MAX_IDLE_CONNS", "2", envoyIdle, nil, noMemory, nil},
		{"MEMCACHE_SRV", "", envoyIdle, nil, noMemory, nil},
		{"MEMCACHE_SRV_REFRESH", "0", envoyIdle, nil, noMemory, nil},
		{"MEMCACHE_TLS", "false", envoyIdle, nil, noMemory, nil},
		{"MEMCACHE_TLS_CLIENT_CERT", "", envoyIdle, nil, noMemory, nil},
		{"MEMCACHE_TLS_CLIENT_KEY", "", envoyIdle, nil, noMemory, nil},
		{"MEMCACHE_TLS_CACERT", "", envoyIdle, nil, noMemory, nil},
		{"MEMCACHE_TLS_SKIP_HOSTNAME_VERIFICATION", "false", envoyIdle, nil, noMemory, nil},

		{"CACHE_KEY_PREFIX", "", envoyText, set("redis.prefix"), "empty: rl, the default here; at most 32 characters, without spaces and braces", nil},
		{"EXPIRATION_JITTER_MAX_SECONDS", "300", envoyIdle, nil, "needs none: keys expire when they no longer matter", nil},
		{"LOCAL_CACHE_SIZE_IN_BYTES", "0", envoyIdle, nil, "always so here: a denial of Redis is known for up to redis.denial_memory", nil},
		{"STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT", "false", envoyIdle, nil, "always so here: a denial is free", nil},
		{"NEAR_LIMIT_RATIO", "0.8", envoyNumber, set("metrics.near_ratio"), "0 to 1", nil},

		{"USE_STATSD", "true", envoyBool, set("statsd.address"), "counts where it or STATSD_HOST is set, without USE_PROMETHEUS=true; all that service counts but response times and the state of its caches, pools and runtime", nil},
		{"STATSD_HOST", "localhost", envoyText, set("statsd.address"), "with STATSD_PORT", nil},
		{"STATSD_PORT", "8125", envoyText, set("statsd.address"), "with STATSD_HOST", nil},
		{"STATSD_PROTOCOL", "tcp", envoyText, set("statsd.protocol"), "tcp or udp; with USE_DOG_STATSD=true always udp", nil},
		{"USE_DOG_STATSD", "false", envoyBool, set("statsd.address", "statsd.protocol", "statsd.dog"), "goes before USE_STATSD, and may stand beside USE_PROMETHEUS", nil},
		{"USE_DOG_STATSD_MOGRIFIERS", "", envoyText, set("statsd.rules"), "names of rules; counts with USE_DOG_STATSD=true. The first that matches counts", nil},
		{"DOG_STATSD_MOGRIFIER_*", "", envoyIdle, set("statsd.rules"), "_NAME_PATTERN, _NAME_NAME and _NAME_TAGS of each NAME of USE_DOG_STATSD_MOGRIFIERS", nil},
		{"STATS_FLUSH_INTERVAL", "10s", envoyDuration, set("statsd.interval"), "1s to 1h; metrics that are fetched are as of that moment", nil},
		{"DISABLE_STATS", "false", envoyBool, set("statsd.address"), "true: nothing is sent; metrics can be fetched all the same", nil},
		{"EXTRA_TAGS", "", envoyText, set("statsd.tags"), "metrics that are fetched bear no labels of the environment: add them where Prometheus fetches (static_configs labels, or relabel_configs)", (*envoyEnvironment).wantsTags},
		{"USE_PROMETHEUS", "false", envoyBool, set("metrics.address", "metrics.path", "metrics.names"), "true: /metrics of DEBUG_PORT also there, with that service's metrics beside ours", nil},
		{"PROMETHEUS_ADDR", ":9090", envoyText, set("metrics.address"), "counts with USE_PROMETHEUS=true", nil},
		{"PROMETHEUS_PATH", "/metrics", envoyText, set("metrics.path"), "counts with USE_PROMETHEUS=true", nil},
		{"PROMETHEUS_MAPPER_YAML", "", envoyText, nil, "names and labels are those of that service's own mapping and of Envoy Gateway's, whatever the file says: rename them where Prometheus fetches (metric_relabel_configs)", (*envoyEnvironment).wantsMapper},
		{"PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS", "false", envoyBool, nil, "ratelimit_service_response_time_seconds has seconds, as its name says", (*envoyEnvironment).wantsMilliseconds},
		{"TRACING_ENABLED", "false", envoyBool, set("tracing.enabled"), "as OTEL_EXPORTER_OTLP_* say; spans have no values of descriptors", nil},
		{"TRACING_SERVICE_NAME", "RateLimit", envoyText, set("tracing.service_name"), onlySpan, nil},
		{"TRACING_SERVICE_NAMESPACE", "", envoyText, set("tracing.service_namespace"), onlySpan, nil},
		{"TRACING_SERVICE_INSTANCE_ID", "", envoyText, set("tracing.service_instance_id"), onlySpan + "; empty: a random UUID", nil},
		{"TRACING_EXPORTER_PROTOCOL", "http", envoyText, set("tracing.protocol"), onlySpan + "; http or grpc", nil},
		{"TRACING_SAMPLING_RATE", "1", envoyNumber, set("tracing.sample_ratio"), onlySpan + "; of requests without a parent, as there", nil},
	}
}
