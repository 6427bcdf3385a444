package redislog_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/assign"
	"github.com/ratelimitd/ratelimitd/internal/assign/assigntest"
	"github.com/ratelimitd/ratelimitd/internal/assign/redislog"
	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/redisconn"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

// Who does not want to wait is told at once which daemons are pending, and for how long
// there may be others. The register of this test stays young for an hour.
func TestMaxWaitEndsTheWaitForAYoungRegister(t *testing.T) {
	t.Parallel()
	awaited := redislog.Awaited{IDs: []string{"absent", "self"}, Lacks: time.Hour}
	d := startLoaded(t, connOptions(redisconn.Single, redistest.Single(t)), redislog.Options{
		ID: "self", Awaited: func(context.Context) (redislog.Awaited, error) { return awaited, nil },
	})
	check := func(what string, r assign.Reached, err error) {
		t.Helper()
		if err != nil || !slices.Contains(r.Pending, "absent") || r.Lacks != time.Hour {
			t.Errorf("%s: got %+v, %v", what, r, err)
		}
	}
	s := assigntest.Subject("api", "a")
	for _, maxWait := range []assign.MaxWait{0, assign.MaxWait(5 * time.Millisecond)} {
		applied, err := d.Apply(t.Context(), []assign.Change{assigntest.Plan(s, time.Duration(maxWait).String())}, maxWait)
		check("a change", applied.Reached, err)
		done, err := d.Reset(t.Context(), assign.Reset{Keys: []string{d.StateKey("a#gcra")}, Record: assign.Record{Subject: s}}, maxWait)
		check("a reset", done.Reached, err)
	}
}

// A daemon for which a change has not waited is not late: the next change waits for it.
func TestChangeThatDoesNotWaitLeavesNobodyLate(t *testing.T) {
	t.Parallel()
	c := connOptions(redisconn.Single, redistest.Single(t))
	a := startLoaded(t, c, redislog.Options{ID: "a", Awaited: func(context.Context) (redislog.Awaited, error) {
		return redislog.Awaited{IDs: []string{"a", "b"}}, nil
	}})
	s := assigntest.Subject("api", "x")
	applied, err := a.Apply(t.Context(), []assign.Change{assigntest.Plan(s, "1")}, 0)
	if err != nil || !slices.Contains(applied.Pending, "b") {
		t.Fatalf("got %+v, %v", applied.Reached, err)
	}
	var waiting sync.WaitGroup
	waiting.Go(func() {
		applied, err = a.Apply(t.Context(), []assign.Change{assigntest.Plan(s, "2")}, assign.MaxWait(time.Minute))
	})
	asynctest.Eventually(t, "the next change is made", func() bool {
		held := a.Table().Get(s)
		return held != nil && held.Plan == "2"
	})
	start(t, c, redislog.Options{ID: "b"})
	waiting.Wait()
	if err != nil || len(applied.Pending) > 0 {
		t.Errorf("got %+v, %v", applied.Reached, err)
	}
}

// A change that is made while the register cannot be read is told as made, and that
// nobody knows which daemons have it.
func TestChangeWithoutARegisterSaysWhatIsNotKnown(t *testing.T) {
	t.Parallel()
	d := startLoaded(t, connOptions(redisconn.Single, redistest.Single(t)), redislog.Options{
		ID: "self", Awaited: func(context.Context) (redislog.Awaited, error) {
			return redislog.Awaited{Lacks: time.Hour}, errors.New("LOADING")
		},
	})
	want := assign.Reached{Pending: []string{"self"}, Lacks: time.Hour}
	s := assigntest.Subject("api", "a")
	applied, err := d.Apply(t.Context(), []assign.Change{assigntest.Plan(s, "p")}, 0)
	if err != nil || applied.Results[0].Outcome != assign.Created || !slices.Equal(applied.Pending, want.Pending) || applied.Lacks != want.Lacks {
		t.Errorf("a change: got %+v, %v", applied, err)
	}
	done, err := d.Reset(t.Context(), assign.Reset{Keys: []string{d.StateKey("a#gcra")}, Record: assign.Record{Subject: s}}, 0)
	if err != nil || !slices.Equal(done.Pending, want.Pending) || done.Lacks != want.Lacks {
		t.Errorf("a reset: got %+v, %v", done, err)
	}
}
