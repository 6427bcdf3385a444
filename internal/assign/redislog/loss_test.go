package redislog_test

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
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

// lose removes all that Redis has, as one does that comes back empty.
func (d *daemon) lose(t *testing.T) {
	t.Helper()
	if err := d.conn.Del(context.Background(), d.key("assigned"), d.key("changes"), d.key("restoring")).Err(); err != nil {
		t.Fatal(err)
	}
}

// dump returns a function that has Redis hold again what it holds now.
func (d *daemon) dump(t *testing.T) (restore func()) {
	t.Helper()
	ctx := context.Background()
	dumps := make(map[string]string)
	for _, name := range []string{"assigned", "changes"} {
		text, err := d.conn.Dump(ctx, d.key(name)).Result()
		if err != nil {
			t.Fatal(err)
		}
		dumps[d.key(name)] = text
	}
	return func() {
		t.Helper()
		for key, text := range dumps {
			if err := d.conn.RestoreReplace(ctx, key, 0, text).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// restored returns what the records say was put back, and by whom.
func restored(t *testing.T, d *daemon) (n []int, by []string) {
	t.Helper()
	for _, r := range recordsOf(t, d) {
		if r.Kind == assign.Restored {
			n, by = append(n, r.Restored), append(by, r.By)
		}
	}
	return n, by
}

// watchPlan fails the test if a daemon ever has another plan for a tenant, until the
// returned function is called.
func watchPlan(t *testing.T, d *daemon, name, plan string) (end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			if got := planOf(d, name); got != plan {
				t.Errorf("a daemon has the plan %q, and had %q", got, plan)
				return
			}
			time.Sleep(100 * time.Microsecond)
		}
	}()
	return func() { cancel(); <-done }
}

// Redis comes back empty. Three daemons keep what they have in force, and one of them puts
// it back, with what was made just before.
func TestWhatRedisLosesIsPutBack(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, c redisconn.Options) {
		daemons := fleetOf(t, 3, c, redislog.Options{Every: often})
		assigntest.Apply(t, daemons[0], plans(1200, "p")...)
		assigntest.Apply(t, daemons[1], assigntest.Delete(tenant("5")))
		want := converge(t, daemons...)
		for _, d := range daemons {
			defer watchPlan(t, d, "7", "p")()
		}
		for range 3 {
			daemons[0].lose(t)
			asynctest.Eventually(t, "all is back", func() bool { return len(inRedis(t, daemons[0])) == len(want) })
			if got := converge(t, daemons...); !reflect.DeepEqual(got, want) {
				t.Fatalf("%d are in force, and %d were", len(got), len(want))
			}
			if n, _ := restored(t, daemons[0]); len(n) != 1 || n[0] != len(want) {
				t.Errorf("put back: %d", n)
			}
			change := plan("new", "q")
			assigntest.Apply(t, daemons[2], change)
			want = converge(t, daemons...)
		}
		for _, d := range daemons {
			if changes, _ := d.Losses(); changes != 0 {
				t.Errorf("%d changes count as lost", changes)
			}
		}
	})
}

// A change that comes when Redis has just lost everything is made on top of what is put
// back.
func TestChangeOnTopOfALoss(t *testing.T) {
	t.Parallel()
	c := connOptions(redisconn.Single, redistest.Single(t))
	daemons := fleetOf(t, 2, c, redislog.Options{Every: time.Second})
	assigntest.Apply(t, daemons[0], plans(10, "p")...)
	daemons[0].lose(t)
	assigntest.Apply(t, daemons[0], plan("3", "q"))
	got := converge(t, daemons...)
	if len(got) != 10 || planOf(daemons[1], "3") != "q" || planOf(daemons[1], "4") != "p" {
		t.Errorf("in force are %v", got)
	}
}

