package settings

// The types of settings that are one of a few words, which are in the tags of Settings.
// Types that other packages decide by, such as bucket.FailureMode, are defined there.
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
	// LogFormat is the format of log lines.
	LogFormat string
	// Values is what happens to the values of descriptors in the log of decisions.
	Values string
	// TracingProtocol is the protocol of OTLP.
	TracingProtocol string
)

const (
	StoreMemory Store = "memory"
	StoreRedis  Store = "redis"

	// AllowWhenFull decides a new key as if it were alone, and forgets it.
	AllowWhenFull WhenFull = "allow"
	DenyWhenFull  WhenFull = "deny"
	// EvictWhenFull gives it the place of another key.
	EvictWhenFull WhenFull = "evict"

	RedisSingle   RedisMode = "single"
	RedisSentinel RedisMode = "sentinel"
	RedisCluster  RedisMode = "cluster"

	DenyUnmatched Unmatched = "deny"

	// HealthNotServing applies if failure.mode is error; in the other modes the daemon
	// keeps answering and serves.
	HealthNotServing Health = "not_serving"
	// HealthFirstAnswer is not serving until Redis has answered once, in every failure
	// mode.
	HealthFirstAnswer Health = "first_answer"

	// InitialRequired ends the daemon. If limits come from an xDS server, it waits for
	// the server's first answer and does not listen anywhere before that.
	InitialRequired Initial = "required"
	// InitialOptional starts it. It is not ready and answers no request until limits can
	// be loaded.
	InitialOptional Initial = "optional"

	SourceFiles Source = "files"
	// SourceXDS is a server that sends them, and sends new ones when they change.
	SourceXDS Source = "xds"

	HeadersRateLimit HeaderStyle = "ratelimit"

	// NamesEnvoyproxy adds the names of envoyproxy/ratelimit.
	NamesEnvoyproxy MetricNames = "envoyproxy"

	TopDenied TopSubjects = "denied"
	// TopAll also keeps those that used the most.
	TopAll TopSubjects = "all"
	TopOff TopSubjects = "off"

	TracingAuto TracingProtocol = "auto"
	TracingHTTP TracingProtocol = "http"
	TracingGRPC TracingProtocol = "grpc"

	KeepValues Values = "keep"
	// HashValues replaces each by its HMAC.
	HashValues Values = "hash"

	LogText LogFormat = "text"
	LogJSON LogFormat = "json"
)
