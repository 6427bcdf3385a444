package assigntest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/assign"
	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
)

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

// undo takes back the newest record of a subject.
func undo(t testing.TB, s Store, subject assign.Subject) assign.Change {
	t.Helper()
	c, err := assign.Undo(records(t, s, assign.RecordQuery{Domain: subject.Domain, Entries: subject.Entries, Max: 100})[0])
	if err != nil {
		t.Fatal(err)
	}
	c.By, c.Reason = "cid", "a mistake"
	return c
}

func testUndo(t *testing.T, open opener) {
	clock := asynctest.NewClock()
	s := open(t, Options{Clock: clock.Micros})
	acme := Subject("api", "acme")
	made := Apply(t, s, Set(acme, assign.Terms{Plan: "pro"}, 0), Set(acme, numbersOf("month", 5), clock.Micros()+3600e6))[1].After
	sameAs := func(what string, got, wanted *assign.Assignment) {
		t.Helper()
		wanted.ETag = got.ETag
		want(t, what, got, wanted)
	}

	Apply(t, s, Set(acme, assign.Terms{Plan: "gold", Blocked: true}, 0))
	late := undo(t, s, acme)
	back := Apply(t, s, late)[0]
	want(t, "an undo", back.Outcome, assign.Replaced)
	sameAs("what is back, with who made it and when", s.Table().Get(acme), made)
	want(t, "the same undo again", Apply(t, s, late)[0].Outcome, assign.Conflict)
	newest := records(t, s, assign.RecordQuery{Max: 1})[0]
	if newest.By != "cid" || newest.Reason != "a mistake" || newest.Before.Base.Plan != "gold" || newest.After.Base.Plan != "pro" {
		t.Errorf("the record of an undo is %+v", newest)
	}

	Apply(t, s, Delete(acme))
	want(t, "an undo of a delete", Apply(t, s, undo(t, s, acme))[0].Outcome, assign.Created)
	sameAs("what is back", s.Table().Get(acme), made)
	want(t, "an undo of that", Apply(t, s, undo(t, s, acme))[0].Outcome, assign.Deleted)

	// Something came between.
	Apply(t, s, Plan(acme, "1"))
	late = undo(t, s, acme)
	Apply(t, s, Plan(acme, "2"))
	want(t, "an undo that comes late", Apply(t, s, late)[0].Outcome, assign.Conflict)
	want(t, "what stays", s.Table().Get(acme).Base.Plan, "2")
}

func testRecords(t *testing.T, open opener) {
	s := open(t, Options{})
	a, b := Subject("api", "a"), Subject("other", "b")
	made := Apply(t, s, Plan(a, "1"))[0].After
	Apply(t, s, Plan(b, "2"))
	Apply(t, s, Delete(a))
	all := records(t, s, assign.RecordQuery{Max: 2})
	if len(all) != 3 {
		t.Fatalf("%d records, want 3", len(all))
	}
	newest := all[0]
	if newest.ID == "" || newest.Moment == 0 || newest.Moment < all[1].Moment || all[1].Moment < all[2].Moment {
		t.Errorf("IDs and moments: %+v", all)
	}
	want(t, "the oldest", all[2].After, made)
	want(t, "its ID", all[2].ID, made.ETag)
	want(t, "its kind", all[2].Kind, assign.Assigned)
	newest.ID, newest.Moment = "", 0
	newest.Before.ETag = made.ETag
	want(t, "the newest", newest, assign.Record{Kind: assign.Unassigned, By: "bob", Reason: "gone", Subject: a, Before: made})
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

func testWatch(t *testing.T, open opener) {
	s := open(t, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	var mu sync.Mutex
	var seen []string
	var first atomic.Int32
	var ended sync.WaitGroup
	ended.Go(func() {
		err := s.Watch(ctx, func(r assign.Record) bool {
			mu.Lock()
			defer mu.Unlock()
			text := fmt.Sprint(r.Kind, r.Entries[0].Value)
			if r.After != nil {
				text += r.After.Base.Plan
			}
			seen = append(seen, text)
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
		return len(seen) > 0 && first.Load() > 0
	})
	mu.Lock()
	seen = nil
	mu.Unlock()
	Apply(t, s, Plan(a, "1"), Plan(a, "1"), Plan(a, "2"), Delete(a), Plan(a, "3"))
	asynctest.Eventually(t, "all is seen", func() bool { mu.Lock(); defer mu.Unlock(); return len(seen) >= 4 })
	cancel()
	ended.Wait()
	want(t, "seen", seen, []string{"1a1", "1a2", "2a", "1a3"})
	want(t, "seen by the one that ended its watch", first.Load(), 1)
}

func testReset(t *testing.T, open opener) {
	var mu sync.Mutex
	var forgotten []string
	s := open(t, Options{Hooks: assign.Hooks{Forget: func(keys []string) {
		mu.Lock()
		defer mu.Unlock()
		forgotten = append(forgotten, keys...)
	}}})
	keys := []string{s.StateKey("api|tenant=a#gcra"), s.StateKey("api|tenant=a#token_bucket:day")}
	reset := assign.Record{Kind: assign.WasReset, By: "ann", Reason: "oops", Subject: Subject("api", "a"), Limits: []string{"", "day"}}
	if _, err := s.Reset(t.Context(), assign.Reset{Keys: keys, Record: reset}); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	got := slices.Clone(forgotten)
	mu.Unlock()
	slices.Sort(got)
	got = slices.Compact(got) // the maker of a record follows it too
	want(t, "what was forgotten when it returned", got, keys)
	all := records(t, s, assign.RecordQuery{Max: 5})
	if len(all) != 1 {
		t.Fatalf("%d records, want 1", len(all))
	}
	if _, err := assign.Undo(all[0]); err == nil {
		t.Error("a reset can be undone")
	}
	all[0].ID, all[0].Moment = "", 0
	want(t, "record", all[0], reset)
}
