package assign

import (
	"context"
	"errors"
	"slices"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// ErrNothingChanged is in the error of a Store that has certainly made none of the
// changes, and wants to say so.
var ErrNothingChanged = errors.New("nothing was changed")

// Result is the result of a Change.
type Result struct {
	Outcome Outcome
	// Before is what was in force before, or nil; After is what is in force now, or nil.
	Before, After *Assignment
	// Err is the reason if the Outcome is Failed, and says ErrNothingChanged. Passes is
	// set if that may end by itself within seconds, as a failover does.
	Err    error
	Passes bool
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

// Selects reports whether a query selects a record.
func (q *RecordQuery) Selects(r *Record) bool {
	return (q.Domain == "" || q.Domain == r.Domain) && (len(q.Entries) == 0 || slices.Equal(q.Entries, r.Entries))
}

// Store keeps assignments until they end, and the records of all changes. Its methods may
// be called concurrently.
type Store interface {
	// Table has all assignments that are in force in this daemon.
	Table() *Table

	// Loaded reports whether the table was ever complete.
	Loaded() bool

	// Apply makes each change independently, and records it. When it returns they are
	// kept, and in force in this daemon; other daemons follow within 2 s. Its error says
	// that the store did not answer for some changes, whose outcome is Unknown, or that it
	// refused them, whose outcome is Failed. It changes nothing if one of them is invalid
	// (see Change.Check), or before the store is Loaded. It needs Run to run.
	Apply(ctx context.Context, changes []Change) ([]Result, error)

	// Reset forgets states, after it recorded that, and returns how many of them existed.
	// Daemons forget what they remember of these states as soon as they follow the record.
	// If its error says ErrNothingChanged, nothing was recorded or forgotten; otherwise
	// some states may be forgotten, and a second record says ResetFailed.
	Reset(ctx context.Context, r Reset) (states int, _ error)

	// Records returns records of changes, newest first, and the token of the next page,
	// empty on the last. Its error is ErrPageToken if the token is wrong.
	Records(ctx context.Context, q RecordQuery) (records []Record, next string, _ error)

	// Watch calls each for every record from now on, in the order of each subject's
	// changes, until ctx ends or each returns false. each must not block for long.
	Watch(ctx context.Context, each func(Record) bool) error

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

// MaxReset is how many states one call of Store.Reset forgets at most, so that it does
// not occupy a server for long.
const MaxReset = 200

// Hooks are what a store needs from the daemon.
type Hooks struct {
	// Forget makes this daemon forget what it remembers of keys, named as the store of
	// states names them: denials, and in memory the states themselves.
	Forget func(keys []string)
	// Counted returns how many of the keys have a state in this daemon's memory. It is
	// nil if states are elsewhere.
	Counted func(keys []string) int
}
