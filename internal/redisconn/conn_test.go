package redisconn_test

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/redisconn"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

func TestMain(m *testing.M) { os.Exit(redistest.Run(m)) }

// When a server is slow to load the script, its late reply is not taken for the reply
// to the command that connected, whose caller has more time.
func TestLateReplyToScriptLoadIsNotTakenForAnother(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	addr := redistest.Start(t).Addr()
	server := redistest.Client(t, addr)
	if err := server.Set(ctx, "key", "value", 0).Err(); err != nil {
		t.Fatal(err)
	}
	proxy := redistest.StartProxy(t, addr)
	proxy.Hold("script")
	conn, err := redisconn.New(redisconn.Options{
		Mode: redisconn.Single, Addresses: []string{proxy.Addr()}, Timeout: 2 * time.Second, Script: "return 1",
	})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()

	replies := make(chan *redis.StringCmd, 1)
	go func() { replies <- conn.Get(ctx, "key") }()
	// If the command was sent all the same, it waits when the script's reply comes.
	asynctest.Eventually(t, "the command has failed, or was sent", func() bool {
		stats, err := server.InfoMap(ctx, "commandstats").Result()
		return len(replies) > 0 || err == nil && stats["Commandstats"]["cmdstat_get"] != ""
	})
	proxy.Heal(t)
	if got, err := (<-replies).Result(); err == nil {
		t.Errorf("a GET of %q on the connection got %q", "value", got)
	}
	if got, err := conn.Get(ctx, "key").Result(); err != nil || got != "value" {
		t.Errorf("the next GET of %q got %q, %v", "value", got, err)
	}
}

// A node that was cut off from its cluster says so, and still says that it has its slots: it
// is asked for no map.
func TestNodeInStateFailIsPassedOver(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	alone := redistest.Start(t, "--cluster-enabled", "yes").Addr()
	if err := redistest.Client(t, alone).Do(ctx, "cluster", "addslotsrange", 0, 16382).Err(); err != nil {
		t.Fatal(err)
	}
	cluster := redistest.Cluster(t)
	for range 20 { // it asks a node at random
		conn, err := redisconn.New(redisconn.Options{Mode: redisconn.Cluster, Addresses: []string{alone, cluster[0]}, Timeout: 2 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		if err := conn.Get(ctx, "key").Err(); !errors.Is(err, redis.Nil) {
			t.Errorf("it asks the node that is alone: %v", err)
		}
		conn.Close()
	}
}
