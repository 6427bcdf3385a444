package client_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/client"
	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
)

const slotLimits = `
domain: api
descriptors:
  - key: tenant
    rate_limit: {algorithm: fixed_window, requests: 1000000, period: 365d}
    descriptors:
      - key: job
        rate_limit: {algorithm: concurrency, requests: 2, hold: 1h}
  - key: brief
    descriptors:
      - key: job
        rate_limit: {algorithm: concurrency, requests: 3, hold: 3s}
  - key: short
    descriptors:
      - key: job
        rate_limit: {algorithm: concurrency, requests: 1, hold: 600ms}
`

// inFlight asks for a slot of a key of slotLimits.
func inFlight(key, value string) client.Request {
	return client.Request{Domain: "api", Descriptors: []client.Descriptor{{Entries: []client.Entry{client.E(key, value)}, HolderKey: "job"}}}
}

// holdersOf is a store that counts takes by holder, and fails when a test says so.
type holdersOf struct {
	bucket.Store
	fails atomic.Bool
	mu    sync.Mutex
	takes map[string]int
}

func (h *holdersOf) Take(ctx context.Context, hits []bucket.Hit, decisions []bucket.Decision) error {
	h.mu.Lock()
	for i := range hits {
		if hits[i].Cost > 0 {
			h.takes[hits[i].Holder]++
		}
	}
	h.mu.Unlock()
	if h.fails.Load() {
		return errors.New("the store is away")
	}
	return h.Store.Take(ctx, hits, decisions)
}

// await waits until a holder has taken so many times more.
func (h *holdersOf) await(t *testing.T, holder string, more int) {
	t.Helper()
	count := func() int {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.takes[holder]
	}
	goal := count() + more
	asynctest.Eventually(t, "takes of "+holder, func() bool { return count() >= goal })
}

func newHoldersOf(t *testing.T) *holdersOf {
	return &holdersOf{Store: newStore(t), takes: make(map[string]int)}
}

// free returns how many slots are free.
func free(t *testing.T, c *client.Client, key, value string) uint64 {
	t.Helper()
	r := inFlight(key, value)
	r.Holder, r.Descriptors[0].Peek = "look", true
	result, err := c.Take(within(t), r)
	if err != nil {
		t.Fatal(err)
	}
	return result.Limits[0].Remaining
}

