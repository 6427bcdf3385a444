package settings

// The types of settings that are one of a few words. Types that other packages decide by,
// such as bucket.FailureMode, are defined there.
type (
	// Store is where state lives.
	Store string
	// WhenFull is what happens to a new key while the memory store is full.
	WhenFull string
	// RedisMode is how Redis is run.
	RedisMode string
	// Health is what the health check says while Redis does not answer.
	Health string
	// Initial is what happens if limits cannot be loaded at start.
	Initial string
	// Unmatched is what a descriptor without a rule gets.
	Unmatched string
	// Source is where limits come from.
	Source string
	// HeaderStyle selects the headers that describe limits to callers.
	HeaderStyle string
	// MetricNames is the naming of metrics.
	MetricNames string
	// TopSubjects says which top subjects rules keep.
	TopSubjects string
	// StatsdProtocol is how counts are sent to a statsd server.
	StatsdProtocol string
	// LogFormat is the format of log lines.
	LogFormat string
	// Values is what happens to the values of descriptors in the log of decisions.
	Values string
	// TracingProtocol is the protocol of OTLP.
	TracingProtocol string
)

// Values of store.
const (
	StoreMemory Store = "memory"
	StoreRedis  Store = "redis"
)

// Values of memory.when_full.
const (
	// AllowWhenFull decides a new key as if it were alone, and forgets it.
	AllowWhenFull WhenFull = "allow"
	DenyWhenFull  WhenFull = "deny"
	// EvictWhenFull gives it the place of another key.
	EvictWhenFull WhenFull = "evict"
)

// Values of redis.mode.
const (
	RedisSingle   RedisMode = "single"
	RedisSentinel RedisMode = "sentinel"
	RedisCluster  RedisMode = "cluster"
)

// Values of limits.unmatched.
const (
	AllowUnmatched Unmatched = "allow"
	DenyUnmatched  Unmatched = "deny"
)

// Values of failure.health. Serving and not serving apply if failure.mode is error; in
// the other modes the daemon keeps answering and serves.
const (
	HealthServing    Health = "serving"
	HealthNotServing Health = "not_serving"
	// HealthFirstAnswer is not serving until Redis has answered once, in every failure
	// mode.
	HealthFirstAnswer Health = "first_answer"
)

// Values of limits.initial.
const (
	// InitialRequired ends the daemon. If limits come from an xDS server, it waits for
	// the server's first answer and does not listen anywhere before that.
	InitialRequired Initial = "required"
	// InitialOptional starts it. It is not ready and answers no request until limits can
	// be loaded.
	InitialOptional Initial = "optional"
)

// Values of limits.source.
const (
	SourceFiles Source = "files"
	// SourceXDS is a server that sends them, and sends new ones when they change.
	SourceXDS Source = "xds"
)

// Values of headers.style.
const (
	HeadersNone       HeaderStyle = "none"
	HeadersRateLimit  HeaderStyle = "ratelimit"
	HeadersXRateLimit HeaderStyle = "x-ratelimit"
	HeadersIETF       HeaderStyle = "ietf"
)

// Values of metrics.names.
const (
	NamesRatelimitd MetricNames = "ratelimitd"
	// NamesEnvoyproxy adds the names of envoyproxy/ratelimit.
	NamesEnvoyproxy MetricNames = "envoyproxy"
)

// Values of statsd.protocol.
const (
	StatsdUDP StatsdProtocol = "udp"
	StatsdTCP StatsdProtocol = "tcp"
)

// Values of top.subjects.
const (
	TopDenied TopSubjects = "denied"
	// TopAll also keeps those that used the most.
	TopAll TopSubjects = "all"
	TopOff TopSubjects = "off"
)

// Values of tracing.protocol.
const (
	TracingAuto TracingProtocol = "auto"
	TracingHTTP TracingProtocol = "http"
	TracingGRPC TracingProtocol = "grpc"
)

// Values of decisions.values.
const (
	KeepValues Values = "keep"
	// HashValues replaces each by its HMAC.
	HashValues Values = "hash"
)

// Values of log.format.
const (
	LogText LogFormat = "text"
	LogJSON LogFormat = "json"
)