// The daemons were restarted, and Redis lost everything. What the snapshot of one has is
// put back, also if a daemon without one has come first.
func TestSnapshotIsPutBack(t *testing.T) {
	t.Parallel()
	c := connOptions(redisconn.Single, redistest.Single(t))
	o := redislog.Options{CachePath: filepath.Join(t.TempDir(), "snapshot"), Where: "here", Every: often}
	d := startLoaded(t, c, o)
	assigntest.Apply(t, d, plans(1200, "p")...)
	assigntest.Apply(t, d, assigntest.Delete(tenant("5")), block("9"))
	want := converge(t, d)
	d.stop()
	fresh := startLoaded(t, c, redislog.Options{Every: often})
	fresh.lose(t)
	fresh.stop()
	fresh = startLoaded(t, c, redislog.Options{Every: often})
	if n := fresh.Table().Len(); n != 0 {
		t.Fatalf("%d are in force at an empty Redis", n)
	}
	d = startLoaded(t, c, o)
	if got := converge(t, d, fresh); !reflect.DeepEqual(got, want) {
		t.Errorf("%d are in force, and %d were", len(got), len(want))
	}
}

func TestSnapshotHoldsWhileRedisIsAway(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	c := connOptions(redisconn.Single, server.Addr())
	c.Timeout = time.Second
	o := redislog.Options{CachePath: filepath.Join(t.TempDir(), "snapshot"), Every: often}
	d := startLoaded(t, c, o)
	assigntest.Apply(t, d, plan("acme", "p"))
	d.stop()
	server.Kill()
	d = start(t, c, o)
	asynctest.Eventually(t, "the snapshot is in force", d.HasSnapshot)
	if planOf(d, "acme") != "p" || d.Loaded() {
		t.Errorf("loaded %t, in force %v", d.Loaded(), held(d))
	}
	server.Restart()
	asynctest.Eventually(t, "it is loaded", d.Loaded)
}

// A snapshot of another Redis, or one that is damaged, is not used, and is kept.
func TestSnapshotThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	c := connOptions(redisconn.Single, redistest.Single(t))
	path := filepath.Join(t.TempDir(), "snapshot")
	d := startLoaded(t, c, redislog.Options{CachePath: path, Where: "here", Every: often})
	assigntest.Apply(t, d, plans(10, "p")...)
	d.stop()
	good := readFile(t, path)
	lines := strings.SplitAfter(good, "\n")
	for name, text := range map[string]string{
		"elsewhere":   strings.Replace(good, `"where":"here"`, `"where":"there"`, 1),
		"torn":        strings.Join(lines[:len(lines)-3], ""),
		"no snapshot": "x\n" + good,
		"empty":       "",
		"damaged":     strings.Replace(good, `"plan"`, `"plam"`, 1),
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "snapshot")
			writeFile(t, path, text)
			c := c
			c.Prefix += name
			var log asynctest.Buffer
			d := startLoaded(t, c, redislog.Options{CachePath: path, Where: "here", Log: textLog(&log)})
			if n := d.Table().Len(); n != 0 || d.HasSnapshot() {
				t.Errorf("%d are in force", n)
			}
			if log.Count("is not used") != 1 || readFile(t, path+".unused") != text {
				t.Errorf("the log has %s", log.String())
			}
			if _, err := redislog.ReadSnapshot(path+".unused", "", func(*assign.Assignment) {}); (err == nil) != (name == "elsewhere") {
				t.Errorf("read by a command: %v", err)
			}
		})
	}
}

// A daemon dies while it puts back. Nobody takes the half for the whole: another daemon
// goes on instead, or one that knows nothing begins without it.
func TestHalfOfWhatIsPutBackIsNotTheWhole(t *testing.T) {
	t.Parallel()
	c := connOptions(redisconn.Single, redistest.Single(t))
	o := redislog.Options{Every: 50 * time.Millisecond}
	daemons := fleetOf(t, 2, c, o)
	dies, follows := daemons[0], daemons[1]
	assigntest.Apply(t, dies, plans(1200, "p")...)
	want := converge(t, daemons...)
	var isDead atomic.Bool
	isDead.Store(true) // the other one waits
	follows.conn.AddHook(newScriptHook(func(int64, redis.Cmder) error {
		if isDead.Load() {
			return context.DeadlineExceeded
		}
		return nil
	}))
	died := make(chan struct{})
	dies.conn.AddHook(newScriptHook(func(n int64, _ redis.Cmder) error {
		if n == 3 { // the second page
			close(died)
		}
		if n >= 3 {
			return context.DeadlineExceeded
		}
		return nil
	}))
	dies.lose(t)
	<-died
	dies.stop()
	if n := len(inRedis(t, follows)); n != 500 {
		t.Fatalf("%d were put back", n)
	}
	late := start(t, c, o)
	isDead.Store(false)
	asynctest.Eventually(t, "it is loaded", late.Loaded)
	if got := converge(t, follows, late); !reflect.DeepEqual(got, want) {
		t.Errorf("%d are in force, and %d were", len(got), len(want))
	}
}

