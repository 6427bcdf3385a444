package turns_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/ratelimitd/ratelimitd/client/internal/turns"
	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
)

// The tests run in bubbles of synctest. There the time is that of a clock which moves
// when all wait, so they take no time and may assert it.

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(asynctest.Settling{Tests: m, IsSettled: func() bool { return goleak.Find() == nil }})
}

// bucket is a limit that answers as a daemon does.
type bucket struct {
	tokenTime time.Duration
	burst     uint64
	isHolding bool          // requests leave one each tokenTime
	away      time.Duration // how long an answer takes

	mu     sync.Mutex
	drains time.Time // when all that was taken will be refilled
	asked  int
}

// ask returns how a waiter asks for a cost; it peeks for 0.
func (b *bucket) ask(cost uint64) func() (turns.Answer, error) {
	return func() (turns.Answer, error) {
		time.Sleep(b.away)
		return b.take(cost), nil
	}
}

func (b *bucket) take(cost uint64) turns.Answer {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked++
	now := time.Now()
	if b.drains.Before(now) {
		b.drains = now
	}
	debt, maxDebt := b.drains.Sub(now), time.Duration(b.burst)*b.tokenTime
	after := debt + time.Duration(max(1, cost))*b.tokenTime
	if after > maxDebt {
		denial := turns.Answer{RetryAfter: after - maxDebt, TokenTime: b.tokenTime}
		if b.isHolding {
			denial.Drain = debt
		}
		return denial
	}
	a := turns.Answer{Allowed: true, More: int(maxDebt / b.tokenTime)}
	if cost > 0 {
		b.drains = now.Add(after)
		a.More = int((maxDebt - after) / b.tokenTime / time.Duration(cost))
		if b.isHolding {
			a.Hold = debt
		}
	}
	return a
}

func (b *bucket) timesAsked() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.asked
}

// start has a waiter of a cost join the line, and returns its end.
func start(ctx context.Context, lines *turns.Lines, b *bucket, cost uint64) <-chan error {
	ended := make(chan error, 1)
	go func() { ended <- lines.Wait(ctx, "key", turns.Costs{cost}, b.ask(cost)) }()
	synctest.Wait()
	return ended
}

// wait is how a waiter of a cost ends that has so much time.
func wait(lines *turns.Lines, b *bucket, cost uint64, has time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), has)
	defer cancel()
	return lines.Wait(ctx, "key", turns.Costs{cost}, b.ask(cost))
}

// gone is how a waiter ends whose context has ended already: by Canceled, unless it
// learns before that its deadline is too early.
func gone(lines *turns.Lines, b *bucket, cost uint64, has time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), has)
	cancel()
	return lines.Wait(ctx, "key", turns.Costs{cost}, b.ask(cost))
}
