package redislog_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"sync"
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

func TestMain(m *testing.M) { os.Exit(redistest.Run(m)) }

func textLog(b *asynctest.Buffer) *slog.Logger { return slog.New(slog.NewTextHandler(b, nil)) }

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

// key returns a key of the assignments.
func (d *daemon) key(name string) string { return d.conn.Prefix() + "{~assign}~" + name }

// StateKey implements assigntest.Store.
func (d *daemon) StateKey(name string) string { return d.conn.Prefix() + "{a}:" + name }

// often is how often daemons look for changes in tests that wait for that.
const often = 10 * time.Millisecond

// start starts a daemon, which the end of the test stops.
func start(t testing.TB, c redisconn.Options, o redislog.Options) *daemon {
	t.Helper()
	conn, err := redisconn.New(c)
	if err != nil {
		t.Fatal(err)
	}
	s := redislog.New(conn, o)
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

// fleetOf starts daemons.
func fleetOf(t testing.TB, n int, c redisconn.Options, o redislog.Options) (daemons []*daemon) {
	t.Helper()
	for i := range n {
		o.Name = fmt.Sprint("daemon-", i)
		daemons = append(daemons, startLoaded(t, c, o))
	}
	return daemons
}

func tenant(name string) assign.Subject { return assigntest.Subject("api", name) }

func plan(name, plan string) assign.Change { return assigntest.Plan(tenant(name), plan) }

func block(name string) assign.Change {
	return assigntest.Set(tenant(name), assign.Terms{Blocked: true}, 0)
}

// plans assign a plan to n tenants.
func plans(n int, of string) (changes []assign.Change) {
	for i := range n {
		changes = append(changes, plan(fmt.Sprint(i), of))
	}
	return changes
}

// planOf returns the plan that a daemon has for a tenant, or "".
func planOf(d *daemon, name string) string {
	if a := d.Table().Get(tenant(name)); a != nil {
		return a.Base.Plan
	}
	return ""
}

// inRedis returns the assignments that Redis has, by the text of their subjects; nil if it
// does not answer.
func inRedis(t testing.TB, d *daemon) map[string]assign.Assignment {
	t.Helper()
	fields, err := d.conn.HGetAll(context.Background(), d.key("assigned")).Result()
	if err != nil {
		return nil
	}
	all := make(map[string]assign.Assignment)
	for text, value := range fields {
		var id string
		var ms int64
		var body []byte
		if n, _ := fmt.Sscanf(value, "%s", &id); n == 1 && text != "~id" {
			fmt.Sscanf(id, "%d-", &ms)
			body = []byte(value[len(id)+1:])
			a, err := assign.Decode(body)
			if err != nil || a.Text() != text {
				t.Errorf("%q has %q: %v", text, value, err)
				continue
			}
			a.Stamp(id, ms*1000)
			all[text] = *a
		}
	}
	return all
}

// held returns what a daemon has in force, by the text of the subjects.
func held(d *daemon) map[string]assign.Assignment {
	all := make(map[string]assign.Assignment)
	for a := range d.Table().All() {
		all[a.Text()] = *a
	}
	return all
}

// converge waits until daemons have in force what Redis has, and returns it.
func converge(t testing.TB, daemons ...*daemon) (all map[string]assign.Assignment) {
	t.Helper()
	asynctest.Eventually(t, "all daemons have what Redis has", func() bool {
		all = inRedis(t, daemons[0])
		return all != nil && !slices.ContainsFunc(daemons, func(d *daemon) bool { return !reflect.DeepEqual(held(d), all) })
	})
	return all
}

func recordsOf(t testing.TB, d *daemon) []assign.Record {
	t.Helper()
	records, _, err := d.Records(context.Background(), assign.RecordQuery{Max: 1000})
	if err != nil {
		t.Fatal(err)
	}
	return records
}

func TestStoreInRedis(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, c redisconn.Options) {
		assigntest.Test(t, func(t *testing.T, o assigntest.Options) assigntest.Store {
			c := c
			c.Prefix = fmt.Sprintf("test-%x", rand.Uint64())
			return startLoaded(t, c, redislog.Options{MaxRecords: o.MaxRecords, MaxAssignments: o.MaxAssignments, Hooks: o.Hooks, Clock: o.Clock, Every: often})
		})
	})
}

