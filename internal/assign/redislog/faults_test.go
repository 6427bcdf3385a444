package redislog_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimitd/ratelimitd/internal/assign"
	"github.com/ratelimitd/ratelimitd/internal/assign/assigntest"
	"github.com/ratelimitd/ratelimitd/internal/assign/redislog"
	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/redisconn"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

// A daemon that is cut off goes on with what it knows, and has the rest soon after Redis is
// back within its reach.
func TestDaemonThatIsCutOffCatchesUp(t *testing.T) {
	t.Parallel()
	c := connOptions(redisconn.Single, redistest.Single(t))
	away, proxy := cutOff(t, c, redislog.Options{Every: often})
	d := startLoaded(t, c, redislog.Options{Every: often})
	assigntest.Apply(t, d, plans(10, "p")...)
	converge(t, away)
	for _, fault := range []func(){proxy.Drop, proxy.Refuse} {
		fault()
		plan := fmt.Sprint("q", time.Now())
		assigntest.Apply(t, d, plans(5, plan)...)
		assigntest.Apply(t, d, assigntest.Delete(tenant("7")))
		if planOf(away, "1") == plan || planOf(away, "7") != "p" {
			t.Errorf("without Redis it has followed: %v", held(away))
		}
		proxy.Heal(t)
		converge(t, away, d)
		assigntest.Apply(t, d, assigntest.Plan(tenant("7"), "p"))
		converge(t, away, d)
	}
}

// A change whose reply is lost is made once, and is no conflict with itself.
func TestLostReplyIsNoConflict(t *testing.T) {
	t.Parallel()
	c := connOptions(redisconn.Single, redistest.Single(t))
	d, proxy := cutOff(t, c, redislog.Options{Every: time.Hour})
	first := plan("acme", "p")
	first.IfMatch = assign.IfNone
	second := plan("acme", "q")
	third := assigntest.Delete(tenant("acme"))
	for i, change := range []*assign.Change{&first, &second, &third} {
		cut := proxy.ResetAfter("|tenant=acme")
		result := assigntest.Apply(t, d, *change)[0]
		<-cut
		want := []assign.Outcome{assign.Created, assign.Replaced, assign.Deleted}[i]
		if result.Outcome != want || planOf(d, "acme") != []string{"p", "q", ""}[i] {
			t.Errorf("change %d: %+v; in force is %q", i, result, planOf(d, "acme"))
		}
		if result.After != nil {
			second.IfMatch, third.IfMatch = result.After.ETag, result.After.ETag
		}
	}
	if n := len(recordsOf(t, d)); n != 3 {
		t.Errorf("%d records", n)
	}
}

// Redis falls silent right after it made a change: the daemon that asked for it has it.
func TestChangeIsInForceThoughRedisFallsSilent(t *testing.T) {
	t.Parallel()
	c := connOptions(redisconn.Single, redistest.Single(t))
	d := startLoaded(t, c, redislog.Options{Every: time.Hour})
	assigntest.Apply(t, d, plan("b", "p"))
	d.conn.AddHook(failingPipelines{passed: new(atomic.Int64)})
	results, err := d.Apply(t.Context(), []assign.Change{plan("a", "p"), assigntest.Delete(tenant("b"))})
	if err != nil || results[0].Outcome != assign.Created || results[1].Outcome != assign.Deleted {
		t.Errorf("got %+v, %v", results, err)
	}
	if planOf(d, "a") != "p" || planOf(d, "b") != "" {
		t.Errorf("in force are %v", held(d))
	}
}

// failingPipelines lets one pipeline pass, and has all that follow fail.
type failingPipelines struct{ passed *atomic.Int64 }

func (failingPipelines) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (failingPipelines) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (f failingPipelines) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, commands []redis.Cmder) error {
		if f.passed.Add(1) == 1 {
			return next(ctx, commands)
		}
		return os.ErrDeadlineExceeded
	}
}