// Redis loses again what was put back so far: it is put back from the beginning.
func TestWhatIsLostWhileItIsPutBack(t *testing.T) {
	t.Parallel()
	c := connOptions(redisconn.Single, redistest.Single(t))
	d := startLoaded(t, c, redislog.Options{Every: often})
	assigntest.Apply(t, d, plans(1200, "p")...)
	want := converge(t, d)
	d.conn.AddHook(newScriptHook(func(n int64, _ redis.Cmder) error {
		if n == 3 { // the second page
			return d.conn.Del(context.Background(), d.key("assigned")).Err()
		}
		return nil
	}))
	d.lose(t)
	asynctest.Eventually(t, "it is put back", func() bool { _, restored := d.Losses(); return restored > 0 })
	if got := converge(t, d); !reflect.DeepEqual(got, want) {
		t.Errorf("%d are in force, and %d were", len(got), len(want))
	}
}

// Of the views of three daemons the newest one is put back, whichever comes first.
func TestNewestViewIsPutBack(t *testing.T) {
	t.Parallel()
	for _, order := range [][]int{{0, 1, 2}, {2, 1, 0}, {1, 2, 0}} {
		t.Run(fmt.Sprint(order), func(t *testing.T) {
			t.Parallel()
			c := connOptions(redisconn.Single, redistest.Single(t))
			o := redislog.Options{Every: often, Where: "here"}
			paths := make([]string, 3) // of snapshots, from the oldest to the newest
			d := startLoaded(t, c, o)
			for i := range paths {
				assigntest.Apply(t, d, plan("acme", fmt.Sprint("p", i)), plan(fmt.Sprint(i), "p"))
				if i == 2 {
					assigntest.Apply(t, d, assigntest.Delete(tenant("0")))
				}
				paths[i] = filepath.Join(t.TempDir(), "snapshot")
				s := o
				s.CachePath = paths[i]
				saver := startLoaded(t, c, s)
				saver.stop()
			}
			want := converge(t, d)
			d.stop()
			empty := startLoaded(t, c, o)
			empty.lose(t)
			var daemons []*daemon
			for _, i := range order {
				s := o
				s.CachePath = paths[i]
				daemons = append(daemons, startLoaded(t, c, s))
			}
			asynctest.Eventually(t, "the newest view is in force", func() bool { return reflect.DeepEqual(held(empty), want) })
			if got := converge(t, daemons...); !reflect.DeepEqual(got, want) {
				t.Errorf("in force are %v, want %v", got, want)
			}
			for _, d := range daemons {
				if changes, _ := d.Losses(); changes != 0 {
					t.Errorf("%d changes count as lost", changes)
				}
			}
		})
	}
}

// Once something was changed after an older view was put back, that stays: a newer view
// is not put back, and what it has beyond is reported.
func TestChangeAfterAnOlderViewStays(t *testing.T) {
	t.Parallel()
	c := connOptions(redisconn.Single, redistest.Single(t))
	path := filepath.Join(t.TempDir(), "snapshot")
	var log asynctest.Buffer
	newer, proxy := cutOff(t, c, redislog.Options{Every: often, Log: textLog(&log)})
	assigntest.Apply(t, newer, plans(3, "p")...)
	saver := startLoaded(t, c, redislog.Options{Every: often, CachePath: path})
	saver.stop()
	assigntest.Apply(t, newer, plan("1", "q"), assigntest.Delete(tenant("2")))
	proxy.Drop()
	startLoaded(t, c, redislog.Options{Every: time.Hour}).lose(t)
	older := startLoaded(t, c, redislog.Options{Every: time.Hour, CachePath: path}) // puts back what it has
	assigntest.Apply(t, older, plan("0", "r"))
	proxy.Heal(t)
	got := converge(t, newer)
	if len(got) != 3 || planOf(newer, "0") != "r" || planOf(newer, "1") != "p" || planOf(newer, "2") != "p" {
		t.Errorf("in force are %v", got)
	}
	checkLost(t, newer, &log, "api|tenant=1", "api|tenant=2")
}

