package redislog_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"reflect"
	"slices"
	"strconv"
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

// inRedis returns the assignments that Redis has, by the text of their subjects, and
// fails if one of them is not whole.
func inRedis(t testing.TB, d *daemon, tags int) map[string]*assign.Assignment {
	t.Helper()
	all := make(map[string]*assign.Assignment)
	for _, tag := range hashTags(tags) {
		fields, err := d.conn.HGetAll(context.Background(), d.conn.Prefix()+"{"+tag+"}~assigned").Result()
		if err != nil {
			return nil // the caller asks again
		}
		delete(fields, "~epoch")
		delete(fields, "~restorer")
		for text, value := range fields {
			a, err := assign.Decode([]byte(value))
			if err != nil || a.Text() != text || a.ETag == "" || a.At == 0 {
				t.Errorf("%q has %q: %v", text, value, err)
				continue
			}
			all[text] = a
		}
	}
	return all
}

func inTable(d *daemon) map[string]*assign.Assignment {
	all := make(map[string]*assign.Assignment)
	for a := range d.Table().All() {
		all[a.Text()] = a
	}
	return all
}

// converge waits until daemons have in force what Redis has.
func converge(t testing.TB, daemons ...*daemon) map[string]*assign.Assignment {
	t.Helper()
	var held map[string]*assign.Assignment
	// All at one look: what one of them puts back, the others have a little later.
	asynctest.Eventually(t, "all daemons have what Redis has", func() bool {
		held = inRedis(t, daemons[0], 32)
		return held != nil && !slices.ContainsFunc(daemons, func(d *daemon) bool { return !reflect.DeepEqual(inTable(d), held) })
	})
	return held
}

// checkRecords holds the newest record of each subject against what is in force: both
// change together or not at all. What Redis lost and daemons have put back has one record
// for all of it.
func checkRecords(t testing.TB, d *daemon, held map[string]*assign.Assignment) {
	t.Helper()
	newest := map[string]*assign.Assignment{}
	for q := (assign.RecordQuery{Max: 1000}); ; {
		var page []assign.Record
		var next string
		asynctest.Eventually(t, "a page of records", func() bool {
			var err error
			page, next, err = d.Records(context.Background(), q)
			return err == nil
		})
		for _, r := range page {
			if r.Kind == assign.Restored {
				return
			}
			if _, known := newest[r.Text()]; !known {
				newest[r.Text()] = r.After
			}
		}
		if q.After = next; next == "" {
			break
		}
	}
	for text, after := range newest {
		if !reflect.DeepEqual(after, held[text]) {
			t.Errorf("%s: in force is %+v, and its newest record has %+v", text, held[text], after)
		}
	}
	for text := range held {
		if _, known := newest[text]; !known {
			t.Errorf("%s is in force without a record", text)
		}
	}
}

