package client_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ratelimitd/ratelimitd/client"
	"github.com/ratelimitd/ratelimitd/client/internal/daemontest"
	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(asynctest.Settling{Tests: m, IsSettled: func() bool { return goleak.Find() == nil }})
}

func TestNewRefusesInvalidOptions(t *testing.T) {
	t.Parallel()
	for want, o := range map[string]client.Option{
		"timeout: found 0s":            client.Timeout(0),
		"found concurrency":            client.OnFailure(client.FailLocal(client.Limit{Algorithm: 7, Requests: 1, Period: time.Second})),
		"no burst on a sliding_window": client.OnFailure(client.FailLocal(client.Limit{Algorithm: client.SlidingWindow, Requests: 1, Period: time.Second, Burst: 2})),
		"period: found 1ns":            client.OnFailure(client.FailLocal(client.Limit{Algorithm: client.GCRA, Requests: 1, Period: 1})),
		"logger is nil":                client.Logger(nil),
		"credentials are nil":          client.Credentials(nil),
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			if c, err := client.New("localhost:1", o); c != nil || err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("want an error with %q, got %v", want, err)
			}
		})
	}
}

func TestContextEndsACallWithoutCountingAFailure(t *testing.T) {
	t.Parallel()
	s := new(daemontest.Script)
	s.OnStream = func(stream daemontest.Stream) error { <-stream.Context().Done(); return nil }
	address := s.Serve(t)
	c := connect(t, address, client.OnFailure(client.FailAllow()))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if ok, err := c.Allow(ctx, "api", client.E("a", "b")); ok || !errors.Is(err, context.Canceled) {
		t.Error(ok, err)
	}
	ctx, cancel = context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	if got, err := c.Take(ctx, one("api", "a", "b")); got != nil || !errors.Is(err, context.DeadlineExceeded) {
		t.Error(got, err)
	}
	if n := c.Stats().Failed(); n != 0 {
		t.Errorf("%d calls whose context ended count as failures", n)
	}
}

func TestCloseEndsCallsThatHaveNoAnswer(t *testing.T) {
	t.Parallel()
	s := new(daemontest.Script)
	s.OnStream = s.ReadAll
	address := s.Serve(t)
	c := connect(t, address, client.OnFailure(client.FailAllow()))
	ended := make(chan error, 10)
	for range cap(ended) {
		go func() {
			_, err := c.Allow(context.Background(), "api", client.E("a", "b"))
			ended <- err
		}()
	}
	asynctest.Eventually(t, "all are sent", func() bool { return s.Seen() == cap(ended) })
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	for range cap(ended) {
		if err := <-ended; !errors.Is(err, client.ErrClosed) {
			t.Error(err)
		}
	}
	if ok, err := c.Allow(context.Background(), "api", client.E("a", "b")); ok || !errors.Is(err, client.ErrClosed) {
		t.Error("after Close:", ok, err)
	}
	if _, err := c.Wait(context.Background(), one("api", "a", "b")); !errors.Is(err, client.ErrClosed) {
		t.Error("after Close:", err)
	}
}
