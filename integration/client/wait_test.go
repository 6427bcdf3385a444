package client_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/client"
	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
)

// Of 100 waiters on 50 a second with a burst of 50, half pass at once and the last
// after a second.
func TestWaitKeepsTheLimitsPaceUnderContention(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t, limits).Address)
	const waiters, ideal = 100, time.Second
	best := time.Hour
	for try := 0; try < 10 && best > 2*ideal; try++ { // a busy machine is slow now and then
		var all sync.WaitGroup
		begin := time.Now()
		for range waiters {
			all.Go(func() {
				if got, err := c.Wait(within(t), one("api", "even", fmt.Sprint(try))); err != nil || !got.Allowed {
					t.Error(got, err)
				}
			})
		}
		all.Wait()
		best = min(best, time.Since(begin))
	}
	t.Logf("the last after %v; asked %+v", best, c.Stats())
	if best < ideal*9/10 || best > 2*ideal {
		t.Errorf("the last passed after %v; ideal is %v", best, ideal)
	}
}

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

// The time that a waiter in line still needs depends on its cost at the limit that
// denies. A peek costs nothing there.
func TestWaitInLineCountsTheCostAtTheDenyingLimit(t *testing.T) {
	t.Parallel()
	asked := func(key string, cost uint64) client.Descriptor {
		return client.Descriptor{Entries: []client.Entry{client.E(key, "x")}, Cost: cost, Peek: cost == 0}
	}
	// The first waiter passes in an hour.
	for name, test := range map[string]struct {
		descriptors []client.Descriptor
		isOnTime    time.Duration
		isLate      time.Duration
	}{
		"a cost at another limit": {[]client.Descriptor{asked("much", 1000), asked("slow", 1)}, 150 * time.Minute, 90 * time.Minute},
		"a peek":                  {[]client.Descriptor{asked("slow", 0)}, 90 * time.Minute, 30 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := connect(t, start(t, limits).Address)
			if _, err := c.Wait(within(t), one("api", "slow", "x")); err != nil {
				t.Fatal(err)
			}
			r := client.Request{Domain: "api", Descriptors: test.descriptors}
			long, stop := context.WithCancel(context.Background())
			first := make(chan error, 1)
			go func() {
				_, err := c.Wait(long, r)
				first <- err
			}()
			asynctest.Eventually(t, "the first sleeps", func() bool { return c.Stats().Denied == 1 })
			// A waiter whose context has ended already returns Canceled, unless
			// its deadline is too early: that is found first.
			gone := func(deadline time.Duration) error {
				ctx, cancel := context.WithTimeout(context.Background(), deadline)
				cancel()
				_, err := c.Wait(ctx, r)
				return err
			}
			if err := gone(test.isLate); !errors.Is(err, client.ErrTooLate) {
				t.Error(err)
			}
			if err := gone(test.isOnTime); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			stop()
			if err := <-first; !errors.Is(err, context.Canceled) {
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

// A request that is denied by a limit that paces knows how long it would be held
// after its denial, and so do those in line.
func TestWaitGivesUpIfItsHoldWouldEndTooLate(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		key string
		// How long a request needs that is first in line, or second.
		first, second time.Duration
	}{
		// A token comes each hour.
		{"plain", 1 * time.Hour, 2 * time.Hour},
		// The four that were taken leave first, one each hour.
		{"seldom", 4 * time.Hour, 5 * time.Hour},
	} {
		t.Run(c.key, func(t *testing.T) {
			t.Parallel()
			api := connect(t, start(t, pacing).Address)
			r := one("api", c.key, "x")
			full := one("api", c.key, "x")
			full.Descriptors[0].Cost = 4
			if got, err := api.Take(within(t), full); err != nil || !got.Allowed {
				t.Fatal(got, err)
			}
			const some = 10 * time.Minute
			// begin starts a waiter and returns once it is denied. stop cancels it,
			// and returns Canceled unless the waiter gave up before.
			begin := func(deadline time.Duration) (stop func() error) {
				ctx, cancel := context.WithTimeout(context.Background(), deadline)
				denied, ended := api.Stats().Denied, make(chan error, 1)
				go func() {
					_, err := api.Wait(ctx, r)
					ended <- err
				}()
				asynctest.Eventually(t, "it is denied", func() bool { return api.Stats().Denied > denied })
				return func() error { cancel(); return <-ended }
			}
			if err := begin(c.first - some)(); !errors.Is(err, client.ErrTooLate) {
				t.Errorf("the first: %v", err)
			}
			if err := begin(c.first + some)(); !errors.Is(err, context.Canceled) {
				t.Errorf("the first, on time: %v", err)
			}
			stop := begin(c.first + some)
			behind := func(deadline time.Duration) error {
				ctx, cancel := context.WithTimeout(context.Background(), deadline)
				cancel()
				_, err := api.Wait(ctx, r)
				return err
			}
			if err := behind(c.second - some); !errors.Is(err, client.ErrTooLate) {
				t.Errorf("the second: %v", err)
			}
			if err := behind(c.second + some); !errors.Is(err, context.Canceled) {
				t.Errorf("the second, on time: %v", err)
			}
			if err := stop(); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
	}
}
