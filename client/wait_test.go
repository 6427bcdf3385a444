package client_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/client"
	"github.com/ratelimitd/ratelimitd/client/internal/daemontest"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

// 100 waiters on 50 a second with a burst of 50: 50 pass at once, the last
// after a second.
func TestWaitUnderContention(t *testing.T) {
	t.Parallel()
	for _, clients := range []int{1, 2, 5} {
		t.Run(fmt.Sprint(clients, " clients"), func(t *testing.T) {
			t.Parallel()
			address := daemontest.Start(t, limits).Address
			const waiters, ideal = 100, time.Second
			var all sync.WaitGroup
			var mu sync.Mutex
			var last, sum time.Duration
			begin := time.Now()
			for i := range clients {
				c := connect(t, address)
				for range waiters / clients {
					all.Go(func() {
						if got, err := c.Wait(within(t), one("api", "even", "x")); err != nil || !got.Allowed {
							t.Error(got, err)
						}
						mu.Lock()
						defer mu.Unlock()
						last, sum = max(last, time.Since(begin)), sum+time.Since(begin)
					})
				}
				if i == 0 {
					defer func() { t.Logf("asked %+v", c.Stats()) }()
				}
			}
			all.Wait()
			t.Logf("the last after %v, on average %v", last, sum/waiters)
			if last < ideal*9/10 || last > 2*ideal {
				t.Errorf("the last passed after %v; ideal is %v", last, ideal)
			}
		})
	}
}

// Who waits in the same process is served in the order of coming.
func TestWaitIsFirstInFirstOut(t *testing.T) {
	t.Parallel()
	c := connect(t, daemontest.Start(t, `
domain: api
descriptors:
  - key: one
    rate_limit: {requests: 100, period: 1s, burst: 1}
`).Address)
	var mu sync.Mutex
	var order []int
	var all sync.WaitGroup
	started := make(chan struct{}, 1)
	const waiters = 20
	for i := range waiters {
		all.Go(func() {
			started <- struct{}{}
			if _, err := c.Wait(within(t), one("api", "one", "x")); err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			order = append(order, i)
		})
		<-started
		time.Sleep(time.Millisecond) // so that it has joined the line
	}
	all.Wait()
	out := 0
	for i := range order {
		if i > 0 && order[i] < order[i-1] {
			out++
		}
	}
	if out > waiters/10 {
		t.Errorf("%d passed before their turn: %v", out, order)
	}
}

func TestWaitGivesUpAtOnce(t *testing.T) {
	t.Parallel()
	c := connect(t, daemontest.Start(t, limits).Address)
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
	r.Descriptors[0].Cost = 2
	if _, err := c.Wait(context.Background(), r); !errors.Is(err, client.ErrNever) {
		t.Error(err)
	}
	if _, err := c.Wait(context.Background(), one("api", "none", "x")); !errors.Is(err, client.ErrNever) {
		t.Error(err)
	}
}