// TestFollowersConverge has three daemons change the same subjects at the same time.
func TestFollowersConverge(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, c redisconn.Options) {
		daemons := fleetOf(t, 3, c, redislog.Options{})
		var all sync.WaitGroup
		for i, d := range daemons {
			all.Go(func() {
				r := rand.New(rand.NewPCG(5, uint64(i)))
				for range 15 {
					var changes []assign.Change
					for range 40 {
						s := assigntest.Subject("api", fmt.Sprint(r.IntN(100)))
						if r.IntN(3) == 0 {
							changes = append(changes, assigntest.Delete(s))
						} else {
							changes = append(changes, assigntest.Plan(s, fmt.Sprint(i, r.Uint64())))
						}
					}
					if _, err := d.Apply(context.Background(), changes); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		checkRecords(t, daemons[0], converge(t, daemons...))
	})
}

// Each time that a daemon sends a change, another one has just changed something else of
// the same hash tag. That holds up nobody, unless it is the same subject.
func TestChangesOfOtherSubjectsHoldUpNobody(t *testing.T) {
	t.Parallel()
	c := connOptions(redisconn.Single, redistest.Single(t))
	one := redislog.Options{HashTags: 1}
	d, other := startLoaded(t, c, one), startLoaded(t, c, one)
	mine := assigntest.Subject("api", "mine")
	var subject atomic.Pointer[assign.Subject]
	var n atomic.Int64
	d.conn.AddHook(beforeScript{func() {
		if s := subject.Load(); s != nil {
			assigntest.Apply(t, other, assigntest.Plan(*s, fmt.Sprint(n.Add(1))))
		}
	}})
	assigntest.Apply(t, d, assigntest.Plan(mine, "first"))

	others := assigntest.Subject("api", "other")
	subject.Store(&others)
	assigntest.Apply(t, d, assigntest.Plan(mine, "second"))
	hasPlan(t, other, mine, "second")
	subject.Store(&mine)
	if applied, err := d.Apply(t.Context(), []assign.Change{assigntest.Plan(mine, "third")}); err == nil {
		t.Errorf("a change of a subject that others change all the time is %v", applied.Results[0].Outcome)
	}
	subject.Store(nil)
	hasPlan(t, d, mine, fmt.Sprint(n.Load()))
}

// TestLostChangesAreMended takes from Redis what a failover may lose, and more.
func TestLostChangesAreMended(t *testing.T) {
	t.Parallel()
	c := connOptions(redisconn.Single, redistest.Single(t))
	daemons := fleetOf(t, 2, c, redislog.Options{})
	fill(t, daemons[0], 300)
	ctx := context.Background()
	r := redistest.Client(t, c.Addresses[0])
	keys := func(i int) (assigned, changes string) {
		head := c.Prefix + "{" + hashTags(32)[i] + "}~"
		return head + "assigned", head + "changes"
	}
	for i := range 32 {
		assigned, changes := keys(i)
		fields := r.HKeys(ctx, assigned).Val()
		switch i % 4 {
		case 0: // all of it is lost
			r.Del(ctx, assigned, changes)
		case 1: // the newest changes are lost
			newest := r.XRevRangeN(ctx, changes, "+", "-", 2).Val()
			for _, m := range newest {
				r.HDel(ctx, assigned, fields[0])
				// XDEL leaves the ID that the stream gave last, which a replica
				// without these changes does not have.
				r.XDel(ctx, changes, m.ID)
			}
		case 2: // the log is lost
			r.Del(ctx, changes)
		}
	}
	converge(t, daemons...)
	// It goes on from there.
	fill(t, daemons[1], 400)
	if held := converge(t, daemons...); len(held) != 400 {
		t.Errorf("%d are in force, want 400", len(held))
	}
}

// TestLostDoorbellCostsNoMoreThanTime has the doorbell's key taken by something else.
func TestLostDoorbellCostsNoMoreThanTime(t *testing.T) {
	t.Parallel()
	c := connOptions(redisconn.Single, redistest.Single(t))
	r := redistest.Client(t, c.Addresses[0])
	r.Set(context.Background(), c.Prefix+"{~assign}~doorbell", "foreign", 0)
	ids := []string{"a", "b"}
	o := redislog.Options{Awaited: func(context.Context) (redislog.Awaited, error) { return redislog.Awaited{IDs: ids}, nil }}
	o.ID = "a"
	a := startLoaded(t, c, o)
	o.ID = "b"
	b := startLoaded(t, c, o)
	// Whether it is in force within 2 s or a little later depends on the machine.
	if _, err := a.Apply(t.Context(), []assign.Change{assigntest.Plan(assigntest.Subject("api", "x"), "p")}); err != nil {
		t.Fatal(err)
	}
	converge(t, a, b)
}

// TestLostReplyIsNoConflict loses the reply to a change that asks for a version.
func TestLostReplyIsNoConflict(t *testing.T) {
	t.Parallel()
	proxy := redistest.StartProxy(t, redistest.Single(t))
	c := connOptions(redisconn.Single, proxy.Addr())
	d := startLoaded(t, c, redislog.Options{})
	s := assigntest.Subject("api", "a")
	first := assigntest.Apply(t, d, assigntest.Plan(s, "1"))[0].After
	change := assigntest.Plan(s, "2")
	change.IfMatch = first.ETag
	cut := proxy.ResetAfter("|tenant=a")
	r, err := d.Apply(t.Context(), []assign.Change{change})
	<-cut
	if err != nil || r.Results[0].Outcome != assign.Unchanged || r.Results[0].After.Plan != "2" {
		t.Fatalf("got %+v, %v", r, err)
	}
	if n := len(recordsOf(t, d)); n != 2 {
		t.Errorf("%d records, want 2", n)
	}
	gone := assigntest.Delete(s)
	gone.IfMatch = r.Results[0].After.ETag
	cut = proxy.ResetAfter("|tenant=a")
	r, err = d.Apply(t.Context(), []assign.Change{gone})
	<-cut
	if err != nil || r.Results[0].Outcome != assign.Unchanged || r.Results[0].After != nil {
		t.Fatalf("got %+v, %v", r, err)
	}
}

func recordsOf(t testing.TB, d *daemon) []assign.Record {
	t.Helper()
	all, _, err := d.Records(context.Background(), assign.RecordQuery{Max: 10_000})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestTableStaysWhileRedisIsAway stops Redis, and has it come back empty: what was in
// force is put back.
func TestTableStaysWhileRedisIsAway(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	c := connOptions(redisconn.Single, server.Addr())
	c.Timeout = time.Second
	var log asynctest.Buffer
	d := startLoaded(t, c, redislog.Options{Log: textLog(&log)})
	fill(t, d, 100)
	server.Kill()
	r, err := d.Apply(t.Context(), []assign.Change{assigntest.Plan(assigntest.Subject("api", "new"), "p")})
	if err == nil || r.Results[0].Outcome != assign.Unknown {
		t.Errorf("without Redis: %+v, %v", r, err)
	}
	asynctest.Eventually(t, "it is logged", func() bool { return log.Count("cannot be followed") == 1 })
	if n := d.Table().Len(); n != 100 || !d.Loaded() {
		t.Errorf("%d are in force while Redis is away, want 100", n)
	}
	server.Restart() // nothing is persisted
	asynctest.Eventually(t, "what Redis lost is put back", func() bool { return len(inRedis(t, d, 32)) == 100 })
	fill(t, d, 10)
	if n := d.Table().Len(); n != 100 {
		t.Errorf("%d are in force, want 100", n)
	}
	if n := log.Count("cannot be followed"); n != 1 {
		t.Errorf("%d lines are logged, want 1: %s", n, log.String())
	}
}

// envVictim has the addresses of a cluster and a prefix, for a process that changes
// assignments until it is killed.
const envVictim = "REDISLOG_TEST_VICTIM"

// victim changes 10,000 assignments in one call, again and again.
func victim(where string) error {
	prefix, addresses, _ := strings.Cut(where, " ")
	conn, err := redisconn.New(redisconn.Options{Mode: redisconn.Cluster, Addresses: strings.Fields(addresses), Prefix: prefix, Timeout: 10 * time.Second})
	if err != nil {
		return err
	}
	s, err := redislog.New(conn, redislog.Options{ID: "victim", HashTags: 32, Tags: hashTags})
	if err != nil {
		return err
	}
	go s.Run(context.Background())
	for !s.Loaded() {
		time.Sleep(time.Millisecond)
	}
	fmt.Println("begins")
	_, err = s.Apply(context.Background(), tenThousand("killed"))
	fmt.Println("ends")
	return err
}

func tenThousand(plan string) (changes []assign.Change) {
	for i := range 10_000 {
		changes = append(changes, assigntest.Plan(assigntest.Subject("api", fmt.Sprint(i)), plan))
	}
	return changes
}

// TestKilledDaemonLeavesNothingHalf kills a daemon in the middle of 10,000 changes.
// Three others follow it, and one of them makes the same changes again.
func TestKilledDaemonLeavesNothingHalf(t *testing.T) {
	t.Parallel()
	c := connOptions(redisconn.Cluster, redistest.Cluster(t)...)
	daemons := fleetOf(t, 3, c, redislog.Options{})
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), envVictim+"="+c.Prefix+" "+strings.Join(c.Addresses, " "))
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	asynctest.Eventually(t, "some changes are made", func() bool { return daemons[0].Table().Len() > 500 })
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	held := converge(t, daemons...)
	t.Logf("%d changes were made before the end: %q", len(held), out.String())
	checkRecords(t, daemons[0], held)
	// On a busy machine not all daemons have so many in time.
	applied, err := daemons[1].Apply(t.Context(), tenThousand("killed"))
	if err != nil {
		t.Fatal(err)
	}
	unchanged := 0
	for _, r := range applied.Results {
		if r.Outcome == assign.Unchanged {
			unchanged++
		} else if r.Outcome != assign.Created {
			t.Fatalf("again: %+v", r)
		}
	}
	if unchanged != len(held) {
		t.Errorf("%d were in force, and %d are unchanged", len(held), unchanged)
	}
	if n := len(converge(t, daemons...)); n != 10_000 {
		t.Errorf("%d are in force, want 10000", n)
	}
}

// testFailover loses a master in the middle of an import, and imports again.
func testFailover(t *testing.T, c redisconn.Options, lose func(), promoted func() bool) {
	c.Timeout = time.Second
	daemons := fleetOf(t, 3, c, redislog.Options{})
	changes := tenThousand("p")
	var imports sync.WaitGroup
	imports.Go(func() {
		for part := range slices.Chunk(changes, 500) {
			_, _ = daemons[0].Apply(context.Background(), part)
		}
	})
	asynctest.Eventually(t, "some changes are made", func() bool { return daemons[1].Table().Len() > 2000 })
	lose()
	asynctest.Eventually(t, "another master is there", promoted)
	imports.Wait()
	checkRecords(t, daemons[0], converge(t, daemons...))
	asynctest.Eventually(t, "all is imported again", func() bool {
		for part := range slices.Chunk(changes, 500) {
			if a, err := daemons[2].Apply(context.Background(), part); err != nil || len(a.Pending) > 0 {
				return false
			}
		}
		return true
	})
	held := converge(t, daemons...)
	if len(held) != len(changes) {
		t.Errorf("%d are in force, want %d", len(held), len(changes))
	}
	checkRecords(t, daemons[0], held)
}

func TestFailoverOfAClusterInMidImport(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 1, "--cluster-require-full-coverage", "no")
	witness := redistest.Client(t, cluster.Masters[1].Addr())
	testFailover(t, connOptions(redisconn.Cluster, cluster.Addrs()...), cluster.Masters[0].Kill, func() bool {
		shards, err := witness.ClusterShards(context.Background()).Result()
		return err == nil && slices.ContainsFunc(shards, func(s redis.ClusterShard) bool {
			return len(s.Slots) > 0 && s.Slots[0].Start == 0 && slices.ContainsFunc(s.Nodes, func(n redis.Node) bool {
				addr := net.JoinHostPort(n.IP, strconv.FormatInt(n.Port, 10))
				return n.Role == "master" && n.Health == "online" && addr != cluster.Masters[0].Addr()
			})
		})
	})
}

