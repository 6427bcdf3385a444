package settings

import (
	"log/slog"
	"strings"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/tlsfiles"
)

// Settings are the daemon's settings. Load creates them, with every value checked;
// Default has the values of settings that are not given. They may be printed and logged:
// secrets show as stars.
//
// The names of flags, variables and keys of the file follow from those of the fields. The
// tags are the rest of the table: title begins a section of help; default and help have
// a line of 80 columns; min and max, or of (a list of words), or is (a kind of kinds.go)
// say what is allowed; empty says what an empty text means, and auto the value for auto.
type Settings struct {
	Limits Limits `title:"Limits"`
	Store  Store  `title:"Store" default:"memory" of:"memory|redis" help:"where state lives"`
	Memory Memory
	Redis  Redis `title:"Redis"`
	// Failure applies if Store is StoreRedis; memory does not fail.
	Failure     Failure     `title:"While Redis does not answer"`
	Assignments Assignments `title:"Assignments"`
	GRPC        GRPC        `title:"gRPC port"`
	HTTP        HTTP        `title:"HTTP port"`
	API         API         `title:"APIs"`
	Auth        Auth
	Headers     Headers
	Admin       Admin     `title:"Admin port"`
	Metrics     Metrics   `title:"Metrics"`
	Top         Top       `title:"Who had the most"`
	Tracing     Tracing   `title:"Tracing"`
	Decisions   Decisions `title:"Log of decisions"`
	Statsd      Statsd    `title:"The process"`
	// RequestMemory bounds the bytes that all requests hold while they are read and
	// answered; 0 means a fifth of the process's limit, or 512 MiB if it has none.
	RequestMemory int `default:"auto" min:"16777216" max:"1099511627776" auto:"0" help:"bytes that all requests may hold"`
	// DrainDelay is how long the daemon keeps answering after SIGTERM, already not ready.
	DrainDelay time.Duration `default:"3s" min:"0s" max:"10m" help:"how long to go on answering after SIGTERM"`
	Log        Log
}

// Limits says which limits are in force.
type Limits struct {
	// Source is where they come from. Path and Watch apply with SourceFiles, XDS and
	// CachePath with SourceXDS.
	Source Source `default:"files" of:"files|xds" help:"files, or an xDS server"`
	// Path is a limits file or a folder of them; never empty.
	Path string `default:"/etc/ratelimitd/limits" is:"path" help:"file or folder"`
	// Watch is whether changed files are loaded while the daemon runs.
	Watch bool `default:"true" help:"load files again when they change"`
	// MergeDomains and Lenient are those of limitsfile.Options.
	MergeDomains bool `default:"false" help:"several files may share a domain"`
	Lenient      bool `default:"false" help:"accept what envoyproxy/ratelimit does"`
	// ShadowMode and QuotaMode do for all rules what the flags of these names do for one.
	ShadowMode bool `default:"false" help:"deny no request"`
	QuotaMode  bool `default:"false" help:"treat all limits as quotas"`
	// Unmatched is what a descriptor without a rule gets, in domains that do not say.
	Unmatched Unmatched `default:"allow" of:"allow|deny" help:"what descriptors without a rule get"`
	// Initial is what happens if they cannot be loaded at start.
	Initial Initial `default:"required" of:"required|optional" help:"whether limits must load at start"`
	// ReadyWhenEmpty is whether a daemon is ready while no file contains a domain.
	ReadyWhenEmpty bool `default:"true" help:"be ready without any domain"`
	// ReadyBeforeLoaded is whether it is ready before limits are loaded, though it
	// answers no request. It applies only with ReadyWhenEmpty.
	ReadyBeforeLoaded bool `default:"false" help:"be ready before limits are loaded"`
	XDS               XDS  `title:"Limits from an xDS server"`
	// CachePath is the file that keeps the last good configuration of the xDS
	// server; empty means none.
	CachePath string `is:"path" empty:"none" help:"file for the server's last good limits"`
}

// AutoPath is the Path of Assignments that are in UsualPath, or in memory where that file is
// not to be had.
const (
	AutoPath  = "auto"
	UsualPath = "/var/lib/ratelimitd/assignments.db"
)

