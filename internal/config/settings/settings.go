package settings

import (
	"log/slog"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/tlsfiles"
)

// Settings are the daemon's settings. Load makes them, with every value checked;
// Default has the values of settings that are not given. They may be printed and
// logged: secrets show as stars.
type Settings struct {
	// Limits says where the limits files are.
	Limits Limits
	// Store is where state lives.
	Store  Store
	Memory Memory
	Redis  Redis
	// Assignments says what is kept of what is said at run time.
	Assignments Assignments
	// Failure counts where Store is StoreRedis; memory does not fail.
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
	// RequestMemory bounds the bytes that all requests hold while they are read
	// and answered, 16 MiB to 1 TiB; 0 means a fifth of the process's limit, or
	// 512 MiB where it has none.
	RequestMemory int
	// DrainDelay is how long the daemon goes on answering after SIGTERM, already
	// not ready: 0 to 10 minutes.
	DrainDelay time.Duration
	Log        Log
}

// Limits says which limits are in force.
type Limits struct {
	// Source is where they come from. Path and Watch count with SourceFiles, XDS
	// and CachePath with SourceXDS.
	Source Source
	XDS    XDS
	// CachePath is the file that keeps the last good configuration of the xDS
	// server; empty means none.
	CachePath string
	// Path is a limits file or a folder of them; never empty.
	Path string
	// Watch is whether a changed file is loaded while the daemon runs.
	Watch bool
	// MergeDomains and Lenient are those of LoadOptions.
	MergeDomains, Lenient bool
	// ShadowMode and QuotaMode are for all rules what the flags of these names
	// are for one.
	ShadowMode, QuotaMode bool
	// Unmatched is what a descriptor without a rule gets, in domains that do not
	// say.
	Unmatched Unmatched
	// Initial is what happens if they cannot be loaded at start.
	Initial Initial
	// ReadyWhenEmpty is whether a daemon is ready while no file holds a domain.
	ReadyWhenEmpty bool
	// ReadyBeforeLoaded is whether it is ready before limits are loaded, though it
	// answers no request. It counts with ReadyWhenEmpty only.
	ReadyBeforeLoaded bool
}

// Assignments says what is kept of what is said at run time.
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
}

// XDS says which server limits come from.
type XDS struct {
	// Address is host:port; empty only where limits come from elsewhere.
	Address string
	// NodeID is the name under which the server knows this daemon and its like.
	NodeID string
	// NodeMetadata is what it is told beside that.
	NodeMetadata map[string]string
	// Headers are sent with each stream; their names are in lower case.
	Headers HeaderSecrets
	TLS     XDSTLS
	// MaxBytes bounds a configuration, 64 KiB to 1 GiB.
	MaxBytes int
}

// XDSTLS says how the connection to the xDS server is protected, as tlsfiles.Client
// does, but for the CA, which counts beside the system's.
type XDSTLS struct {
	Enabled                   bool
	CA, Cert, Key, ServerName string
}

// Memory bounds the embedded store.
type Memory struct {
	// MaxKeys is the number of states kept at most, 1 to 1,000,000,000.
	MaxKeys int64
	// MaxBytes is about how many bytes they take at most, 1 MiB to 1 TiB; 0 means
	// 256 for each of MaxKeys, and at most two fifths of the process's limit
	// where it has one.
	MaxBytes int
	// WhenFull is what happens to a new key then.
	WhenFull WhenFull
}

// Redis says how Redis is reached and what keys look like there.
type Redis struct {
	Mode RedisMode
	// Addresses are host:port: of the server, of the sentinels, or of some of
	// the cluster's nodes. There is one at least, exactly one with RedisSingle,
	// which may also be the socket unix:/path.
	Addresses []string
	// Database is 0 to 65,535; 0 on a cluster.
	Database int
	Username string
	// At most one of Password and PasswordFile is set. CurrentPassword returns
	// the password to use.
	Password     Secret
	PasswordFile string
	// SentinelMaster is the name under which the sentinels know the master.
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
	// DenialMemory is how long a denial that Redis gave is repeated without a
	// call, 0 to 1 s; 0 means never.
	DenialMemory time.Duration
	// DenialBytes bounds the memory of these denials, 1 MiB to 1 GiB.
	DenialBytes int
	// MaxClockSkew is how far ahead of Redis's clock a limit's state may be,
	// 1 s to 1 h. A state further ahead was written by a wrong clock.
	MaxClockSkew time.Duration
}