// The daemon that makes a change has it when the command returns, and another one within
// 2 s, which is how often daemons look and what a look may take.
func TestChangeIsInForceWithinTwoSeconds(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, c redisconn.Options) {
		daemons := fleetOf(t, 2, c, redislog.Options{})
		const changes = 6
		late := 0
		for i := range changes {
			name := fmt.Sprint("p", i)
			d, other := daemons[i%2], daemons[1-i%2]
			assigntest.Apply(t, d, plan("acme", name))
			began := time.Now()
			if got := planOf(d, "acme"); got != name {
				t.Errorf("the daemon that made the change has %q", got)
			}
			asynctest.Eventually(t, "the other daemon has it", func() bool { return planOf(other, "acme") == name })
			if time.Since(began) > 2*time.Second {
				late++ // the machine is busy with other tests
			}
			if d.Change() != other.Change() {
				t.Errorf("they have followed %s and %s", d.Change(), other.Change())
			}
		}
		if late > changes/2 {
			t.Errorf("%d changes of %d took longer than 2 s", late, changes)
		}
	})
}

// Three daemons change the same subjects at the same time.
func TestDaemonsConverge(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, c redisconn.Options) {
		daemons := fleetOf(t, 3, c, redislog.Options{Every: often})
		var all sync.WaitGroup
		for i, d := range daemons {
			all.Go(func() {
				r := rand.New(rand.NewPCG(5, uint64(i)))
				for j := range 100 {
					name := fmt.Sprint(r.IntN(10))
					change := plan(name, fmt.Sprint(i, "-", j))
					if r.IntN(3) == 0 {
						change = assigntest.Delete(tenant(name))
					}
					want, _ := d.Apply(t.Context(), []assign.Change{change})
					if want[0].Outcome == assign.Unknown || want[0].Outcome == assign.Failed {
						t.Errorf("got %+v", want[0])
					}
				}
			})
		}
		all.Wait()
		last := make(map[string]*assign.Assignment)
		for _, r := range slices.Backward(recordsOf(t, daemons[0])) {
			if before := last[r.Text()]; (before == nil) != (r.Before == nil) || before != nil && before.Base.Plan != r.Before.Base.Plan {
				t.Errorf("%s: the record of %s replaces %+v, which was %+v", r.ID, r.Text(), r.Before, before)
			}
			last[r.Text()] = r.After
		}
		all2 := converge(t, daemons...)
		for text, a := range last {
			if got, isHeld := all2[text]; isHeld != (a != nil) || isHeld && !reflect.DeepEqual(&got, a) {
				t.Errorf("%s: %+v is in force, and its last record has %+v", text, got, a)
			}
		}
	})
}

// A daemon that has not followed the newest change yet goes by it all the same.
func TestChangeGoesByWhatRedisHas(t *testing.T) {
	t.Parallel()
	c := connOptions(redisconn.Single, redistest.Single(t))
	daemons := fleetOf(t, 2, c, redislog.Options{Every: time.Hour})
	first := assigntest.Apply(t, daemons[1], plan("acme", "pro"))[0]
	second := assigntest.Apply(t, daemons[0], plan("acme", "gold"))[0]
	if second.Outcome != assign.Replaced || second.Before.ETag != first.After.ETag {
		t.Fatalf("the second change: %+v", second)
	}
	undo, err := assign.Undo(recordsOf(t, daemons[1])[0])
	if err != nil {
		t.Fatal(err)
	}
	if r := assigntest.Apply(t, daemons[1], undo)[0]; r.Outcome != assign.Replaced || r.After.Base.Plan != "pro" {
		t.Errorf("what the other daemon changed is undone: %+v", r)
	}
	if r := assigntest.Apply(t, daemons[0], plan("acme", "gold"))[0]; r.Outcome != assign.Replaced {
		t.Errorf("what was undone meanwhile is changed: %+v", r)
	}
}