// Assignments says which assignments are kept, and where.
type Assignments struct {
	// Path is the file that keeps them with StoreMemory; empty means that a restart
	// forgets them, and AutoPath that the daemon chooses.
	Path string `default:"auto" is:"path" empty:"none" auto:"auto" help:"the file"`
	// CachePath is the file that keeps a snapshot of them with StoreRedis; empty means
	// none.
	CachePath string `is:"path" empty:"none" help:"a snapshot of those in Redis"`
	// Max is how many there may be.
	Max int `default:"1000000" min:"1" max:"10000000" help:"assignments at most"`
	// MaxRecords is how many records of changes are kept.
	MaxRecords int `default:"100000" min:"1000" max:"10000000" help:"records of changes at most"`
	// ReliefTimes is how many times the number in force the role support may give as
	// relief, and ReliefFor for how long.
	ReliefTimes int64         `default:"2" min:"0" max:"100" help:"relief by support, in times the number"`
	ReliefFor   time.Duration `default:"24h" min:"1s" max:"744h" help:"how long it lasts at most"`
}

// XDS says which server limits come from.
type XDS struct {
	// Address is host:port; empty only where limits come from elsewhere.
	Address string `is:"address" empty:"none" help:"the xDS server"`
	// NodeID is the name by which the server knows this daemon and its peers.
	NodeID string `default:"ratelimitd" is:"name" help:"this daemon's name there"`
	// NodeMetadata is sent to the server beside it.
	NodeMetadata map[string]string `help:"metadata of this daemon for the server"`
	// Headers are sent with each stream; their names are in lower case.
	Headers HeaderSecrets `help:"headers for it"`
	TLS     XDSTLS
	// MaxBytes bounds a configuration.
	MaxBytes int `default:"67108864" min:"65536" max:"1073741824" help:"bytes of a configuration"`
}

// XDSTLS says how the connection to the xDS server is protected, as tlsfiles.Client does,
// except for the CA, which is trusted besides the system's.
type XDSTLS struct {
	Enabled    bool   `default:"false" help:"connect with TLS"`
	CA         string `is:"path" empty:"none" help:"certificates that sign the server's"`
	Cert       string `is:"path" empty:"none" help:"own certificate chain"`
	Key        string `is:"path" empty:"none" help:"own private key"`
	ServerName string `is:"name" empty:"none" help:"name in its certificate"`
}

// Memory bounds the embedded store.
type Memory struct {
	// MaxKeys is the number of states kept at most.
	MaxKeys int64 `default:"1000000" min:"1" max:"1000000000" help:"states that are kept at most"`
	// MaxBytes is roughly how many bytes they take at most; 0 means 256 for each of MaxKeys,
	// and at most two fifths of the process's limit if it has one.
	MaxBytes int `default:"auto" min:"1048576" max:"1099511627776" auto:"0" help:"bytes that these take at most"`
	// WhenFull is what then happens to a new key.
	WhenFull WhenFull `default:"allow" of:"allow|deny|evict" help:"a new key when it is full"`
}

// Redis says how Redis is reached and what keys look like there.
type Redis struct {
	Mode RedisMode `default:"single" of:"single|sentinel|cluster" help:"how Redis is run"`
	// Addresses are host:port: of the server, of the sentinels, or of some of the
	// cluster's nodes. There is at least one, and exactly one with RedisSingle, which may
	// also be the socket unix:/path.
	Addresses []string `default:"127.0.0.1:6379" is:"server address" help:"where it is"`
	// Database is 0 on a cluster.
	Database int    `default:"0" min:"0" max:"65535" help:"number of the database; 0 on a cluster"`
	Username string `is:"name" empty:"none" help:"ACL user"`
	// At most one of Password and PasswordFile is set. CurrentPassword returns
	// the password to use.
	Password     Secret `help:"password"`
	PasswordFile string `is:"path" empty:"none" help:"file of the password"`
	// SentinelMaster is the name by which the sentinels know the master.
	SentinelMaster string `is:"name" empty:"none" help:"the master's name among the sentinels"`
	// SentinelUsername and SentinelPassword are for the sentinels themselves.
	SentinelUsername string `is:"name" empty:"none" help:"ACL user of the sentinels themselves"`
	SentinelPassword Secret `help:"password of the sentinels themselves"`
	TLS              tlsfiles.Client
	// Prefix starts every key.
	Prefix string `default:"rl" is:"prefix" help:"start of every key"`
	// HashTags is the number of places that keys fall into.
	HashTags int `default:"32" min:"1" max:"16384" help:"hash tags that keys are spread over"`
	// Timeout bounds one operation.
	Timeout time.Duration `default:"100ms" min:"1ms" max:"10s" help:"how long one operation may take"`
	Batch   Batch
	// DenialMemory is how long a denial from Redis is repeated without a call; 0 means never.
	DenialMemory time.Duration `default:"1s" min:"0s" max:"1s" help:"how long a denial is known here"`
	// DenialBytes bounds the memory of these denials.
	DenialBytes int `default:"16777216" min:"1048576" max:"1073741824" help:"bytes that denials take at most"`
	// MaxClockSkew is how far ahead of Redis's clock a limit's state may be. A state further ahead was written by a wrong clock.
	MaxClockSkew time.Duration `default:"10s" min:"1s" max:"1h" help:"how far ahead a state may be"`
}

