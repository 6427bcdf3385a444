package turns_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ratelimitd/ratelimitd/client/internal/turns"
)

func TestWaitersPassInTheOrderInWhichTheyCame(t *testing.T) {
	t.Parallel()
	for name, burst := range map[string]uint64{"one at a time": 1, "several at a time": 5} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				lines := turns.New(t.Context())
				b := &bucket{tokenTime: 10 * time.Millisecond, burst: burst, away: time.Microsecond}
				const waiters = 20
				var mu sync.Mutex
				var order []int
				var all sync.WaitGroup
				for i := range waiters {
					all.Go(func() {
						if err := lines.Wait(t.Context(), "key", turns.Costs{1}, b.ask(1)); err != nil {
							t.Error(err)
						}
						mu.Lock()
						defer mu.Unlock()
						order = append(order, i)
					})
					synctest.Wait() // it has joined the line
				}
				all.Wait()
				// Those that have the turn together pass at the same moment.
				for i, waiter := range order {
					if waiter > i+int(burst)-1 || waiter < i-int(burst)+1 {
						t.Errorf("%d passed before their turn: %v", waiter, order)
						break
					}
				}
			})
		})
	}
}

func TestKeysHaveLinesOfTheirOwn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lines := turns.New(t.Context())
		ctx, cancel := context.WithCancel(t.Context())
		slow, free := &bucket{tokenTime: time.Hour, burst: 1}, &bucket{tokenTime: time.Hour, burst: 1}
		if err := wait(lines, slow, 1, time.Minute); err != nil {
			t.Fatal(err)
		}
		first := start(ctx, lines, slow, 1)
		if err := lines.Wait(ctx, "another key", turns.Costs{1}, free.ask(1)); err != nil {
			t.Error(err)
		}
		cancel()
		if err := <-first; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// Of 100 waiters on 50 a second with a burst of 50, half pass at once and the last
// after a second.
func TestWaitersKeepPaceUnderContention(t *testing.T) {
	t.Parallel()
	for _, processes := range []int{1, 2, 5} {
		t.Run(fmt.Sprint(processes, " processes"), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const waiters, ideal = 100, time.Second
				b := &bucket{tokenTime: 20 * time.Millisecond, burst: 50, away: 100 * time.Microsecond}
				var all sync.WaitGroup
				var mu sync.Mutex
				var last time.Duration
				begin := time.Now()
				for range processes {
					lines := turns.New(t.Context())
					for range waiters / processes {
						all.Go(func() {
							if err := lines.Wait(t.Context(), "key", turns.Costs{1}, b.ask(1)); err != nil {
								t.Error(err)
							}
							mu.Lock()
							defer mu.Unlock()
							last = max(last, time.Since(begin))
						})
					}
				}
				all.Wait()
				t.Logf("the last after %v; they asked %d times", last, b.asked)
				if last < ideal*9/10 || last > 2*ideal {
					t.Errorf("the last passed after %v; ideal is %v", last, ideal)
				}
			})
		})
	}
}

// A process near the daemon does not take the turns of one far from it, whose answers
// come late.
func TestWaitIsFairToADistantProcess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const rounds = 20 // of 50 waiters in each process
		n := 0
		for range rounds {
			b := &bucket{tokenTime: 20 * time.Millisecond, burst: 1, away: 50 * time.Microsecond}
			var mu sync.Mutex
			var order []bool
			var all sync.WaitGroup
			for _, late := range []time.Duration{50 * time.Microsecond, 2 * time.Millisecond} {
				lines := turns.New(t.Context())
				for range 50 {
					all.Go(func() {
						err := lines.Wait(t.Context(), "key", turns.Costs{1}, func() (turns.Answer, error) {
							a, err := b.ask(1)()
							time.Sleep(late)
							return a, err
						})
						if err != nil {
							t.Error(err)
						}
						mu.Lock()
						defer mu.Unlock()
						order = append(order, late > time.Millisecond)
					})
				}
			}
			all.Wait()
			for _, isFar := range order[:50] {
				if isFar {
					n++
				}
			}
		}
		t.Logf("%d of the first 50 are the distant process's", n/rounds)
		if n < 10*rounds {
			t.Errorf("only %d of the first 50 are the distant process's", n/rounds)
		}
	})
}

// The first asks and sleeps as long as the denial says. The one behind it, which
// stood in line, may sleep a quarter of a token's time longer.
func TestWaiterSleepsAsLongAsADenialSays(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for range 20 { // the quarter is random
			lines := turns.New(t.Context())
			const token = time.Second
			b := &bucket{tokenTime: token, burst: 1}
			if err := wait(lines, b, 1, time.Minute); err != nil {
				t.Fatal(err)
			}
			begin := time.Now()
			first, second := start(t.Context(), lines, b, 1), start(t.Context(), lines, b, 1)
			if err := <-first; err != nil || time.Since(begin) != token {
				t.Errorf("the first: %v after %v", err, time.Since(begin))
			}
			if err := <-second; err != nil || time.Since(begin) < 2*token || time.Since(begin) > 2*token+token/4 {
				t.Errorf("the second: %v after %v", err, time.Since(begin))
			}
			if n := b.timesAsked(); n != 5 {
				t.Errorf("they asked %d times", n)
			}
		}
	})
}

