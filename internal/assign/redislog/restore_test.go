package redislog_test

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
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

// assignedKeys are the keys of a tag that hold assignments or their changes.
func (d *daemon) assignedKeys(tag, kind string) string {
	return d.conn.Prefix() + "{" + tag + "}~" + kind
}

// lose removes keys of all tags, and those of the whole store, as a Redis does that
// comes back empty.
func (d *daemon) lose(t *testing.T, kinds ...string) {
	t.Helper()
	for _, tag := range hashTags(32) {
		for _, kind := range kinds {
			if err := d.conn.Del(context.Background(), d.assignedKeys(tag, kind)).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(kinds) > 1 {
		for _, key := range []string{"tags", "doorbell"} {
			_ = d.conn.Del(context.Background(), d.conn.Prefix()+"{~assign}~"+key).Err()
		}
	}
}

var everything = []string{"assigned", "changes", "seen"}

// held is what a daemon has in force, with who said so and when.
func held(d *daemon) map[string]assign.Assignment {
	all := make(map[string]assign.Assignment)
	for text, a := range inTable(d) {
		all[text] = *a
	}
	return all
}

// changeHalf removes a quarter of what a daemon has in force, and changes another one.
func changeHalf(t *testing.T, d *daemon) {
	t.Helper()
	i := 0
	for _, a := range inTable(d) {
		switch i++; i % 4 {
		case 0:
			assigntest.Apply(t, d, assigntest.Delete(a.Subject))
		case 1:
			assigntest.Apply(t, d, assigntest.Plan(a.Subject, "newer"))
		}
	}
}

// watchTable fails the test if a daemon ever has less than it had, until the returned
// function is called.
func watchTable(t *testing.T, d *daemon) (end func()) {
	t.Helper()
	n := d.Table().Len()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			if got := d.Table().Len(); got < n {
				t.Errorf("a daemon has %d assignments, and had %d", got, n)
				return
			}
			time.Sleep(100 * time.Microsecond)
		}
	}()
	return func() { cancel(); <-done }
}

// putBack returns how many assignments were put back, by the records of that.
func putBack(t *testing.T, d *daemon) (n int, by map[string]bool) {
	t.Helper()
	by = make(map[string]bool)
	for _, r := range recordsOf(t, d) {
		if r.Kind == assign.Restored {
			n += r.Restored
			by[r.By] = true
		}
	}
	return n, by
}

// Redis comes back empty, or loses a part. All daemons keep what is in force, and one
// of them puts it back.
func TestWhatRedisLosesIsPutBack(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, c redisconn.Options) {
		for _, lost := range [][]string{everything, {"assigned"}, {"changes"}, {"assigned", "changes"}} {
			t.Run(strings.Join(lost, ","), func(t *testing.T) {
				t.Parallel()
				c := c
				c.Prefix += strings.Join(lost, "")
				var log asynctest.Buffer
				daemons := fleetOf(t, 3, c, redislog.Options{Log: textLog(&log)})
				fill(t, daemons[0], 1000)
				var blocks []assign.Change
				for i := range 10 {
					blocks = append(blocks, assign.Change{Assignment: assign.Assignment{
						Subject: assigntest.Subject("api", fmt.Sprint("blocked-", i)), Terms: assign.Terms{Blocked: true}, By: "ann"}})
				}
				assigntest.Apply(t, daemons[1], blocks...)
				// Of the other subjects of its tag nothing is left.
				assigntest.Apply(t, daemons[1], assigntest.Delete(assigntest.Subject("api", "blocked-9")))
				converge(t, daemons...)
				before := held(daemons[0])
				var ends []func()
				for _, d := range daemons {
					ends = append(ends, watchTable(t, d))
				}
				daemons[2].lose(t, lost...)
				asynctest.Eventually(t, "Redis has all again", func() bool { return len(inRedis(t, daemons[0], 32)) == len(before) })
				converge(t, daemons...)
				// Changes go on.
				assigntest.Apply(t, daemons[2], assigntest.Plan(assigntest.Subject("api", "new"), "p"))
				for _, end := range ends {
					end()
				}
				fresh := startLoaded(t, c, redislog.Options{})
				after := held(fresh)
				delete(after, (&assign.Subject{Domain: "api", Entries: assigntest.Subject("api", "new").Entries}).Text())
				if !reflect.DeepEqual(after, before) {
					t.Errorf("a daemon that starts then has %d assignments, want the %d from before", len(after), len(before))
				}
				if slices.Contains(lost, "assigned") {
					// Tags are lost one by one, and another daemon may put back those that
					// were lost after the first has looked. Each is put back once.
					if n, by := putBack(t, fresh); n != len(before) || len(by) == 0 {
						t.Errorf("%d were put back by %v, want %d", n, by, len(before))
					}
					if log.Count("level=ERROR") < 2 || log.Count("as_of=") == 0 {
						t.Errorf("it was not told: %s", log.String())
					}
				}
			})
		}
	})
}