// Who stands in line behind somebody who sleeps knows as much.
func TestWaitGivesUpInLine(t *testing.T) {
	t.Parallel()
	c := connect(t, daemontest.Start(t, limits).Address)
	r := one("api", "slow", "x")
	if _, err := c.Wait(within(t), r); err != nil {
		t.Fatal(err)
	}
	long, stop := context.WithCancel(context.Background())
	first := make(chan error, 1)
	go func() {
		_, err := c.Wait(long, r)
		first <- err
	}()
	eventually(t, "the first sleeps", func() bool { return c.Stats().Denied == 1 })
	// However much is asked for, it comes too late.
	costly := one("api", "slow", "x")
	costly.Descriptors[0].Cost = 1 << 40
	if _, err := c.Wait(within(t), costly); !errors.Is(err, client.ErrTooLate) {
		t.Error(err)
	}
	hour, cancel := context.WithTimeout(context.Background(), 90*time.Minute)
	defer cancel()
	asked := c.Stats()
	// The first passes in an hour, this one would in two.
	if _, err := c.Wait(hour, r); !errors.Is(err, client.ErrTooLate) {
		t.Error(err)
	}
	if _, err := c.Wait(within(t), r); !errors.Is(err, client.ErrTooLate) {
		t.Error(err)
	}
	if now := c.Stats(); now != asked {
		t.Errorf("they asked: %+v, before %+v", now, asked)
	}
	patient, leave := context.WithCancel(context.Background())
	second := make(chan error, 1)
	go func() {
		_, err := c.Wait(patient, r)
		second <- err
	}()
	leave()
	if err := <-second; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	third := make(chan error, 1)
	go func() {
		_, err := c.Wait(context.Background(), r)
		third <- err
	}()
	stop()
	if err := <-first; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	// Its turn comes as the first leaves the line, or there is no line any more.
	eventually(t, "the third asks", func() bool { return c.Stats().Denied >= 2 })
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if err := <-third; !errors.Is(err, client.ErrClosed) {
		t.Error(err)
	}
}

// Who stands in line is sent away only if its turn comes too late: what counts
// is its cost at the limit that denies, of which a peek takes nothing.
func TestWaitInLineCountsWhatTheDenierIsAskedFor(t *testing.T) {
	t.Parallel()
	asked := func(key string, cost uint64) client.Descriptor {
		return client.Descriptor{Entries: []client.Entry{client.E(key, "x")}, Cost: cost, Peek: cost == 0}
	}
	// The first who waits passes in an hour.
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
			c := connect(t, daemontest.Start(t, limits).Address)
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
			eventually(t, "the first sleeps", func() bool { return c.Stats().Denied == 1 })
			// Whoever has gone before it comes leaves the line as one who has
			// gone, unless it is sent away at once.
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

func TestWaitWhenTheDaemonIsAway(t *testing.T) {
	t.Parallel()
	address := nobody(t)
	for _, choice := range []client.Failure{client.FailAllow(), client.FailDeny(), client.FailError()} {
		c := connect(t, address, client.OnFailure(choice))
		got, err := c.Wait(within(t), one("api", "user", "x"))
		switch choice.String() {
		case "allow":
			if err != nil || !got.Allowed || got.Failure == nil {
				t.Error(got, err)
			}
		case "deny":
			if !errors.Is(err, client.ErrDenied) {
				t.Error(err)
			}
		default:
			if err == nil {
				t.Error("no error")
			}
		}
	}
	local := client.FailLocal(client.Limit{Algorithm: client.TokenBucket, Requests: 1000, Period: time.Second, Burst: 1})
	c := connect(t, address, client.OnFailure(local))
	for range 5 {
		if got, err := c.Wait(within(t), one("api", "user", "x")); err != nil || !got.Allowed {
			t.Error(got, err)
		}
	}
}

// A waiter asks no sooner than it was told to.
func TestWaitSleepsAsLongAsItIsTold(t *testing.T) {
	t.Parallel()
	const told = 40 * time.Millisecond
	var asked []time.Time
	s := new(script)
	s.stream = func(streamServer) error { return s.UnimplementedRateLimitServiceServer.TakeStream(nil) }
	s.take = func(context.Context, *ratelimitv1.TakeRequest) (*ratelimitv1.TakeResponse, error) {
		asked = append(asked, time.Now())
		if len(asked) > 3 {
			return &ratelimitv1.TakeResponse{Allowed: true}, nil
		}
		return denied(told), nil
	}
	address, _ := serve(t, s)
	c := connect(t, address)
	if _, err := c.Wait(within(t), one("api", "user", "x")); err != nil {
		t.Fatal(err)
	}
	if len(asked) != 4 {
		t.Errorf("it asked %d times", len(asked))
	}
	for i := 1; i < len(asked); i++ {
		if pause := asked[i].Sub(asked[i-1]); pause < told {
			t.Errorf("it asked again after %v", pause)
		}
	}
}
