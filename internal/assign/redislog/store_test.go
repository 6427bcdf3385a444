package redislog_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimitd/ratelimitd/internal/assign"
	"github.com/ratelimitd/ratelimitd/internal/assign/assigntest"
	"github.com/ratelimitd/ratelimitd/internal/assign/redislog"
	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/redisconn"
	"github.com/ratelimitd/ratelimitd/internal/redisstore/script"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

func TestMain(m *testing.M) {
	if where := os.Getenv(envVictim); where != "" {
		fmt.Fprintln(os.Stderr, victim(where))
		os.Exit(1)
	}
	os.Exit(redistest.Run(m))
}

func textLog(b *asynctest.Buffer) *slog.Logger { return slog.New(slog.NewTextHandler(b, nil)) }

func hashTags(n int) []string { return script.NewTags(n) }

// connOptions are those of a connection under a prefix of its own.
func connOptions(mode redisconn.Mode, addresses ...string) redisconn.Options {
	return redisconn.Options{
		Mode:      mode,
		Addresses: addresses,
		Prefix:    fmt.Sprintf("test-%x", rand.Uint64()),
		// The machines that run tests may be slow; what is tested is not.
		Timeout: 10 * time.Second,
	}
}

// modes calls test for each layout of Redis that tests share.
func modes(t *testing.T, test func(t *testing.T, o redisconn.Options)) {
	t.Run("single", func(t *testing.T) { t.Parallel(); test(t, connOptions(redisconn.Single, redistest.Single(t))) })
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		test(t, connOptions(redisconn.Cluster, redistest.Cluster(t)...))
	})
}

// daemon is a daemon's store.
type daemon struct {
	*redislog.Store
	conn *redisconn.Conn
	stop func()
}

// StateKey implements assigntest.Store.
func (d *daemon) StateKey(name string) string {
	return d.conn.Prefix() + "{" + hashTags(32)[0] + "}:" + name
}

// start starts a daemon, which the end of the test stops.
func start(t testing.TB, c redisconn.Options, o redislog.Options) *daemon {
	t.Helper()
	conn, err := redisconn.New(c)
	if err != nil {
		t.Fatal(err)
	}
	if o.ID == "" {
		o.ID = fmt.Sprintf("%016x", rand.Uint64())
	}
	if o.HashTags == 0 {
		o.HashTags = 32
	}
	o.Tags = hashTags
	s, err := redislog.New(conn, o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { s.Run(ctx) })
	d := &daemon{Store: s, conn: conn}
	d.stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
		_ = s.Close()
		_ = conn.Close()
	})
	t.Cleanup(d.stop)
	return d
}

// startLoaded starts a daemon and waits until it has all that there is.
func startLoaded(t testing.TB, c redisconn.Options, o redislog.Options) *daemon {
	t.Helper()
	d := start(t, c, o)
	asynctest.Eventually(t, "the store is loaded", d.Loaded)
	return d
}

// fleetOf starts daemons that wait for each other.
func fleetOf(t testing.TB, n int, c redisconn.Options, o redislog.Options) []*daemon {
	t.Helper()
	var ids []string
	for i := range n {
		ids = append(ids, fmt.Sprint("daemon-", i))
	}
	o.Awaited = func(context.Context) (redislog.Awaited, error) { return redislog.Awaited{IDs: ids}, nil }
	var daemons []*daemon
	for i := range n {
		o.ID = ids[i]
		daemons = append(daemons, startLoaded(t, c, o))
	}
	return daemons
}

func TestStoreInRedis(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, c redisconn.Options) {
		assigntest.Test(t, func(t *testing.T, o assigntest.Options) assigntest.Store {
			c := c
			c.Prefix = fmt.Sprintf("test-%x", rand.Uint64())
			return startLoaded(t, c, redislog.Options{MaxRecords: o.MaxRecords, MaxAssignments: o.MaxAssignments, Hooks: o.Hooks, Clock: o.Clock})
		})
	})
}

