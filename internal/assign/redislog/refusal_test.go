package redislog_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimitd/ratelimitd/internal/assign"
	"github.com/ratelimitd/ratelimitd/internal/assign/assigntest"
	"github.com/ratelimitd/ratelimitd/internal/assign/redislog"
	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/redisconn"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

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

// changesOfAllKinds make an assignment, replace one, end one and lift a block.
func changesOfAllKinds() []assign.Change {
	unblock := assigntest.Delete(assigntest.Subject("api", "blocked"))
	unblock.Remove = assign.Parts{Block: true}
	return []assign.Change{
		assigntest.Plan(assigntest.Subject("api", "new"), "p"),
		assigntest.Plan(assigntest.Subject("api", "old"), "another"),
		assigntest.Delete(assigntest.Subject("api", "gone")),
		unblock,
	}
}

// What Redis refuses is told as refused, with the reason, and all is as it was: what is in
// force, the records, and the states of limits.
func TestWhatRedisRefusesIsNotDone(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		want   string
		passes bool
		args   []string
		refuse func(*testing.T, *redis.Client)
		heal   func(*testing.T, *redis.Client)
	}{
		{
			want: "READONLY", passes: true,
			refuse: func(t *testing.T, r *redis.Client) { replicaOf(t, r, "127.0.0.1", "1") },
			heal:   func(t *testing.T, r *redis.Client) { replicaOf(t, r, "no", "one") },
		},
		{
			want: "MASTERDOWN", passes: true, args: []string{"--replica-serve-stale-data", "no"},
			refuse: func(t *testing.T, r *redis.Client) { replicaOf(t, r, "127.0.0.1", "1") },
			heal:   func(t *testing.T, r *redis.Client) { replicaOf(t, r, "no", "one") },
		},
		{
			want:   "OOM",
			refuse: func(t *testing.T, r *redis.Client) { configure(t, r, "maxmemory", "1") },
			heal:   func(t *testing.T, r *redis.Client) { configure(t, r, "maxmemory", "0") },
		},
		{
			want:   "NOREPLICAS",
			refuse: func(t *testing.T, r *redis.Client) { configure(t, r, "min-replicas-to-write", "1") },
			heal:   func(t *testing.T, r *redis.Client) { configure(t, r, "min-replicas-to-write", "0") },
		},
		{
			want: "MISCONF", args: []string{"--enable-protected-configs", "yes"},
			refuse: failSnapshots,
			heal:   func(t *testing.T, r *redis.Client) { configure(t, r, "save", "") },
		},
	} {
		t.Run(test.want, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, test.args...)
			r := redistest.Client(t, server.Addr())
			d := startLoaded(t, connOptions(redisconn.Single, server.Addr()), redislog.Options{})
			testRefusal(t, d, test.want, test.passes, func() { test.refuse(t, r) }, func() { test.heal(t, r) })
		})
	}
	t.Run("NOPERM", func(t *testing.T) {
		t.Parallel()
		all := strings.Fields(aclCommands)
		c, give := asUser(t, all...)
		d := startLoaded(t, c, redislog.Options{})
		testRefusal(t, d, "NOPERM", false, func() { give(append(all, "-xadd")...) }, func() { give(all...) })
	})
}

// failSnapshots has the server find that it cannot save a snapshot, and refuse writes.
func failSnapshots(t *testing.T, r *redis.Client) {
	t.Helper()
	dir := t.TempDir() + "/gone"
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	configure(t, r, "save", "3600 1", "dir", dir)
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	r.BgSave(context.Background())
	asynctest.Eventually(t, "a snapshot fails", func() bool {
		return strings.Contains(r.Info(context.Background(), "persistence").Val(), "rdb_last_bgsave_status:err")
	})
}

