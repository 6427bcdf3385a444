package client_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/client"
	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
)

func TestWaitGivesUpAtOnceIfItWouldEndTooLate(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t, limits).Address)
	r := one("api", "slow", "x")
	if got, err := c.Wait(within(t), r); err != nil || !got.Allowed {
		t.Fatal(got, err)
	}
	// The next is in an hour; the test's context ends long before.
	for range 3 {
		_, err := c.Wait(within(t), r)
		if !errors.Is(err, client.ErrTooLate) || !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	}
}

func TestWaitGivesUpAtOnceIfNoWaitingHelps(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t, limits).Address)
	costly := one("api", "slow", "x")
	costly.Descriptors[0].Cost = 2
	for name, r := range map[string]client.Request{
		"a cost above the capacity": costly,
		"a limit of 0":              one("api", "none", "x"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := c.Wait(context.Background(), r); !errors.Is(err, client.ErrNever) {
				t.Error(err)
			}
		})
	}
}

// pacing has limits that allow requests at once and say how long to hold each of
// them.
const pacing = `
domain: api
descriptors:
  - key: often
    rate_limit: {algorithm: leaky_bucket, requests: 50, period: 1s, burst: 6}
  - key: seldom
    rate_limit: {algorithm: leaky_bucket, requests: 1, period: 1h, burst: 4}
  - key: plain
    rate_limit: {requests: 1, period: 1h, burst: 4}
`

func TestWaitLetsRequestsOfALeakyBucketLeaveEvenly(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t, pacing).Address)
	const waiters, interval = 6, 20 * time.Millisecond
	begin := time.Now()
	ends := make([]time.Duration, waiters)
	var all sync.WaitGroup
	for i := range waiters {
		all.Go(func() {
			if got, err := c.Wait(within(t), one("api", "often", "x")); err != nil || !got.Allowed {
				t.Error(got, err)
			}
			ends[i] = time.Since(begin)
		})
	}
	all.Wait()
	slices.Sort(ends)
	for i, end := range ends {
		const tick = time.Microsecond // of the daemon's clock
		if earliest := time.Duration(i)*interval - tick; end < earliest {
			t.Errorf("waiter %d of %d left after %v, want %v at the earliest", i, waiters, end, earliest)
		}
	}
}

// left returns how much remains of a key's only limit.
func left(t *testing.T, c *client.Client, key string) uint64 {
	t.Helper()
	r := one("api", key, "x")
	r.Descriptors[0].Peek = true
	got, err := c.Take(within(t), r)
	if err != nil || len(got.Limits) != 1 {
		t.Fatal(got, err)
	}
	return got.Limits[0].Remaining
}

// Requests behind a held one need not wait for it. A held request whose context
// ends is given back.
func TestHeldRequestsAreIndependentAndGivenBack(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t, pacing).Address)
	r := one("api", "seldom", "x")
	long, stop := context.WithCancel(context.Background())
	defer stop()
	ends := make(chan error, 3)
	for range 3 {
		go func() {
			_, err := c.Wait(long, r)
			ends <- err
		}()
	}
	// The first is not held, the second for an hour and the third for two.
	asynctest.Eventually(t, "all have passed", func() bool { return c.Stats().Allowed == 3 })
	if err := <-ends; err != nil {
		t.Error(err)
	}
	stop()
	for range 2 {
		if err := <-ends; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	if n := left(t, c, "seldom"); n < 2 {
		t.Errorf("%d of 4 are left when two of three were given back", n)
	}
	// A request whose context would end during the hold is not taken.
	for range 3 {
		if _, err := c.Wait(within(t), r); !errors.Is(err, client.ErrTooLate) || !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	}
	if n := left(t, c, "seldom"); n < 2 {
		t.Errorf("%d of 4 are left after requests that were too late", n)
	}
	held := make(chan error, 1)
	before := c.Stats().Allowed
	go func() {
		_, err := c.Wait(context.Background(), r)
		held <- err
	}()
	asynctest.Eventually(t, "it has passed", func() bool { return c.Stats().Allowed > before })
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if err := <-held; !errors.Is(err, client.ErrClosed) {
		t.Error(err)
	}
}