// A daemon that starts while others have not put back yet what Redis has lost does not
// take that for nothing.
func TestDaemonThatStartsWaitsForWhatIsPutBack(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, c redisconn.Options) {
		daemons := fleetOf(t, 2, c, redislog.Options{})
		fill(t, daemons[0], 200)
		converge(t, daemons...)
		before := held(daemons[0])
		// Nobody can put back while somebody else is at it.
		restorer := daemons[0].conn.Prefix() + "{~assign}~restorer"
		if err := daemons[0].conn.Set(t.Context(), restorer, "somebody", time.Minute).Err(); err != nil {
			t.Fatal(err)
		}
		daemons[0].lose(t, "assigned")
		awaited := func(context.Context) (redislog.Awaited, error) {
			return redislog.Awaited{IDs: []string{"daemon-0", "daemon-1", "fresh"}}, nil
		}
		var log asynctest.Buffer
		fresh := start(t, c, redislog.Options{ID: "fresh", Awaited: awaited, Log: textLog(&log)})
		asynctest.Eventually(t, "the daemon says why it is not loaded", func() bool { return log.Count("a daemon is putting them back") > 0 })
		if fresh.Loaded() {
			t.Error("it is loaded without what Redis has lost")
		}
		if err := daemons[0].conn.Del(t.Context(), restorer).Err(); err != nil {
			t.Fatal(err)
		}
		asynctest.Eventually(t, "the daemon is loaded", fresh.Loaded)
		if after := held(fresh); !reflect.DeepEqual(after, before) {
			t.Errorf("it has %d assignments, want %d", len(after), len(before))
		}
	})
}

// A daemon starts in the middle of a put-back of many assignments, and Redis loses them
// again in the middle of another. Neither takes a part for the whole.
func TestHalfOfWhatIsPutBackIsNotTheWhole(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name       string
		inTheMidst func(lose func(), start func() *daemon)
	}{
		{name: "a daemon starts", inTheMidst: func(_ func(), start func() *daemon) {
			fresh := start()
			for range 100 {
				if fresh.Loaded() {
					break
				}
				time.Sleep(10 * time.Millisecond)
			}
		}},
		{name: "Redis loses it again", inTheMidst: func(lose func(), _ func() *daemon) { lose() }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			conn := connOptions(redisconn.Single, redistest.Single(t))
			one := redislog.Options{HashTags: 1}
			d := startLoaded(t, conn, one)
			fill(t, d, 1000)
			before := held(d)
			redis := clientOf(t, conn)
			assigned, changes := d.assignedKeys(hashTags(1)[0], "assigned"), d.assignedKeys(hashTags(1)[0], "changes")
			lose := func() { redis.Del(context.Background(), assigned, changes) }
			startOne := func() *daemon { return start(t, conn, one) }
			var once sync.Once
			var isLost atomic.Bool
			d.conn.AddHook(afterScript{func() {
				if isLost.Load() && redis.HLen(context.Background(), assigned).Val() > 0 {
					once.Do(func() { c.inTheMidst(lose, startOne) })
				}
			}})
			isLost.Store(true)
			lose()
			asynctest.Eventually(t, "it is put back", func() bool {
				_, restored := d.Losses()
				return restored >= uint64(len(before))
			})
			fresh := startOne()
			asynctest.Eventually(t, "a daemon that starts then is loaded", fresh.Loaded)
			if !reflect.DeepEqual(held(fresh), before) || !reflect.DeepEqual(held(d), before) {
				t.Errorf("daemons have %d and %d assignments, want %d", fresh.Table().Len(), d.Table().Len(), len(before))
			}
		})
	}
}

// That the last assignment was removed is no loss, nor that there never was one.
func TestWhatWasRemovedIsNotPutBack(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, c redisconn.Options) {
		var log asynctest.Buffer
		daemons := fleetOf(t, 2, c, redislog.Options{Log: textLog(&log)})
		fill(t, daemons[0], 100)
		var gone []assign.Change
		for _, a := range inTable(daemons[0]) {
			gone = append(gone, assigntest.Delete(a.Subject))
		}
		assigntest.Apply(t, daemons[1], gone...)
		fresh := startLoaded(t, c, redislog.Options{})
		for _, d := range append(daemons, fresh) {
			if n := d.Table().Len(); n != 0 {
				t.Errorf("%d are in force after all were removed", n)
			}
		}
		daemons[0].lose(t, everything...)
		assigntest.Apply(t, daemons[1], assigntest.Plan(assigntest.Subject("api", "new"), "p"))
		for i, d := range append(daemons, fresh) {
			asynctest.Eventually(t, fmt.Sprintf("daemon %d has one", i), func() bool { return d.Table().Len() == 1 })
		}
		if n, _ := putBack(t, fresh); n > 1 {
			t.Errorf("%d were put back", n)
		}
	})
}

// cutOff is a daemon behind a proxy.
func cutOff(t *testing.T, c redisconn.Options, o redislog.Options) (*daemon, *redistest.Proxy) {
	t.Helper()
	proxy := redistest.StartProxy(t, c.Addresses[0])
	c.Addresses = []string{proxy.Addr()}
	c.Timeout = time.Second
	return startLoaded(t, c, o), proxy
}

