package integration

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/client"
	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

// These environment variables tell a process of the tests to be a client: the daemon's
// address, and the tenant whose slots to take.
const (
	holdAt     = "RATELIMITD_TEST_HOLD_AT"
	holdTenant = "RATELIMITD_TEST_HOLD_TENANT"
)

// holdIfTold reports whether this process is a client that takes all slots, says so, and
// holds them until it is killed.
func holdIfTold() bool {
	address, ok := os.LookupEnv(holdAt)
	if !ok {
		return false
	}
	c, err := client.New(address, client.Timeout(answerTimeout))
	if err != nil {
		panic(err)
	}
	for range slots {
		if _, err := c.Acquire(context.Background(), slotOf(os.Getenv(holdTenant))); err != nil {
			panic(err)
		}
	}
	fmt.Println("holding")
	select {}
}

// slotOf asks for a slot of a tenant of slotsLimits.
func slotOf(tenant string) client.Request {
	return client.Request{Domain: "all", Descriptors: []client.Descriptor{{Entries: []client.Entry{client.E("tenant", tenant)}, HolderKey: "request"}}}
}

// slotStores are the stores of daemons that limit slots, with a hold for which no machine
// stands still.
func slotStores(t *testing.T) map[string][]string {
	dir := t.TempDir()
	write(t, dir, "all.yaml", fmt.Sprintf(slotsLimits, "9s"))
	return map[string][]string{
		"memory":  {"--limits-path", dir},
		"redis":   append(redisFlags("single", redistest.Single(t)), "--limits-path", dir),
		"cluster": append(redisFlags("cluster", redistest.Cluster(t)...), "--limits-path", dir),
	}
}

func newClient(t *testing.T, target string) *client.Client {
	t.Helper()
	c, err := client.New(target, client.Timeout(answerTimeout))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// The slots of a client that is killed are free after the hold, and not before: for the
// daemon he may run on behind a connection that was cut.
func TestSlotsOfAKilledClient(t *testing.T) {
	t.Parallel()
	for way, tenant := range map[string]string{
		"renewed on a stream": "x",
		// Takes that are too long for a stream are calls of their own.
		"renewed in calls": strings.Repeat("x", 17<<10),
	} {
		for store, flags := range slotStores(t) {
			if store == "cluster" && way != "renewed on a stream" {
				continue // one suffices
			}
			t.Run(way+", "+store, func(t *testing.T) {
				t.Parallel()
				d := start(t, flags...)
				holder := exec.Command(os.Args[0])
				holder.Env = append(cleanEnv(), holdAt+"="+d.grpc, holdTenant+"="+tenant)
				out, err := holder.StdoutPipe()
				if err != nil {
					t.Fatal(err)
				}
				if err := holder.Start(); err != nil {
					t.Fatal(err)
				}
				if line, err := bufio.NewReader(out).ReadString('\n'); strings.TrimSpace(line) != "holding" {
					t.Fatalf("the client says %q, %v", line, err)
				}
				c := newClient(t, d.grpc)
				for range 3 { // for longer than a hold
					time.Sleep(4 * time.Second)
					if s, _, err := c.TryAcquire(t.Context(), slotOf(tenant)); s != nil || err != nil {
						t.Fatalf("a slot is free while the client lives: %v, %v", s, err)
					}
				}
				if err := holder.Process.Signal(syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
				_ = holder.Wait()
				asynctest.Eventually(t, "all slots are free", func() bool {
					var got []*client.Slot
					for range slots {
						if s, _, err := c.TryAcquire(t.Context(), slotOf(tenant)); err == nil && s != nil {
							got = append(got, s)
						}
					}
					for _, s := range got {
						s.Release()
					}
					return len(got) == slots
				})
			})
		}
	}
}

// Daemons are stopped, killed and started again while slots are renewed there: a holder
// keeps its slot, and no more than the limit work at once.
func TestSlotsWhileDaemonsRestart(t *testing.T) {
	t.Parallel()
	flags := slotStores(t)["redis"]
	daemons := []*daemon{start(t, flags...), start(t, flags...)}
	at := []string{daemons[0].grpc, daemons[1].grpc}
	target := strings.Join(at, ",")
	stop := make(chan struct{})
	var working, long, lost atomic.Int64
	var all sync.WaitGroup
	for range 2 {
		c := newClient(t, target)
		for range 5 {
			all.Go(func() {
				for n := 0; ; n++ {
					select {
					case <-stop:
						return
					default:
					}
					s, err := c.Acquire(t.Context(), slotOf("x"))
					if err != nil {
						continue // a daemon was killed with the request
					}
					if n := working.Add(1); n > slots {
						t.Errorf("%d of %d work at once", n, slots)
					}
					pause := time.Millisecond
					if n%10 == 0 {
						pause = 10 * time.Second // longer than the hold
						long.Add(1)
					}
					select {
					case <-time.After(pause):
					case <-s.Lost():
						lost.Add(1)
						t.Errorf("a slot is lost: %v", s.Err())
					}
					working.Add(-1)
					s.Release()
				}
			})
		}
	}
	for i, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		goal := long.Load() + 2
		asynctest.Eventually(t, "slots are held for long", func() bool { return long.Load() >= goal })
		daemons[i%2].stop(signal)
		daemons[i%2] = start(t, append(flags, "--grpc-address", at[i%2])...)
	}
	goal := long.Load() + 2
	asynctest.Eventually(t, "slots are held in the end", func() bool { return long.Load() >= goal })
	close(stop)
	all.Wait()
}

// The example of a worker pool does all jobs under the cookbook's limits.
func TestExamplePoolDoesAllJobs(t *testing.T) {
	t.Parallel()
	d := start(t, "--limits-path", write(t, t.TempDir(), "limits.yaml", blockFrom(t, "docs/cookbook.md", "yaml", "domain: jobs")))
	if out, err := exec.Command(buildExample(t, "pool"), d.grpc).CombinedOutput(); err != nil || string(out) != "done\n" {
		t.Errorf("it prints %s, %v", out, err)
	}
}