// Of those that had the turn together and were denied, one sleeps. The others go back
// to their places in the line.
func TestOneSleepsOfThoseThatAreDeniedTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lines := turns.New(t.Context())
		var mu sync.Mutex
		var asked []string
		ended := make(chan error, 5)
		more := map[string]int{"a": 3} // another process takes them
		join := func(name string, away time.Duration) {
			go func() {
				ended <- lines.Wait(t.Context(), "key", turns.Costs{1}, func() (turns.Answer, error) {
					time.Sleep(away)
					mu.Lock()
					defer mu.Unlock()
					asked = append(asked, name)
					if n := len(asked); n >= 2 && n <= 4 {
						return turns.Answer{RetryAfter: time.Minute}, nil
					}
					return turns.Answer{Allowed: true, More: more[name]}, nil
				})
			}()
			synctest.Wait()
		}
		// b, c and d ask together and are denied in the order d, c, b.
		join("a", time.Second)
		join("b", 3*time.Second)
		join("c", 2*time.Second)
		join("d", time.Second)
		join("e", time.Second)
		for range cap(ended) {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		// b sleeps for all of them, and the others pass one after the other.
		if got := fmt.Sprint(asked); got != "[a d c b b c d e]" {
			t.Errorf("they asked in the order %v", got)
		}
	})
}

// As many ask after one that was allowed as there is room for, and at least one.
func TestSoManyAskAtOnceAsThereIsRoomFor(t *testing.T) {
	t.Parallel()
	for _, more := range []int{0, 1, 3, 1000} {
		t.Run(fmt.Sprint(more), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				lines := turns.New(t.Context())
				const waiters = 10
				asking, maxAsking := 0, 0
				var mu sync.Mutex
				var all sync.WaitGroup
				for range waiters {
					all.Go(func() {
						err := lines.Wait(t.Context(), "key", turns.Costs{1}, func() (turns.Answer, error) {
							mu.Lock()
							asking++
							maxAsking = max(maxAsking, asking)
							mu.Unlock()
							time.Sleep(time.Second)
							mu.Lock()
							defer mu.Unlock()
							asking--
							return turns.Answer{Allowed: true, More: more}, nil
						})
						if err != nil {
							t.Error(err)
						}
					})
				}
				all.Wait()
				if want := min(max(1, more), waiters-1); maxAsking != want {
					t.Errorf("%d asked at once, want %d", maxAsking, want)
				}
			})
		})
	}
}

// A turn that comes when the context of its waiter ends is handed on.
func TestTurnOfAWaiterThatLeavesIsHandedOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for range 20 { // whether the waiter sees its turn first is random
			lines := turns.New(t.Context())
			b := &bucket{tokenTime: time.Hour, burst: 1}
			ctx, leave := context.WithCancel(t.Context())
			first := make(chan error, 1)
			go func() {
				first <- lines.Wait(t.Context(), "key", turns.Costs{1}, func() (turns.Answer, error) {
					time.Sleep(time.Second)
					leave()
					return b.take(1), nil
				})
			}()
			synctest.Wait()
			leaves, next := start(ctx, lines, b, 1), start(t.Context(), lines, b, 1)
			if err := <-leaves; !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			for _, ended := range []<-chan error{first, next} {
				if err := <-ended; err != nil {
					t.Error(err)
				}
			}
		}
	})
}

func TestErrorOfTheFirstIsNotThatOfTheNext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lines := turns.New(t.Context())
		b := &bucket{tokenTime: time.Hour, burst: 1}
		fails := errors.New("no answer")
		first := make(chan error, 1)
		go func() {
			first <- lines.Wait(t.Context(), "key", turns.Costs{1}, func() (turns.Answer, error) {
				time.Sleep(time.Second)
				return turns.Answer{}, fails
			})
		}()
		synctest.Wait()
		second := start(t.Context(), lines, b, 1)
		if err := <-first; !errors.Is(err, fails) {
			t.Error(err)
		}
		if err := <-second; err != nil {
			t.Error(err)
		}
	})
}

func TestAllowedRequestsAreHeldUntilTheyMayLeave(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lines := turns.New(t.Context())
		const waiters, interval = 6, 20 * time.Millisecond
		b := &bucket{tokenTime: interval, burst: waiters, isHolding: true}
		begin := time.Now()
		ends := make([]time.Duration, waiters)
		var all sync.WaitGroup
		for i := range waiters {
			all.Go(func() {
				if err := lines.Wait(t.Context(), "key", turns.Costs{1}, b.ask(1)); err != nil {
					t.Error(err)
				}
				ends[i] = time.Since(begin)
			})
		}
		all.Wait()
		slices.Sort(ends)
		for i, end := range ends {
			if want := time.Duration(i) * interval; end != want {
				t.Errorf("waiter %d of %d left after %v, want %v", i, waiters, end, want)
			}
		}
		if n := b.timesAsked(); n != waiters {
			t.Errorf("they asked %d times", n)
		}
	})
}
