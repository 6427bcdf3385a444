package redislog_test

import (
	"context"
	"slices"
	"strings"
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
// run; docs/redis.md has them.
const aclCommands = "+evalsha +eval +time +get +set +del +exists +hget +hset +hdel +hlen +hexists +hscan +xadd +xrange +xrevrange"

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

// A user who may write a part of a change writes nothing: a change is stored, recorded and
// in force, or none of that.
func TestChangeWithoutEachRightIsNotHalfDone(t *testing.T) {
	t.Parallel()
	all := strings.Fields(aclCommands)
	for _, missing := range all {
		t.Run(missing[1:], func(t *testing.T) {
			t.Parallel()
			c, give := asUser(t, all...)
			c.Timeout = time.Second
			d := startLoaded(t, c, redislog.Options{Every: often})
			assigntest.Apply(t, d, block("a"), block("b"))
			give(slices.DeleteFunc(slices.Clone(all), func(c string) bool { return c == missing })...)
			for _, change := range []assign.Change{block("c"), assigntest.Delete(tenant("a"))} {
				results, err := d.Apply(t.Context(), []assign.Change{change})
				if needed := strings.Fields("+evalsha +time +hget +hset +hdel +hlen +hexists +xadd +xrevrange"); slices.Contains(needed, missing) && results[0].Outcome != assign.Failed {
					t.Errorf("without %s: got %+v, %v", missing, results[0], err)
				}
			}
			if missing == "+xrange" || missing == "+hget" {
				asynctest.Eventually(t, "it is known that it may not follow", d.IsForbidden)
			}
			give(all...)
			last := make(map[string]*assign.Assignment)
			for _, r := range slices.Backward(recordsOf(t, d)) {
				last[r.Text()] = r.After
			}
			got := converge(t, d, startLoaded(t, c, redislog.Options{}))
			for text, a := range last {
				if _, isHeld := got[text]; isHeld != (a != nil) {
					t.Errorf("%s is in force: %t; its last record has %+v", text, isHeld, a)
				}
			}
			assigntest.Apply(t, d, block("d"))
		})
	}
}

// TestFewRightsSuffice does all that a store does as a user with these rights.
func TestFewRightsSuffice(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	all := strings.Fields(aclCommands)
	c, _ := asUser(t, all...)
	admin := redistest.Client(t, c.Addresses[0])
	var log asynctest.Buffer
	clock := asynctest.NewClock()
	d := startLoaded(t, c, redislog.Options{Log: textLog(&log), Clock: clock.Micros, Every: often})
	assigntest.Apply(t, d, assigntest.Set(tenant("trial"), assign.Terms{Plan: "p"}, clock.Micros()+1), plan("a", "p"), plan("b", "p"))
	assigntest.Apply(t, d, assigntest.Delete(tenant("b")))
	clock.Move(time.Second)
	if err := d.Sweep(ctx); err != nil {
		t.Error(err)
	}
	for _, onlyCounted := range []bool{false, true} {
		if _, err := d.Reset(ctx, assign.Reset{Keys: []string{d.StateKey("a#gcra")}, Record: assign.Record{Kind: assign.WasReset, Subject: tenant("a")}, OnlyCounted: onlyCounted}); err != nil {
			t.Error(err)
		}
	}
	if n := len(recordsOf(t, d)); n != 5 {
		t.Errorf("%d records, want 5", n)
	}
	admin.Del(ctx, d.key("assigned"), d.key("changes"))
	asynctest.Eventually(t, "it is put back", func() bool { return len(inRedis(t, d)) == 1 })
	startLoaded(t, c, redislog.Options{Log: textLog(&log)}).stop()
	if denied := admin.Do(ctx, "acl", "log").String(); strings.Contains(denied, "reason") {
		t.Errorf("Redis denied: %s", denied)
	}
	if log.Count("level=WARN") > 0 {
		t.Error(log.String())
	}
}
