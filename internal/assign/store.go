package assign

import (
	"context"
	"errors"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// IfNone, as a Change's IfMatch, allows the change only if nothing is in force.
const IfNone = "none"

// Change changes the parts of one assignment that it names, and leaves the others.
type Change struct {
	// Assignment has the parts to set, with their ends: an existing part gets its new
	// end, or none. It may set none. The store sets At and ETag.
	Assignment Assignment
	// Remove are the parts to remove before these are set.
	Remove Parts
	// IfMatch is the ETag of the version that must be in force, or IfNone, or empty for
	// whatever is in force.
	IfMatch string
	// RestOfDomain says that the Assignment has a domain and no entries. If Redis lost
	// assignments, a daemon that was stopped may come back with some that do not exist
	// yet: those of the domain then lack the parts of Remove. Existing ones stay.
	RestOfDomain bool
}

// Parts names parts of an assignment.
type Parts struct {
	Plan, Calendar, Unlimited, Block bool
	// Numbers are those of all limits, and Limits name limits.
	Numbers bool
	Limits  []string
	// Rest is everything except the block, including parts that only a later version
	// knows.
	Rest bool
}

// AllParts returns all parts of an assignment.
func AllParts() Parts { return Parts{Block: true, Rest: true} }

// ErrNothingChanged is in the error of a Store that has certainly made none of the
// changes, and wants to say so.
var ErrNothingChanged = errors.New("nothing was changed")

// Outcome is the outcome of a Change.
type Outcome uint8

// Outcomes.
const (
	// Unknown: the store did not answer, so the change may be in force or not. Asking for
	// it again does no harm.
	Unknown Outcome = iota
	Created
	Replaced
	// Unchanged: the same parts with the same ends were in force, and the same reason or
	// none was given; or those to remove did not exist. Nothing was written.
	Unchanged
	// Deleted: nothing is left.
	Deleted
	// Conflict: IfMatch names another version.
	Conflict
	// Full: there is no room for more assignments.
	Full
	// TooManyNumbers: with the existing ones it would have more than MaxNumbers.
	TooManyNumbers
	// Failed: the store refused it, and nothing changed.
	Failed
	// NeedsParts: its parts would end at different times, or unlimited would be beside
	// others, or it would have a calendar, which the daemons in Applied.Old cannot read.
	NeedsParts
)

// Result is the result of a Change.
type Result struct {
	Outcome Outcome
	// Before is what was in force before, or nil; After is what is in force now, or nil.
	Before, After *Assignment
	// Err is the reason if the Outcome is Failed, and says ErrNothingChanged. Passes
	// tells whether that may end by itself within seconds, as a failover does.
	Err    error
	Passes bool
}

// Reached says which daemons a change did not certainly reach.
type Reached struct {
	// Pending are the daemons that were not seen to have all of it in force.
	Pending []string // IDs of the register
	// Lacks is for how long there may be more of them, unknown since Redis lost the
	// register of daemons or its last sign-ins, or does not answer; 0: there are none.
	Lacks time.Duration
}

// MaxWait is how long Apply and Reset wait at most, once their work is done, until every
// daemon has it in force; with 0 they look once. Without it they wait up to 2 s, or, if
// Redis has lost the register of daemons or failed it over, up to 9 s.
type MaxWait time.Duration

// Applied is the result of several changes.
type Applied struct {
	// Results are those of the changes, in order.
	Results []Result
	Reached
	// Old are the daemons because of which changes were refused as NeedsParts, for
	// people, or why they are not known.
	Old []string
}

// RecordKind is what a Record is about.
type RecordKind uint8

// Kinds.
const (
	Assigned RecordKind = iota + 1
	Unassigned
	// WasReset: the states of a subject's limits were forgotten.
	WasReset
	// Restored: a daemon put back what the store had lost. Such a record has no subject.
	Restored
)

// Record says who changed what.
type Record struct {
	// ID orders the records of a store by time: of two with different times the later one
	// has the greater (Moment, ID).
	ID string `json:"-"`
	// Moment is on the store's clock, in microseconds since the Unix epoch.
	Moment int64      `json:"-"`
	Kind   RecordKind `json:"kind"`
	By     string     `json:"by,omitempty"`
	Reason string     `json:"reason,omitempty"`
	Subject
	// Before and After are nil if there was nothing, and for a reset.
	Before *Assignment `json:"-"`
	After  *Assignment `json:"-"`
	// Limits are the names of the limits that were reset.
	Limits []string `json:"limits,omitempty"`
	// Restored is how many assignments were put back.
	Restored int `json:"restored,omitempty"`
}

// RecordQuery asks for records, newest first.
type RecordQuery struct {
	// Domain, if set, and Entries, if any, select them by subject.
	Domain  string
	Entries []bucket.Entry
	// Max is the maximum number.
	Max int
	// After is the token of the previous page, or the ID of a record, for those before
	// it; or empty.
	After string
}

// Store keeps assignments until they end, and the records of all changes. Its methods may
// be called concurrently.
type Store interface {
	// Table has all assignments that are in force in this daemon.
	Table() *Table

	// Loaded reports whether the table was ever complete.
	Loaded() bool

	// Apply makes each change independently, and records it. It returns once every daemon
	// has them in force, so that none decides by the earlier state any more, or after
	// maxWait, with the daemons that have not. Its error says that the store did not
	// answer for some changes, whose outcome is Unknown, or that it refused them, whose
	// outcome is Failed. It changes nothing if one of them is invalid (see Change.Check),
	// or before the store is Loaded. It needs Run to run.
	Apply(ctx context.Context, changes []Change, maxWait ...MaxWait) (Applied, error)

	// Reset forgets states and records it; both or neither. Daemons forget what they
	// remember of these states, as for Apply. Unless its error says ErrNothingChanged, it
	// is unknown whether that was done.
	Reset(ctx context.Context, r Reset, maxWait ...MaxWait) (Forgotten, error)

	// Records returns records of changes, newest first, and the token of the next page,
	// empty on the last. Its error is ErrPageToken if the token is wrong.
	Records(ctx context.Context, q RecordQuery) (records []Record, next string, _ error)

	// Watch calls tell for every record from now on, in the order of each subject's
	// changes, until ctx ends or tell returns false. tell must not block for long.
	Watch(ctx context.Context, tell func(Record) bool) error

	// Run loads the table, follows the changes of others, and removes what has ended,
	// until ctx ends.
	Run(ctx context.Context)

	// Close releases the store's resources. Nothing may be called after it.
	Close() error
}

// Reset names the states that Store.Reset forgets.
type Reset struct {
	// Keys are the keys of the states, at most MaxReset, all of one subject and named as
	// the store of states names them.
	Keys []string
	// Record is what is recorded. Its Kind is WasReset.
	Record Record
	// OnlyCounted changes and records nothing if none of the states exists.
	OnlyCounted bool
}

// Forgotten is the result of a Reset.
type Forgotten struct {
	Reached
	// States is how many of the states existed.
	States int
}

// MaxReset is how many states one call of Store.Reset forgets at most, so that it does
// not occupy a server for long.
const MaxReset = 200

// Hooks are what a store needs from the daemon.
type Hooks struct {
	// Quiesce returns once every decision that began before it was called has ended, so
	// that no decision is left that read an older table.
	Quiesce func()
	// Forget makes this daemon forget what it remembers of keys, named as the store of
	// states names them: denials, and in memory the states themselves.
	Forget func(keys []string)
	// Counted returns how many of the keys have a state in this daemon's memory. It is
	// nil if states are elsewhere.
	Counted func(keys []string) int
}