func TestTableStaysWhileRedisIsAway(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--appendonly", "yes")
	c := connOptions(redisconn.Single, server.Addr())
	c.Timeout = time.Second
	var log asynctest.Buffer
	d := startLoaded(t, c, redislog.Options{Log: textLog(&log), Every: often})
	assigntest.Apply(t, d, plans(10, "p")...)
	server.Kill()
	asynctest.Eventually(t, "the failure is logged", func() bool { return log.Count("cannot be followed") == 1 })
	results, err := d.Apply(t.Context(), []assign.Change{plan("1", "q")})
	if err == nil || results[0].Outcome != assign.Failed || !results[0].Passes || !errors.Is(results[0].Err, assign.ErrNothingChanged) || d.Table().Len() != 10 {
		t.Errorf("got %+v, %v", results, err)
	}
	server.Restart()
	assigntest.Apply(t, d, plan("1", "q"))
	converge(t, d)
}

func configure(t *testing.T, r *redis.Client, pairs ...string) {
	t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		if err := r.ConfigSet(context.Background(), pairs[i], pairs[i+1]).Err(); err != nil {
			t.Fatalf("%s %s: %v", pairs[i], pairs[i+1], err)
		}
	}
}

func replicaOf(t *testing.T, r *redis.Client, host, port string) {
	t.Helper()
	if err := r.ReplicaOf(context.Background(), host, port).Err(); err != nil {
		t.Fatal(err)
	}
}

// changesOfAllKinds make an assignment, replace one and end one.
func changesOfAllKinds() []assign.Change {
	return []assign.Change{plan("new", "p"), plan("old", "another"), assigntest.Delete(tenant("gone"))}
}

// What Redis refuses is reported as refused, with the reason, and all is as it was: what is
// in force, the records, and the states of limits.
func TestWhatRedisRefusesIsNotDone(t *testing.T) {
	t.Parallel()
	toReplica := func(t *testing.T, r *redis.Client) { replicaOf(t, r, "127.0.0.1", "1") }
	toMaster := func(t *testing.T, r *redis.Client) { replicaOf(t, r, "no", "one") }
	set := func(pairs ...string) func(*testing.T, *redis.Client) {
		return func(t *testing.T, r *redis.Client) { configure(t, r, pairs...) }
	}
	for _, test := range []struct {
		want         string
		passes       bool
		args         []string
		refuse, heal func(*testing.T, *redis.Client)
	}{
		{want: "READONLY", passes: true, refuse: toReplica, heal: toMaster},
		{want: "MASTERDOWN", passes: true, args: []string{"--replica-serve-stale-data", "no"}, refuse: toReplica, heal: toMaster},
		{want: "OOM", refuse: set("maxmemory", "1"), heal: set("maxmemory", "0")},
		{want: "NOREPLICAS", refuse: set("min-replicas-to-write", "1"), heal: set("min-replicas-to-write", "0")},
	} {
		t.Run(test.want, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, test.args...)
			r := redistest.Client(t, server.Addr())
			d := startLoaded(t, connOptions(redisconn.Single, server.Addr()), redislog.Options{Every: often})
			testRefusal(t, d, test.want, test.passes, func() { test.refuse(t, r) }, func() { test.heal(t, r) })
		})
	}
	t.Run("NOPERM", func(t *testing.T) {
		t.Parallel()
		all := strings.Fields(aclCommands)
		c, give := asUser(t, all...)
		d := startLoaded(t, c, redislog.Options{Every: often})
		testRefusal(t, d, "NOPERM", false, func() { give(append(all, "-xadd")...) }, func() { give(all...) })
	})
	t.Run("WRONGTYPE", func(t *testing.T) {
		t.Parallel()
		d := startLoaded(t, connOptions(redisconn.Single, redistest.Single(t)), redislog.Options{Every: time.Hour})
		kept := d.key("kept")
		testRefusal(t, d, "WRONGTYPE", false, func() {
			d.conn.Rename(t.Context(), d.key("changes"), kept)
			d.conn.Set(t.Context(), d.key("changes"), "x", 0)
		}, func() { d.conn.Rename(t.Context(), kept, d.key("changes")) })
	})
}