func TestFailoverBehindSentinelInMidImport(t *testing.T) {
	t.Parallel()
	sentinels, master, _ := redistest.StartSentinel(t, "limits")
	witness := redis.NewSentinelClient(&redis.Options{Addr: sentinels[0]})
	t.Cleanup(func() { witness.Close() })
	c := connOptions(redisconn.Sentinel, sentinels...)
	c.SentinelMaster = "limits"
	testFailover(t, c, master.Kill, func() bool {
		host, err := witness.GetMasterAddrByName(context.Background(), "limits").Result()
		return err == nil && net.JoinHostPort(host[0], host[1]) != master.Addr()
	})
}

// TestAssignmentsMoveToOtherHashTags restarts daemons with other numbers of hash tags.
func TestAssignmentsMoveToOtherHashTags(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, c redisconn.Options) {
		first := startLoaded(t, c, redislog.Options{HashTags: 32})
		fill(t, first, 500)
		want := inTable(first)
		first.stop()
		records := 500
		for _, tags := range []int{7, 64, 32} {
			// Two begin at the same time.
			a, b := start(t, c, redislog.Options{HashTags: tags}), start(t, c, redislog.Options{HashTags: tags})
			for _, d := range []*daemon{a, b} {
				asynctest.Eventually(t, "the store is loaded", d.Loaded)
				if got := inTable(d); !reflect.DeepEqual(got, want) {
					t.Fatalf("of %d hash tags: %d assignments, want %d", tags, len(got), len(want))
				}
			}
			if n := len(recordsOf(t, a)); n != records {
				t.Errorf("of %d hash tags: %d records, want %d", tags, n, records)
			}
			s := assigntest.Subject("api", "0")
			changed := assigntest.Apply(t, a, assigntest.Plan(s, fmt.Sprint("with ", tags)))[0]
			if changed.Outcome != assign.Replaced || !reflect.DeepEqual(changed.Before, want[s.Text()]) {
				t.Errorf("of %d hash tags: %+v of %+v", tags, changed, want[s.Text()])
			}
			want[s.Text()] = changed.After
			records++
			a.stop()
			b.stop()
		}
	})
}
