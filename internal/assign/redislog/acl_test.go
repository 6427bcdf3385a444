package redislog_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/assign"
	"github.com/ratelimitd/ratelimitd/internal/assign/assigntest"
	"github.com/ratelimitd/ratelimitd/internal/assign/redislog"
	"github.com/ratelimitd/ratelimitd/internal/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/redisconn"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

// aclCommands are those that the store's user needs, beside those that every user may
// run.
const aclCommands = "+evalsha +eval +time +get +set +del +pexpire +hget +hset +hsetnx +hdel +hlen +hmget +hkeys +hscan +xadd +xrange +xrevrange +xread"

// TestFewRightsSuffice does all that a store does as a user with these rights.
func TestFewRightsSuffice(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	server := redistest.Start(t)
	admin := redistest.Client(t, server.Addr())
	rule := []any{"acl", "setuser", "ratelimitd", "reset", "on", ">s3cret", "~test-*"}
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
	trial.Assignment.Until = clock.Micros() + 1
	assigntest.Apply(t, d, trial, assigntest.Plan(assigntest.Subject("api", "a"), "p"))
	clock.Move(time.Second)
	if err := d.Sweep(ctx); err != nil {
		t.Error(err)
	}
	if _, err := d.Reset(ctx, []string{d.StateKey("a#gcra")}, assign.Record{Subject: assigntest.Subject("api", "a")}); err != nil {
		t.Error(err)
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
	if denied := admin.Do(ctx, "acl", "log").String(); strings.Contains(denied, "reason") {
		t.Errorf("Redis denied: %s", denied)
	}
	if log.Count("level=WARN") > 0 {
		t.Error(log.String())
	}
}