func testRefusal(t *testing.T, d *daemon, want string, passes bool, refuse, heal func()) {
	t.Helper()
	ctx := context.Background()
	old, gone := assigntest.Subject("api", "old"), assigntest.Subject("api", "gone")
	block := assign.Change{Assignment: assign.Assignment{Subject: assigntest.Subject("api", "blocked"), Terms: assign.Terms{Blocked: true}}}
	assigntest.Apply(t, d, assigntest.Plan(old, "p"), assigntest.Plan(gone, "p"), block)
	state := d.StateKey("x#gcra")
	if err := d.conn.Set(ctx, state, "taken", 0).Err(); err != nil {
		t.Fatal(err)
	}
	held, records := inRedis(t, d, 32), recordsOf(t, d)
	refuse()
	applied, err := d.Apply(ctx, changesOfAllKinds())
	if err == nil || len(applied.Pending) > 0 {
		t.Errorf("got %+v, %v", applied.Reached, err)
	}
	for i, r := range applied.Results {
		if r.Outcome != assign.Failed || r.Passes != passes || !errors.Is(r.Err, assign.ErrNothingChanged) ||
			!strings.HasPrefix(fmt.Sprint(r.Err), "refused by Redis, nothing was changed: ") || !strings.Contains(fmt.Sprint(r.Err), want+" ") {
			t.Errorf("change %d: got %+v", i, r)
		}
	}
	_, err = d.Reset(ctx, assign.Reset{Keys: []string{state}, Record: assign.Record{Subject: assigntest.Subject("api", "x"), Limits: []string{""}}})
	if !errors.Is(err, assign.ErrNothingChanged) || !strings.Contains(err.Error(), want+" ") {
		t.Errorf("a reset ends with %v", err)
	}
	heal()
	if now := inRedis(t, d, 32); !reflect.DeepEqual(now, held) {
		t.Errorf("in force is %v, and was %v", now, held)
	}
	if now := recordsOf(t, d); !reflect.DeepEqual(now, records) {
		t.Errorf("the records are %v, and were %v", now, records)
	}
	if text := d.conn.Get(ctx, state).Val(); text != "taken" {
		t.Errorf("the state is %q", text)
	}
	assigntest.Apply(t, d, changesOfAllKinds()...)
}

// A refusal does not tell what became of the same before, whose reply was lost.
func TestRefusalAfterALostReplyIsUnknown(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.StartProxy(t, server.Addr())
	d := startLoaded(t, connOptions(redisconn.Single, proxy.Addr()), redislog.Options{})
	replicaOf(t, redistest.Client(t, server.Addr()), "127.0.0.1", "1")
	cut := proxy.ResetAfter("|tenant=a")
	r, err := d.Apply(t.Context(), []assign.Change{assigntest.Plan(assigntest.Subject("api", "a"), "p")})
	<-cut
	if err == nil || !strings.Contains(err.Error(), "READONLY") || r.Results[0].Outcome != assign.Unknown || r.Results[0].Err != nil {
		t.Errorf("got %+v, %v", r.Results[0], err)
	}
}

// A call that runs out of memory in the middle is made as a whole, and those after it are
// refused as a whole.
func TestMemoryEndsInTheMiddleOfChanges(t *testing.T) {
	t.Parallel()
	test := func(t *testing.T, c redisconn.Options, masters ...string) {
		ctx := context.Background()
		d := startLoaded(t, c, redislog.Options{})
		for _, addr := range masters {
			r := redistest.Client(t, addr)
			_, info, _ := strings.Cut(r.Info(ctx, "memory").Val(), "used_memory:")
			used, _, _ := strings.Cut(info, "\r\n")
			n, err := strconv.Atoi(used)
			if err != nil {
				t.Fatal(err)
			}
			// All changes take more.
			configure(t, r, "maxmemory", strconv.Itoa(n+3<<20))
		}
		var changes []assign.Change
		for i := range 10_000 {
			change := assigntest.Plan(assigntest.Subject("api", fmt.Sprint(i)), "p")
			change.Assignment.Reason = strings.Repeat("x", assign.MaxText)
			changes = append(changes, change)
		}
		applied, err := d.Apply(ctx, changes, assign.MaxWait(0))
		if err == nil {
			t.Error("all changes are made")
		}
		made := make(map[string]bool)
		for i, r := range applied.Results {
			switch r.Outcome {
			case assign.Created:
				made[changes[i].Assignment.Text()] = true
			case assign.Failed:
			default:
				t.Fatalf("change %d: got %+v", i, r)
			}
		}
		t.Logf("%d changes are made", len(made))
		if len(made) == 0 || len(made) == len(changes) {
			t.Errorf("%d of %d changes are made, and the memory should end in the middle", len(made), len(changes))
		}
		for _, addr := range masters {
			configure(t, redistest.Client(t, addr), "maxmemory", "0")
		}
		held := converge(t, d)
		for text := range held {
			if !made[text] {
				t.Errorf("%s is in force, and was refused", text)
			}
		}
		if len(held) != len(made) {
			t.Errorf("%d are in force, where %d were made", len(held), len(made))
		}
		checkRecords(t, d, held)
	}
	t.Run("single", func(t *testing.T) {
		t.Parallel()
		server := redistest.Start(t)
		test(t, connOptions(redisconn.Single, server.Addr()), server.Addr())
	})
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		cluster := redistest.StartCluster(t, 0)
		test(t, connOptions(redisconn.Cluster, cluster.Addrs()...), cluster.Addrs()...)
	})
}