func TestEveryDaemonHasAChangeOnceItIsMade(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, c redisconn.Options) {
		daemons := fleetOf(t, 3, c, redislog.Options{})
		for i := range 60 {
			s := assigntest.Subject("api", fmt.Sprint(i%7))
			begin := time.Now()
			after := assigntest.Apply(t, daemons[i%3], assigntest.Plan(s, fmt.Sprint(i)))[0].After
			if i == 59 {
				t.Logf("a change took %v", time.Since(begin))
			}
			for j, d := range daemons {
				if got := d.Table().Get(s); got == nil || got.ETag != after.ETag {
					t.Fatalf("change %d: daemon %d has %+v, want %+v", i, j, got, after)
				}
			}
		}
		gone := assigntest.Subject("api", "3")
		assigntest.Apply(t, daemons[0], assigntest.Delete(gone))
		for j, d := range daemons {
			if got := d.Table().Get(gone); got != nil {
				t.Errorf("daemon %d still has %+v", j, got)
			}
		}
	})
}

// 64 at three daemons change the version that they have read: of each version one wins.
func TestOneOfManyChangesEachVersion(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, c redisconn.Options) {
		daemons := fleetOf(t, 3, c, redislog.Options{})
		subject := assigntest.Subject("api", "x")
		etag := assigntest.Apply(t, daemons[0], assigntest.Plan(subject, "p"))[0].After.ETag
		for round := range 5 {
			var mu sync.Mutex
			var winners []string
			var all sync.WaitGroup
			for i := range 64 {
				all.Go(func() {
					change := assigntest.Plan(subject, fmt.Sprintf("p-%d-%d", round, i))
					change.IfMatch = etag
					a, err := daemons[i%3].Apply(t.Context(), []assign.Change{change})
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					defer mu.Unlock()
					switch r := a.Results[0]; {
					case r.Outcome == assign.Replaced:
						winners = append(winners, r.After.ETag)
					case r.Outcome != assign.Conflict || r.After == nil || r.After.ETag == etag:
						t.Errorf("round %d: %+v", round, r)
					}
				})
			}
			all.Wait()
			if len(winners) != 1 {
				t.Fatalf("round %d: %d won", round, len(winners))
			}
			etag = winners[0]
			for i, d := range daemons {
				if got := d.Table().Get(subject); got == nil || got.ETag != etag {
					t.Errorf("round %d: daemon %d has %+v", round, i, got)
				}
			}
		}
	})
}

func TestDaemonThatIsGoneIsPending(t *testing.T) {
	t.Parallel()
	c := connOptions(redisconn.Single, redistest.Single(t))
	daemons := fleetOf(t, 3, c, redislog.Options{})
	daemons[2].stop()
	a, err := daemons[0].Apply(t.Context(), []assign.Change{assigntest.Plan(assigntest.Subject("api", "a"), "p")})
	if err != nil || fmt.Sprint(a.Pending) != "[daemon-2]" || a.Results[0].Outcome != assign.Created {
		t.Errorf("got %+v, %v", a, err)
	}
}

