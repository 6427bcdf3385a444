// Package decisionlog is the log of decisions: what its lines say, and how they are
// written and read. It imports bucket and spelling.
//
// A line is JSON, so that any tool reads it; docs/decisions.schema.json describes each
// field. Lines have what it takes to decide them again: the moment of each decision on
// the store's clock, the numbers that did not come from the limits files, and, as lines
// of their own, the limits files that were in force.
package decisionlog

import (
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// Version is the version of the schema. A reader of version n reads all versions up to n;
// fields may be added without a new one.
const Version = 1

// Kind is what a line is about.
type Kind uint8

// Kinds. A decision has no word in a line; the others are "limits", "give_back",
// "settle" and "lost".
const (
	Decided Kind = iota
	// Loaded: limits came into force.
	Loaded
	// GivenBack: what a take took was given back.
	GivenBack
	// Settled: what takes with an ID had charged became what was used.
	Settled
	// Lost: decisions were not recorded.
	Lost
)

// hasResult reports whether lines of the kind are about a request.
func (k Kind) hasResult() bool { return k != Loaded && k != Lost }

// Result is the result of a request or a descriptor. Its words are those of the metrics.
type Result uint8

// Results.
const (
	Allowed Result = iota
	Denied
	// Shadowed descriptors passed, since the limit that they are over is not in force.
	Shadowed
	// Failed requests have a Code.
	Failed
)

// String returns the word for it in lines: "allowed", "denied", "shadowed" or "error".
func (r Result) String() string { return resultWords[r] }

// Line is one line.
type Line struct {
	Kind Kind
	// At is the moment of the decision on the store's clock, in microseconds since the
	// Unix epoch; where no store was asked, that of the daemon's clock.
	At int64
	// Seq orders decisions of one moment of one store: of two with equal At, the one
	// with the lower Seq was first.
	Seq uint32
	// API is which API was asked, as in the metrics.
	API string
	// Limits is the fingerprint of the rules that decided, 16 hexadecimal digits.
	Limits string
	Domain string
	// ID is that of a take, or of what was settled, and Caller the name of whom it belongs
	// to, if callers have names. SettleWithin is how long a take could be settled.
	ID, Caller   string
	SettleWithin time.Duration
	Result       Result
	// Code is the gRPC code of a request that failed, as "Unavailable".
	Code string
	// Degraded is set if the store did not decide all of it.
	Degraded bool
	// TraceID is that of a sampled request, 32 hexadecimal digits.
	TraceID string
	// Lossy is set if some text is not what was sent: it was not UTF-8, or too long.
	Lossy       bool
	Descriptors []Descriptor
	// Settings are those of the daemon, in a line about limits, or nil if it has none.
	Settings *Settings
	// Files are the limits files of a line about limits, in the order of their loading.
	Files []File
	// Lost is, in a line about that, how many decisions were not recorded since the last
	// such line.
	Lost int64
}

// Settings are those that affect decisions besides the limits files, or say how these are
// read.
type Settings struct {
	// ShadowMode, QuotaMode, Lenient and MergeDomains are limits.shadow_mode and so on.
	ShadowMode, QuotaMode, Lenient, MergeDomains bool
	// DenyUnmatched is whether limits.unmatched is deny.
	DenyUnmatched bool
	// MaxClockSkew is how far ahead of the clock a state's last moment may lie, in
	// microseconds in a line: redis.max_clock_skew, or that of the memory store.
	MaxClockSkew time.Duration
	// Bounds are nil if every decision is recorded.
	Bounds *Bounds
}

// Bounds are the settings by which decisions are left out.
type Bounds struct {
	// PerSubject and BytesPerSecond are decisions.per_subject and .bytes_per_second; 0 is
	// no bound.
	PerSubject, BytesPerSecond int64
	// SampleAllowed and SampleDenied are the recorded shares, decisions.sample.allowed and
	// .denied.
	SampleAllowed, SampleDenied float64
}

// Descriptor is a descriptor of a request.
type Descriptor struct {
	Entries []bucket.Entry
	// Rule is the path of the rule, empty if there is none; Plan the plan in force.
	Rule, Plan string
	// Unlimited is set if an assignment made it so, whatever the rule says.
	Unlimited bool
	// Cost is what was asked for, or granted by a lease: 0 peeks, less refunds. Reports is
	// set if it says what was used.
	Cost    int64
	Reports bool
	// Kept is set on a descriptor of a settlement that said nothing of what it used.
	Kept bool
	// Doubtful is set on one of several readings of a request, which may deny it but
	// never makes it pass.
	Doubtful bool
	Result   Result
	// Refusal is "blocked" or "unmatched" where no limit was asked.
	Refusal string
	Limits  []Limit
}

// Limit is what one limit said.
type Limit struct {
	// Name is that of the limit, or its algorithm.
	Name string
	// Result is a word of ratelimitd_limit_decisions_total.
	Result string
	// At and Seq are those of the line unless they differ.
	At  int64
	Seq uint32
	// Remaining, RetryAfter and ResetAfter are those of bucket.Decision.
	Remaining              int64
	RetryAfter, ResetAfter time.Duration
	// Paused is that of bucket.Decision.
	Paused   time.Duration
	Degraded bool
	// Remembered is set on a denial that was answered from memory.
	Remembered bool
	// Numbers are set if they do not come from the limits files.
	Numbers *Numbers
	// TakenAt is, in a give-back, the moment of the take.
	TakenAt int64
	// Returned, Added and Takes are, in a settlement, those of bucket.Settled. Result is
	// then "settled" or "unknown".
	Returned, Added, Takes int64
	// Released is what a release found, a bucket.Released in words, and Renewed is set
	// on a take by a holder that had its slot already.
	Released string
	Renewed  bool
}

// Numbers are those of a limit that a request brought, or an assignment.
type Numbers struct {
	Algorithm       string
	Requests, Burst int64
	Period          time.Duration
	BlockFor        time.Duration
	// Calendar is the unit of a limit by calendar, with where its windows begin and in
	// which time zone; all three are empty for other limits.
	Calendar, Starts, TimeZone string
	// Assigned is set if they are an assignment's, not a request's own.
	Assigned bool
	// Apart is set if a request's own numbers have a state of their own, and the rule has a
	// limit of their period.
	Apart bool
}

// File is a limits file.
type File struct{ Name, Text string }
