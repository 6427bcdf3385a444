package client_test

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/ratelimitd/ratelimitd/client"
	"github.com/ratelimitd/ratelimitd/client/guard/guardtest"
	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
)

// One of two daemons stops, and another starts in its place.
func TestRollingRestartFailsNoRequest(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	a, b := startOn(t, "127.0.0.1:0", store, limits), startOn(t, "127.0.0.1:0", store, limits)
	c := connect(t, a.Address+","+b.Address, client.OnFailure(client.FailError()))
	asynctest.Eventually(t, "two streams", func() bool {
		_, err := c.Allow(within(t), "api", client.E("user", "x"))
		return err == nil && c.Stats().Streams == 2
	})
	stop := make(chan struct{})
	var callers sync.WaitGroup
	var answered atomic.Int64
	for range 8 {
		callers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if _, err := c.Allow(context.Background(), "api", client.E("much", "x")); err != nil {
					t.Error(err)
				}
				answered.Add(1)
			}
		})
	}
	more := func() {
		t.Helper()
		from := answered.Load()
		asynctest.Eventually(t, "more answers", func() bool { return answered.Load() > from+200 })
	}
	more()
	b.Stop()
	more()
	startOn(t, b.Address, store, limits)
	asynctest.Eventually(t, "two streams again", func() bool { return c.Stats().Streams == 2 })
	more()
	close(stop)
	callers.Wait()
	got, err := c.Take(within(t), client.Request{Domain: "api", Descriptors: []client.Descriptor{{Entries: []client.Entry{client.E("much", "x")}, Peek: true}}})
	if err != nil {
		t.Fatal(err)
	}
	// The limit refills by 278 in a second.
	if used := 1_000_000 - int64(got.Limits[0].Remaining); used > answered.Load() {
		t.Errorf("%d were taken for %d answers", used, answered.Load())
	}
}

func TestLogTellsWhenFailuresBeginAndEnd(t *testing.T) {
	t.Parallel()
	address := guardtest.UnusedAddress(t)
	var log asynctest.Buffer
	c := connect(t, address, client.OnFailure(client.FailAllow()), client.Logger(slog.New(slog.NewTextHandler(&log, nil))),
		client.DialOptions(grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: time.Second})))
	for range 10 {
		if ok, err := c.Allow(within(t), "api", client.E("user", "x")); !ok || err != nil {
			t.Error(ok, err)
		}
	}
	if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "no answer from ratelimitd") || !strings.Contains(text, "deciding=allow") {
		t.Errorf("the log of 10 failures:\n%s", text)
	}
	startOn(t, address, newStore(t), limits)
	asynctest.Eventually(t, "an answer", func() bool {
		got, err := c.Take(within(t), one("api", "user", "x"))
		return err == nil && got.Failure == nil
	})
	if text := log.String(); strings.Count(text, "\n") != 2 || !strings.Contains(text, "answers again") {
		t.Errorf("the log of an answer:\n%s", text)
	}
}
