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
type Settings struct {
	// Limits says where the limits files are.
	Limits Limits
	// Store is where state lives.
	Store  Store
	Memory Memory
	Redis  Redis
	// Assignments says which assignments are kept, and where.
	Assignments Assignments
	// Failure applies if Store is StoreRedis; memory does not fail.
	Failure Failure
	GRPC    GRPC
	HTTP    HTTP
	API     API
	Auth    Auth
	Headers Headers
	Admin   Admin
	Metrics Metrics
	Statsd  Statsd
	Top     Top
	Tracing Tracing
	// Decisions is about the log of decisions.
	Decisions Decisions
	// RequestMemory bounds the bytes that all requests hold while they are read and
	// answered, 16 MiB to 1 TiB; 0 means a fifth of the process's limit, or 512 MiB if it
	// has none.
	RequestMemory int
	// DrainDelay is how long the daemon keeps answering after SIGTERM, already not ready:
	// 0 to 10 minutes.
	DrainDelay time.Duration
	Log        Log
}

// Limits says which limits are in force.
type Limits struct {
	// Source is where they come from. Path and Watch apply with SourceFiles, XDS and
	// CachePath with SourceXDS.
	Source Source
	XDS    XDS
	// CachePath is the file that keeps the last good configuration of the xDS
	// server; empty means none.
	CachePath string
	// Path is a limits file or a folder of them; never empty.
	Path string
	// Watch is whether changed files are loaded while the daemon runs.
	Watch bool
	// MergeDomains and Lenient are those of limitsfile.Options.
	MergeDomains, Lenient bool
	// ShadowMode and QuotaMode do for all rules what the flags of these names do for one.
	ShadowMode, QuotaMode bool
	// Unmatched is what a descriptor without a rule gets, in domains that do not say.
	Unmatched Unmatched
	// Initial is what happens if they cannot be loaded at start.
	Initial Initial
	// ReadyWhenEmpty is whether a daemon is ready while no file contains a domain.
	ReadyWhenEmpty bool
	// ReadyBeforeLoaded is whether it is ready before limits are loaded, though it
	// answers no request. It applies only with ReadyWhenEmpty.
	ReadyBeforeLoaded bool
}

// Assignments says which assignments are kept, and where.
type Assignments struct {
	// Path is the file that keeps them with StoreMemory; empty means that a restart
	// forgets them.
	Path string
	// CachePath is the file that keeps a snapshot of them with StoreRedis; empty means
	// none.
	CachePath string
	// Max is how many there may be, 1 to 10 million.
	Max int
	// MaxRecords is how many records of changes are kept, 1,000 to 10 million.
	MaxRecords int
	// ReliefTimes is how many times the number in force the role support may give as
	// relief, 0 (none) to 100, and ReliefFor for how long, 1 second to 31 days.
	ReliefTimes int64
	ReliefFor   time.Duration
}

// XDS says which server limits come from.
type XDS struct {
	// Address is host:port; empty only where limits come from elsewhere.
	Address string
	// NodeID is the name by which the server knows this daemon and its peers.
	NodeID string
	// NodeMetadata is sent to the server beside it.
	NodeMetadata map[string]string
	// Headers are sent with each stream; their names are in lower case.
	Headers HeaderSecrets
	TLS     XDSTLS
	// MaxBytes bounds a configuration, 64 KiB to 1 GiB.
	MaxBytes int
}

// XDSTLS says how the connection to the xDS server is protected, as tlsfiles.Client does,
// except for the CA, which is trusted besides the system's.
type XDSTLS struct {
	Enabled                   bool
	CA, Cert, Key, ServerName string
}

// Memory bounds the embedded store.
type Memory struct {
	// MaxKeys is the number of states kept at most, 1 to 1,000,000,000.
	MaxKeys int64
	// MaxBytes is roughly how many bytes they take at most, 1 MiB to 1 TiB; 0 means 256
	// for each of MaxKeys, and at most two fifths of the process's limit if it has one.
	MaxBytes int
	// WhenFull is what then happens to a new key.
	WhenFull WhenFull
}

