package integration

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

// Callers come four times as fast as Redis decides. If the queue is full the
// failure mode answers. Memory stays as it is. Once the queue is empty, nothing
// is left of the crowd.
func TestOverloadMeetsTheFailureMode(t *testing.T) {
	t.Parallel()
	const (
		deadline = 20 * time.Millisecond
		callers  = 64
		asks     = 100 // for each caller
		queue    = 8
	)
	server := redistest.Start(t, "--enable-debug-command", "yes")
	dir := t.TempDir()
	write(t, dir, "all.yaml", failoverLimits)
	d := start(t, append(redisFlags("single", server.Addr()), "--redis-timeout", "2s", "--failure-mode", "allow",
		"--redis-batch-size", "4", "--redis-batch-queue", strconv.Itoa(queue), "--limits-path", dir)...)
	told := new(ledger)
	told.ask(d, patient, "all", "busy=a")
	memory := d.total("process_resident_memory_bytes")

	// Redis sleeps 5 ms before each batch: 4 in 5 ms is 800 a second, where 64
	// callers ask 3,200 times.
	slow, stop := context.WithCancel(t.Context())
	defer stop()
	asleep := make(chan struct{})
	c := redistest.Client(t, server.Addr())
	go func() {
		defer close(asleep)
		for slow.Err() == nil {
			_ = c.Do(slow, "debug", "sleep", "0.005").Err()
		}
	}()
	var wait sync.WaitGroup
	for range callers {
		wait.Go(func() {
			tick := time.NewTicker(deadline)
			defer tick.Stop()
			for range asks {
				told.ask(d, deadline, "all", "busy=a")
				<-tick.C
			}
		})
	}
	for range 10 {
		if n := d.total("ratelimitd_redis_queue_length"); n > queue {
			t.Errorf("%v requests wait in a queue of %d", n, queue)
		}
	}
	wait.Wait()
	stop()
	<-asleep

	// Callers have left, but their last requests may still wait.
	asynctest.Eventually(t, "the queue is empty", func() bool { return d.total("ratelimitd_redis_queue_length") == 0 })
	if r := d.ask("all", 1, "busy=a"); degraded(r) || !ok(r) {
		t.Errorf("after the load a lone request gets %v; without Redis %s", r, d.whyDegraded())
	}
	n := told.now()
	if full := d.total("ratelimitd_degraded_answers_total", `reason="queue_full"`); full == 0 || n.degraded == 0 || n.admitted == 0 {
		t.Errorf("callers were told: %v; without Redis %s", n, d.whyDegraded())
	}
	if now := d.total("process_resident_memory_bytes"); now > memory+64<<20 {
		t.Errorf("the daemon's memory grew from %v to %v", memory, now)
	}
}
