// Package assigntest tests what every store of assignments must do. It imports assign and
// asynctest.
package assigntest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/assign"
	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
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

// Test tests a store, which open creates, runs, and closes at the end of the test. It has
// no assignments and no records.
func Test(t *testing.T, open func(t *testing.T, o Options) Store) {
	for _, test := range []struct {
		name string
		run  func(*testing.T, func(*testing.T, Options) Store)
	}{
		{"a change and its outcome", testOutcomes},
		{"changes in one call", testTogether},
		{"what has ended is absent", testEnded},
		{"parts stand beside each other", testParts},
		{"no more numbers than there may be", testManyNumbers},
		{"no more than there is room for", testFull},
		{"what is not valid changes nothing", testInvalid},
		{"records", testRecords},
		{"watch", testWatch},
		{"quiesce", testQuiesce},
		{"reset", testReset},
		{"one of many wins", testRace},
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

// Plan returns the change that assigns a plan.
func Plan(s assign.Subject, plan string) assign.Change {
	return assign.Change{Assignment: assign.Assignment{Subject: s, Terms: assign.Terms{Plan: plan}, By: "ann", Reason: "asked"}}
}

// Delete returns the change that ends an assignment.
func Delete(s assign.Subject) assign.Change {
	return assign.Change{Assignment: assign.Assignment{Subject: s, By: "bob", Reason: "gone"}, Remove: assign.AllParts()}
}

// Apply makes changes, which must take effect everywhere. Those of which the store says
// that they may succeed within seconds are asked for again, as people do.
func Apply(t testing.TB, s assign.Store, changes ...assign.Change) []assign.Result {
	t.Helper()
	passes := func(r assign.Result) bool { return r.Outcome == assign.Failed && r.Passes }
	stays := func(r assign.Result) bool {
		return r.Outcome == assign.Unknown || r.Outcome == assign.Failed && !r.Passes
	}
	applied, err := s.Apply(context.Background(), changes)
	results, pending := applied.Results, applied.Pending
	for deadline := time.Now().Add(2 * time.Minute); err != nil && len(pending) == 0 && time.Now().Before(deadline); {
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
		applied, err = s.Apply(context.Background(), again)
		pending = applied.Pending
		for j, i := range of {
			results[i] = applied.Results[j]
		}
	}
	if err != nil || len(pending) > 0 {
		t.Fatalf("Apply: %v, pending %v", err, pending)
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

func testOutcomes(t *testing.T, open func(*testing.T, Options) Store) {
	clock := asynctest.NewClock()
	s := open(t, Options{Clock: clock.Micros})
	acme := Subject("api", "acme")
	first := Apply(t, s, Plan(acme, "pro"))[0]
	want(t, "the first", first.Outcome, assign.Created)
	if first.Before != nil || first.After == nil || first.After.ETag == "" || first.After.At != clock.Micros() || first.After.By != "ann" {
		t.Fatalf("the first: %+v, %+v", first.Before, first.After)
	}
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
	if second.After.ETag == first.After.ETag || second.After.Plan != "gold" {
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
		c := Plan(Subject("api", "numbers"), "")
		for _, l := range limits {
			c.Assignment.Numbers = append(c.Assignment.Numbers, assign.Numbers{Limit: l, Requests: 5, Period: time.Minute, Burst: 7})
		}
		return c
	}
	want(t, "numbers", Apply(t, s, numbers("b", "a"))[0].After.Numbers, numbers("a", "b").Assignment.Numbers)
	want(t, "numbers in another order", Apply(t, s, numbers("a", "b"))[0].Outcome, assign.Unchanged)
}

func testTogether(t *testing.T, open func(*testing.T, Options) Store) {
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

func testEnded(t *testing.T, open func(*testing.T, Options) Store) {
	clock := asynctest.NewClock()
	s := open(t, Options{Clock: clock.Micros})
	acme := Subject("api", "acme")
	trial := Plan(acme, "trial")
	trial.Assignment.PlanUntil = clock.Micros() + 1_000_000
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
	trial.Assignment.PlanUntil = clock.Micros() + 1_000_000
	again := Apply(t, s, trial)[0]
	want(t, "again", again.Outcome, assign.Created)
	if again.Before != nil {
		t.Errorf("before what ended: %+v", again.Before)
	}
}

// testParts follows a customer through steps that each change one part.
func testParts(t *testing.T, open func(*testing.T, Options) Store) {
	clock := asynctest.NewClock()
	s := open(t, Options{Clock: clock.Micros})
	acme := Subject("api", "acme")
	hour := func(n int64) int64 { return clock.Micros() + n*3600e6 }
	month := []assign.Numbers{{Limit: "month", Requests: 500}}
	change := func(terms assign.Terms, ends assign.Ends, remove assign.Parts) assign.Change {
		return assign.Change{Assignment: assign.Assignment{Subject: acme, Terms: terms, Ends: ends}, Remove: remove}
	}
	until, later := hour(24), hour(48)
	for i, step := range []struct {
		change  assign.Change
		outcome assign.Outcome
		terms   assign.Terms
		ends    assign.Ends
	}{
		{change: change(assign.Terms{Plan: "pro"}, assign.Ends{}, assign.Parts{}), outcome: assign.Created, terms: assign.Terms{Plan: "pro"}},
		{
			change: change(assign.Terms{Numbers: month}, assign.Ends{NumbersUntil: []int64{until}}, assign.Parts{}), outcome: assign.Replaced,
			terms: assign.Terms{Plan: "pro", Numbers: month}, ends: assign.Ends{NumbersUntil: []int64{until}},
		},
		{
			change: change(assign.Terms{Numbers: month}, assign.Ends{NumbersUntil: []int64{until}}, assign.Parts{}), outcome: assign.Unchanged,
			terms: assign.Terms{Plan: "pro", Numbers: month}, ends: assign.Ends{NumbersUntil: []int64{until}},
		},
		{
			change: change(assign.Terms{Blocked: true}, assign.Ends{BlockedUntil: later}, assign.Parts{}), outcome: assign.Replaced,
			terms: assign.Terms{Plan: "pro", Numbers: month, Blocked: true}, ends: assign.Ends{NumbersUntil: []int64{until}, BlockedUntil: later},
		},
		{
			change: change(assign.Terms{Unlimited: true}, assign.Ends{}, assign.Parts{}), outcome: assign.Replaced,
			terms: assign.Terms{Plan: "pro", Numbers: month, Blocked: true, Unlimited: true}, ends: assign.Ends{NumbersUntil: []int64{until}, BlockedUntil: later},
		},
		{ // numbers that are set again get the end given now, which is none
			change: change(assign.Terms{Numbers: month}, assign.Ends{}, assign.Parts{Unlimited: true}), outcome: assign.Replaced,
			terms: assign.Terms{Plan: "pro", Numbers: month, Blocked: true}, ends: assign.Ends{BlockedUntil: later},
		},
		{
			change: change(assign.Terms{}, assign.Ends{}, assign.Parts{Limits: []string{"none"}}), outcome: assign.Unchanged,
			terms: assign.Terms{Plan: "pro", Numbers: month, Blocked: true}, ends: assign.Ends{BlockedUntil: later},
		},
		{
			change: change(assign.Terms{}, assign.Ends{}, assign.Parts{Limits: []string{"month"}}), outcome: assign.Replaced,
			terms: assign.Terms{Plan: "pro", Blocked: true}, ends: assign.Ends{BlockedUntil: later},
		},
		{ // the whole, which keeps a block
			change: change(assign.Terms{Numbers: month}, assign.Ends{}, assign.Parts{Rest: true}), outcome: assign.Replaced,
			terms: assign.Terms{Numbers: month, Blocked: true}, ends: assign.Ends{BlockedUntil: later},
		},
		{
			change: change(assign.Terms{}, assign.Ends{}, assign.Parts{Rest: true}), outcome: assign.Replaced,
			terms: assign.Terms{Blocked: true}, ends: assign.Ends{BlockedUntil: later},
		},
		{change: change(assign.Terms{}, assign.Ends{}, assign.Parts{Block: true}), outcome: assign.Deleted},
		{change: change(assign.Terms{}, assign.Ends{}, assign.Parts{Block: true}), outcome: assign.Unchanged},
	} {
		got := Apply(t, s, step.change)[0]
		if got.Outcome != step.outcome {
			t.Fatalf("step %d: the outcome is %d, want %d", i, got.Outcome, step.outcome)
		}
		if held := s.Table().Get(acme); held != nil {
			want(t, fmt.Sprint("terms of step ", i), held.Terms, step.terms)
			want(t, fmt.Sprint("ends of step ", i), held.Ends, step.ends)
		} else if step.terms.HasMore() || step.terms.Blocked {
			t.Errorf("step %d: nothing is there", i)
		}
	}
	// A part that has ended is not brought back by a change of another part.
	Apply(t, s, change(assign.Terms{Plan: "pro", Numbers: month}, assign.Ends{NumbersUntil: []int64{until}}, assign.Parts{}))
	clock.Move(25 * time.Hour)
	got := Apply(t, s, change(assign.Terms{Blocked: true}, assign.Ends{}, assign.Parts{}))[0]
	want(t, "before, once numbers have ended", got.Before.Terms, assign.Terms{Plan: "pro"})
	want(t, "after", got.After.Terms, assign.Terms{Plan: "pro", Blocked: true})
}

func testManyNumbers(t *testing.T, open func(*testing.T, Options) Store) {
	s := open(t, Options{})
	acme := Subject("api", "acme")
	numbers := func(from, to int) assign.Change {
		c := Plan(acme, "")
		for i := from; i < to; i++ {
			c.Assignment.Numbers = append(c.Assignment.Numbers, assign.Numbers{Limit: fmt.Sprint(i)})
		}
		return c
	}
	results := Apply(t, s, numbers(0, assign.MaxNumbers), numbers(0, 3), numbers(assign.MaxNumbers, assign.MaxNumbers+1))
	want(t, "outcomes", outcomes(results), []assign.Outcome{assign.Created, assign.Unchanged, assign.TooManyNumbers})
	replace := numbers(assign.MaxNumbers, assign.MaxNumbers+1)
	replace.Remove.Limits = []string{"0"}
	want(t, "with one removed", Apply(t, s, replace)[0].Outcome, assign.Replaced)
	want(t, "numbers", len(s.Table().Get(acme).Numbers), assign.MaxNumbers)
}

func testFull(t *testing.T, open func(*testing.T, Options) Store) {
	s := open(t, Options{MaxAssignments: 2})
	results := Apply(t, s, Plan(Subject("api", "a"), "p"), Plan(Subject("api", "b"), "p"), Plan(Subject("api", "c"), "p"), Plan(Subject("api", "a"), "q"))
	want(t, "outcomes", outcomes(results), []assign.Outcome{assign.Created, assign.Created, assign.Full, assign.Replaced})
	Apply(t, s, Delete(Subject("api", "a")))
	want(t, "with room again", Apply(t, s, Plan(Subject("api", "c"), "p"))[0].Outcome, assign.Created)
}

func testInvalid(t *testing.T, open func(*testing.T, Options) Store) {
	s := open(t, Options{})
	a, err := s.Apply(t.Context(), []assign.Change{Plan(Subject("api", "a"), "p"), Plan(Subject("api", "a"), "")})
	if err == nil || s.Table().Len() != 0 {
		t.Errorf("got %v, %v; %d are in force", a, err, s.Table().Len())
	}
}

// records returns all pages of a query.
func records(t testing.TB, s assign.Store, q assign.RecordQuery) (all []assign.Record) {
	t.Helper()
	for {
		page, next, err := s.Records(context.Background(), q)
		if err != nil || len(page) > q.Max {
			t.Fatalf("Records: %d, %v", len(page), err)
		}
		all = append(all, page...)
		if next == "" {
			return all
		}
		q.After = next
	}
}

func testRecords(t *testing.T, open func(*testing.T, Options) Store) {
	s := open(t, Options{})
	a, b := Subject("api", "a"), Subject("other", "b")
	made := Apply(t, s, Plan(a, "1"))[0].After
	// Records of different tags get different times.
	time.Sleep(2 * time.Millisecond)
	Apply(t, s, Plan(b, "2"))
	time.Sleep(2 * time.Millisecond)
	Apply(t, s, Delete(a))
	all := records(t, s, assign.RecordQuery{Max: 2})
	if len(all) != 3 {
		t.Fatalf("%d records, want 3", len(all))
	}
	newest := all[0]
	if newest.ID == "" || newest.Moment == 0 || newest.Moment < all[1].Moment || all[1].Moment < all[2].Moment {
		t.Errorf("IDs and moments: %+v", all)
	}
	newest.ID, newest.Moment = "", 0
	want(t, "the newest", newest, assign.Record{Kind: assign.Unassigned, By: "bob", Reason: "gone", Subject: a, Before: made})
	want(t, "the oldest", all[2].After, made)
	want(t, "kind of the oldest", all[2].Kind, assign.Assigned)
	want(t, "of a domain", len(records(t, s, assign.RecordQuery{Domain: "other", Max: 1})), 1)
	want(t, "of a subject", len(records(t, s, assign.RecordQuery{Domain: "api", Entries: a.Entries, Max: 1})), 2)
	want(t, "of no subject", len(records(t, s, assign.RecordQuery{Domain: "api", Entries: b.Entries, Max: 1})), 0)
	if _, _, err := s.Records(t.Context(), assign.RecordQuery{Max: 1, After: "?"}); !errors.Is(err, assign.ErrPageToken) {
		t.Errorf("of a foreign page token: %v", err)
	}

	bounded := open(t, Options{MaxRecords: 50})
	var changes []assign.Change
	for i := range 200 {
		changes = append(changes, Plan(a, fmt.Sprint(i)))
	}
	for range 30 {
		Apply(t, bounded, changes...)
	}
	// The trimming may keep some more.
	if n := len(records(t, bounded, assign.RecordQuery{Max: 100})); n < 50 || n > 500 {
		t.Errorf("%d records are kept of 6000, want 50 to some hundred", n)
	}
}

func testWatch(t *testing.T, open func(*testing.T, Options) Store) {
	s := open(t, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	var mu sync.Mutex
	var told []string
	var first atomic.Int32
	var ended sync.WaitGroup
	ended.Go(func() {
		err := s.Watch(ctx, func(r assign.Record) bool {
			mu.Lock()
			defer mu.Unlock()
			text := fmt.Sprint(r.Kind, r.Entries[0].Value)
			if r.After != nil {
				text += r.After.Plan
			}
			told = append(told, text)
			return true
		})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("Watch ends with %v", err)
		}
	})
	ended.Go(func() {
		_ = s.Watch(ctx, func(assign.Record) bool { first.Add(1); return false })
	})
	a := Subject("api", "a")
	// A watch has begun once it reports something.
	asynctest.Eventually(t, "both watch", func() bool {
		Apply(t, s, Plan(a, fmt.Sprint(rand.Uint64())))
		mu.Lock()
		defer mu.Unlock()
		return len(told) > 0 && first.Load() > 0
	})
	mu.Lock()
	told = nil
	mu.Unlock()
	Apply(t, s, Plan(a, "1"), Plan(a, "1"), Plan(a, "2"), Delete(a), Plan(a, "3"))
	asynctest.Eventually(t, "all is told", func() bool { mu.Lock(); defer mu.Unlock(); return len(told) >= 4 })
	cancel()
	ended.Wait()
	want(t, "told", told, []string{"1a1", "1a2", "2a", "1a3"})
	want(t, "told to whoever wants one", first.Load(), 1)
}

func testQuiesce(t *testing.T, open func(*testing.T, Options) Store) {
	acme := Subject("api", "acme")
	var s Store
	var quiesced atomic.Pointer[string]
	opened := make(chan struct{})
	s = open(t, Options{Hooks: assign.Hooks{Quiesce: func() {
		<-opened
		plan := ""
		if a := s.Table().Get(acme); a != nil {
			plan = a.Plan
		}
		quiesced.Store(&plan)
	}}})
	close(opened)
	for _, plan := range []string{"a", "b"} {
		Apply(t, s, Plan(acme, plan))
		if got := quiesced.Load(); got == nil || *got != plan {
			t.Errorf("Apply returns, and what quiesced saw is %v, want %q", got, plan)
		}
	}
}

func testReset(t *testing.T, open func(*testing.T, Options) Store) {
	var mu sync.Mutex
	var calls []string
	s := open(t, Options{Hooks: assign.Hooks{
		Quiesce: func() { mu.Lock(); defer mu.Unlock(); calls = append(calls, "quiesce") },
		Forget:  func(keys []string) { mu.Lock(); defer mu.Unlock(); calls = append(calls, fmt.Sprint(keys)) },
	}})
	keys := []string{s.StateKey("api|tenant=a#gcra"), s.StateKey("api|tenant=a#token_bucket:day")}
	mu.Lock()
	calls = nil
	mu.Unlock()
	reached, err := s.Reset(t.Context(), assign.Reset{Keys: keys, Record: assign.Record{Kind: assign.WasReset, By: "ann", Reason: "oops", Subject: Subject("api", "a"), Limits: []string{"", "day"}}})
	if err != nil || len(reached.Pending) > 0 {
		t.Fatalf("Reset: %v, %v", reached.Pending, err)
	}
	mu.Lock()
	got := slices.Clone(calls)
	mu.Unlock()
	want(t, "calls", got, []string{"quiesce", fmt.Sprint(keys)})
	all := records(t, s, assign.RecordQuery{Max: 5})
	if len(all) != 1 {
		t.Fatalf("%d records, want 1", len(all))
	}
	r := all[0]
	r.ID, r.Moment = "", 0
	want(t, "record", r, assign.Record{Kind: assign.WasReset, By: "ann", Reason: "oops", Subject: Subject("api", "a"), Limits: []string{"", "day"}})
}

// testRace lets many read a version and replace it, if it is still in force.
func testRace(t *testing.T, open func(*testing.T, Options) Store) {
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
				_, _ = fmt.Sscan(a.Plan, &n)
				c := Plan(acme, fmt.Sprint(n+1))
				c.IfMatch = a.ETag
				applied, err := s.Apply(context.Background(), []assign.Change{c})
				if err != nil {
					t.Error(err)
					return
				}
				if applied.Results[0].Outcome == assign.Replaced {
					done++
				}
			}
		})
	}
	all.Wait()
	want(t, "count", s.Table().Get(acme).Plan, fmt.Sprint(writers*each))
}

// testModel makes random changes in a store, and compares it with Change.Apply and a map.
func testModel(t *testing.T, open func(*testing.T, Options) Store) {
	clock := asynctest.NewClock()
	s := open(t, Options{Clock: clock.Micros})
	r := rand.New(rand.NewPCG(3, 4))
	m := Model{}
	for range 250 {
		clock.Move(time.Duration(r.IntN(3)) * time.Second)
		var changes []assign.Change
		for range 1 + r.IntN(8) {
			changes = append(changes, m.RandomChange(r, clock.Micros()))
		}
		for i, got := range Apply(t, s, changes...) {
			if wrong := m.Apply(&changes[i], got, clock.Micros()); wrong != "" {
				t.Fatal(wrong)
			}
		}
	}
	for text, a := range m {
		if got := s.Table().Get(a.Subject).InForce(clock.Micros()); !reflect.DeepEqual(got, a.InForce(clock.Micros())) {
			t.Errorf("%s: got %+v, want %+v", text, got, a)
		}
	}
}

// Model is what a store should contain, by the texts of subjects.
type Model map[string]*assign.Assignment

// Apply makes a change in the model, and returns how a store's result for it differs, or
// "".
func (m Model) Apply(c *assign.Change, got assign.Result, now int64) (wrong string) {
	text := c.Assignment.Text()
	before, after, outcome := c.Apply(m[text], now)
	if after != nil && (outcome == assign.Created || outcome == assign.Replaced) {
		after.At = now
		if got.After != nil {
			after.ETag = got.After.ETag
		}
		m[text] = after
	}
	if outcome == assign.Deleted {
		delete(m, text)
	}
	if want := (assign.Result{Outcome: outcome, Before: before, After: after}); !reflect.DeepEqual(got, want) {
		return fmt.Sprintf("%+v\nof     %+v:\ngot  %d %+v\n     %+v\nwant %d %+v\n     %+v", *c, m[text], got.Outcome, got.Before, got.After, outcome, before, after)
	}
	return ""
}

// RandomChange returns a change of few subjects and parts, so that changes meet.
func (m Model) RandomChange(r *rand.Rand, now int64) assign.Change {
	s := Subject(fmt.Sprint("d", r.IntN(2)), []string{"a", "b{", "c|d=e", "é \" \\ <&>\x00\x1b\n\x7f\u009b\u202e\u2028"}[r.IntN(4)])
	c := assign.Change{Assignment: assign.Assignment{Subject: s, By: []string{"ann", `a/"é"\`}[r.IntN(2)], Reason: []string{"", "asked", "x/<y>"}[r.IntN(3)]}}
	often := func() bool { return r.IntN(3) == 0 }
	end := func() int64 {
		if r.IntN(2) == 0 {
			return 0
		}
		// Few different times, so that ends are often the same.
		return (now/2_000_000 + r.Int64N(3)) * 2_000_000
	}
	a := &c.Assignment
	if often() {
		a.Plan, a.PlanUntil = []string{"p0", `p/"<é>\1`}[r.IntN(2)], end()
	}
	if often() {
		a.Unlimited, a.UnlimitedUntil = true, end()
	}
	if often() {
		a.Blocked, a.BlockedUntil = true, end()
	}
	for _, limit := range []string{"month", "", "s/<é>"} {
		if often() {
			n := assign.Numbers{Limit: limit, Requests: []int64{0, 5, bucket.MaxRequests}[r.IntN(3)]}
			if often() {
				n.Period, n.Burst = []time.Duration{time.Millisecond, bucket.MaxPeriod}[r.IntN(2)], []int64{0, bucket.MaxRequests}[r.IntN(2)]
			}
			a.Numbers, a.NumbersUntil = append(a.Numbers, n), append(a.NumbersUntil, end())
		}
	}
	if r.IntN(6) == 0 {
		all := []assign.Calendar{{Starts: "15"}, {TimeZone: "Europe/Berlin"}, {Starts: "monday 06:00", TimeZone: "Asia/Kathmandu"}}
		a.Calendar, a.CalendarUntil = all[r.IntN(len(all))], end()
	}
	c.Remove = assign.Parts{Plan: r.IntN(5) == 0, Calendar: r.IntN(8) == 0, Unlimited: r.IntN(5) == 0, Block: r.IntN(5) == 0, Numbers: r.IntN(8) == 0, Rest: r.IntN(6) == 0}
	if r.IntN(5) == 0 || !c.Sets() {
		c.Remove.Limits = []string{"month", "none"}
	}
	switch held := m[s.Text()]; {
	case r.IntN(6) == 0:
		c.IfMatch = assign.IfNone
	case r.IntN(4) == 0 && held != nil:
		c.IfMatch = held.ETag
	}
	return c
}