// checkLost checks that a daemon reports the changes of these subjects as lost.
func checkLost(t *testing.T, d *daemon, log *asynctest.Buffer, subjects ...string) {
	t.Helper()
	want := fmt.Sprintf(`changes=%d subjects="%v"`, len(subjects), subjects)
	asynctest.Eventually(t, "the loss is counted", func() bool { n, _ := d.Losses(); return n > 0 })
	if n, _ := d.Losses(); n != int64(len(subjects)) || log.Count(want) != 1 {
		t.Errorf("%d changes count as lost, want %s in:\n%s", n, want, log.String())
	}
}

// A failover loses the last changes, or an operator restores an older dump. What Redis has
// is in force, and daemons report what is gone: also those of which it is long ago, since
// they have it from the hash, and also what was unassigned.
func TestLostChangesAreReported(t *testing.T) {
	t.Parallel()
	c := connOptions(redisconn.Single, redistest.Single(t))
	logs := make([]asynctest.Buffer, 2)
	first := startLoaded(t, c, redislog.Options{Every: often, Log: textLog(&logs[0])})
	assigntest.Apply(t, first, plans(1000, "p")...)
	restore := first.dump(t)
	want := converge(t, first)
	assigntest.Apply(t, first, plan("1", "q"), plan("new", "q"), assigntest.Delete(tenant("2")), plan("3", "q"))
	second := startLoaded(t, c, redislog.Options{Every: often, Log: textLog(&logs[1])})
	assigntest.Apply(t, second, assigntest.Delete(tenant("4")), plan("3", "r"))
	converge(t, first, second)
	restore()
	asynctest.Eventually(t, "Redis is followed", func() bool { return planOf(first, "1") == "p" && planOf(second, "1") == "p" })
	if got := converge(t, first, second); !reflect.DeepEqual(got, want) {
		t.Errorf("%d are in force, want %d", len(got), len(want))
	}
	checkLost(t, first, &logs[0], "api|tenant=1", "api|tenant=2", "api|tenant=3", "api|tenant=4", "api|tenant=new")
	// The second one has loaded when the tenant 2 was unassigned already.
	checkLost(t, second, &logs[1], "api|tenant=1", "api|tenant=3", "api|tenant=4", "api|tenant=new")
}

// A failover loses the last second, and others change the same subjects before a daemon
// looks. The clock of the new master is behind, so the IDs of the new changes are smaller.
func TestChangesSinceAFailoverStay(t *testing.T) {
	t.Parallel()
	c := connOptions(redisconn.Single, redistest.Single(t))
	clock := asynctest.NewClock()
	var log asynctest.Buffer
	away, proxy := cutOff(t, c, redislog.Options{Every: often, Log: textLog(&log), Clock: clock.Micros})
	assigntest.Apply(t, away, plans(5, "p")...)
	d := startLoaded(t, c, redislog.Options{Every: time.Hour, Clock: clock.Micros})
	restore := d.dump(t)
	clock.Move(time.Hour)
	assigntest.Apply(t, away, plan("1", "lost"), plan("2", "lost"))
	proxy.Drop()
	restore()
	d.stop()
	clock.Move(-30 * time.Minute)
	d = startLoaded(t, c, redislog.Options{Every: often, Clock: clock.Micros})
	assigntest.Apply(t, d, plan("2", "since"), plan("3", "since"))
	proxy.Heal(t)
	converge(t, away, d)
	for name, want := range map[string]string{"1": "p", "2": "since", "3": "since"} {
		if got := planOf(away, name); got != want {
			t.Errorf("%s has %q, want %q", name, got, want)
		}
	}
	checkLost(t, away, &log, "api|tenant=1", "api|tenant=2")
}

