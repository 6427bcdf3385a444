package redislog_test

import (
	"context"
	"slices"
	"strings"
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

// aclCommands are those that the store's user needs, beside those that every user may
// run.
const aclCommands = "+evalsha +eval +time +get +set +del +pexpire +hget +hset +hsetnx +hdel +hlen +hmget +hkeys +hscan +xadd +xrange +xrevrange +xread"

// asUser starts a server, and returns how to reach it as a user with these rights, and
// how to change them.
func asUser(t *testing.T, commands ...string) (c redisconn.Options, give func(commands ...string)) {
	t.Helper()
	server := redistest.Start(t)
	admin := redistest.Client(t, server.Addr())
	give = func(commands ...string) {
		t.Helper()
		rule := []any{"acl", "setuser", "ratelimitd", "reset", "on", ">s3cret", "~test-*", "+hgetall"} // for the test
		for _, c := range commands {
			rule = append(rule, c)
		}
		if err := admin.Do(context.Background(), rule...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	give(commands...)
	c = connOptions(redisconn.Single, server.Addr())
	c.Username, c.Password = "ratelimitd", func() (string, error) { return "s3cret", nil }
	return c, give
}

// A user who may write a part of a change writes nothing: a change is stored, recorded
// and in force, or none of that. The log names each right that is missing.
func TestChangeWithoutEachRightIsNotHalfDone(t *testing.T) {
	t.Parallel()
	all := strings.Fields(aclCommands)
	for _, missing := range all {
		t.Run(missing[1:], func(t *testing.T) {
			t.Parallel()
			c, give := asUser(t, all...)
			c.Timeout = time.Second
			settled := startLoaded(t, c, redislog.Options{ID: "settled"})
			blocked := func(name string) assign.Change {
				return assign.Change{Assignment: assign.Assignment{Subject: assigntest.Subject("api", name), Terms: assign.Terms{Blocked: true}}}
			}
			assigntest.Apply(t, settled, blocked("a"), blocked("b"))
			give(slices.DeleteFunc(slices.Clone(all), func(c string) bool { return c == missing })...)
			var log asynctest.Buffer
			start(t, c, redislog.Options{ID: "late", Log: textLog(&log)})
			if !slices.Contains([]string{"+evalsha", "+eval", "+time"}, missing) {
				asynctest.Eventually(t, "the missing right is told", func() bool { return strings.Contains(log.String(), "missing="+missing) })
			}
			for _, change := range []assign.Change{blocked("c"), assigntest.Delete(assigntest.Subject("api", "a"))} {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				applied, err := settled.Apply(ctx, []assign.Change{change})
				cancel()
				if needed := strings.Fields("+evalsha +time +hget +hset +hdel +xadd +xrevrange"); slices.Contains(needed, missing) && applied.Results[0].Outcome != assign.Failed {
					t.Errorf("without %s: got %+v, %v", missing, applied.Results[0], err)
				}
			}
			_, _ = settled.Reset(t.Context(), assign.Reset{Keys: []string{settled.StateKey("a#gcra")}, Record: assign.Record{Subject: assigntest.Subject("api", "r")}})
			give(all...)
			held := converge(t, settled, startLoaded(t, c, redislog.Options{ID: "fresh"}))
			checkRecords(t, settled, held)
			asynctest.Eventually(t, "changes are made again", func() bool {
				applied, err := settled.Apply(t.Context(), []assign.Change{blocked("d")})
				return err == nil && len(applied.Pending) == 0
			})
			converge(t, settled)
		})
	}
}

// TestFewRightsSuffice does all that a store does as a user with these rights.
func TestFewRightsSuffice(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	server := redistest.Start(t, "--appendonly", "yes")
	admin := redistest.Client(t, server.Addr())
	// By INFO, which it may lack, it looks after a second whether Redis keeps what it has.
	rule := []any{"acl", "setuser", "ratelimitd", "reset", "on", ">s3cret", "~test-*", "+info"}
	for _, c := range strings.Fields(aclCommands) {
		rule = append(rule, c)
	}
	if err := admin.Do(ctx, rule...).Err(); err != nil {
		t.Fatal(err)
	}
	c := connOptions(redisconn.Single, server.Addr())
	c.Username, c.Password = "ratelimitd", func() (string, error) { return "s3cret", nil }
	var log asynctest.Buffer
	clock := asynctest.NewClock()
	o := redislog.Options{ID: "self", Log: textLog(&log), Clock: clock.Micros}
	d := startLoaded(t, c, o)
	trial := assigntest.Plan(assigntest.Subject("api", "trial"), "p")
	trial.Assignment.PlanUntil = clock.Micros() + 1
	assigntest.Apply(t, d, trial, assigntest.Plan(assigntest.Subject("api", "a"), "p"))
	clock.Move(time.Second)
	if err := d.Sweep(ctx); err != nil {
		t.Error(err)
	}
	for _, onlyCounted := range []bool{false, true} {
		if _, err := d.Reset(ctx, assign.Reset{Keys: []string{d.StateKey("a#gcra")}, Record: assign.Record{Subject: assigntest.Subject("api", "a")}, OnlyCounted: onlyCounted}); err != nil {
			t.Error(err)
		}
	}
	if n := len(recordsOf(t, d)); n != 3 {
		t.Errorf("%d records, want 3", n)
	}
	d.stop()
	o.HashTags = 5
	moved := startLoaded(t, c, o)
	if n := moved.Table().Len(); n != 1 {
		t.Errorf("%d assignments, want 1", n)
	}
	assigntest.Apply(t, moved, assigntest.Delete(assigntest.Subject("api", "a")))
	// It looks whether a change is lost that Redis does not have any more.
	var once sync.Once
	moved.conn.AddHook(afterScript{func() {
		once.Do(func() {
			for _, tag := range hashTags(o.HashTags) {
				admin.Del(ctx, moved.assignedKeys(tag, "assigned"), moved.assignedKeys(tag, "changes"))
			}
		})
	}})
	_, _ = moved.Apply(ctx, []assign.Change{assigntest.Plan(assigntest.Subject("api", "a"), "p")})
	if denied := admin.Do(ctx, "acl", "log").String(); strings.Contains(denied, "reason") {
		t.Errorf("Redis denied: %s", denied)
	}
	if log.Count("level=WARN") > 0 {
		t.Error(log.String())
	}
}