// Redis says how Redis is reached and what keys look like there.
type Redis struct {
	Mode RedisMode
	// Addresses are host:port: of the server, of the sentinels, or of some of the
	// cluster's nodes. There is at least one, and exactly one with RedisSingle, which may
	// also be the socket unix:/path.
	Addresses []string
	// Database is 0 to 65,535; 0 on a cluster.
	Database int
	Username string
	// At most one of Password and PasswordFile is set. CurrentPassword returns
	// the password to use.
	Password     Secret
	PasswordFile string
	// SentinelMaster is the name by which the sentinels know the master.
	SentinelMaster string
	// SentinelUsername and SentinelPassword are for the sentinels themselves.
	SentinelUsername string
	SentinelPassword Secret
	TLS              tlsfiles.Client
	// Prefix starts every key: 1 to 32 printable ASCII characters without
	// spaces and braces.
	Prefix string
	// HashTags is the number of places that keys fall into, 1 to 16,384.
	HashTags int
	// Timeout bounds one operation: 1 ms to 10 s.
	Timeout time.Duration
	Batch   Batch
	// DenialMemory is how long a denial from Redis is repeated without a call, 0 to 1 s;
	// 0 means never.
	DenialMemory time.Duration
	// DenialBytes bounds the memory of these denials, 1 MiB to 1 GiB.
	DenialBytes int
	// MaxClockSkew is how far ahead of Redis's clock a limit's state may be, 1 s to 1 h.
	// A state further ahead was written by a wrong clock.
	MaxClockSkew time.Duration
}

// Batch says how requests travel to Redis together. All numbers are for one node.
type Batch struct {
	// Size is the most limits that a batch asks, 1 to 10,000; a request with more goes
	// alone. 1 means that each request is its own call.
	Size int
	// InFlight is how many batches are on the way at a time, 1 to 64.
	InFlight int
	// Queue is how many requests may wait for a batch, 1 to 1,000,000.
	Queue int
}

// Failure says what happens while Redis does not answer.
type Failure struct {
	// Mode is for limits without a failure mode of their own.
	Mode bucket.FailureMode
	// Replicas is the number of daemons that share the limits, 1 to 10,000; 0 means the
	// number of those that sign in to Redis.
	Replicas int
	// Health is what the health check says meanwhile.
	Health Health
}

// GRPC is about Envoy's RPC.
type GRPC struct {
	// Address is host:port; never empty.
	Address string
	// Socket, if not empty, is the path of a unix socket to listen on instead of
	// Address.
	Socket string
	TLS    tlsfiles.Server
	// MaxConnectionAge is how long a connection may last before its client is asked to
	// open a new one; 0 means forever. It varies by a tenth.
	MaxConnectionAge time.Duration
	// MaxConnectionAgeGrace is how long calls may continue after that before they are
	// cut; 0 means forever.
	MaxConnectionAgeGrace time.Duration
	// MaxDescriptors bounds the descriptors of a request, 1 to 10,000.
	MaxDescriptors int
	// MaxTakes bounds the requests in one message of TakeMany or TakeStream, 128
	// to 10,000.
	MaxTakes int
	// MaxEntries bounds the entries of a descriptor, 1 to 1,000.
	MaxEntries int
	// MaxBytes bounds the text in a request (domain, keys and values), 1 KiB
	// to 16 MiB, over gRPC and HTTP.
	MaxBytes int
}

// HTTP is about the JSON port.
type HTTP struct {
	// Address is host:port; empty means off.
	Address string
	TLS     tlsfiles.Server
}

// API says what requests may ask for and what responses contain, over gRPC and HTTP.
type API struct {
	// Refunds is whether a request may give back what was taken.
	Refunds bool
	// MaxSettleWithin is how long a take with an id can be settled at most.
	MaxSettleWithin time.Duration
	// CallersFile says who may ask; empty means everybody.
	CallersFile string
	// DynamicMetadata is whether responses repeat the request in their
	// dynamic_metadata.
	DynamicMetadata bool
}

// Auth is about forward auth on the HTTP port.
type Auth struct {
	// Path is the file for it; empty means off.
	Path string
}

// Headers says which headers of a response describe its limits, besides retry-after.
type Headers struct {
	Style HeaderStyle
	// Limit, Remaining and Reset are the names of the headers of the style
	// ratelimit: 1 to 64 of the characters that HTTP allows in them.
	Limit, Remaining, Reset string
}

// Admin is about the port for operators.
type Admin struct {
	// Address is host:port; empty means off.
	Address string
	// TokensFile says who may do what with the admin API; it may be empty.
	TokensFile string
	TLS        tlsfiles.Server
	// Pprof is whether profiles are served there. It is never true unless Address is
	// loopback.
	Pprof bool
}