// A tenant is unassigned, Redis loses everything and gets it back, and a daemon returns
// that was away all the time: it does not bring the assignment back.
func TestDaemonThatWasAwayBringsNothingBack(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, c redisconn.Options) {
		if c.Mode == redisconn.Cluster {
			t.Skip("the proxy is for one server") // and the rest is the same
		}
		away, proxy := cutOff(t, c, redislog.Options{Every: often})
		assigntest.Apply(t, away, plans(3, "p")...)
		daemons := fleetOf(t, 2, c, redislog.Options{Every: often})
		proxy.Drop()
		assigntest.Apply(t, daemons[0], assigntest.Delete(tenant("1")))
		want := converge(t, daemons...)
		daemons[0].lose(t)
		asynctest.Eventually(t, "it is put back", func() bool { n, _ := restored(t, daemons[0]); return len(n) == 1 })
		proxy.Heal(t)
		asynctest.Eventually(t, "it has caught up", func() bool { return away.Change() == daemons[0].Change() })
		if got := converge(t, away, daemons[0], daemons[1]); !maps.EqualFunc(got, want, func(a, b assign.Assignment) bool { return reflect.DeepEqual(a, b) }) {
			t.Errorf("in force are %v, want %v", got, want)
		}
	})
}

// The stream alone is lost, as when it is evicted: the assignments are whole.
func TestRecordsThatAreLostCostNoAssignment(t *testing.T) {
	t.Parallel()
	c := connOptions(redisconn.Single, redistest.Single(t))
	daemons := fleetOf(t, 2, c, redislog.Options{Every: often})
	assigntest.Apply(t, daemons[0], plans(10, "p")...)
	want := converge(t, daemons...)
	if err := daemons[0].conn.Del(t.Context(), daemons[0].key("changes")).Err(); err != nil {
		t.Fatal(err)
	}
	asynctest.Eventually(t, "they start again", func() bool { return daemons[0].Change() == "" && daemons[1].Change() == "" })
	assigntest.Apply(t, daemons[1], plan("new", "p"))
	got := converge(t, daemons...)
	if len(got) != len(want)+1 {
		t.Errorf("%d are in force", len(got))
	}
	// The hash alone is lost: it is put back.
	if err := daemons[0].conn.Del(t.Context(), daemons[0].key("assigned")).Err(); err != nil {
		t.Fatal(err)
	}
	asynctest.Eventually(t, "it is put back", func() bool { return reflect.DeepEqual(inRedis(t, daemons[0]), got) })
	for _, d := range daemons {
		if changes, _ := d.Losses(); changes != 0 {
			t.Errorf("%d changes count as lost", changes)
		}
	}
}

// The hash alone is lost, and a daemon that knows nothing comes before the others have
// noticed: what they have is put back all the same.
func TestDaemonThatKnowsNothingDoesNotReplaceTheOthers(t *testing.T) {
	t.Parallel()
	c := connOptions(redisconn.Single, redistest.Single(t))
	d := startLoaded(t, c, redislog.Options{Every: time.Second})
	assigntest.Apply(t, d, plans(10, "p")...)
	want := converge(t, d)
	if err := d.conn.Del(t.Context(), d.key("assigned")).Err(); err != nil {
		t.Fatal(err)
	}
	fresh := startLoaded(t, c, redislog.Options{Every: often})
	asynctest.Eventually(t, "it is put back", func() bool { return reflect.DeepEqual(held(fresh), want) })
	if got := converge(t, d, fresh); !reflect.DeepEqual(got, want) {
		t.Errorf("%d are in force, and %d were", len(got), len(want))
	}
}

// What has ended is not put back.
func TestWhatHasEndedIsNotPutBack(t *testing.T) {
	t.Parallel()
	c := connOptions(redisconn.Single, redistest.Single(t))
	clock := asynctest.NewClock()
	d := startLoaded(t, c, redislog.Options{Every: often, Clock: clock.Micros})
	assigntest.Apply(t, d, plan("stays", "p"), assigntest.Set(tenant("ends"), assign.Terms{Plan: "p"}, clock.Micros()+1))
	clock.Move(time.Second)
	d.lose(t)
	asynctest.Eventually(t, "it is put back", func() bool { return len(inRedis(t, d)) == 1 })
}
