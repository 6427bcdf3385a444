package integration

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/client"
	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

// Redis loses who holds slots, while a client holds all of them and another one wants them.
// A holder that learns of no loss has a slot that no other has: the client renews those that
// are still free, and reports the others as lost.
func TestSlotsThatRedisLost(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, "all.yaml", fmt.Sprintf(slotsLimits, "6s"))
	lose := map[string]func(*testing.T, *redistest.Server, *redistest.Clock){
		"flushed": func(t *testing.T, s *redistest.Server, _ *redistest.Clock) {
			if err := redistest.Client(t, s.Addr()).FlushAll(context.Background()).Err(); err != nil {
				t.Fatal(err)
			}
		},
		"back without data": func(_ *testing.T, s *redistest.Server, _ *redistest.Clock) { s.Kill(); s.Restart() },
		"a clock ahead":     func(_ *testing.T, _ *redistest.Server, c *redistest.Clock) { c.Set(time.Hour) },
	}
	for how, lose := range lose {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			server, clock := redistest.StartWithClock(t)
			d := start(t, append(redisFlags("single", server.Addr()), "--limits-path", dir)...)
			first, second := newClient(t, d.grpc), newClient(t, d.grpc)
			var mine, others []*client.Slot
			for range slots {
				s, err := first.Acquire(t.Context(), slotOf("x"))
				if err != nil {
					t.Fatal(err)
				}
				mine = append(mine, s)
			}
			if s, _, err := second.TryAcquire(t.Context(), slotOf("x")); s != nil || err != nil {
				t.Fatalf("a slot more: %v, %v", s, err)
			}
			lose(t, server, clock)
			held := func(all []*client.Slot) (n int) {
				for _, s := range all {
					if s.Err() == nil {
						n++
					}
				}
				return n
			}
			asynctest.Eventually(t, "the others have slots", func() bool {
				if s, _, err := second.TryAcquire(t.Context(), slotOf("x")); err == nil && s != nil {
					others = append(others, s)
				}
				return len(others) > 0
			})
			asynctest.Eventually(t, "who has no slot is told", func() bool {
				return held(mine)+held(others) <= slots
			})
			if held(others) == 0 {
				t.Error("the slots that the others took are lost")
			}
			for _, s := range append(mine, others...) {
				s.Release()
			}
			// A release of a slot that was lost frees nobody else's, and none is left over.
			var all []*client.Slot
			asynctest.Eventually(t, "all slots are free", func() bool {
				if s, _, err := second.TryAcquire(t.Context(), slotOf("x")); err == nil && s != nil {
					all = append(all, s)
				}
				return len(all) == slots
			})
			if s, _, err := first.TryAcquire(t.Context(), slotOf("x")); s != nil || err != nil {
				t.Errorf("a slot more: %v, %v", s, err)
			}
		})
	}
}