// Metrics is about what Prometheus scrapes, and a port just for that. The admin port has
// the metrics too.
type Metrics struct {
	// Names is whether there are metrics with the names of envoyproxy/ratelimit.
	Names MetricNames
	// NearRatio is the part of a limit, 0 to 1, above which a hit is near the limit.
	NearRatio float32
	// MaxRules is how many rules have series of their own.
	MaxRules int
	// Address is host:port; empty means off.
	Address string
	// Path is the path of the metrics there; it begins with a slash.
	Path string
}

// Statsd is about a statsd server that receives counts with the names of
// envoyproxy/ratelimit.
type Statsd struct {
	// Address is host:port; empty means none.
	Address  string
	Protocol StatsdProtocol
	// Prefix precedes all names; it may be empty.
	Prefix string
	// Tags are added to all counts.
	Tags map[string]string
	// Dog is whether tags are separate from names, as in DogStatsD.
	Dog bool
	// Rules change names. They are valid.
	Rules []StatsdRule
	// Interval is how often counts are sent.
	Interval time.Duration
}

// StatsdRule holds the arguments of statsd.NewRule.
type StatsdRule struct {
	Pattern string            `json:"pattern"`
	Name    string            `json:"name"`
	Tags    map[string]string `json:"tags,omitempty"`
}

// Top is about the top subjects of each rule.
type Top struct {
	Subjects TopSubjects
	// Memory is how many bytes they take at most, over all rules: 1 MiB to 64 GiB.
	Memory int64
}

// Tracing is about OpenTelemetry spans. What is empty or auto is left to the OTEL_*
// variables, and without them to their defaults.
type Tracing struct {
	Enabled bool
	// Endpoint is the URL of the collector.
	Endpoint string
	Protocol TracingProtocol
	// SampleRatio is the share of the requests without a parent that is sampled,
	// 0 to 1; negative for auto.
	SampleRatio float64
	// Propagators are the names of the formats that are read.
	Propagators                                      []string
	ServiceName, ServiceNamespace, ServiceInstanceID string
	// Values is whether spans contain the values of descriptors.
	Values bool
}

// Decisions is about the log of decisions.
type Decisions struct {
	// Path is a file, or - for standard output; empty means none.
	Path string
	OTLP DecisionsOTLP
	// Sample says which part is recorded.
	Sample DecisionsSample
	// PerSubject is the most lines per second for one subject, and BytesPerSecond the
	// most bytes for all, at least MinBytesPerSecond; 0 means no bound.
	PerSubject, BytesPerSecond int
	// Values is whether values of descriptors are kept or hashed, the latter with the
	// key in HashKeyFile.
	Values      Values
	HashKeyFile string
	// MaxSize is the size in bytes at which a file is rotated, at least MinLogSize; 0
	// means never. Keep is how many rotated files are kept, 1 to 10,000, and Compress
	// whether they are compressed with gzip.
	MaxSize  int64
	Keep     int
	Compress bool
	// Buffer is how many bytes may wait to be written, and as many again for the
	// collector: 1 MiB to 1 GiB.
	Buffer int
}

// IsOn reports whether there is a log of decisions.
func (d *Decisions) IsOn() bool { return d.Path != "" || d.OTLP.Endpoint != "" }

// IsWhole reports whether all requests are recorded, as far as the bounds allow.
func (d *Decisions) IsWhole() bool {
	return d.IsOn() && d.Sample == DecisionsSample{Allowed: 1, Denied: 1}
}

// DecisionsSample are shares of the requests, 0 to 1.
type DecisionsSample struct{ Allowed, Denied float64 }

// DecisionsOTLP says which collector receives the lines as logs.
type DecisionsOTLP struct {
	// Endpoint is the URL of the collector; empty means none.
	Endpoint string
	Protocol TracingProtocol
}

// The minimums of bounds that are not 0.
const (
	MinBytesPerSecond = 1 << 20
	MinLogSize        = 1 << 20
)

// Log says what is logged, and how.
type Log struct {
	// Level is the lowest level that is logged.
	Level  slog.Level
	Format LogFormat
}

// Default returns the settings in force if none is given.
func Default() Settings { return newLoader().decode() }

// String lists all settings as name=value, secrets as stars.
func (s Settings) String() string {
	var list []string
	for _, d := range allSettings() {
		list = append(list, d.name+"="+d.show(d.valueIn(&s)))
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