// Someone else writes into the keys. What cannot be read is passed over, and can be
// replaced.
func TestWhatIsForeignIsPassedOver(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	c := connOptions(redisconn.Single, redistest.Single(t))
	var log asynctest.Buffer
	d := startLoaded(t, c, redislog.Options{Log: textLog(&log), Every: often})
	assigntest.Apply(t, d, plans(100, "p")...)
	s := tenant("0")
	whole := string(assign.Encode(&assign.Assignment{Subject: s, Base: assign.Layer{Terms: assign.Terms{Plan: "p"}}}))
	for i, value := range []string{"", "x", "null", "1-1", "1-1 []", "1-1 " + whole[:len(whole)-1], "1-1 " + whole, "x " + whole} {
		d.conn.HSet(ctx, d.key("assigned"), fmt.Sprint("api|foreign=", i), value)
	}
	unreadable := tenant("unreadable")
	d.conn.HSet(ctx, d.key("assigned"), unreadable.Text(), "1-1 of a later version")
	for _, values := range [][]any{
		{"a", "b"}, {"p", d.Change(), "r", "{"}, {"p", "x", "r", "{}"},
	} {
		d.conn.XAdd(ctx, &redis.XAddArgs{Stream: d.key("changes"), Values: values})
		assigntest.Apply(t, d, plan("after", fmt.Sprint(values)))
	}
	if n := d.Table().Len(); n != 101 {
		t.Errorf("%d are in force, want 101", n)
	}
	want := assigntest.Apply(t, d, assigntest.Plan(unreadable, "p"))
	if want[0].Outcome != assign.Created {
		t.Errorf("got %+v", want[0])
	}
	if n := startLoaded(t, c, redislog.Options{}).Table().Len(); n != 102 {
		t.Errorf("%d are loaded, want 102", n)
	}
	if log.Count("cannot be read") == 0 {
		t.Errorf("nothing is logged: %s", log.String())
	}
	if _, _, err := d.Records(ctx, assign.RecordQuery{Max: 1000}); err != nil {
		t.Error(err)
	}
}

// The records are bounded, and a daemon that has missed more than are kept loads again.
func TestRecordsAreBounded(t *testing.T) {
	t.Parallel()
	c := connOptions(redisconn.Single, redistest.Single(t))
	o := redislog.Options{MaxRecords: 100, Every: often}
	var log asynctest.Buffer
	away, proxy := cutOff(t, c, redislog.Options{MaxRecords: 100, Every: often, Log: textLog(&log)})
	d := startLoaded(t, c, o)
	assigntest.Apply(t, d, plans(200, "p")...)
	converge(t, away)
	proxy.Drop()
	for i := range 10 {
		assigntest.Apply(t, d, plans(200, fmt.Sprint("p", i))...)
	}
	if n := d.conn.XLen(t.Context(), d.key("changes")).Val(); n < 100 || n > 1000 {
		t.Errorf("%d records are kept", n)
	}
	proxy.Heal(t)
	converge(t, away)
	if changes, _ := away.Losses(); changes != 0 {
		t.Errorf("%d changes are lost: %s", changes, log.String())
	}
}

// Only assignments and their records stay for good.
func TestOnlyWhatIsMeantToStayHasNoExpiry(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, c redisconn.Options) {
		assigntest.Apply(t, startLoaded(t, c, redislog.Options{Every: often}), plans(100, "p")...)
		n := 0
		for _, address := range c.Addresses {
			for key, end := range redistest.Keys(t, redistest.Client(t, address), c.Prefix) {
				n++
				if key != c.Prefix+"{~assign}~assigned" && key != c.Prefix+"{~assign}~changes" {
					t.Errorf("%s expires at %s", key, end)
				}
			}
		}
		if n != 2 {
			t.Errorf("%d keys", n)
		}
	})
}

// cutOff starts a daemon that reaches Redis through a proxy.
func cutOff(t *testing.T, c redisconn.Options, o redislog.Options) (*daemon, *redistest.Proxy) {
	t.Helper()
	proxy := redistest.StartProxy(t, c.Addresses[0])
	c.Addresses = []string{proxy.Addr()}
	c.Timeout = time.Second
	return startLoaded(t, c, o), proxy
}