// A daemon that was away when Redis lost all comes back. What it has is put back, but
// for what was changed since by somebody who knew nothing.
func TestChangesSinceTheLossStay(t *testing.T) {
	t.Parallel()
	c := connOptions(redisconn.Single, redistest.Single(t))
	away, proxy := cutOff(t, c, redislog.Options{ID: "away"})
	fill(t, away, 200)
	before := inTable(away)
	all := slices.SortedFunc(maps.Values(before), func(a, b *assign.Assignment) int { return strings.Compare(a.Text(), b.Text()) })
	proxy.Refuse()
	newcomer := start(t, c, redislog.Options{ID: "newcomer"})
	asynctest.Eventually(t, "the newcomer has them", func() bool { return newcomer.Table().Len() == len(before) })
	newcomer.stop()
	newcomer = start(t, c, redislog.Options{ID: "newcomer"})
	asynctest.Eventually(t, "it has started again", newcomer.Loaded)
	newcomer.stop()

	(&daemon{conn: clientOf(t, c)}).lose(t, everything...)
	newcomer = startLoaded(t, c, redislog.Options{ID: "newcomer"})
	if n := newcomer.Table().Len(); n != 0 {
		t.Fatalf("a daemon that knows nothing has %d", n)
	}
	want := map[string]string{}
	for _, a := range all {
		want[a.Text()] = a.Plan
	}
	for i, a := range all[:50] {
		assigntest.Apply(t, newcomer, assigntest.Plan(a.Subject, "since"))
		want[a.Text()] = "since"
		if i%2 == 0 {
			assigntest.Apply(t, newcomer, assigntest.Delete(a.Subject))
			delete(want, a.Text())
		}
	}
	fresh := assigntest.Subject("api", "created-since")
	assigntest.Apply(t, newcomer, assigntest.Plan(fresh, "since"))
	want[fresh.Text()] = "since"
	proxy.Heal(t)
	asynctest.Eventually(t, "all is there", func() bool { return len(inRedis(t, newcomer, 32)) == len(want) })
	converge(t, newcomer, away)
	got := map[string]string{}
	for text, a := range inTable(away) {
		got[text] = a.Plan
	}
	if !maps.Equal(got, want) {
		t.Errorf("%d are in force, want %d, or others", len(got), len(want))
	}
}

// clientOf returns a connection to Redis of its own.
func clientOf(t *testing.T, c redisconn.Options) *redisconn.Conn {
	t.Helper()
	conn, err := redisconn.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// Of two daemons that put back, the one with the newest change wins, whoever is first.
func TestTableWithTheNewestChangeIsPutBack(t *testing.T) {
	t.Parallel()
	for _, isFirst := range []string{"older", "newer"} {
		t.Run(isFirst, func(t *testing.T) {
			t.Parallel()
			c := connOptions(redisconn.Single, redistest.Single(t))
			older, olderProxy := cutOff(t, c, redislog.Options{ID: "older"})
			newer, newerProxy := cutOff(t, c, redislog.Options{ID: "newer"})
			fill(t, newer, 200)
			asynctest.Eventually(t, "both have them", func() bool { return reflect.DeepEqual(inTable(older), inTable(newer)) })
			olderProxy.Refuse()
			changeHalf(t, newer)
			want := inTable(newer)
			newerProxy.Refuse()
			(&daemon{conn: clientOf(t, c)}).lose(t, everything...)
			proxies, daemons := []*redistest.Proxy{olderProxy, newerProxy}, []*daemon{older, newer}
			if isFirst == "newer" {
				slices.Reverse(proxies)
				slices.Reverse(daemons)
			}
			proxies[0].Heal(t)
			asynctest.Eventually(t, "the first has put back", func() bool { return len(inRedis(t, daemons[0], 32)) == daemons[0].Table().Len() })
			proxies[1].Heal(t)
			asynctest.Eventually(t, "the newest are in force", func() bool {
				return reflect.DeepEqual(inTable(older), want) && reflect.DeepEqual(inTable(newer), want) && reflect.DeepEqual(inRedis(t, older, 32), want)
			})
		})
	}
}

// Redis loses all, a daemon that lacks the last changes puts back what it has, and Redis
// loses that too. What is put back again, whoever has it by then, is no newer for that than
// the changes that it lacks.
func TestWhatIsPutBackAgainIsNoNewer(t *testing.T) {
	t.Parallel()
	for name, again := range map[string]func(older *daemon, c redisconn.Options, o redislog.Options) *daemon{
		"by itself": func(older *daemon, _ redisconn.Options, _ redislog.Options) *daemon { return older },
		"by a daemon that has loaded it": func(older *daemon, c redisconn.Options, _ redislog.Options) *daemon {
			loaded := startLoaded(t, c, redislog.Options{ID: "loaded"})
			older.stop()
			return loaded
		},
		"from a snapshot": func(older *daemon, c redisconn.Options, o redislog.Options) *daemon {
			older.stop()
			(&daemon{conn: clientOf(t, c)}).lose(t, everything...)
			return start(t, c, o)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := connOptions(redisconn.Single, redistest.Single(t))
			redis := &daemon{conn: clientOf(t, c)}
			o := redislog.Options{ID: "older", CachePath: filepath.Join(t.TempDir(), "snapshot")}
			older, olderProxy := cutOff(t, c, o)
			newer, newerProxy := cutOff(t, c, redislog.Options{ID: "newer"})
			fill(t, newer, 200)
			asynctest.Eventually(t, "both have them", func() bool { return reflect.DeepEqual(inTable(older), inTable(newer)) })
			olderProxy.Refuse()
			changeHalf(t, newer)
			want := inTable(newer)
			newerProxy.Refuse()
			redis.lose(t, everything...)
			olderProxy.Heal(t)
			isPutBack := func(d *daemon) {
				t.Helper()
				asynctest.Eventually(t, "all is put back", func() bool { return len(inRedis(t, d, 32)) == d.Table().Len() && d.Table().Len() == 200 })
			}
			isPutBack(older)
			older = again(older, c, o)
			redis.lose(t, everything...)
			isPutBack(older)
			newerProxy.Heal(t)
			asynctest.Eventually(t, "the newest are in force", func() bool {
				return reflect.DeepEqual(inTable(older), want) && reflect.DeepEqual(inTable(newer), want) && reflect.DeepEqual(inRedis(t, older, 32), want)
			})
		})
	}
}