// Batch says how requests travel to Redis together. All numbers are for one node.
type Batch struct {
	// Size is the most limits that a batch asks; a request with more goes alone. 1 means that each request is its own call.
	Size int `default:"1000" min:"1" max:"10000" help:"limits in one batch at most"`
	// InFlight is how many batches are on the way at a time.
	InFlight int `default:"1" min:"1" max:"64" help:"batches on the way to a node"`
	// Queue is how many requests may wait for a batch.
	Queue int `default:"10000" min:"1" max:"1000000" help:"requests that wait at most, a node"`
}

// Failure says what happens while Redis does not answer.
type Failure struct {
	// Mode is for limits without a failure mode of their own.
	Mode bucket.FailureMode `default:"local" help:"what answers in its place"`
	// Replicas is the number of daemons that share the limits; 0 means the number of those that sign in to Redis.
	Replicas int `default:"auto" min:"1" max:"10000" auto:"0" help:"daemons that share the limits"`
	// Health is what the health check says meanwhile.
	Health Health `default:"serving" of:"serving|not_serving|first_answer" help:"what health says"`
}

// GRPC is about Envoy's RPC.
type GRPC struct {
	Address string `default:":8081" is:"listen address" help:"where gRPC listens"`
	// Socket, if not empty, is the path of a unix socket to listen on instead of
	// Address.
	Socket string `is:"path" empty:"none" help:"unix socket, instead of the address"`
	TLS    tlsfiles.Server
	// MaxConnectionAge is how long a connection may last before its client is asked to
	// open a new one; 0 means forever. It varies by a tenth.
	MaxConnectionAge time.Duration `default:"30m" min:"0s" max:"8760h" help:"age at which a connection ends"`
	// MaxConnectionAgeGrace is how long calls may continue after that before they are
	// cut; 0 means forever.
	MaxConnectionAgeGrace time.Duration `default:"10s" min:"0s" max:"8760h" help:"time for its last calls"`
	// MaxDescriptors bounds the descriptors of a request.
	MaxDescriptors int `default:"100" min:"1" max:"10000" help:"descriptors of a request"`
	// MaxTakes bounds the requests in one message of TakeMany or TakeStream.
	MaxTakes int `default:"1000" min:"128" max:"10000" help:"requests in one message"`
	// MaxEntries bounds the entries of a descriptor.
	MaxEntries int `default:"32" min:"1" max:"1000" help:"entries of a descriptor"`
	// MaxBytes bounds the text in a request (domain, keys and values), over gRPC and
	// HTTP.
	MaxBytes int `default:"1048576" min:"1024" max:"16777216" help:"bytes of text in a request"`
}

// HTTP is about the JSON port.
type HTTP struct {
	Address string `default:":8080" is:"listen address" empty:"off" help:"where HTTP listens"`
	TLS     tlsfiles.Server
}

// API says what requests may ask for and what responses contain, over gRPC and HTTP.
type API struct {
	// Refunds is whether a request may give back what was taken.
	Refunds bool `default:"true" help:"take refunds"`
	// MaxSettleWithin is how long a take with an id can be settled at most.
	MaxSettleWithin time.Duration `default:"24h" min:"1s" max:"24h" help:"how long takes can be settled"`
	// CallersFile says who may ask; empty means all.
	CallersFile string `is:"path" empty:"none" help:"file that says who may ask limits"`
	// DynamicMetadata is whether responses repeat the request in their
	// dynamic_metadata.
	DynamicMetadata bool `default:"false" help:"repeat the request in the answer"`
}

