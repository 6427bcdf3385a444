package assign

import (
	"context"
	"errors"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// IfNone, as a Change's IfMatch, allows the change only where nothing is in force.
const IfNone = "none"

// Change changes the parts of one assignment that it names, and leaves the others.
type Change struct {
	// Assignment has the parts that are set, with their ends: a part that was there
	// gets its new end, or none. It may set none. Without a Reason that of the
	// assignment stays. The store sets At and ETag.
	Assignment Assignment
	// Remove are the parts that go before these are set.
	Remove Parts
	// IfMatch is the ETag of the version that must be in force, or IfNone, or
	// empty: whatever is in force.
	IfMatch string
}

// Parts names parts of an assignment.
type Parts struct {
	Plan, Unlimited, Block bool
	// Numbers are those of all limits, and Limits name limits.
	Numbers bool
	Limits  []string
	// Rest is all but the block, parts that a later version knows among them.
	Rest bool
}

// AllParts returns the parts that are all of an assignment.
func AllParts() Parts { return Parts{Block: true, Rest: true} }

// ErrNothingChanged is in the error of a Store that surely has made none of the
// changes, and is to say so.
var ErrNothingChanged = errors.New("nothing was changed")

// Outcome is what became of a Change.
type Outcome uint8

// Outcomes.
const (
	// Unknown: the store did not answer, so the change may hold or not. To ask for
	// it again does no harm.
	Unknown Outcome = iota
	Created
	Replaced
	// Unchanged: the same parts with the same ends and reason were in force, or those
	// that were to go were not. Nothing was written.
	Unchanged
	// Deleted: nothing is left.
	Deleted
	// Conflict: IfMatch names another version.
	Conflict
	// Full: there is no room for more assignments.
	Full
	// TooManyNumbers: with those that are there it would have more than MaxNumbers.
	TooManyNumbers
	// Failed: the store refused it, and all is as it was.
	Failed
	// NeedsParts: its parts would end at different moments, or unlimited would stand
	// beside others, which the daemons of Applied.Old cannot read.
	NeedsParts
)

// Result is what became of a Change.
type Result struct {
	Outcome Outcome
	// Before is what was in force before, or nil; After is what is in force now, or
	// nil.
	Before, After *Assignment
	// Err is why, where the Outcome is Failed, and says ErrNothingChanged. Passes is
	// whether that may end by itself within seconds, as a failover does.
	Err    error
	Passes bool
}

// Reached says which daemons a change did not reach for sure.
type Reached struct {
	// Pending are the daemons that were not seen to have all of it in force.
	Pending []string // IDs of the register
	// Lacks is for how long there may be more of them, which nobody knows since Redis
	// lost the register of daemons, or does not answer; 0: there are none.
	Lacks time.Duration
}

// MaxWait is how long Apply and Reset wait at most, once what they do is done, until
// every daemon has it in force; with 0 they look once. Without it they wait up to 2 s,
// and where Redis has lost the register of daemons up to 9 s.
type MaxWait time.Duration

// Applied is what became of several changes.
type Applied struct {
	// Results are those of the changes, in order.
	Results []Result
	Reached
	// Old are the daemons for which changes were refused as NeedsParts, for people, or
	// why they are not known.
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
	// Restored: a daemon put back what the store had lost. Such a record has no
	// subject.
	Restored
)

// Record says who changed what.
type Record struct {
	// ID orders the records of a store by time: of two with different moments the
	// later one has the greater (Moment, ID).
	ID string `json:"-"`
	// Moment is on the store's clock, in microseconds since the Unix epoch.
	Moment int64      `json:"-"`
	Kind   RecordKind `json:"kind"`
	By     string     `json:"by,omitempty"`
	Reason string     `json:"reason,omitempty"`
	Subject
	// Before and After are nil where there was nothing, and of a reset.
	Before *Assignment `json:"-"`
	After  *Assignment `json:"-"`
	// Limits are the names of the limits that were reset.
	Limits []string `json:"limits,omitempty"`
	// Restored is how many assignments were put back.
	Restored int `json:"restored,omitempty"`
}

// RecordQuery asks for records, the newest first.
type RecordQuery struct {
	// Domain, if it is set, and Entries, if there are any, choose them by subject.
	Domain  string
	Entries []bucket.Entry
	// Most is how many at most.
	Most int
	// After is the token of the page before, or the ID of a record, for those before it;
	// or empty.
	After string
}

// Store keeps assignments for as long as they are meant to hold, and the records of
// all changes. Its methods may be called concurrently.
type Store interface {
	// Table has all assignments that are in force in this daemon.
	Table() *Table

	// Loaded reports whether the table was ever complete.
	Loaded() bool

	// Apply makes changes, each by itself, and records them. It returns once every
	// daemon has them in force, so that none decides any more by what was before,
	// or after most with the daemons that have not. Its error says that the store
	// did not answer for some changes, whose outcome is Unknown, or that it refused
	// them, which Failed. It changes nothing if one of them is not valid (see
	// Change.Check), or before the store is Loaded. It needs Run to run.
	Apply(ctx context.Context, changes []Change, most ...MaxWait) (Applied, error)

	// Reset forgets states, and records it; both or neither. Daemons forget what they
	// remember of these states, as for Apply. Whether it was done is not known if its
	// error does not say ErrNothingChanged.
	Reset(ctx context.Context, r Reset, most ...MaxWait) (Forgotten, error)

	// Records returns records of changes, the newest first, and the token of the
	// next page, empty on the last. Its error is ErrPageToken where that is what is
	// wrong.
	Records(ctx context.Context, q RecordQuery) (records []Record, next string, _ error)

	// Watch calls tell for every record from now on, in the order of each subject's
	// changes, until ctx ends or tell returns false. tell must not block for long.
	Watch(ctx context.Context, tell func(Record) bool) error

	// Run loads the table, follows the changes of others, and removes what has
	// ended, until ctx ends.
	Run(ctx context.Context)

	// Close releases what the store holds. Nothing may be called after it.
	Close() error
}

// Reset names the states that Store.Reset forgets.
type Reset struct {
	// Keys are those of the states, at most ResetMost, all of one subject and named as the
	// store of states names them.
	Keys []string
	// Record is what is recorded. Its Kind is WasReset.
	Record Record
	// OnlyCounted changes and records nothing if none of the states is there.
	OnlyCounted bool
}

// Forgotten is what became of a Reset.
type Forgotten struct {
	Reached
	// States is how many of the states were there.
	States int
}

// ResetMost is how many states one call of Store.Reset forgets at most, so that it keeps
// no server for long.
const ResetMost = 200

// Hooks are what a store needs of the daemon.
type Hooks struct {
	// Settle returns once every decision that began before it was called has ended,
	// so that no decision is left that read an older table.
	Settle func()
	// Forget makes this daemon forget what it remembers of keys, named as the store
	// of states names them: denials, and in memory the states themselves.
	Forget func(keys []string)
	// Counted returns how many of the keys have a state in this daemon's memory. It is nil
	// where states are elsewhere.
	Counted func(keys []string) int
}