// A daemon that died costs one change the wait, and not each one until the register has
// forgotten it: 30 changes would wait for a minute. All of them name it. Once it is back
// they wait for it again.
func TestADaemonThatDiedIsWaitedForOnce(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, c redisconn.Options) {
		daemons := fleetOf(t, 3, c, redislog.Options{})
		daemons[2].stop()
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		subject := func(i int) assign.Subject { return assigntest.Subject("api", fmt.Sprint(i)) }
		for i := range 30 {
			a, err := daemons[0].Apply(ctx, []assign.Change{assigntest.Plan(subject(i), "p")})
			if err != nil || fmt.Sprint(a.Pending) != "[daemon-2]" || a.Results[0].Outcome != assign.Created {
				t.Fatalf("change %d: %+v, %v", i, a, err)
			}
			if daemons[1].Table().Get(subject(i)) == nil {
				t.Fatalf("change %d was not waited for at a daemon that lives", i)
			}
		}
		all := func(context.Context) (redislog.Awaited, error) {
			return redislog.Awaited{IDs: []string{"daemon-0", "daemon-1", "daemon-2"}}, nil
		}
		back := startLoaded(t, c, redislog.Options{ID: "daemon-2", Awaited: all})
		asynctest.Eventually(t, "it is waited for again", func() bool {
			a, err := daemons[0].Apply(ctx, []assign.Change{assigntest.Plan(subject(0), fmt.Sprint(time.Now().UnixNano()))})
			return err == nil && len(a.Pending) == 0
		})
		for i := range 30 {
			a, err := daemons[0].Apply(ctx, []assign.Change{assigntest.Plan(subject(i), "again")})
			if err != nil || len(a.Pending) > 0 {
				t.Fatalf("change %d: %+v, %v", i, a, err)
			}
			if got := back.Table().Get(subject(i)); got == nil || got.ETag != a.Results[0].After.ETag {
				t.Fatalf("change %d: the daemon that came back has %+v", i, got)
			}
		}
	})
}

func TestRestartedDaemonHasAll(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, c redisconn.Options) {
		d := startLoaded(t, c, redislog.Options{})
		fill(t, d, 500)
		d.stop()
		again := startLoaded(t, c, redislog.Options{})
		if n := again.Table().Len(); n != 500 {
			t.Errorf("%d assignments, want 500", n)
		}
		if n := again.Table().Count("api"); n != 500 {
			t.Errorf("%d assignments of the domain, want 500", n)
		}
	})
}

// fill makes n assignments.
func fill(t testing.TB, d *daemon, n int) {
	t.Helper()
	var changes []assign.Change
	for i := range n {
		changes = append(changes, assigntest.Plan(assigntest.Subject("api", fmt.Sprint(i)), "p"))
	}
	assigntest.Apply(t, d, changes...)
}

// everyKey returns all keys of a prefix, on all masters, with their expiry.
func everyKey(t testing.TB, c redisconn.Options) map[string]time.Duration {
	t.Helper()
	all := make(map[string]time.Duration)
	for _, addr := range c.Addresses {
		for key, ttl := range redistest.Keys(t, redistest.Client(t, addr), c.Prefix) {
			all[key] = ttl
		}
	}
	return all
}

// TestWhatIsForeignIsPassedOver puts what is no assignment and no change where these
// are.
func TestWhatIsForeignIsPassedOver(t *testing.T) {
	t.Parallel()
	c := connOptions(redisconn.Single, redistest.Single(t))
	var log asynctest.Buffer
	d := startLoaded(t, c, redislog.Options{Log: textLog(&log)})
	fill(t, d, 100)
	r := redistest.Client(t, c.Addresses[0])
	ctx := context.Background()
	tag := c.Prefix + "{" + hashTags(32)[0] + "}~"
	whole := assign.Encode(&assign.Assignment{Subject: assigntest.Subject("api", "0"), Terms: assign.Terms{Plan: "p"}, ETag: "1-1"})
	for i, value := range []string{"", "x", "null", "[]", `{"etag":5}`, string(whole[:len(whole)-1]), string(whole)} {
		r.HSet(ctx, tag+"assigned", fmt.Sprint("api|foreign=", i), value)
	}
	before := d.Table().Len()
	for _, values := range [][]any{
		{"a", "b"},
		{"kind", "assigned", "subject", "{", "p", "0-0"},
		{"kind", "later", "subject", `{"domain":"api","entries":[{"Key":"tenant","Value":"0"}]}`, "p", "5-5"},
		{"kind", "unassigned", "subject", `{"domain":"api","entries":[]}`, "p", ""},
		{"kind", "reset", "subject", `{"domain":"api","entries":[{"Key":"tenant","Value":"0"}]}`, "keys", "[5]", "limits", "", "p", "1-1"},
	} {
		r.XAdd(ctx, &redis.XAddArgs{Stream: tag + "changes", Values: values})
		r.XAdd(ctx, &redis.XAddArgs{Stream: c.Prefix + "{~assign}~doorbell", Values: []any{"t", "x,-1,99999"}})
	}
	fill(t, d, 200)
	if n := d.Table().Len(); n != before+100 {
		t.Errorf("%d assignments, want %d", n, before+100)
	}
	again := startLoaded(t, c, redislog.Options{})
	if n := again.Table().Len(); n != 200 {
		t.Errorf("%d assignments are loaded, want 200", n)
	}
	if log.Count("cannot be read") == 0 {
		t.Errorf("nothing is logged: %s", log.String())
	}
	if _, _, err := d.Records(ctx, assign.RecordQuery{Max: 1000}); err != nil {
		t.Error(err)
	}
}

