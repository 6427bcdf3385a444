package assigntest

import (
	"fmt"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/assign"
	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
)

// numbersOf returns the terms with a number for one limit.
func numbersOf(limit string, requests int64) assign.Terms {
	return assign.Terms{Numbers: []assign.Numbers{{Limit: limit, Requests: requests}}}
}

// inForce returns what is in force of a subject now.
func inForce(s Store, subject assign.Subject, clock *asynctest.Clock) assign.Terms {
	if a := s.Table().Get(subject).InForce(clock.Micros()); a != nil {
		return a.Now()
	}
	return assign.Terms{}
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

// testParts follows a customer through steps that each change a part of the base.
func testParts(t *testing.T, open opener) {
	s := open(t, Options{})
	acme := Subject("api", "acme")
	month := numbersOf("month", 500).Numbers
	replaced := Set(acme, assign.Terms{Numbers: month}, 0)
	replaced.Remove.Rest = true
	for i, step := range []struct {
		change  assign.Change
		outcome assign.Outcome
		want    assign.Terms
	}{
		{Plan(acme, "pro"), assign.Created, assign.Terms{Plan: "pro"}},
		{Set(acme, assign.Terms{Numbers: month}, 0), assign.Replaced, assign.Terms{Plan: "pro", Numbers: month}},
		{Set(acme, assign.Terms{Numbers: month}, 0), assign.Unchanged, assign.Terms{Plan: "pro", Numbers: month}},
		{Set(acme, assign.Terms{Blocked: true, Unlimited: true}, 0), assign.Replaced, assign.Terms{Plan: "pro", Numbers: month, Blocked: true, Unlimited: true}},
		{Remove(acme, assign.Parts{Unlimited: true}), assign.Replaced, assign.Terms{Plan: "pro", Numbers: month, Blocked: true}},
		{Remove(acme, assign.Parts{Limits: []string{"none"}}), assign.Unchanged, assign.Terms{Plan: "pro", Numbers: month, Blocked: true}},
		{Remove(acme, assign.Parts{Limits: []string{"month"}}), assign.Replaced, assign.Terms{Plan: "pro", Blocked: true}},
		{replaced, assign.Replaced, assign.Terms{Numbers: month, Blocked: true}}, // which keeps a block
		{Remove(acme, assign.Parts{Rest: true}), assign.Replaced, assign.Terms{Blocked: true}},
		{Remove(acme, assign.Parts{Block: true}), assign.Deleted, assign.Terms{}},
		{Remove(acme, assign.Parts{Block: true}), assign.Unchanged, assign.Terms{}},
	} {
		want(t, fmt.Sprint("the outcome of step ", i), Apply(t, s, step.change)[0].Outcome, step.outcome)
		var base assign.Terms
		if held := s.Table().Get(acme); held != nil {
			base = held.Base.Terms
		}
		want(t, fmt.Sprint("the base after step ", i), base, step.want)
	}
}

// testRelief gives a customer more for some time, on top of what the contract says.
func testRelief(t *testing.T, open opener) {
	clock := asynctest.NewClock()
	s := open(t, Options{Clock: clock.Micros})
	acme := Subject("api", "acme")
	hours := func(n int64) int64 { return clock.Micros() + n*3600e6 }
	contract := assign.Terms{Plan: "pro", Numbers: numbersOf("month", 5_000_000).Numbers}
	more := assign.Terms{Plan: "pro", Numbers: numbersOf("month", 6_000_000).Numbers}
	Apply(t, s, Set(acme, contract, 0))
	want(t, "relief", Apply(t, s, Set(acme, numbersOf("month", 6_000_000), hours(2)))[0].Outcome, assign.Replaced)
	want(t, "with relief", inForce(s, acme, clock), more)
	want(t, "the base", s.Table().Get(acme).Base.Terms, contract)

	// The same again is the same; a later end takes its place.
	want(t, "again", Apply(t, s, Set(acme, numbersOf("month", 6_000_000), hours(2)))[0].Outcome, assign.Unchanged)
	longer := Apply(t, s, Set(acme, numbersOf("month", 6_000_000), hours(3)))[0]
	want(t, "layers of longer relief", len(longer.After.Layers), 1)
	want(t, "its end", longer.After.Layers[0].Until, hours(3))

	// The contract changes below; relief for a shorter time lies on top.
	contract.Plan, more.Plan = "gold", "gold"
	Apply(t, s, Plan(acme, "gold"), Set(acme, numbersOf("month", 7_000_000), hours(1)))
	want(t, "layers", len(s.Table().Get(acme).Layers), 2)
	most := assign.Terms{Plan: "gold", Numbers: numbersOf("month", 7_000_000).Numbers}
	want(t, "with both", inForce(s, acme, clock), most)
	clock.Move(time.Hour)
	want(t, "with the first", inForce(s, acme, clock), more)
	clock.Move(2 * time.Hour)
	want(t, "once relief has ended", inForce(s, acme, clock), contract)

	// Relief can be taken off before its end, without the block on top.
	Apply(t, s, Set(acme, numbersOf("month", 8_000_000), hours(1)), Set(acme, assign.Terms{Blocked: true}, hours(2)))
	off := Apply(t, s, Remove(acme, assign.Parts{Temporary: true}))[0]
	want(t, "what was taken off", off.Outcome, assign.Replaced)
	want(t, "layers that stay", len(off.After.Layers), 1)
	contract.Blocked = true
	want(t, "with the block", inForce(s, acme, clock), contract)
	want(t, "nothing more to take off", Apply(t, s, Remove(acme, assign.Parts{Temporary: true}))[0].Outcome, assign.Unchanged)
}

// testBlock has blocks with and without an end: the longest lasts.
func testBlock(t *testing.T, open opener) {
	clock := asynctest.NewClock()
	s := open(t, Options{Clock: clock.Micros})
	acme := Subject("api", "acme")
	hours := func(n int64) int64 { return clock.Micros() + n*3600e6 }
	block := assign.Terms{Blocked: true}
	results := Apply(t, s, Plan(acme, "pro"), Set(acme, block, hours(2)), Set(acme, block, hours(1)), Set(acme, block, hours(3)), Set(acme, block, 0), Set(acme, block, hours(4)))
	want(t, "outcomes", outcomes(results), []assign.Outcome{assign.Created, assign.Replaced, assign.Unchanged, assign.Replaced, assign.Replaced, assign.Unchanged})
	want(t, "layers of two blocks", len(results[3].After.Layers), 1)
	want(t, "layers beside a block without an end", len(results[4].After.Layers), 0)
	want(t, "the base", s.Table().Get(acme).Base.Terms, assign.Terms{Plan: "pro", Blocked: true})
	want(t, "without a block", Apply(t, s, Remove(acme, assign.Parts{Block: true}))[0].After.Base.Terms, assign.Terms{Plan: "pro"})
}

func testTooMany(t *testing.T, open opener) {
	clock := asynctest.NewClock()
	s := open(t, Options{Clock: clock.Micros})
	acme := Subject("api", "acme")
	until := func(i int) int64 { return clock.Micros() + int64(i)*1e6 }
	for i := range assign.MaxLayers {
		want(t, fmt.Sprint("layer ", i), Apply(t, s, Set(acme, numbersOf(fmt.Sprint(i), 5), until(100-i)))[0].Outcome == assign.TooManyLayers, false)
	}
	full := s.Table().Get(acme)
	refused := Apply(t, s, Set(acme, assign.Terms{Plan: "p"}, until(50)))[0]
	want(t, "one layer more", refused, assign.Result{Outcome: assign.TooManyLayers, Before: full, After: full})
	want(t, "one that takes another's place", Apply(t, s, Set(acme, numbersOf("3", 6), until(100)))[0].Outcome, assign.Replaced)
	want(t, "a block", Apply(t, s, Set(acme, assign.Terms{Blocked: true}, until(50)))[0].Outcome, assign.Replaced)
	want(t, "the base", Apply(t, s, Plan(acme, "p"))[0].Outcome, assign.Replaced)

	numbers := func(from, to int) (terms assign.Terms) {
		for i := from; i < to; i++ {
			terms.Numbers = append(terms.Numbers, assign.Numbers{Limit: fmt.Sprintf("%02d", i)})
		}
		return terms
	}
	const most = assign.MaxNumbers
	other := Subject("api", "other")
	results := Apply(t, s, Set(other, numbers(0, most-1), 0), Set(other, numbers(most-2, most), until(9)), Set(other, numbers(most, most+1), 0))
	want(t, "outcomes", outcomes(results), []assign.Outcome{assign.Created, assign.Replaced, assign.TooManyNumbers})
	replace := Set(other, numbers(most, most+1), 0)
	replace.Remove.Limits = []string{"00"}
	want(t, "with one removed", Apply(t, s, replace)[0].Outcome, assign.Replaced)
	want(t, "numbers", len(inForce(s, other, clock).Numbers), most)
}
