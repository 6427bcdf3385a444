package assigntest

import (
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/assign"
	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
)

// numbersOf returns the terms with a number for one limit.
func numbersOf(limit string, requests int64) assign.Terms {
	return assign.Terms{Numbers: []assign.Numbers{{Limit: limit, Requests: requests}}}
}

func testEnded(t *testing.T, open opener) {
	clock := asynctest.NewClock()
	s := open(t, Options{Clock: clock.Micros})
	acme := Subject("api", "acme")
	trial := Set(acme, assign.Terms{Plan: "trial"}, clock.Micros()+1_000_000)
	trial.IfMatch = assign.IfNone
	first := Apply(t, s, trial, Plan(Subject("api", "stays"), "p"))[0]
	clock.Move(time.Second - time.Microsecond)
	want(t, "before its end", Apply(t, s, trial)[0].Outcome, assign.Conflict)
	clock.Move(time.Microsecond)
	match := Plan(acme, "pro")
	match.IfMatch = first.After.ETag
	want(t, "a version that ended", Apply(t, s, match)[0], assign.Result{Outcome: assign.Conflict})
	want(t, "a delete of what ended", Apply(t, s, Delete(acme))[0], assign.Result{Outcome: assign.Unchanged})
	if err := s.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	want(t, "what is left", s.Table().Len(), 1)
	want(t, "what has ended already", Apply(t, s, trial)[0], assign.Result{Outcome: assign.Unchanged})
	trial.Set[0].Until = clock.Micros() + 1_000_000
	again := Apply(t, s, trial)[0]
	want(t, "again", again.Outcome, assign.Created)
	if again.Before != nil {
		t.Errorf("before what ended: %+v", again.Before)
	}
}
