package settings

// envoyVariable is a variable of envoyproxy/ratelimit's environment.
type envoyVariable struct {
	name string
	// byDefault is its value in that service if it is not set. If that is true or false,
	// the variable is a boolean, as strconv.ParseBool reads it.
	byDefault string
	// settings are the settings that it sets here.
	settings []string
	// when reports whether its value becomes that of its first setting. nil means never:
	// how it forms settings is in envoy.go and the files beside it.
	when func(*envoyEnvironment) bool
	// as, if not nil, has the value of the setting for each value in lower case. The
	// remark then says what is allowed.
	as map[string]string
	// remark says how its setting differs, why it has none, or what to use instead.
	remark string
	// matters reports whether its value asks for something that is not done here. The
	// remark is then a warning. nil means never.
	matters func(*envoyEnvironment) bool
}

// envoyVariables is the table of those variables of that service's environment that are
// read. docs/environment.md has it too, and the variables that are not needed here.
func envoyVariables() []envoyVariable {
	set := func(settings ...string) []string { return settings }
	const (
		onlyXDS  = "only with CONFIG_TYPE=GRPC_XDS_SOTW"
		tlsOfXDS = "only with CONFIG_TYPE=GRPC_XDS_SOTW and CONFIG_GRPC_XDS_SERVER_USE_TLS=true"
		onlyOn   = "only with LIMIT_RESPONSE_HEADERS_ENABLED=true"
		onlySpan = "only with TRACING_ENABLED=true"
		onlyTLS  = "only with GRPC_SERVER_USE_TLS=true"
	)
	type words = map[string]string
	return []envoyVariable{
		{name: "HOST", byDefault: "0.0.0.0", settings: set("http.address"), remark: "with PORT"},
		{name: "PORT", byDefault: "8080", settings: set("http.address"), remark: "with HOST"},
		{name: "DEBUG_HOST", byDefault: "0.0.0.0", settings: set("admin.address"), remark: "with DEBUG_PORT; except on loopback, profiles are off, and so is the admin API without --admin-tokens-file"},
		{name: "DEBUG_PORT", byDefault: "6070", settings: set("admin.address"), remark: "with DEBUG_HOST; has /metrics instead of /stats"},
		{name: "GRPC_UDS", settings: set("grpc.socket"), when: always, remark: "instead of GRPC_HOST and GRPC_PORT"},
		{name: "GRPC_HOST", byDefault: "0.0.0.0", settings: set("grpc.address"), remark: "with GRPC_PORT"},
		{name: "GRPC_PORT", byDefault: "8081", settings: set("grpc.address"), remark: "with GRPC_HOST"},
		{name: "GRPC_MAX_CONNECTION_AGE", byDefault: "24h", settings: set("grpc.max_connection_age"), when: always},
		{name: "GRPC_MAX_CONNECTION_AGE_GRACE", byDefault: "1h", settings: set("grpc.max_connection_age_grace"), when: always},
		{name: "GRPC_SERVER_USE_TLS", byDefault: "false", settings: set("grpc.tls.cert", "grpc.tls.key"), remark: "true needs GRPC_SERVER_TLS_CERT and _KEY"},
		{name: "GRPC_SERVER_TLS_CERT", settings: set("grpc.tls.cert"), when: (*envoyEnvironment).servesTLS, remark: onlyTLS},
		{name: "GRPC_SERVER_TLS_KEY", settings: set("grpc.tls.key"), when: (*envoyEnvironment).servesTLS, remark: onlyTLS},
		{name: "GRPC_CLIENT_TLS_CACERT", settings: set("grpc.tls.client_ca"), when: (*envoyEnvironment).servesTLS, remark: "an error without GRPC_SERVER_USE_TLS=true; replaces the CAs of the system"},
		{name: "GRPC_CLIENT_TLS_SAN", settings: set("grpc.tls.client_names"), when: (*envoyEnvironment).servesTLS, remark: "an error without GRPC_CLIENT_TLS_CACERT; may also be an IP address or a URI"},
		{name: "LOG_LEVEL", byDefault: "WARN", settings: set("log.level"), when: always, remark: "debug, info, warn or error, in upper or lower case; panic and fatal are error, warning is warn, trace is debug",
			as: words{"panic": "error", "fatal": "error", "error": "error", "warn": "warn", "warning": "warn", "info": "info", "debug": "debug", "trace": "debug"}},
		{name: "LOG_FORMAT", byDefault: "text", settings: set("log.format"), remark: "json, in upper or lower case; anything else is text"},

		{name: "CONFIG_TYPE", byDefault: "FILE", settings: set("limits.source"), when: always, as: words{"file": "files", "grpc_xds_sotw": "xds"}, remark: "FILE, or GRPC_XDS_SOTW for limits from an xDS server"},
		{name: "FORCE_START_WITHOUT_INITIAL_CONFIG", byDefault: "false", settings: set("limits.initial", "limits.ready_before_loaded"), when: always, as: words{"true": "optional", "false": "required"},
			remark: "true: starts without limits, and answers UNAVAILABLE until they load. false: ends if they do not load; with GRPC_XDS_SOTW it listens once the server has answered"},
		{name: "HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED", byDefault: "false", settings: set("limits.ready_when_empty"), when: always, as: words{"true": "false", "false": "true"}, remark: "true: not ready without a domain. Before limits load, only GRPC_XDS_SOTW with FORCE_START_WITHOUT_INITIAL_CONFIG=true is ready"},
		{name: "CONFIG_GRPC_XDS_NODE_ID", byDefault: "default", settings: set("limits.xds.node_id"), when: (*envoyEnvironment).wantsXDS, remark: onlyXDS},
		{name: "CONFIG_GRPC_XDS_NODE_METADATA", settings: set("limits.xds.node_metadata"), when: (*envoyEnvironment).wantsXDS, remark: onlyXDS + "; key=value,key=value"},
		{name: "CONFIG_GRPC_XDS_SERVER_URL", byDefault: "localhost:18000", settings: set("limits.xds.address"), remark: onlyXDS + "; host:port, also behind dns:///"},
		{name: "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", settings: set("limits.xds.headers"), when: (*envoyEnvironment).wantsXDS, remark: onlyXDS + "; name:value,name:value"},
		{name: "CONFIG_GRPC_XDS_SERVER_USE_TLS", byDefault: "false", settings: set("limits.xds.tls.enabled"), when: (*envoyEnvironment).wantsXDS, remark: onlyXDS},
		{name: "CONFIG_GRPC_XDS_CLIENT_TLS_CERT", settings: set("limits.xds.tls.cert"), when: (*envoyEnvironment).wantsXDSTLS, remark: tlsOfXDS + "; read again when it changes"},
		{name: "CONFIG_GRPC_XDS_CLIENT_TLS_KEY", settings: set("limits.xds.tls.key"), when: (*envoyEnvironment).wantsXDSTLS, remark: tlsOfXDS},
		{name: "CONFIG_GRPC_XDS_SERVER_TLS_CACERT", settings: set("limits.xds.tls.ca"), when: (*envoyEnvironment).wantsXDSTLS, remark: tlsOfXDS},
		{name: "CONFIG_GRPC_XDS_SERVER_TLS_SAN", settings: set("limits.xds.tls.server_name"), when: (*envoyEnvironment).wantsXDSTLS, remark: tlsOfXDS},
		{name: "XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", settings: set("limits.xds.max_bytes"), when: (*envoyEnvironment).boundsXDS, remark: onlyXDS + "; empty or 0: 64 MiB, the default here"},

		{name: "RUNTIME_ROOT", byDefault: "/srv/runtime_data/current", settings: set("limits.path"), remark: "the folder is RUNTIME_ROOT/RUNTIME_SUBDIRECTORY/RUNTIME_APPDIRECTORY"},
		{name: "RUNTIME_SUBDIRECTORY", settings: set("limits.path")},
		{name: "RUNTIME_APPDIRECTORY", byDefault: "config", settings: set("limits.path"), remark: "files must end in .yaml, .yml or .json; others are a warning"},
		{name: "RUNTIME_IGNOREDOTFILES", byDefault: "false", remark: "names that begin with a dot are always passed over here: give such files another name", matters: whenFalse("RUNTIME_IGNOREDOTFILES")},
		{name: "RUNTIME_WATCH_ROOT", byDefault: "true", remark: "not needed: files, folders and all links to them are watched"},
		{name: "MERGE_DOMAIN_CONFIG", byDefault: "false", settings: set("limits.merge_domains"), when: always},
		{name: "SHADOW_MODE", byDefault: "false", settings: set("limits.shadow_mode"), when: always},
		{name: "QUOTA_MODE", byDefault: "false", settings: set("limits.quota_mode"), when: always},
		{name: "RESPONSE_DYNAMIC_METADATA", byDefault: "false", settings: set("api.dynamic_metadata"), when: always},
		{name: "LIMIT_RESPONSE_HEADERS_ENABLED", byDefault: "false", settings: set("headers.style"), when: always, as: words{"true": "ratelimit", "false": "none"}, remark: "true: ratelimit; false: none. Denials have retry-after with both"},
		{name: "LIMIT_LIMIT_HEADER", byDefault: "RateLimit-Limit", settings: set("headers.limit"), when: whenTrue("LIMIT_RESPONSE_HEADERS_ENABLED"), remark: onlyOn},
		{name: "LIMIT_REMAINING_HEADER", byDefault: "RateLimit-Remaining", settings: set("headers.remaining"), when: whenTrue("LIMIT_RESPONSE_HEADERS_ENABLED"), remark: onlyOn},
		{name: "LIMIT_RESET_HEADER", byDefault: "RateLimit-Reset", settings: set("headers.reset"), when: whenTrue("LIMIT_RESPONSE_HEADERS_ENABLED"), remark: onlyOn},

		{name: "BACKEND_TYPE", byDefault: "redis", settings: set("store"), when: always, as: words{"redis": "redis", "": "redis", "memory": "memory"}, remark: "redis, or memory for limits of this daemon alone, which only ratelimitd has; memcache is an error"},
		{name: "REDIS_SOCKET_TYPE", byDefault: "unix", settings: set("redis.addresses"), remark: "unix or tcp; only with REDIS_TYPE=single"},
		{name: "REDIS_TYPE", byDefault: "SINGLE", settings: set("redis.mode"), when: (*envoyEnvironment).wantsRedis, as: words{"single": "single", "sentinel": "sentinel", "cluster": "cluster"}, remark: "single, sentinel or cluster, in upper or lower case"},
		{name: "REDIS_URL", byDefault: "/var/run/nutcracker/ratelimit.sock", settings: set("redis.addresses", "redis.sentinel_master", "redis.username", "redis.password", "redis.database", "redis.tls.enabled"),
			remark: "a path, host:port, redis:// or rediss:// with user, password and database; with sentinel master,host:port,...; with cluster host:port,... An error if unset"},
		{name: "REDIS_AUTH", settings: set("redis.username", "redis.password"), remark: "password, or user:password; overrides REDIS_URL"},
		{name: "REDIS_SENTINEL_AUTH", settings: set("redis.sentinel_username", "redis.sentinel_password"), remark: "password, or user:password"},
		{name: "REDIS_TLS", byDefault: "false", settings: set("redis.tls.enabled"), when: (*envoyEnvironment).wantsRedis},
		{name: "REDIS_TLS_CLIENT_CERT", settings: set("redis.tls.cert"), when: (*envoyEnvironment).wantsRedis},
		{name: "REDIS_TLS_CLIENT_KEY", settings: set("redis.tls.key"), when: (*envoyEnvironment).wantsRedis},
		{name: "REDIS_TLS_CACERT", settings: set("redis.tls.ca"), when: (*envoyEnvironment).wantsRedis, remark: "replaces the CAs of the system"},
		{name: "REDIS_TLS_SKIP_HOSTNAME_VERIFICATION", byDefault: "false", settings: set("redis.tls.insecure_any_server_name"), when: (*envoyEnvironment).wantsRedis},
		{name: "REDIS_TIMEOUT", byDefault: "10s", settings: set("redis.timeout"), remark: "at most 10s here", matters: (*envoyEnvironment).redisTimeoutDiffers},
		{name: "REDIS_HEALTH_CHECK_ACTIVE_CONNECTION", byDefault: "false", settings: set("failure.health"), when: (*envoyEnvironment).wantsRedis, as: words{"true": "not_serving", "false": "serving"}, remark: "true: not ready while Redis does not answer"},
		{name: "REDIS_PERSECOND", byDefault: "false", remark: "the limits per second are kept in the Redis of REDIS_URL, beside the others; for more than one server can do, use a Redis Cluster", matters: whenTrue("REDIS_PERSECOND")},

		{name: "CACHE_KEY_PREFIX", settings: set("redis.prefix"), when: (*envoyEnvironment).prefixesKeys, remark: "empty: rl, the default here; at most 32 characters, without spaces and braces"},
		{name: "USE_CALENDAR_MONTH_RATE_LIMIT", byDefault: "false", remark: "a unit of month has 30 days here: write calendar: month in its place", matters: whenTrue("USE_CALENDAR_MONTH_RATE_LIMIT")},
		{name: "NEAR_LIMIT_RATIO", byDefault: "0.8", settings: set("metrics.near_ratio"), when: always, remark: "0 to 1"},

		{name: "USE_STATSD", byDefault: "true", settings: set("statsd.address"), remark: "only if it, STATSD_HOST or STATSD_PORT is set, without USE_PROMETHEUS=true; sends all counts except response times and those of caches, pools and the runtime"},
		{name: "STATSD_HOST", byDefault: "localhost", settings: set("statsd.address"), remark: "with STATSD_PORT"},
		{name: "STATSD_PORT", byDefault: "8125", settings: set("statsd.address"), remark: "with STATSD_HOST"},
		{name: "STATSD_PROTOCOL", byDefault: "tcp", settings: set("statsd.protocol"), when: (*envoyEnvironment).wantsPlainStatsd, remark: "tcp or udp; with USE_DOG_STATSD=true always udp"},
		{name: "USE_DOG_STATSD", byDefault: "false", settings: set("statsd.address", "statsd.protocol", "statsd.dog"), remark: "overrides USE_STATSD; may be used with USE_PROMETHEUS"},
		{name: "USE_DOG_STATSD_MOGRIFIERS", settings: set("statsd.rules"), remark: "names of rules; only with USE_DOG_STATSD=true. The first rule that matches applies"},
		{name: "DOG_STATSD_MOGRIFIER_*", settings: set("statsd.rules"), remark: "_NAME_PATTERN, _NAME_NAME and _NAME_TAGS of each NAME of USE_DOG_STATSD_MOGRIFIERS"},
		{name: "STATS_FLUSH_INTERVAL", byDefault: "10s", settings: set("statsd.interval"), when: (*envoyEnvironment).wantsStatsd, remark: "1s to 1h; metrics that are scraped are always current"},
		{name: "DISABLE_STATS", byDefault: "false", settings: set("statsd.address"), remark: "true: nothing is sent; metrics can still be scraped"},
		{name: "EXTRA_TAGS", settings: set("statsd.tags"), remark: "metrics that are fetched bear no labels of the environment: add them where Prometheus fetches (static_configs labels, or relabel_configs)", matters: (*envoyEnvironment).wantsTags},
		{name: "USE_PROMETHEUS", byDefault: "false", settings: set("metrics.names", "metrics.address", "metrics.path"), when: always, as: words{"true": "envoyproxy", "false": "ratelimitd"}, remark: "true: serves the metrics of DEBUG_PORT there too, by both services' names"},
		{name: "PROMETHEUS_ADDR", byDefault: ":9090", settings: set("metrics.address"), when: whenTrue("USE_PROMETHEUS"), remark: "only with USE_PROMETHEUS=true"},
		{name: "PROMETHEUS_PATH", byDefault: "/metrics", settings: set("metrics.path"), when: whenTrue("USE_PROMETHEUS"), remark: "only with USE_PROMETHEUS=true"},
		{name: "PROMETHEUS_MAPPER_YAML", remark: "names and labels are those of that service's own mapping and of Envoy Gateway's, whatever the file says: rename them where Prometheus fetches (metric_relabel_configs)", matters: whenTrue("USE_PROMETHEUS")},
		{name: "PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS", byDefault: "false", remark: "ratelimit_service_response_time_seconds has seconds, as its name says", matters: whenTrue("USE_PROMETHEUS", "PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS")},
		{name: "TRACING_ENABLED", byDefault: "false", settings: set("tracing.enabled"), when: always, remark: "configured by OTEL_EXPORTER_OTLP_*; spans do not have values of descriptors"},
		{name: "TRACING_SERVICE_NAME", byDefault: "RateLimit", settings: set("tracing.service_name"), when: whenTrue("TRACING_ENABLED"), remark: onlySpan},
		{name: "TRACING_SERVICE_NAMESPACE", settings: set("tracing.service_namespace"), when: whenTrue("TRACING_ENABLED"), remark: onlySpan},
		{name: "TRACING_SERVICE_INSTANCE_ID", settings: set("tracing.service_instance_id"), when: whenTrue("TRACING_ENABLED"), remark: onlySpan + "; empty: a random UUID"},
		{name: "TRACING_EXPORTER_PROTOCOL", byDefault: "http", settings: set("tracing.protocol"), when: whenTrue("TRACING_ENABLED"), remark: onlySpan + "; http or grpc"},
		{name: "TRACING_SAMPLING_RATE", byDefault: "1", settings: set("tracing.sample_ratio"), when: whenTrue("TRACING_ENABLED"), remark: onlySpan + "; 0 to 1, the share of requests without a parent"},
	}
}
