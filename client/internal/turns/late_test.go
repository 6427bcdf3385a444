package turns_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ratelimitd/ratelimitd/client/internal/turns"
)

func TestFirstGivesUpAtOnceIfItWouldEndTooLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lines := turns.New(t.Context())
		b := &bucket{tokenTime: time.Hour, burst: 1}
		if err := wait(lines, b, 1, time.Minute); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		for range 3 {
			if err := wait(lines, b, 1, time.Minute); !errors.Is(err, turns.ErrTooLate) {
				t.Error(err)
			}
		}
		if took := time.Since(begin); took != 0 {
			t.Errorf("it took %v", took)
		}
	})
}

// A waiter in line knows how long the first one sleeps, and so whether it would
// itself be too late.
func TestWaiterInLineGivesUpAtOnceIfItWouldEndTooLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		life, end := context.WithCancelCause(t.Context())
		closed := errors.New("closed")
		lines := turns.New(life)
		b := &bucket{tokenTime: time.Hour, burst: 1}
		if err := wait(lines, b, 1, time.Minute); err != nil {
			t.Fatal(err)
		}
		long, stop := context.WithCancel(t.Context())
		first := start(long, lines, b, 1)
		begin, asked := time.Now(), b.timesAsked()
		// The first passes in an hour, the next would pass in two. A high cost must
		// not overflow the time that it would take.
		for _, row := range []struct {
			cost uint64
			has  time.Duration
		}{{1 << 40, time.Minute}, {1, 90 * time.Minute}, {1, time.Minute}} {
			if err := wait(lines, b, row.cost, row.has); !errors.Is(err, turns.ErrTooLate) {
				t.Errorf("a cost of %d in %v: %v", row.cost, row.has, err)
			}
		}
		if n := b.timesAsked(); n != asked || time.Since(begin) != 0 {
			t.Errorf("they asked %d times, and took %v", n-asked, time.Since(begin))
		}
		patient, leave := context.WithCancel(t.Context())
		second := start(patient, lines, b, 1)
		leave()
		if err := <-second; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		third, fourth := start(t.Context(), lines, b, 1), start(t.Context(), lines, b, 1)
		stop()
		if err := <-first; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		synctest.Wait()
		if n := b.timesAsked(); n != asked+1 {
			t.Errorf("when the first left, %d asked", n-asked)
		}
		end(closed)
		for _, ended := range []<-chan error{third, fourth} {
			if err := <-ended; !errors.Is(err, closed) {
				t.Error(err)
			}
		}
	})
}

// When the first learns how long it sleeps, those that joined before learn it too.
func TestWaitersThatJoinedBeforeADenialGiveUpAfterIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lines := turns.New(t.Context())
		b := &bucket{tokenTime: time.Hour, burst: 1, away: time.Second}
		if err := wait(lines, b, 1, time.Minute); err != nil {
			t.Fatal(err)
		}
		long, stop := context.WithCancel(t.Context())
		begin := time.Now()
		first := start(long, lines, b, 1) // it asks for a second
		short, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		second := start(short, lines, b, 1)
		if err := <-second; !errors.Is(err, turns.ErrTooLate) || time.Since(begin) != b.away {
			t.Errorf("%v after %v", err, time.Since(begin))
		}
		stop()
		if err := <-first; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// A waiter knows what those before it in the line take.
func TestWaiterInLineCountsThoseBeforeIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lines := turns.New(t.Context())
		b := &bucket{tokenTime: time.Hour, burst: 3}
		if err := wait(lines, b, 3, time.Minute); err != nil {
			t.Fatal(err)
		}
		long, stop := context.WithCancel(t.Context())
		first, second := start(long, lines, b, 1), start(long, lines, b, 2)
		// The first passes in an hour, the second in three, the next in four.
		if err := gone(lines, b, 1, 230*time.Minute); !errors.Is(err, turns.ErrTooLate) {
			t.Error(err)
		}
		if err := gone(lines, b, 1, 250*time.Minute); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		stop()
		for _, ended := range []<-chan error{first, second} {
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		}
	})
}