// Redis evicts the changes, so that a daemon knows none, and then loses the assignments.
func TestAssignmentsWithoutChangesArePutBack(t *testing.T) {
	t.Parallel()
	d := startLoaded(t, connOptions(redisconn.Single, redistest.Single(t)), redislog.Options{})
	fill(t, d, 100)
	want := inTable(d)
	d.lose(t, "changes")
	for range 2 { // it finds that they are gone, and loads the assignments
		if err := d.CatchUp(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	d.lose(t, everything...)
	asynctest.Eventually(t, "they are put back", func() bool { return reflect.DeepEqual(inRedis(t, d, 32), want) })
	assigntest.Apply(t, d, assigntest.Plan(assigntest.Subject("api", "7"), "newer"))
}

// Redis comes back with what it had some time ago, as from a snapshot of its own: what
// was changed since is put back.
func TestRedisThatGoesBackInTimeIsBroughtForward(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	c := connOptions(redisconn.Single, redistest.Single(t))
	d, proxy := cutOff(t, c, redislog.Options{})
	redis := clientOf(t, c)
	fill(t, d, 200)
	dumps := map[string]string{}
	for key := range redistest.Keys(t, redistest.Client(t, c.Addresses[0]), c.Prefix) {
		dumps[key] = redis.Dump(ctx, key).Val()
	}
	changeHalf(t, d)
	want := inTable(d)
	proxy.Refuse()
	for key, dump := range dumps {
		if err := redis.RestoreReplace(ctx, key, 0, dump).Err(); err != nil {
			t.Fatal(err)
		}
	}
	old := startLoaded(t, c, redislog.Options{})
	if n := old.Table().Len(); n != 200 {
		t.Fatalf("Redis went back to %d, want 200", n)
	}
	// What is changed now is newer than all that was before.
	since := assigntest.Subject("api", "0")
	assigntest.Apply(t, old, assigntest.Plan(since, "after"))
	want[since.Text()] = old.Table().Get(since)
	proxy.Heal(t)
	asynctest.Eventually(t, "all is brought forward", func() bool {
		return reflect.DeepEqual(inRedis(t, d, 32), want) && reflect.DeepEqual(inTable(d), want) && reflect.DeepEqual(inTable(old), want)
	})
}

// Redis loses the change that gave an assignment its end, which passes meanwhile. The
// older version without an end does not return.
func TestWhatHasEndedDoesNotReturn(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	c := connOptions(redisconn.Single, redistest.Single(t))
	d, proxy := cutOff(t, c, redislog.Options{})
	redis := clientOf(t, c)
	fill(t, d, 20)
	s := assigntest.Subject("api", "7")
	block := assign.Change{Assignment: assign.Assignment{Subject: s, Terms: assign.Terms{Blocked: true}, By: "ann"},
		Remove: assign.Parts{Rest: true}}
	assigntest.Apply(t, d, block)
	dumps := map[string]string{}
	for key := range redistest.Keys(t, redistest.Client(t, c.Addresses[0]), c.Prefix) {
		dumps[key] = redis.Dump(ctx, key).Val()
	}
	block.Assignment.BlockedUntil = time.Now().Add(time.Second).UnixMicro()
	assigntest.Apply(t, d, block)
	proxy.Refuse()
	for key, dump := range dumps {
		if err := redis.RestoreReplace(ctx, key, 0, dump).Err(); err != nil {
			t.Fatal(err)
		}
	}
	asynctest.Eventually(t, "it ends", func() bool { return d.Table().Get(s).Ended(time.Now().UnixMicro()) })
	proxy.Heal(t)
	asynctest.Eventually(t, "it is put back", func() bool { _, by := putBack(t, d); return len(by) == 1 })
	fresh := startLoaded(t, c, redislog.Options{})
	converge(t, d, fresh)
	if a := fresh.Table().Get(s).InForce(time.Now().UnixMicro()); a != nil {
		t.Errorf("in force is %+v, want nothing", a)
	}
}

// A failover loses changes, and the clock of the new master is behind. What is changed there
// by a daemon that does not know the lost ones has a smaller ID, and is newer all the same.
func TestChangesSinceTheLossStayWhereTheClockIsBehind(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	server, clock := redistest.StartWithClock(t)
	c := connOptions(redisconn.Single, server.Addr())
	d, proxy := cutOff(t, c, redislog.Options{ID: "away", HashTags: 1})
	redis := clientOf(t, c)
	one, two := assigntest.Subject("api", "1"), assigntest.Subject("api", "2")
	assigntest.Apply(t, d, assigntest.Plan(one, "old"), assigntest.Plan(two, "old"))
	dumps := map[string]string{}
	for key := range redistest.Keys(t, redistest.Client(t, c.Addresses[0]), c.Prefix) {
		dumps[key] = redis.Dump(ctx, key).Val()
	}
	clock.Set(time.Hour)
	assigntest.Apply(t, d, assigntest.Plan(one, "lost"), assigntest.Plan(two, "lost"))
	proxy.Refuse()
	clock.Set(0)
	for key, dump := range dumps {
		if err := redis.RestoreReplace(ctx, key, 0, dump).Err(); err != nil {
			t.Fatal(err)
		}
	}
	other := startLoaded(t, c, redislog.Options{ID: "other", HashTags: 1})
	assigntest.Apply(t, other, assigntest.Plan(one, "since"))
	proxy.Heal(t)
	hasPlan(t, other, two, "lost")
	hasPlan(t, d, two, "lost")
	for _, d := range []*daemon{d, other} {
		hasPlan(t, d, one, "since")
	}
}

// Assignments that an earlier version wrote have no epoch. They get one when they are
// loaded, and so are not lost either.
func TestAssignmentsOfAnEarlierVersionArePutBack(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	c := connOptions(redisconn.Single, redistest.Single(t))
	d := startLoaded(t, c, redislog.Options{})
	fill(t, d, 100)
	want := inTable(d)
	d.stop()
	redis := clientOf(t, c)
	for _, tag := range hashTags(32) {
		redis.HDel(ctx, c.Prefix+"{"+tag+"}~assigned", "~epoch")
	}
	d = startLoaded(t, c, redislog.Options{})
	d.lose(t, everything...)
	asynctest.Eventually(t, "they are put back", func() bool { return reflect.DeepEqual(inRedis(t, d, 32), want) })
}

// Redis evicts the changes and leaves the assignments, which are whole. A daemon that was
// away then does not put what it has over them, whether or not the daemon that changes
// more had seen that its changes are gone.
func TestDaemonThatWasAwayPutsBackNothingOlder(t *testing.T) {
	t.Parallel()
	for name, looks := range map[string]int{"seen": 2, "not seen": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := connOptions(redisconn.Single, redistest.Single(t))
			away, proxy := cutOff(t, c, redislog.Options{ID: "away"})
			d := startLoaded(t, c, redislog.Options{ID: "there"})
			fill(t, away, 50)
			asynctest.Eventually(t, "both have them", func() bool { return reflect.DeepEqual(inTable(away), inTable(d)) })
			proxy.Refuse()
			block := assign.Change{Assignment: assign.Assignment{Subject: assigntest.Subject("api", "7"), Terms: assign.Terms{Blocked: true}, By: "ann"}}
			assigntest.Apply(t, d, block, assigntest.Plan(assigntest.Subject("api", "later"), "p"), assigntest.Delete(assigntest.Subject("api", "8")))
			d.lose(t, "changes")
			for range looks {
				if err := d.CatchUp(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			var since []assign.Change
			for i := range 500 { // some for each tag
				since = append(since, assigntest.Plan(assigntest.Subject("api", fmt.Sprint("since-", i)), "p"))
			}
			assigntest.Apply(t, d, since...)
			want := converge(t, d)
			if len(want) != 550 || want[block.Assignment.Text()] == nil || want[block.Assignment.Text()].Plan != "p" || !want[block.Assignment.Text()].Blocked {
				t.Errorf("%d are in force, want 550, one with a plan and blocked", len(want))
			}
			proxy.Heal(t)
			asynctest.Eventually(t, "it has the change since", func() bool { return away.Table().Get(since[0].Assignment.Subject) != nil })
			if got := converge(t, away, d); !reflect.DeepEqual(got, want) {
				t.Errorf("%d are in force, want the same %d as before", len(got), len(want))
			}
			if _, by := putBack(t, d); len(by) > 0 {
				t.Errorf("%v put back what was not lost", by)
			}
		})
	}
}

// Redis loses the last changes of a subject. What is changed of it then is changed on top
// of these.
func TestChangeOnTopOfWhatRedisLost(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	c := connOptions(redisconn.Single, redistest.Single(t))
	d := startLoaded(t, c, redislog.Options{})
	fill(t, d, 200)
	redis, server := clientOf(t, c), redistest.Client(t, c.Addresses[0])
	for i := range 10 {
		pipe := redis.TxPipeline()
		for key := range redistest.Keys(t, server, c.Prefix) {
			if strings.HasSuffix(key, "assigned") || strings.HasSuffix(key, "changes") {
				pipe.RestoreReplace(ctx, key, 0, redis.Dump(ctx, key).Val())
			}
		}
		s := assigntest.Subject("api", fmt.Sprint(i))
		assigntest.Apply(t, d, assign.Change{Assignment: assign.Assignment{Subject: s, Terms: assign.Terms{Blocked: true}, By: "ann"}})
		asynctest.Eventually(t, "it is blocked", func() bool { return d.Table().Get(s).Blocked })
		if _, err := pipe.Exec(ctx); err != nil {
			t.Fatal(err)
		}
		assigntest.Apply(t, d, assign.Change{Assignment: assign.Assignment{Subject: s, Terms: assign.Terms{Plan: "since"}, By: "ann"}})
		converge(t, d)
		if a := inRedis(t, d, 32)[s.Text()]; !a.Blocked || a.Plan != "since" {
			t.Fatalf("subject %d has the plan %s, and is blocked: %v; want since, and true", i, a.Plan, a.Blocked)
		}
	}
}

// Redis loses all, and a daemon that lacks the last changes puts back what it has. A daemon
// that has them changes nothing on top of that before it has put them back too.
func TestChangeOnTopOfWhatAnOlderDaemonPutBack(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	c := connOptions(redisconn.Single, redistest.Single(t))
	older, olderProxy := cutOff(t, c, redislog.Options{ID: "older"})
	newer, newerProxy := cutOff(t, c, redislog.Options{ID: "newer"})
	fill(t, newer, 200)
	asynctest.Eventually(t, "both have them", func() bool { return reflect.DeepEqual(inTable(older), inTable(newer)) })
	olderProxy.Refuse()
	s := assigntest.Subject("api", "7")
	assigntest.Apply(t, newer, assign.Change{Assignment: assign.Assignment{Subject: s, Terms: assign.Terms{Blocked: true}, By: "ann"}})
	newerProxy.Refuse()
	redis := clientOf(t, c)
	(&daemon{conn: redis}).lose(t, everything...)
	olderProxy.Heal(t)
	asynctest.Eventually(t, "the older one has put back", func() bool { return len(inRedis(t, older, 32)) == 200 })
	// Nobody can put back while somebody else is at it.
	restorer := c.Prefix + "{~assign}~restorer"
	asynctest.Eventually(t, "somebody else is at it", func() bool { return redis.SetNX(ctx, restorer, "somebody", time.Minute).Val() })
	newerProxy.Heal(t)
	time.AfterFunc(500*time.Millisecond, func() { redis.Del(ctx, restorer) })
	asynctest.Eventually(t, "a plan is assigned", func() bool {
		applied, err := newer.Apply(ctx, []assign.Change{assigntest.Plan(s, "since")})
		return err == nil && len(applied.Pending) == 0
	})
	converge(t, older, newer)
	if a := inRedis(t, newer, 32)[s.Text()]; !a.Blocked || a.Plan != "since" {
		t.Errorf("the subject has the plan %s, and is blocked: %v; want since, and true", a.Plan, a.Blocked)
	}
}

// Redis loses all, and a daemon that lacks the last changes puts back what it has. What is
// changed through it then stays, part by part, when a daemon with newer ones comes back.
func TestPartsThatAreChangedOnTopOfAnOlderPutBack(t *testing.T) {
	t.Parallel()
	c := connOptions(redisconn.Single, redistest.Single(t))
	older, olderProxy := cutOff(t, c, redislog.Options{ID: "older"})
	newer, newerProxy := cutOff(t, c, redislog.Options{ID: "newer"})
	blocked := assign.Terms{Blocked: true}
	free := assign.Terms{Unlimited: true}
	numbers := assign.Terms{Numbers: []assign.Numbers{{Limit: "month", Requests: 5}}}
	plan := func(name string) assign.Terms { return assign.Terms{Plan: name} }
	type step struct {
		set    assign.Terms
		remove assign.Parts
	}
	cases := map[string]struct {
		before, newer, since []step
		outcome              assign.Outcome // of the last one since
		want                 assign.Terms
	}{
		"a plan beside a newer block": {
			before: []step{{set: plan("old")}}, newer: []step{{set: blocked}}, since: []step{{set: plan("since")}},
			outcome: assign.Replaced, want: assign.Terms{Plan: "since", Blocked: true},
		},
		"a block beside a newer plan": {
			before: []step{{set: plan("old")}}, newer: []step{{set: plan("newer")}}, since: []step{{set: blocked}},
			outcome: assign.Replaced, want: assign.Terms{Plan: "newer", Blocked: true},
		},
		"all but the block": {
			before: []step{{set: plan("old")}}, newer: []step{{set: blocked}, {set: numbers}, {set: plan("newer")}},
			since:   []step{{set: free, remove: assign.Parts{Rest: true}}},
			outcome: assign.Replaced, want: assign.Terms{Unlimited: true, Blocked: true},
		},
		"numbers of a limit": {
			before: []step{{set: numbers}}, newer: []step{{set: plan("newer")}},
			since:   []step{{remove: assign.Parts{Limits: []string{"month"}}}},
			outcome: assign.Deleted, want: plan("newer"),
		},
		"one part of what newer changes ended": {
			before: []step{{set: plan("old")}}, newer: []step{{remove: assign.AllParts()}}, since: []step{{set: blocked}},
			outcome: assign.Replaced, want: blocked,
		},
		"a block that is there, and has ended since": {
			before: []step{{set: blocked}}, newer: []step{{remove: assign.Parts{Block: true}}}, since: []step{{set: blocked}},
			outcome: assign.Unchanged, want: blocked,
		},
		"a block that is there beside a newer plan": {
			before: []step{{set: blocked}}, newer: []step{{set: plan("newer")}}, since: []step{{set: blocked}},
			outcome: assign.Unchanged, want: assign.Terms{Plan: "newer", Blocked: true},
		},
		"the end of what is not there yet": {
			newer: []step{{set: plan("newer")}}, since: []step{{remove: assign.AllParts()}},
			outcome: assign.Unchanged,
		},
		"the end of a part beside another that is not there yet": {
			newer: []step{{set: plan("newer")}, {set: blocked}}, since: []step{{remove: assign.Parts{Block: true}}},
			outcome: assign.Unchanged, want: plan("newer"),
		},
		"two parts, one after the other": {
			newer: []step{{set: plan("newer")}, {set: free}, {set: numbers}}, since: []step{{set: blocked}, {set: plan("since")}},
			outcome: assign.Replaced, want: assign.Terms{Plan: "since", Unlimited: true, Blocked: true, Numbers: numbers.Numbers},
		},
	}
	do := func(d *daemon, name string, steps []step) (o assign.Outcome) {
		t.Helper()
		for _, step := range steps {
			o = assigntest.Apply(t, d, assign.Change{Remove: step.remove, Assignment: assign.Assignment{
				Subject: assigntest.Subject("api", name), Terms: step.set, By: "ann"}})[0].Outcome
		}
		return o
	}
	fill(t, newer, 200)
	for name, c := range cases {
		do(newer, name, c.before)
	}
	asynctest.Eventually(t, "both have them", func() bool { return reflect.DeepEqual(inTable(older), inTable(newer)) })
	olderProxy.Refuse()
	for name, c := range cases {
		do(newer, name, c.newer)
	}
	newerProxy.Refuse()
	before := inTable(older)
	(&daemon{conn: clientOf(t, c)}).lose(t, everything...)
	olderProxy.Heal(t)
	asynctest.Eventually(t, "the older one has put back", func() bool { return reflect.DeepEqual(inRedis(t, older, 32), before) })
	for name, c := range cases {
		if got := do(older, name, c.since); got != c.outcome {
			t.Errorf("%s: the outcome is %v, want %v", name, got, c.outcome)
		}
	}
	newerProxy.Heal(t)
	asynctest.Eventually(t, "the newer one has put back", func() bool { _, by := putBack(t, older); return by["newer"] })
	converge(t, older, newer)
	for name, c := range cases {
		got := assign.Terms{}
		if a := older.Table().Get(assigntest.Subject("api", name)); a != nil {
			got = a.Terms
		}
		if len(got.Numbers) == 0 {
			got.Numbers = nil
		}
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: in force is %+v, want %+v", name, got, c.want)
		}
	}
}

// All of a domain is ended by what an older daemon has put back. What a daemon with newer
// ones brings of it then has ended too, but for what was assigned since.
func TestRestOfADomainEndsOnTopOfAnOlderPutBack(t *testing.T) {
	t.Parallel()
	c := connOptions(redisconn.Single, redistest.Single(t))
	older, olderProxy := cutOff(t, c, redislog.Options{ID: "older"})
	newer, newerProxy := cutOff(t, c, redislog.Options{ID: "newer"})
	fill(t, newer, 200)
	asynctest.Eventually(t, "both have them", func() bool { return reflect.DeepEqual(inTable(older), inTable(newer)) })
	olderProxy.Refuse()
	both := func(domain, name string) assign.Change {
		return assign.Change{Assignment: assign.Assignment{Subject: assigntest.Subject(domain, name), Terms: assign.Terms{Plan: "newer", Blocked: true}, By: "ann"}}
	}
	for i := range 20 {
		assigntest.Apply(t, newer, both("api", fmt.Sprint("new-", i)), both("other", fmt.Sprint("new-", i)))
	}
	newerProxy.Refuse()
	(&daemon{conn: clientOf(t, c)}).lose(t, everything...)
	olderProxy.Heal(t)
	asynctest.Eventually(t, "the older one has put back", func() bool { return reflect.DeepEqual(inRedis(t, older, 32), inTable(older)) })
	var all []assign.Change
	for _, a := range inTable(older) {
		if a.Domain == "api" {
			all = append(all, assigntest.Delete(a.Subject))
		}
	}
	all = append(all, assign.Change{Assignment: assign.Assignment{Subject: assign.Subject{Domain: "api"}, By: "ann"}, Remove: assign.Parts{Rest: true}, RestOfDomain: true})
	results := assigntest.Apply(t, older, all...)
	if got := results[len(results)-1].Outcome; got != assign.Unchanged {
		t.Errorf("the outcome of the rest is %v, want %v", got, assign.Unchanged)
	}
	assigntest.Apply(t, older, assigntest.Plan(assigntest.Subject("api", "new-7"), "since"))
	newerProxy.Heal(t)
	has := func(domain string, i int, want assign.Terms) func() bool {
		return func() bool {
			a := older.Table().Get(assigntest.Subject(domain, fmt.Sprint("new-", i)))
			return a != nil && a.Plan == want.Plan && a.Blocked == want.Blocked
		}
	}
	for i := range 20 {
		want := assign.Terms{Blocked: true}
		if i == 7 {
			want.Plan = "since"
		}
		asynctest.Eventually(t, fmt.Sprintf("what was ended of %d has ended", i), has("api", i, want))
		asynctest.Eventually(t, fmt.Sprintf("%d of another domain is there", i), has("other", i, assign.Terms{Plan: "newer", Blocked: true}))
	}
	converge(t, older, newer)
	if n := older.Table().Count("api"); n != 20 {
		t.Errorf("%d are in force, want 20", n)
	}
}

// What changes nothing is recorded where something was put back, once for each subject, and
// is not shown. Elsewhere it is not recorded.
func TestWhatChangesNothingIsRecordedOnceAfterALoss(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	c := connOptions(redisconn.Single, redistest.Single(t))
	d := startLoaded(t, c, redislog.Options{HashTags: 1})
	subject := assigntest.Subject("api", "acme")
	plan := assigntest.Plan(subject, "pro")
	block := assign.Change{Assignment: assign.Assignment{Subject: subject, Terms: assign.Terms{Blocked: true}, By: "ann"}}
	both := assigntest.Plan(subject, "pro")
	both.Assignment.Blocked = true
	changes := d.assignedKeys(hashTags(1)[0], "changes")
	length := func() int64 { return d.conn.XLen(ctx, changes).Val() }
	assigntest.Apply(t, d, both, plan, block)
	if n := length(); n != 1 {
		t.Errorf("without a loss there are %d records, want 1", n)
	}
	if err := d.conn.Del(ctx, d.assignedKeys(hashTags(1)[0], "assigned"), changes).Err(); err != nil {
		t.Fatal(err)
	}
	asynctest.Eventually(t, "it is put back", func() bool { _, restored := d.Losses(); return restored == 1 })
	shown := len(recordsOf(t, d))
	for i, change := range []assign.Change{plan, plan, block, block, both, both} {
		r := assigntest.Apply(t, d, change)[0]
		if r.Outcome != assign.Unchanged || r.After.ETag != d.Table().Get(subject).ETag {
			t.Errorf("change %d: the outcome is %v, and %+v is in force", i, r.Outcome, r.After)
		}
	}
	if n := length(); n != 4 {
		t.Errorf("after a loss there are %d records, want that of the put-back and 3 more", n)
	}
	if n := len(recordsOf(t, d)); n != shown {
		t.Errorf("%d records are shown, want %d", n, shown)
	}
}

// Redis loses the assignments and keeps their changes. Those that a daemon has not read
// yet are put back too.
func TestChangesThatAreNotReadYetArePutBack(t *testing.T) {
	t.Parallel()
	c := connOptions(redisconn.Single, redistest.Single(t))
	away, proxy := cutOff(t, c, redislog.Options{ID: "away"})
	fill(t, away, 500) // of all tags
	proxy.Refuse()
	d := startLoaded(t, c, redislog.Options{ID: "there"})
	var since []assign.Change
	for i := range 400 {
		since = append(since, assigntest.Plan(assigntest.Subject("api", fmt.Sprint(2*i)), "since"))
	}
	assigntest.Apply(t, d, append(since, assigntest.Delete(assigntest.Subject("api", "7")))...)
	want := inTable(d)
	d.stop()
	(&daemon{conn: clientOf(t, c)}).lose(t, "assigned")
	proxy.Heal(t)
	asynctest.Eventually(t, "all is there", func() bool { return reflect.DeepEqual(inRedis(t, away, 32), want) })
	if got := inTable(away); !reflect.DeepEqual(got, want) {
		t.Errorf("%d are in force, want %d, or others", len(got), len(want))
	}
}

// beforeScript calls a function before a script runs.
type beforeScript struct{ do func() }

func (beforeScript) DialHook(next redis.DialHook) redis.DialHook { return next }

func (beforeScript) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (b beforeScript) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if strings.HasPrefix(cmds[0].Name(), "eval") {
			b.do()
		}
		return next(ctx, cmds)
	}
}

