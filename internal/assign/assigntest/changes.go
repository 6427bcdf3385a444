package assigntest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/assign"
	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
)

func testOutcomes(t *testing.T, open opener) {
	clock := asynctest.NewClock()
	s := open(t, Options{Clock: clock.Micros})
	acme := Subject("api", "acme")
	first := Apply(t, s, Plan(acme, "pro"))[0]
	want(t, "the first", first.Outcome, assign.Created)
	if first.Before != nil || first.After == nil || first.After.ETag == "" {
		t.Fatalf("the first: %+v, %+v", first.Before, first.After)
	}
	want(t, "the base", first.After.Base, assign.Layer{Terms: assign.Terms{Plan: "pro"}, By: "ann", Reason: "asked", At: clock.Micros()})
	want(t, "in force", s.Table().Get(acme), first.After)
	clock.Move(time.Second)
	same := Apply(t, s, Plan(acme, "pro"))[0]
	want(t, "the same again", same, assign.Result{Outcome: assign.Unchanged, Before: first.After, After: first.After})

	none := Plan(acme, "gold")
	none.IfMatch = assign.IfNone
	want(t, "if none", Apply(t, s, none)[0], assign.Result{Outcome: assign.Conflict, Before: first.After, After: first.After})
	other := Plan(acme, "gold")
	other.IfMatch = "77"
	want(t, "if another", Apply(t, s, other)[0].Outcome, assign.Conflict)
	match := Plan(acme, "gold")
	match.IfMatch = first.After.ETag
	second := Apply(t, s, match)[0]
	want(t, "if this", second.Outcome, assign.Replaced)
	want(t, "before", second.Before, first.After)
	if second.After.ETag == first.After.ETag || second.After.Base.Plan != "gold" || second.After.Base.At != clock.Micros() {
		t.Errorf("after: %+v", second.After)
	}
	want(t, "in force", s.Table().Get(acme), second.After)

	stale := Delete(acme)
	stale.IfMatch = first.After.ETag
	want(t, "a stale delete", Apply(t, s, stale)[0].Outcome, assign.Conflict)
	gone := Apply(t, s, Delete(acme))[0]
	want(t, "a delete", gone, assign.Result{Outcome: assign.Deleted, Before: second.After})
	want(t, "a delete again", Apply(t, s, Delete(acme))[0], assign.Result{Outcome: assign.Unchanged})
	if s.Table().Len() != 0 {
		t.Errorf("%d are left", s.Table().Len())
	}
	none.IfMatch = "77"
	want(t, "if one, and there is none", Apply(t, s, none)[0].Outcome, assign.Conflict)
	none.IfMatch = assign.IfNone
	want(t, "if none, and there is none", Apply(t, s, none)[0].Outcome, assign.Created)

	// Numbers are the same in any order.
	numbers := func(limits ...string) assign.Change {
		var terms assign.Terms
		for _, l := range limits {
			terms.Numbers = append(terms.Numbers, assign.Numbers{Limit: l, Requests: 5, Period: time.Minute, Burst: 7})
		}
		return Set(Subject("api", "numbers"), terms, 0)
	}
	want(t, "numbers", Apply(t, s, numbers("b", "a"))[0].After.Base.Numbers, numbers("a", "b").Set[0].Numbers)
	want(t, "numbers in another order", Apply(t, s, numbers("a", "b"))[0].Outcome, assign.Unchanged)
}

func testTogether(t *testing.T, open opener) {
	s := open(t, Options{})
	a, b := Subject("api", "a"), Subject("other", `quote " \ / <é>`)
	results := Apply(t, s, Plan(a, "1"), Plan(b, "2"), Plan(a, "3"), Delete(b), Plan(a, "3"), Delete(Subject("api", "none")))
	want(t, "outcomes", outcomes(results), []assign.Outcome{assign.Created, assign.Created, assign.Replaced, assign.Deleted, assign.Unchanged, assign.Unchanged})
	want(t, "before of the third", results[2].Before, results[0].After)
	want(t, "before of the fourth", results[3].Before, results[1].After)
	want(t, "in force", s.Table().Get(a), results[2].After)
	if s.Table().Len() != 1 {
		t.Errorf("%d are in force, want 1", s.Table().Len())
	}
	var many []assign.Change
	for i := range 1000 {
		many = append(many, Plan(Subject("many", fmt.Sprint(i)), "p"))
	}
	for i, r := range Apply(t, s, many...) {
		if r.Outcome != assign.Created || r.After.Entries[0].Value != fmt.Sprint(i) {
			t.Fatalf("of 1,000, number %d: %+v", i, r)
		}
	}
	want(t, "count", s.Table().Count("many"), 1000)
}

// testRace lets many read a version and replace it, if it is still in force.
func testRace(t *testing.T, open opener) {
	s := open(t, Options{})
	acme := Subject("api", "acme")
	Apply(t, s, Plan(acme, "0"))
	const writers, each = 4, 10
	var all sync.WaitGroup
	for range writers {
		all.Go(func() {
			for done := 0; done < each; {
				a := s.Table().Get(acme)
				var n int
				_, _ = fmt.Sscan(a.Base.Plan, &n)
				c := Plan(acme, fmt.Sprint(n+1))
				c.IfMatch = a.ETag
				results, err := s.Apply(context.Background(), []assign.Change{c})
				if err != nil {
					t.Error(err)
					return
				}
				if results[0].Outcome == assign.Replaced {
					done++
				}
			}
		})
	}
	all.Wait()
	want(t, "count", s.Table().Get(acme).Base.Plan, fmt.Sprint(writers*each))
}

func testFull(t *testing.T, open opener) {
	s := open(t, Options{MaxAssignments: 2})
	results := Apply(t, s, Plan(Subject("api", "a"), "p"), Plan(Subject("api", "b"), "p"), Plan(Subject("api", "c"), "p"), Plan(Subject("api", "a"), "q"))
	want(t, "outcomes", outcomes(results), []assign.Outcome{assign.Created, assign.Created, assign.Full, assign.Replaced})
	Apply(t, s, Delete(Subject("api", "a")))
	want(t, "with room again", Apply(t, s, Plan(Subject("api", "c"), "p"))[0].Outcome, assign.Created)
}

func testInvalid(t *testing.T, open opener) {
	s := open(t, Options{})
	results, err := s.Apply(t.Context(), []assign.Change{Plan(Subject("api", "a"), "p"), Plan(Subject("api", "a"), "")})
	if err == nil || s.Table().Len() != 0 {
		t.Errorf("got %v, %v; %d are in force", results, err, s.Table().Len())
	}
}