// Batch says how requests travel to Redis together. All numbers are for one node.
type Batch struct {
	// Size is how many limits a batch asks at most, 1 to 10,000; a request with
	// more goes alone. 1 means that each request is a call of its own.
	Size int
	// InFlight is how many batches are on the way at a time, 1 to 64.
	InFlight int
	// Queue is how many requests wait for a batch at most, 1 to 1,000,000.
	Queue int
}

// Failure says what happens while Redis does not answer.
type Failure struct {
	// Mode is for limits without a failure mode of their own.
	Mode bucket.FailureMode
	// Replicas is the number of daemons that share the limits, 1 to 10,000; 0
	// means the number of those that sign in to Redis.
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
	// MaxConnectionAge is how long a connection may last before its client is
	// told to make a new one; 0 means for ever. It varies by a tenth.
	MaxConnectionAge time.Duration
	// MaxConnectionAgeGrace is how long calls may then go on before they are cut;
	// 0 means for ever.
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

// API says what requests may ask and what responses hold, over gRPC and HTTP.
type API struct {
	// Refunds is whether a request may give back what was taken.
	Refunds bool
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

// Headers says which headers of a response tell about its limits, beside
// retry-after.
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
	// Pprof is whether profiles are served there. It is never true unless Address
	// is loopback.
	Pprof bool
}

// Metrics is about what Prometheus fetches, and a port for it alone. The admin
// port has the metrics too.
type Metrics struct {
	// Names is whether there are metrics by the names of envoyproxy/ratelimit.
	Names MetricNames
	// NearRatio is the part of a limit, 0 to 1, above which a hit is near its end.
	NearRatio float32
	// Address is host:port; empty means off.
	Address string
	// Path is the path of the metrics there; it begins with a slash.
	Path string
}

// Top is about the subjects that had the most, of each rule.
type Top struct {
	Subjects TopSubjects
	// Memory is how many bytes they take at most, over all rules: 1 MiB to 64 GiB.
	Memory int64
}

// Tracing is about the spans of OpenTelemetry. What is empty or auto is left to the
// OTEL_* variables, and without these to their defaults.
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
	// Values is whether spans have the values of descriptors.
	Values bool
}

// Decisions is about the log of decisions.
type Decisions struct {
	// Path is a file, or - for standard output; empty means that there is none.
	Path string
	OTLP DecisionsOTLP
	// Sample says which part is recorded.
	Sample DecisionsSample
	// PerSubject is how many lines a second there are for one subject at most, and
	// BytesPerSecond how many bytes for all, at least MinBytesPerSecond; 0 is no
	// bound.
	PerSubject, BytesPerSecond int
	// Values is whether values of descriptors are kept or hashed, the latter with the
	// key in HashKeyFile.
	Values      Values
	HashKeyFile string
	// MaxSize is after how many bytes a file is rotated, at least MinLogSize; 0 means
	// never. Keep is how many rotated ones are kept, 1 to 10,000, and Compress whether
	// with gzip.
	MaxSize  int64
	Keep     int
	Compress bool
	// Buffer is how many bytes may wait to be written, and as many for the collector:
	// 1 MiB to 1 GiB.
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

// DecisionsOTLP says which collector gets the lines as logs.
type DecisionsOTLP struct {
	// Endpoint is the URL of the collector; empty means none.
	Endpoint string
	Protocol TracingProtocol
}

// The least of bounds that are not 0.
const (
	MinBytesPerSecond = 1 << 20
	MinLogSize        = 1 << 20
)

// Log says what is logged, and how.
type Log struct {
	// Level is the least that is logged.
	Level  slog.Level
	Format LogFormat
}