// While no waiter sleeps, it is not known when those in line may pass.
func TestWaiterInLineIsPatientWhileOthersAsk(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lines := turns.New(t.Context())
		b := &bucket{tokenTime: time.Hour, burst: 1, away: time.Second}
		if err := wait(lines, b, 1, time.Minute); err != nil {
			t.Fatal(err)
		}
		first, second := start(t.Context(), lines, b, 1), start(t.Context(), lines, b, 1)
		if err := <-first; err != nil {
			t.Error(err)
		}
		b.mu.Lock()
		b.drains = time.Now() // another process gives its takes back
		b.burst = 2
		b.mu.Unlock()
		third := make(chan error, 1)
		go func() { third <- wait(lines, b, 1, time.Minute) }() // the second asks now
		for _, ended := range []<-chan error{second, third} {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	})
}

// The time that a waiter in line still needs depends on its cost at the limit that
// denies. A peek costs nothing there.
func TestWaiterInLineCountsItsCostAtTheDenyingLimit(t *testing.T) {
	t.Parallel()
	// The first waiter passes in an hour.
	for name, test := range map[string]struct {
		costs            turns.Costs
		descriptor       int
		isOnTime, isLate time.Duration
	}{
		"a cost at another limit":           {turns.Costs{1000, 1}, 1, 150 * time.Minute, 90 * time.Minute},
		"a cost of 2":                       {turns.Costs{2}, 0, 190 * time.Minute, 170 * time.Minute},
		"a peek":                            {turns.Costs{0}, 0, 90 * time.Minute, 30 * time.Minute},
		"a descriptor that it did not have": {turns.Costs{1}, 7, 90 * time.Minute, 30 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				lines := turns.New(t.Context())
				ask := func() (turns.Answer, error) {
					return turns.Answer{RetryAfter: time.Hour, TokenTime: time.Hour, Descriptor: test.descriptor}, nil
				}
				long, stop := context.WithCancel(t.Context())
				first := make(chan error, 1)
				go func() { first <- lines.Wait(long, "key", test.costs, ask) }()
				synctest.Wait()
				behind := func(has time.Duration) error {
					ctx, cancel := context.WithTimeout(t.Context(), has)
					cancel()
					return lines.Wait(ctx, "key", test.costs, ask)
				}
				if err := behind(test.isLate); !errors.Is(err, turns.ErrTooLate) {
					t.Error(err)
				}
				if err := behind(test.isOnTime); !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
				stop()
				if err := <-first; !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			})
		})
	}
}

// A request that is denied by a limit that holds requests knows how long it would be
// held after its denial, and so do those in line.
func TestWaiterGivesUpIfItsHoldWouldEndTooLate(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		isHolding bool
		// How long a request needs that is first in line, or second.
		first, second time.Duration
	}{
		"a token comes each hour":                             {false, 1 * time.Hour, 2 * time.Hour},
		"the four that were taken leave first, one each hour": {true, 4 * time.Hour, 5 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				lines := turns.New(t.Context())
				b := &bucket{tokenTime: time.Hour, burst: 4, isHolding: test.isHolding}
				if a := b.take(4); !a.Allowed {
					t.Fatal(a)
				}
				const some = 10 * time.Minute
				begin := time.Now()
				if err := wait(lines, b, 1, test.first-some); !errors.Is(err, turns.ErrTooLate) || time.Since(begin) != 0 {
					t.Errorf("the first: %v after %v", err, time.Since(begin))
				}
				long, stop := context.WithTimeout(t.Context(), test.first+some)
				first := start(long, lines, b, 1)
				if err := gone(lines, b, 1, test.second-some); !errors.Is(err, turns.ErrTooLate) {
					t.Errorf("the second: %v", err)
				}
				if err := gone(lines, b, 1, test.second+some); !errors.Is(err, context.Canceled) {
					t.Errorf("the second, on time: %v", err)
				}
				stop()
				if err := <-first; !errors.Is(err, context.Canceled) {
					t.Errorf("the first, on time: %v", err)
				}
			})
		})
	}
}

func TestHoldThatWouldEndTooLateIsNotSlept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lines := turns.New(t.Context())
		b := &bucket{tokenTime: time.Hour, burst: 4, isHolding: true}
		if err := wait(lines, b, 2, time.Minute); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		if err := wait(lines, b, 1, time.Hour); !errors.Is(err, turns.ErrTooLate) || time.Since(begin) != 0 {
			t.Errorf("%v after %v", err, time.Since(begin))
		}
	})
}
