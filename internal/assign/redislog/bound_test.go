package redislog_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/assign"
	"github.com/ratelimitd/ratelimitd/internal/assign/redislog"
	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/redisconn"
)

// crowd returns changes that assign something to so many tenants.
func crowd(name string, n int, terms assign.Terms) (all []assign.Change) {
	for i := range n {
		subject := assign.Subject{Domain: "api", Entries: []bucket.Entry{{Key: "tenant", Value: fmt.Sprint(name, i)}}}
		all = append(all, assign.Change{Assignment: assign.Assignment{Subject: subject, Terms: terms, By: "test"}})
	}
	return all
}

// make makes changes, and ends the test unless each has this outcome.
func (d *daemon) make(t testing.TB, changes []assign.Change, want assign.Outcome) assign.Applied {
	t.Helper()
	applied, err := d.Apply(context.Background(), changes)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range applied.Results {
		if r.Outcome != want {
			t.Fatalf("change %d: the outcome is %v, want %v", i, r.Outcome, want)
		}
	}
	return applied
}

func deleted(changes []assign.Change) []assign.Change {
	var all []assign.Change
	for _, c := range changes {
		c.Assignment.Terms, c.Remove = assign.Terms{}, assign.AllParts()
		all = append(all, c)
	}
	return all
}

// blocksOf is how many assignments of a table block.
func blocksOf(table *assign.Table) (n int) {
	for a := range table.All() {
		if a.Blocked {
			n++
		}
	}
	return n
}

// A daemon with room for fewer assignments than Redis has holds no more, has all blocks,
// says that others should serve, and is named by changes that it does not have. Once there
// is room it has all.
func TestNoMoreIsLoadedThanThereIsRoomFor(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, c redisconn.Options) {
		both := func(context.Context) (redislog.Awaited, error) {
			return redislog.Awaited{IDs: []string{"large", "small"}}, nil
		}
		large := startLoaded(t, c, redislog.Options{ID: "large"})
		plans, blocks := crowd("plan-", 30, assign.Terms{Plan: "pro"}), crowd("block-", 5, assign.Terms{Blocked: true})
		large.make(t, plans, assign.Created)
		large.make(t, blocks, assign.Created)

		var log asynctest.Buffer
		small := startLoaded(t, c, redislog.Options{ID: "small", Awaited: both, MaxAssignments: 10, Log: textLog(&log)})
		asynctest.Eventually(t, "the daemon says what is left out", func() bool { all, _ := small.LeftOut(); return all > 0 })
		if n, all := small.Table().Len(), leftOutOf(small); n < 10 || n > 15 || n+all != 35 || blocksOf(small.Table()) != 5 {
			t.Errorf("it has %d, of which %d block, and leaves out %d", n, blocksOf(small.Table()), all)
		}
		if err := small.Lacks(); err == nil || !strings.Contains(err.Error(), "assignments.max, which is 10") {
			t.Errorf("it lacks: %v", err)
		}
		asynctest.Eventually(t, "the log says it", func() bool {
			text := log.String()
			return strings.Contains(text, "more assignments than assignments.max") && strings.Contains(text, "blocks_left_out=0")
		})
		if err := large.Lacks(); err != nil {
			t.Errorf("the other one: %v", err)
		}

		large.make(t, deleted(plans[3:]), assign.Deleted)
		asynctest.Eventually(t, "all is there", func() bool { return small.Table().Len() == 8 && leftOutOf(small) == 0 })
		asynctest.Eventually(t, "it may serve", func() bool { return small.Lacks() == nil })
		if pending := small.make(t, crowd("late-", 2, assign.Terms{Plan: "pro"}), assign.Created).Pending; len(pending) > 0 {
			t.Errorf("then changes are not seen by %v", pending)
		}
	})
}

func leftOutOf(d *daemon) int {
	all, _ := d.LeftOut()
	return all
}

// A daemon that once had all goes on when more comes than there is room for: the others
// may have no more room. Whoever makes a change that it leaves out is told.
func TestADaemonThatIsFullGoesOnAndDoesNotConfirm(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, c redisconn.Options) {
		both := func(context.Context) (redislog.Awaited, error) {
			return redislog.Awaited{IDs: []string{"large", "small"}}, nil
		}
		large := startLoaded(t, c, redislog.Options{ID: "large", Awaited: both})
		small := startLoaded(t, c, redislog.Options{ID: "small", Awaited: both, MaxAssignments: 10})
		asynctest.Eventually(t, "it has all", func() bool { return small.Lacks() == nil })
		changed := func(changes []assign.Change, left, blocksLeft int) (pending string) {
			t.Helper()
			pending = fmt.Sprint(large.make(t, changes, assign.Created).Pending)
			asynctest.Eventually(t, "what is left out", func() bool { all, blocks := small.LeftOut(); return all == left && blocks == blocksLeft })
			if err := small.Lacks(); err != nil {
				t.Errorf("it should not serve: %v", err)
			}
			return pending
		}
		if got := changed(crowd("plan-", 10, assign.Terms{Plan: "pro"}), 0, 0); got != "[]" {
			t.Errorf("what it has room for is not seen by %s", got)
		}
		if got := changed(crowd("more-", 1, assign.Terms{Plan: "pro"}), 1, 0); got != "[small]" {
			t.Errorf("a plan that is left out is not seen by %s", got)
		}
		small.make(t, crowd("own-", 1, assign.Terms{Plan: "pro"}), assign.Full)
		changed(crowd("block-", 10, assign.Terms{Blocked: true}), 1, 0)
		asynctest.Eventually(t, "all blocks hold", func() bool { return blocksOf(small.Table()) == 10 })
		if got := changed(crowd("last-", 1, assign.Terms{Blocked: true}), 2, 1); got != "[small]" {
			t.Errorf("a block that is left out is not seen by %s", got)
		}
		if n := small.Table().Len(); n != 20 {
			t.Errorf("it has %d", n)
		}
	})
}