// afterScript calls a function once, after a script has run, before its caller has the
// reply.
type afterScript struct{ do func() }

func (afterScript) DialHook(next redis.DialHook) redis.DialHook { return next }

func (afterScript) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (a afterScript) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		if strings.HasPrefix(cmds[0].Name(), "eval") {
			a.do()
		}
		return err
	}
}

// Redis loses a change before any daemon has read it, and what is written since has a
// later ID. The change is not told as done, since nobody puts it back.
func TestChangeThatIsLostBeforeAnybodyHasItIsNotDone(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, c redisconn.Options) {
		daemons := fleetOf(t, 2, c, redislog.Options{})
		subject := assigntest.Subject("api", "a")
		assigntest.Apply(t, daemons[0], assigntest.Plan(subject, "old"))
		converge(t, daemons...)
		var once sync.Once
		maker := startLoaded(t, c, redislog.Options{ID: "maker"})
		maker.conn.AddHook(afterScript{func() { once.Do(func() { daemons[1].lose(t, everything...) }) }})
		applied, err := maker.Apply(t.Context(), []assign.Change{assigntest.Plan(subject, "new")})
		// A daemon may be quick enough to have it, and put it back.
		held := maker.Table().Get(subject)
		if isInForce := held != nil && held.Plan == "new"; !isInForce && (applied.Results[0].Outcome != assign.Unknown || err == nil) {
			t.Errorf("it is told as %+v, %v, and is not in force", applied, err)
		}
	})
}