// Auth is about forward auth on the HTTP port.
type Auth struct {
	// Path is the file for it; empty means off.
	Path string `is:"path" empty:"none" help:"file for forward auth"`
}

// Headers says which headers of a response describe its limits, besides retry-after.
type Headers struct {
	Style HeaderStyle `default:"none" of:"none|ratelimit|x-ratelimit|ietf" help:"headers for callers"`
	// Limit, Remaining and Reset are the names of the headers of the style ratelimit.
	Limit     string `default:"RateLimit-Limit" is:"header" help:"header with the requests"`
	Remaining string `default:"RateLimit-Remaining" is:"header" help:"header with the rest"`
	Reset     string `default:"RateLimit-Reset" is:"header" help:"header with the seconds"`
}

// Admin is about the port for operators.
type Admin struct {
	Address string `default:"127.0.0.1:6070" is:"listen address" empty:"off" help:"where it listens"`
	// TokensFile says who may do what with the admin API; it may be empty.
	TokensFile string `is:"path" empty:"none" help:"file that says who may do what"`
	TLS        tlsfiles.Server
	// Pprof is whether profiles are served there. It is never true unless Address is
	// loopback.
	Pprof bool `default:"true" help:"serve profiles, on loopback only"`
}

// Metrics is about what Prometheus scrapes, and a port just for that. The admin port has
// the metrics too.
type Metrics struct {
	Address string `is:"listen address" empty:"off" help:"where a port for metrics alone listens"`
	Path    string `default:"/metrics" is:"URL path" help:"path of the metrics there"`
	// Names is whether there are metrics with the names of envoyproxy/ratelimit.
	Names MetricNames `default:"ratelimitd" of:"ratelimitd|envoyproxy" help:"envoyproxy's names too"`
	// NearRatio is the part of a limit above which a hit is near the limit.
	NearRatio float32 `default:"0.8" help:"part of a limit that counts as near"`
	// MaxRules is how many rules have series of their own.
	MaxRules int `default:"5000" min:"1" max:"100000" help:"rules with series of their own"`
}

// Statsd is about a statsd server that receives counts with the names of
// envoyproxy/ratelimit.
type Statsd struct {
	// Address is host:port; empty means none.
	Address  string `is:"address" empty:"none" help:"the server that gets counts"`
	Protocol string `default:"udp" of:"udp|tcp" help:"how they go there"`
	// Prefix precedes all names; it may be empty.
	Prefix string `is:"name" empty:"none" help:"what stands before their names"`
	// Tags are added to all counts.
	Tags map[string]string `help:"tags of all counts"`
	// Dog is whether tags are separate from names, as in DogStatsD.
	Dog bool `default:"false" help:"tags beside names: DogStatsD"`
	// Rules change names. They are valid.
	Rules []StatsdRule `help:"rules that change names"`
	// Interval is how often counts are sent.
	Interval time.Duration `default:"10s" min:"1s" max:"1h" help:"how often they are sent"`
}

// StatsdRule holds the arguments of statsd.NewRule.
type StatsdRule struct {
	Pattern string            `json:"pattern"`
	Name    string            `json:"name"`
	Tags    map[string]string `json:"tags,omitempty"`
}

// Top is about the top subjects of each rule.
type Top struct {
	Subjects TopSubjects `default:"denied" of:"denied|all|off" help:"whose subjects are kept for top"`
	// Memory is how many bytes they take at most, over all rules.
	Memory int64 `default:"67108864" min:"1048576" max:"68719476736" help:"bytes that these take at most"`
}

