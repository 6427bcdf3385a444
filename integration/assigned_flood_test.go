package integration

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/redis/go-redis/v9"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

// Redis is short of memory and evicts, and a caller asks for subjects that it makes up.
// However many there are, no blocked subject gets in, and plans hold.
func TestFloodOfSubjectsEvictsNoAssignment(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	flags := steered(t, tenantPlans+"  - {key: user, rate_limit: {requests: 1000, period: 1h}}\n", append(redisFlags("single", server.Addr()), "--redis-timeout", "1s")...)
	d := start(t, flags...)
	const each = 500
	d.importAll(rowsOf("blocked", each, ",,true,"))
	d.importAll(rowsOf("three", each, "three,,,"))
	want := d.export()
	if len(want) != 2*each {
		t.Fatalf("%d are assigned, want %d", len(want), 2*each)
	}

	// The policy is set while the daemon runs, and there is little room for states, so
	// that it evicts within moments also where the machine is busy.
	node := redistest.Client(t, server.Addr())
	const room = 1 << 20
	used, err := usedMemory(t.Context(), node)
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{"maxmemory": fmt.Sprint(used + room), "maxmemory-samples": "1", "maxmemory-policy": "allkeys-lru"} {
		if err := node.ConfigSet(t.Context(), name, value).Err(); err != nil {
			t.Fatal(err)
		}
	}
	var over atomic.Bool
	var callers sync.WaitGroup
	end := sync.OnceFunc(func() {
		over.Store(true)
		callers.Wait()
	})
	defer end()
	for i := range 2 {
		callers.Go(func() { flood(t, d, i, &over) })
	}
	var admitted, denied, others atomic.Int64
	callers.Go(func() {
		for i := 0; !over.Load(); i++ {
			if r, err := d.tryAsk("api", 1, fmt.Sprintf("tenant=blocked-%06d", i%each)); err == nil && ok(r) {
				admitted.Add(1)
			} else if err == nil {
				denied.Add(1)
			}
			if r, err := d.tryAsk("api", 1, fmt.Sprintf("tenant=three-%06d", i%each)); err == nil && limitOf(r) != 3 {
				others.Add(1)
			}
		}
	})
	asynctest.Eventually(t, "assignments are evicted", func() bool { return d.total("ratelimitd_assignments_restored_total") > 0 })
	before := denied.Load()
	asynctest.Eventually(t, "they are asked for since", func() bool { return denied.Load() > before+50 })
	end()
	// A daemon that starts while Redis evicts lacks what is not put back yet.
	if err := node.ConfigSet(t.Context(), "maxmemory", "0").Err(); err != nil {
		t.Fatal(err)
	}
	if n := admitted.Load(); n > 0 {
		t.Errorf("%d requests of who is blocked were admitted, %d denied", n, denied.Load())
	}
	if n := others.Load(); n > 0 {
		t.Errorf("%d requests of who has three had another limit", n)
	}

	asynctest.Eventually(t, "the assignments are back in Redis", func() bool {
		n := 0
		keys, err := node.Keys(t.Context(), "*~assigned").Result()
		for _, key := range keys {
			fields, fieldsErr := node.HKeys(t.Context(), key).Result()
			for _, f := range fields {
				if f != "~id" {
					n++
				}
			}
			if fieldsErr != nil {
				err = fieldsErr
			}
		}
		return err == nil && n == 2*each
	})
	d.waitForLog("level=ERROR msg=\"redis: assignments that Redis had lost were put back")
	later := start(t, flags...)
	for i, at := range []*daemon{d, later} {
		if got := at.export(); strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("daemon %d has %d assigned after the flood, want %d, or others", i, len(got), len(want))
		}
		if n := limitOf(at.ask("api", 1, "tenant=three-000100")); n != 3 {
			t.Errorf("daemon %d gives %d requests to who has three", i, n)
		}
	}
}

// limitOf returns the number of the limit that a subject has.
func limitOf(r *rlsv3.RateLimitResponse) uint32 {
	return r.GetStatuses()[0].GetCurrentLimit().GetRequestsPerUnit()
}

// usedMemory returns the bytes that a server counts against maxmemory.
func usedMemory(ctx context.Context, node *redis.Client) (used int64, _ error) {
	info, err := node.InfoMap(ctx, "memory").Result()
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(info["Memory"]["used_memory"], 10, 64)
}

// flood takes for subjects of its own until it is over.
func flood(t *testing.T, d *daemon, caller int, over *atomic.Bool) {
	conn, err := grpc.NewClient(d.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Error(err)
		return
	}
	defer conn.Close()
	api := ratelimitv1.NewRateLimitServiceClient(conn)
	for n := 0; !over.Load(); {
		many := &ratelimitv1.TakeManyRequest{}
		for range 500 {
			n++
			entry := &ratelimitv1.Entry{Key: "user", Value: fmt.Sprintf("%d-%d-%s", caller, n, strings.Repeat("x", 100))}
			many.Takes = append(many.Takes, &ratelimitv1.TakeRequest{Domain: "api", Descriptors: []*ratelimitv1.Descriptor{{Entries: []*ratelimitv1.Entry{entry}}}})
		}
		if _, err := api.TakeMany(t.Context(), many); err != nil {
			time.Sleep(10 * time.Millisecond)
		}
	}
}
