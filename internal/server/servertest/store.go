package servertest

import (
	"context"
	"errors"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/bucket/memstore"
	"github.com/ratelimitd/ratelimitd/internal/server"
)

// On makes a server use the store.
func On(s bucket.Store) func(*server.Options) {
	return func(o *server.Options) { o.Store = s }
}

// Memory returns a memory store on the clock.
func Memory(t testing.TB, c *asynctest.Clock) bucket.Store {
	s := memstore.New(memstore.Options{MaxKeys: 100_000, Clock: c.Micros})
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// FakeStore allows everything unless a test sets OnTake, and answers pings unless one
// sets OnPing.
type FakeStore struct {
	OnTake func(ctx context.Context, hits []bucket.Hit, decisions []bucket.Decision) error
	OnPing func(ctx context.Context) error
}

// Take implements bucket.Store.
func (f *FakeStore) Take(ctx context.Context, hits []bucket.Hit, decisions []bucket.Decision) error {
	if f.OnTake == nil {
		return nil
	}
	return f.OnTake(ctx, hits, decisions)
}

// Reserve implements bucket.Store. It is as Take.
func (f *FakeStore) Reserve(ctx context.Context, _ bucket.Reservation, hits []bucket.Hit, decisions []bucket.Decision) error {
	return f.Take(ctx, hits, decisions)
}

// Settle implements bucket.Store.
func (f *FakeStore) Settle(context.Context, string, []bucket.Hit, []bucket.Settled) error { return nil }

// Check implements bucket.Store.
func (f *FakeStore) Check(context.Context, []bucket.Hit, []bucket.Decision) error { return nil }

// GiveBack implements bucket.Store.
func (f *FakeStore) GiveBack(context.Context, []bucket.Hit, []bucket.Decision) error { return nil }

// Locate implements bucket.Store.
func (f *FakeStore) Locate(h *bucket.Hit) bucket.Location { return bucket.Location{Key: string(h.Key)} }

// Forget implements bucket.Store.
func (f *FakeStore) Forget([]string) {}

// Ping implements bucket.Store.
func (f *FakeStore) Ping(ctx context.Context) error {
	if f.OnPing == nil {
		return nil
	}
	return f.OnPing(ctx)
}

// Close implements bucket.Store.
func (f *FakeStore) Close() error { return nil }

// Failing returns a store that decides nothing, with this error.
func Failing(text string) *FakeStore {
	return &FakeStore{OnTake: func(context.Context, []bucket.Hit, []bucket.Decision) error { return errors.New(text) }}
}

// Waiting is a store that answers when it is released or when the caller has
// gone.
type Waiting struct {
	FakeStore
	Taking  chan context.Context // one of each Take that began
	Release chan struct{}
	Gone    chan error // one of each Take whose caller has gone
}

// NewWaiting returns a store that waits with each take.
func NewWaiting() *Waiting {
	w := &Waiting{Taking: make(chan context.Context, 10), Release: make(chan struct{}), Gone: make(chan error, 10)}
	w.OnTake = func(ctx context.Context, _ []bucket.Hit, _ []bucket.Decision) error {
		w.Taking <- ctx
		select {
		case <-w.Release:
			return nil
		case <-ctx.Done():
			w.Gone <- ctx.Err()
			return ctx.Err()
		}
	}
	return w
}