func acquire(t *testing.T, c *client.Client, r client.Request) *client.Slot {
	t.Helper()
	s, err := c.Acquire(within(t), r)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A holds, B is denied, A is done, C passes.
func TestSlotIsHeldUntilItsRelease(t *testing.T) {
	t.Parallel()
	d := start(t, slotLimits)
	a, b := connect(t, d.Address), connect(t, d.Address)
	r := inFlight("tenant", "x")
	r.Descriptors = append(r.Descriptors, client.Descriptor{Entries: []client.Entry{client.E("tenant", "x")}})
	first, second := acquire(t, a, r), acquire(t, b, r)
	if !first.IsHeld() || first.Degraded() || first.Err() != nil || first.Result().Limits[0].HeldFor != time.Hour {
		t.Errorf("it got %+v, held %v, degraded %v: %v", first.Result().Limits, first.IsHeld(), first.Degraded(), first.Err())
	}
	s, denied, err := b.TryAcquire(within(t), r)
	if s != nil || err != nil || denied.Allowed || denied.RetryAfter != client.RetryUnknown {
		t.Fatalf("a third gets %v, %+v, %v", s, denied, err)
	}
	first.Release()
	first.Release() // does nothing
	if first.IsHeld() {
		t.Error("it is held after its release")
	}
	third := acquire(t, b, r)
	second.Release()
	third.Release()
	if got := free(t, a, "tenant", "x"); got != 2 {
		t.Errorf("%d are free in the end", got)
	}
	rate, err := a.Take(within(t), one("api", "tenant", "x"))
	if err != nil || rate.Limits[0].Remaining != 1_000_000-4 {
		t.Errorf("%+v remain of the rate, %v: one that is denied or released counts", rate, err)
	}
}

// More wait than there are slots; each has its turn, and never more than may run at once.
func TestAcquireWaitsItsTurn(t *testing.T) {
	t.Parallel()
	d := start(t, slotLimits)
	clients := []*client.Client{connect(t, d.Address), connect(t, d.Address), connect(t, d.Address)}
	var running, done atomic.Int64
	var all sync.WaitGroup
	for i := range 60 {
		all.Go(func() {
			err := clients[i%3].Do(within(t), inFlight("tenant", "x"), func(context.Context) error {
				if n := running.Add(1); n > 2 {
					t.Errorf("%d run at once", n)
				}
				time.Sleep(time.Duration(rand.IntN(3)) * time.Millisecond)
				running.Add(-1)
				done.Add(1)
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if done.Load() != 60 {
		t.Errorf("%d of 60 ran", done.Load())
	}
}

// Acquire waits no longer than its context, which then leaves nothing behind.
func TestAcquireThatIsCancelled(t *testing.T) {
	t.Parallel()
	d := start(t, slotLimits)
	c := connect(t, d.Address)
	a, b := acquire(t, c, inFlight("tenant", "x")), acquire(t, c, inFlight("tenant", "x"))
	ctx, cancel := context.WithCancel(context.Background())
	waits := make(chan error)
	for range 2 {
		go func() {
			_, err := c.Acquire(ctx, inFlight("tenant", "x"))
			waits <- err
		}()
	}
	cancel()
	for range 2 {
		if err := <-waits; !errors.Is(err, context.Canceled) {
			t.Errorf("it ends with %v", err)
		}
	}
	a.Release()
	b.Release()
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 50 {
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rand.IntN(2000))*time.Microsecond)
				if s, err := c.Acquire(ctx, inFlight("tenant", "x")); err == nil {
					s.Release()
				}
				cancel()
			}
		})
	}
	all.Wait()
	asynctest.Eventually(t, "all slots are free", func() bool { return free(t, c, "tenant", "x") == 2 })
}

// A holder whose slot another process frees learns of it.
func TestLostSlotIsTold(t *testing.T) {
	t.Parallel()
	d := start(t, slotLimits)
	c := connect(t, d.Address)
	r := inFlight("short", "x")
	r.Holder = "job-17"
	err := c.Do(within(t), r, func(ctx context.Context) error {
		release := client.Request{Domain: "api", Descriptors: []client.Descriptor{{Entries: []client.Entry{client.E("short", "x"), client.E("job", "job-17")}}}}
		another := connect(t, d.Address)
		r := inFlight("short", "x")
		r.Holder = "job-18"
		// One with this name releases the slot, and another job is there before it is renewed.
		for ctx.Err() == nil {
			same, _, err := another.TryAcquire(within(t), release)
			if err != nil {
				return err
			}
			same.Release()
			taken, _, err := another.TryAcquire(within(t), r)
			if err == nil && taken != nil {
				defer taken.Release()
				break
			}
		}
		<-ctx.Done()
		return context.Cause(ctx)
	})
	if !errors.Is(err, client.ErrSlotLost) {
		t.Errorf("it ends with %v", err)
	}
	if got := free(t, c, "short", "x"); got != 1 {
		t.Errorf("%d are free in the end", got)
	}
}

// The client itself renews slots whose takes are too long for a stream.
func TestSlotsWithoutAStream(t *testing.T) {
	t.Parallel()
	store := newHoldersOf(t)
	d := startOn(t, "127.0.0.1:0", store, slotLimits)
	c := connect(t, d.Address)
	long := strings.Repeat("x", 17<<10)
	r := inFlight("short", long)
	r.Holder = "me"
	s := acquire(t, c, r)
	store.await(t, "me", 8)
	if s.Err() != nil || !s.IsHeld() || c.Stats().Alone < 8 {
		t.Errorf("it is lost: %v; %d calls were made", s.Err(), c.Stats().Alone)
	}
	s.Release()
	if got := free(t, c, "short", long); got != 1 {
		t.Errorf("%d are free after the release", got)
	}
}

// The failure choice decides about slots as about every take.
func TestSlotsWithoutADaemon(t *testing.T) {
	t.Parallel()
	store := newHoldersOf(t)
	d := startOn(t, "127.0.0.1:0", store, slotLimits)
	d.Stop()
	allow := connect(t, d.Address, client.OnFailure(client.FailAllow()), client.Timeout(time.Second))
	r := inFlight("tenant", "x")
	s := acquire(t, allow, r)
	if s.IsHeld() || !s.Degraded() || s.Result().Failure == nil {
		t.Errorf("without a daemon it is held %v, degraded %v, %+v", s.IsHeld(), s.Degraded(), s.Result())
	}
	r.OnFailure = client.FailDeny()
	if s, err := allow.Acquire(within(t), r); !errors.Is(err, client.ErrDenied) {
		t.Errorf("FailDeny: %v, %v", s, err)
	}
	r.OnFailure = client.FailError()
	if s, err := allow.Acquire(within(t), r); err == nil {
		t.Errorf("FailError: %v", s)
	}
	// It gets its slot once there is a daemon.
	startOn(t, d.Address, store, slotLimits)
	asynctest.Eventually(t, "it is held", func() bool { return s.IsHeld() && !s.Degraded() })
	if got := free(t, allow, "tenant", "x"); got != 1 {
		t.Errorf("%d are free, want 1", got)
	}
	s.Release()
	if got := free(t, allow, "tenant", "x"); got != 2 {
		t.Errorf("%d are free in the end, want 2", got)
	}
}

// What a closed client held is free, and its holders learn of it.
func TestClosedClientHoldsNothing(t *testing.T) {
	t.Parallel()
	d := start(t, slotLimits)
	c, err := client.New(d.Address, client.Timeout(patience))
	if err != nil {
		t.Fatal(err)
	}
	s := acquire(t, c, inFlight("tenant", "x"))
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	<-s.Lost()
	if err := s.Err(); !errors.Is(err, client.ErrClosed) {
		t.Errorf("it ends with %v", err)
	}
	s.Release()
	if _, err := c.Acquire(within(t), inFlight("tenant", "x")); !errors.Is(err, client.ErrClosed) {
		t.Errorf("a closed client gets %v", err)
	}
	other := connect(t, d.Address)
	asynctest.Eventually(t, "the slot is free", func() bool { return free(t, other, "tenant", "x") == 2 })
}

// What no limit is for passes, and holds nothing.
func TestSlotOfNoLimit(t *testing.T) {
	t.Parallel()
	d := start(t, slotLimits)
	c := connect(t, d.Address)
	for i := range 5 {
		s := acquire(t, c, inFlight("misspelt", fmt.Sprint(i)))
		if s.IsHeld() || s.Degraded() {
			t.Errorf("it is held %v, degraded %v", s.IsHeld(), s.Degraded())
		}
		defer s.Release()
	}
	if _, err := c.Take(within(t), inFlight("tenant", "x")); err == nil {
		t.Error("a take of no holder passes")
	}
}