// Tracing is about OpenTelemetry spans. What is empty or auto is left to the OTEL_*
// variables, and without them to their defaults.
type Tracing struct {
	Enabled  bool            `default:"false" help:"send spans over OTLP"`
	Endpoint string          `is:"URL" empty:"none" help:"of the collector"`
	Protocol TracingProtocol `default:"auto" of:"auto|http|grpc" help:"protocol of OTLP"`
	// SampleRatio is the share of the requests without a parent that is sampled;
	// negative for auto.
	SampleRatio float64 `default:"auto" auto:"-1" help:"share that is sampled"`
	// Propagators are the names of the formats that are read.
	Propagators       []string `of:"tracecontext|b3|b3multi|baggage|none" empty:"none" help:"formats of callers' traces"`
	ServiceName       string   `is:"name" empty:"none" help:"service.name of spans"`
	ServiceNamespace  string   `is:"name" empty:"none" help:"service.namespace of spans"`
	ServiceInstanceID string   `is:"name" empty:"none" help:"service.instance.id of spans"`
	// Values is whether spans contain the values of descriptors.
	Values bool `default:"false" help:"put values into spans"`
}

// Decisions is about the log of decisions.
type Decisions struct {
	// Path is a file, or - for standard output; empty means none.
	Path string `is:"path" empty:"none" help:"file of the log, or - for standard output"`
	OTLP DecisionsOTLP
	// Sample says which part is recorded.
	Sample DecisionsSample
	// PerSubject is the most lines per second for one subject, and BytesPerSecond the
	// most bytes for all, at least MinBytesPerSecond; 0 means no bound.
	PerSubject     int `default:"10" min:"0" max:"1000000" help:"lines a second for one subject"`
	BytesPerSecond int `default:"8388608" min:"0" max:"1073741824" help:"bytes of lines a second"`
	// Values is whether values of descriptors are kept or hashed, the latter with the
	// key in HashKeyFile.
	Values      Values `default:"keep" of:"keep|hash" help:"keep values, or hash them"`
	HashKeyFile string `is:"path" empty:"none" help:"file with the key for their hashes"`
	// MaxSize is the size in bytes at which a file is rotated, at least MinLogSize; 0
	// means never. Keep is how many rotated files are kept, and Compress
	// whether they are compressed with gzip.
	MaxSize  int64 `default:"104857600" min:"0" max:"1099511627776" help:"bytes of a file; 0: any"`
	Keep     int   `default:"10" min:"1" max:"10000" help:"rotated files that are kept"`
	Compress bool  `default:"true" help:"compress rotated files with gzip"`
	// Buffer is how many bytes may wait to be written, and as many again for the
	// collector.
	Buffer int `default:"8388608" min:"1048576" max:"1073741824" help:"bytes that may wait to be written"`
}

// IsOn reports whether there is a log of decisions.
func (d *Decisions) IsOn() bool { return d.Path != "" || d.OTLP.Endpoint != "" }

// IsWhole reports whether all requests are recorded, as far as the bounds allow.
func (d *Decisions) IsWhole() bool {
	return d.IsOn() && d.Sample == DecisionsSample{Allowed: 1, Denied: 1}
}

// DecisionsSample are shares of the requests, 0 to 1.
type DecisionsSample struct {
	Allowed float64 `default:"1" help:"share of allowed requests"`
	Denied  float64 `default:"1" help:"share of all other requests"`
}

// DecisionsOTLP says which collector receives the lines as logs.
type DecisionsOTLP struct {
	Endpoint string          `is:"URL" empty:"none" help:"collector that gets the lines"`
	Protocol TracingProtocol `default:"auto" of:"auto|http|grpc" help:"protocol of OTLP"`
}

// The minimums of bounds that are not 0.
const (
	MinBytesPerSecond = 1 << 20
	MinLogSize        = 1 << 20
)

// Log says what is logged, and how.
type Log struct {
	// Level is the lowest level that is logged.
	Level  slog.Level `default:"info" help:"least level that is logged"`
	Format LogFormat  `default:"text" of:"text|json" help:"how log lines look"`
}

// Default returns the settings in force if none is given.
func Default() Settings { return newLoader().decode() }

// String lists all settings as name=value, secrets as stars.
func (s Settings) String() string {
	var list []string
	for _, a := range s.LogValue().Group() {
		list = append(list, a.Key+"="+a.Value.String())
	}
	return strings.Join(list, " ")
}

// LogValue gives slog one attribute for each setting, secrets as stars.
func (s Settings) LogValue() slog.Value {
	var attrs []slog.Attr
	for _, d := range allSettings() {
		attrs = append(attrs, slog.String(d.name, d.show(d.valueIn(&s))))
	}
	return slog.GroupValue(attrs...)
}