// TestResetForgetsStatesAndRecordsIt holds the keys of states against Redis.
func TestResetForgetsStatesAndRecordsIt(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, c redisconn.Options) {
		d := startLoaded(t, c, redislog.Options{})
		ctx := context.Background()
		keys := []string{d.StateKey("a#gcra"), d.StateKey("a#gcra:day")}
		for _, k := range append(keys, d.StateKey("b#gcra")) {
			if err := d.conn.Set(ctx, k, "state", time.Minute).Err(); err != nil {
				t.Fatal(err)
			}
		}
		reset := assign.Reset{Keys: keys, Record: assign.Record{Subject: assigntest.Subject("api", "a")}, OnlyCounted: true}
		if done, err := d.Reset(ctx, reset); err != nil || len(done.Pending) > 0 || done.States != 2 {
			t.Fatalf("Reset: %+v, %v", done, err)
		}
		// Now there is nothing to forget, which is recorded only where it may be.
		if done, err := d.Reset(ctx, reset); err != nil || done.States != 0 || len(recordsOf(t, d)) != 1 {
			t.Errorf("Reset of nothing: %+v, %v; records %v", done, err, recordsOf(t, d))
		}
		reset.OnlyCounted = false
		if done, err := d.Reset(ctx, reset); err != nil || done.States != 0 || len(recordsOf(t, d)) != 2 {
			t.Errorf("Reset of nothing all the same: %+v, %v; records %v", done, err, recordsOf(t, d))
		}
		if n := d.conn.Exists(ctx, keys[0]).Val() + d.conn.Exists(ctx, keys[1]).Val(); n != 0 {
			t.Errorf("%d states are left", n)
		}
		for _, k := range keys {
			mark := string(bucket.AppendReset(nil, []byte(k)))
			if left := d.conn.PTTL(ctx, mark).Val(); left < bucket.MaxReservation-time.Minute || left > bucket.MaxReservation {
				t.Errorf("%s, by which bills from before are known, is left for %v", mark, left)
			}
		}
		if d.conn.Exists(ctx, d.StateKey("b#gcra")).Val() != 1 {
			t.Error("another state is gone")
		}
		other := c.Prefix + "{" + hashTags(32)[1] + "}:b"
		for _, bad := range [][]string{nil, {keys[0], other}, {"no tag"}, {c.Prefix + "{~fleet}"}} {
			if _, err := d.Reset(ctx, assign.Reset{Keys: bad, Record: assign.Record{Subject: assigntest.Subject("api", "a")}}); err == nil {
				t.Errorf("%v is reset", bad)
			}
		}
	})
}

func TestOnlyWhatIsMeantToStayHasNoExpiry(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, c redisconn.Options) {
		fill(t, startLoaded(t, c, redislog.Options{}), 100)
		for key, ttl := range everyKey(t, c) {
			stays := false
			for _, end := range []string{"~assigned", "~changes", "}~tags"} {
				stays = stays || len(key) > len(end) && key[len(key)-len(end):] == end
			}
			if stays != (ttl < 0) || ttl > time.Minute {
				t.Errorf("%s lives for %s", key, ttl)
			}
		}
	})
}
