// Package assigntest tests what every store of assignments must do. It imports assign and
// asynctest.
package assigntest

import (
	"context"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/assign"
	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// Options are the options of a store.
type Options struct {
	MaxRecords, MaxAssignments int
	Hooks                      assign.Hooks
	Clock                      func() int64
}

// Store is a running store, with what tests need of it.
type Store interface {
	assign.Store
	Sweep(ctx context.Context) error
	// StateKey returns the key of a state, as the store of states would name it.
	StateKey(name string) string
}

// opener opens a store.
type opener func(t *testing.T, o Options) Store

// Test tests a store, which open creates, runs, and closes at the end of the test. It has
// no assignments and no records.
func Test(t *testing.T, open func(t *testing.T, o Options) Store) {
	for _, test := range []struct {
		name string
		run  func(*testing.T, opener)
	}{
		{"a change and its outcome", testOutcomes},
		{"changes in one call", testTogether},
		{"one of many wins", testRace},
		{"no more than there is room for", testFull},
		{"what is not valid changes nothing", testInvalid},
		{"what has ended is absent", testEnded},
		{"undo", testUndo},
		{"records", testRecords},
		{"watch", testWatch},
		{"reset", testReset},
		{"as the model", testModel},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.run(t, open)
		})
	}
}

// Subject returns a subject of one entry.
func Subject(domain, value string) assign.Subject {
	return assign.Subject{Domain: domain, Entries: []bucket.Entry{{Key: "tenant", Value: value}}}
}

// Plan returns the change that assigns a plan without an end.
func Plan(s assign.Subject, plan string) assign.Change { return Set(s, assign.Terms{Plan: plan}, 0) }

// Set returns the change that sets parts until a time in microseconds since the Unix
// epoch, or without an end if that is 0.
func Set(s assign.Subject, terms assign.Terms, until int64) assign.Change {
	return assign.Change{
		Subject: s, Set: []assign.Layer{{Terms: terms, Until: until, By: "ann", Reason: "asked"}},
		By: "ann", Reason: "asked",
	}
}

// Remove returns the change that removes parts.
func Remove(s assign.Subject, parts assign.Parts) assign.Change {
	return assign.Change{Subject: s, Remove: parts, By: "bob", Reason: "gone"}
}

// Delete returns the change that removes an assignment.
func Delete(s assign.Subject) assign.Change { return Remove(s, assign.AllParts()) }

// Apply makes changes, which must succeed. Those of which the store says that they may
// succeed within seconds are made again, as people do.
func Apply(t testing.TB, s assign.Store, changes ...assign.Change) []assign.Result {
	t.Helper()
	passes := func(r assign.Result) bool { return r.Outcome == assign.Failed && r.Passes }
	stays := func(r assign.Result) bool {
		return r.Outcome == assign.Unknown || r.Outcome == assign.Failed && !r.Passes
	}
	results, err := s.Apply(context.Background(), changes)
	for deadline := time.Now().Add(2 * time.Minute); err != nil && time.Now().Before(deadline); {
		var again []assign.Change
		var of []int
		for i, r := range results {
			if passes(r) {
				again, of = append(again, changes[i]), append(of, i)
			}
		}
		if len(again) == 0 || slices.ContainsFunc(results, stays) {
			break
		}
		time.Sleep(10 * time.Millisecond)
		var more []assign.Result
		more, err = s.Apply(context.Background(), again)
		for j, i := range of {
			results[i] = more[j]
		}
	}
	if err != nil {
		t.Fatalf("Apply: %v", err)
	}
	return results
}

func outcomes(results []assign.Result) (all []assign.Outcome) {
	for _, r := range results {
		all = append(all, r.Outcome)
	}
	return all
}

func want[T any](t testing.TB, what string, got, want T) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: got %+v, want %+v", what, got, want)
	}
}
