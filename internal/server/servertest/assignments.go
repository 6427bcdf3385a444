package servertest

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/assign"
	"github.com/ratelimitd/ratelimitd/internal/assign/filestore"
	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/memstore"
	"github.com/ratelimitd/ratelimitd/internal/server"
)

// Assignments is a store of assignments in memory, which a test can make fail.
type Assignments struct {
	*filestore.Store
	t testing.TB

	// Fails makes Apply and Records fail, and FailsAfter makes Records fail after the
	// first.
	Fails, FailsAfter bool
	// Watches counts those that watch now.
	Watches atomic.Int32
	// Refusal, if it is set, is why all changes are refused.
	Refusal error
	// Held, if it is set, holds up Reset until it is closed, and Resets counts those that
	// it holds up.
	Held   chan struct{}
	Resets atomic.Int32
	// server are the options of the server that has it, with its clock and states.
	server atomic.Pointer[server.Options]
}

// NewAssignments returns a store without assignments. A server keeps them by
// WithAssignments.
func NewAssignments(t testing.TB) *Assignments {
	t.Helper()
	f := &Assignments{t: t}
	var err error
	f.Store, err = filestore.Open(filestore.Options{
		Clock: func() int64 { return f.server.Load().Now().UnixMicro() },
		Hooks: assign.Hooks{
			Forget:  func(keys []string) { f.server.Load().Store.Forget(keys) },
			Counted: func(keys []string) int { return f.server.Load().Store.(*memstore.Store).Counted(keys) },
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

var errAway = errors.New("the store is away")

// Apply implements assign.Store.
func (f *Assignments) Apply(ctx context.Context, changes []assign.Change) ([]assign.Result, error) {
	if f.Fails {
		return nil, errAway
	}
	if f.Refusal != nil {
		results := make([]assign.Result, len(changes))
		for i := range results {
			results[i] = assign.Result{Outcome: assign.Failed, Err: f.Refusal, Passes: true}
		}
		return results, errAway
	}
	return f.Store.Apply(ctx, changes)
}

// Records implements assign.Store.
func (f *Assignments) Records(ctx context.Context, q assign.RecordQuery) ([]assign.Record, string, error) {
	if f.Fails || f.FailsAfter && q.After != "" {
		return nil, "", errAway
	}
	return f.Store.Records(ctx, q)
}

// Reset implements assign.Store.
func (f *Assignments) Reset(ctx context.Context, r assign.Reset) (int, error) {
	if f.Fails {
		return 0, errAway
	}
	if f.Refusal != nil {
		return 0, f.Refusal
	}
	if f.Held != nil {
		f.Resets.Add(1)
		select {
		case <-f.Held:
		case <-ctx.Done():
		}
	}
	return f.Store.Reset(ctx, r)
}

// Watch implements assign.Store.
func (f *Assignments) Watch(ctx context.Context, tell func(assign.Record) bool) error {
	f.Watches.Add(1)
	defer f.Watches.Add(-1)
	return f.Store.Watch(ctx, tell)
}

// Put makes a change.
func (f *Assignments) Put(c assign.Change) {
	f.t.Helper()
	results, err := f.Store.Apply(context.Background(), []assign.Change{c})
	if err != nil || results[0].Outcome == assign.Unknown {
		f.t.Error(err)
	}
}

// Blocking is the change that blocks a user of the domain api.
func Blocking(user string) assign.Change {
	return assign.Change{
		Subject: assign.Subject{Domain: "api", Entries: []bucket.Entry{{Key: "user", Value: user}}},
		Set:     []assign.Layer{{Terms: assign.Terms{Blocked: true}, Reason: strings.Repeat("r", assign.MaxText)}},
	}
}

// Block blocks a user of the domain api.
func (f *Assignments) Block(user string) {
	f.t.Helper()
	f.Put(Blocking(user))
}

// Recorded returns the records of all changes, the newest first.
func (f *Assignments) Recorded() []assign.Record {
	f.t.Helper()
	all, _, err := f.Store.Records(context.Background(), assign.RecordQuery{Max: 1_000_000})
	if err != nil {
		f.t.Fatal(err)
	}
	return all
}

// WithAssignments makes a server keep assignments.
func WithAssignments(f *Assignments) func(*server.Options) {
	return func(o *server.Options) {
		o.Admin.Assignments, o.Assigned = f, f.Table()
		f.server.Store(o)
	}
}