func testRefusal(t *testing.T, d *daemon, want string, passes bool, refuse, heal func()) {
	t.Helper()
	ctx := context.Background()
	assigntest.Apply(t, d, plan("old", "p"), plan("gone", "p"))
	state := d.StateKey("x#gcra")
	if err := d.conn.Set(ctx, state, "taken", 0).Err(); err != nil {
		t.Fatal(err)
	}
	before, records := inRedis(t, d), recordsOf(t, d)
	refuse()
	results, err := d.Apply(ctx, changesOfAllKinds())
	if err == nil {
		t.Error("there is no error")
	}
	for i, r := range results {
		if r.Outcome != assign.Failed || r.Passes != passes || !errors.Is(r.Err, assign.ErrNothingChanged) ||
			!strings.HasPrefix(fmt.Sprint(r.Err), "refused by Redis, nothing was changed: ") || !strings.Contains(fmt.Sprint(r.Err), want+" ") {
			t.Errorf("change %d: got %+v", i, r)
		}
	}
	_, err = d.Reset(ctx, assign.Reset{Keys: []string{state}, Record: assign.Record{Kind: assign.WasReset, Subject: tenant("x"), Limits: []string{""}}})
	if !errors.Is(err, assign.ErrNothingChanged) || !strings.Contains(err.Error(), want+" ") {
		t.Errorf("a reset ends with %v", err)
	}
	heal()
	if now := inRedis(t, d); !reflect.DeepEqual(now, before) {
		t.Errorf("in force is %v, and was %v", now, before)
	}
	if now := recordsOf(t, d); !reflect.DeepEqual(now, records) {
		t.Errorf("the records are %v, and were %v", now, records)
	}
	if text := d.conn.Get(ctx, state).Val(); text != "taken" {
		t.Errorf("the state is %q", text)
	}
	assigntest.Apply(t, d, changesOfAllKinds()...)
}

// A refusal does not say what became of the same call before, whose reply was lost.
func TestRefusalAfterALostReplyIsUnknown(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	d, proxy := cutOff(t, connOptions(redisconn.Single, server.Addr()), redislog.Options{})
	replicaOf(t, redistest.Client(t, server.Addr()), "127.0.0.1", "1")
	cut := proxy.ResetAfter("|tenant=a")
	results, err := d.Apply(t.Context(), []assign.Change{plan("a", "p")})
	<-cut
	if err == nil || !strings.Contains(err.Error(), "READONLY") || results[0].Outcome != assign.Unknown || results[0].Err != nil {
		t.Errorf("got %+v, %v", results[0], err)
	}
}

// A reset whose states cannot be forgotten leaves two records, the second of which says so.
func TestResetThatFailsSaysSo(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, c redisconn.Options) {
		d := startLoaded(t, c, redislog.Options{Every: often})
		state := d.StateKey("x#gcra")
		d.conn.AddHook(newScriptHook(func(_ int64, cmd redis.Cmder) error {
			if cmd.Args()[3] == state { // its first key
				return os.ErrDeadlineExceeded
			}
			return nil
		}))
		d.conn.Set(t.Context(), state, "taken", 0)
		_, err := d.Reset(t.Context(), assign.Reset{Keys: []string{state}, Record: assign.Record{Kind: assign.WasReset, Subject: tenant("x"), By: "ann"}})
		if err == nil || errors.Is(err, assign.ErrNothingChanged) {
			t.Errorf("got %v", err)
		}
		records := recordsOf(t, d)
		if len(records) != 2 || records[1].Kind != assign.WasReset || records[0].Kind != assign.ResetFailed || records[0].By != "ann" || !reflect.DeepEqual(records[0].Subject, tenant("x")) {
			t.Errorf("records %+v", records)
		}
	})
}
