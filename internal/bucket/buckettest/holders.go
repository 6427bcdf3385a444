package buckettest

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// RunHolders tests what a store promises of a concurrency.
func RunHolders(t *testing.T, h Harness) {
	for _, l := range []law{
		{"a holder has one slot", holderHasOneSlot},
		{"a hold ends", holdEnds},
		{"a denied request holds nothing", deniedHoldsNothing},
		{"a release applies whatever its group gets", releaseApplies},
		{"holders of one request count for each other", holdersOfOneRequest},
		{"a give-back frees only what its take wrote", giveBackOfHolders},
		{"a give-back is whole when the clock is as far back as may be", giveBackAtTheSkew},
		{"new numbers take nothing away", newNumbersOfHolders},
		{"a limit of none may be released from", releaseFromALimitOfNone},
		{"a release says what it found", releaseSaysWhatItFound},
		{"a denial says when a slot is free at the latest", freeAtLatest},
		{"never more hold than may", neverMoreHold},
	} {
		t.Run(l.name, func(t *testing.T) { l.test(t, h) })
	}
}

// concurrencyOf is a concurrency that holds for a minute.
func concurrencyOf(t *testing.T, requests int64) *bucket.Limit {
	return NewLimit(t, bucket.Spec{Algorithm: bucket.Concurrency, Requests: requests, Period: time.Minute})
}

// by is a hit of a holder.
func by(l *bucket.Limit, holder string, cost int64) bucket.Hit {
	h := Hit(l, "x", cost)
	h.Holder = holder
	return h
}

// openNow opens a store whose clock stands still until it is set.
func openNow(t *testing.T, h Harness) (bucket.Store, func(after time.Duration)) {
	s, setClock := openAt(t, h)
	setClock(fullHour)
	return s, func(after time.Duration) { setClock(fullHour + after.Microseconds()) }
}

// wantTake takes from one limit, and fails t unless it gets this decision.
func wantTake(t *testing.T, s bucket.Store, h bucket.Hit, retry time.Duration, remaining int64) bucket.Decision {
	t.Helper()
	d := Take(t, s, h)[0]
	if d.RetryAfter != retry || d.Remaining != remaining {
		t.Errorf("a take of %d by %q gets %+v, want the retry time %d with %d remaining", h.Cost, h.Holder, d, retry, remaining)
	}
	return d
}

func holderHasOneSlot(t *testing.T, h Harness) {
	s, _ := openNow(t, h)
	l := concurrencyOf(t, 2)
	for _, c := range []struct {
		holder    string
		cost      int64
		retry     time.Duration
		remaining int64
	}{
		{"", 0, 0, 2},
		{"a", 0, 0, 2},
		{"a", 1, 0, 1},
		{"a", 1, 0, 1}, // again
		{"b", 1, 0, 0},
		{"c", 1, bucket.Unknown, 0},
		{"c", 0, bucket.Unknown, 0},
		{"", 0, bucket.Unknown, 0},
		{"a", 0, 0, 0},
		{"a", 1, 0, 0},
		{"", 1, bucket.Never, 0}, // no one
		{"a", 2, bucket.Never, 0},
		{"c", -1, 0, 0}, // who holds nothing
		{"", -1, 0, 0},
		{"b", -7, 0, 1},
		{"b", -1, 0, 1},
		{"c", 1, 0, 0},
		{"a", -1, 0, 1},
		{"c", -1, 0, 2},
		{"c", 1, 0, 1},
	} {
		wantTake(t, s, by(l, c.holder, c.cost), c.retry, c.remaining)
	}
}

func holdEnds(t *testing.T, h Harness) {
	s, setClock := openNow(t, h)
	l := concurrencyOf(t, 2)
	wantTake(t, s, by(l, "a", 1), 0, 1)
	setClock(10 * time.Second)
	wantTake(t, s, by(l, "b", 1), 0, 0)
	setClock(time.Minute - 1*us)
	wantTake(t, s, by(l, "c", 1), bucket.Unknown, 0)
	setClock(time.Minute)
	if d := wantTake(t, s, by(l, "c", 0), 0, 1); d.ResetAfter != 10*time.Second {
		t.Errorf("all is free after %s, want 10s", d.ResetAfter)
	}
	wantTake(t, s, by(l, "c", 1), 0, 0)
	wantTake(t, s, by(l, "a", -1), 0, 0) // another has its slot
	wantTake(t, s, by(l, "a", 1), bucket.Unknown, 0)
	setClock(69 * time.Second)
	wantTake(t, s, by(l, "b", 1), 0, 0) // in time
	setClock(time.Minute + 69*time.Second - 1*us)
	wantTake(t, s, by(l, "", 0), 0, 1)
	setClock(time.Minute + 69*time.Second)
	wantTake(t, s, by(l, "", 0), 0, 2)
}

func deniedHoldsNothing(t *testing.T, h Harness) {
	s, _ := openNow(t, h)
	l, rate := concurrencyOf(t, 1), Hit(stillLimit(t, bucket.FixedWindow, 1), "x", 1)
	Take(t, s, rate)
	if d := Take(t, s, by(l, "a", 1), rate); bucket.Allowed(d) || !d[0].Allowed() || d[0].Remaining != 1 {
		t.Errorf("denied by a rate, it gets %+v", d)
	}
	wantTake(t, s, by(l, "b", 1), 0, 0)
	refund := rate
	refund.Cost = -1
	Take(t, s, refund)
	if d := Take(t, s, rate, by(l, "a", 1)); bucket.Allowed(d) || d[1].RetryAfter != bucket.Unknown {
		t.Errorf("without a slot, it gets %+v", d)
	}
	wantRemaining(t, s, rate, 1)
}

func releaseApplies(t *testing.T, h Harness) {
	s, _ := openNow(t, h)
	l, rate := concurrencyOf(t, 1), Hit(stillLimit(t, bucket.FixedWindow, 1), "x", 2)
	wantTake(t, s, by(l, "a", 1), 0, 0)
	if d := Check(t, s, by(l, "a", -1), rate); !d[0].Allowed() || d[0].Remaining != 0 {
		t.Errorf("a check of a release gets %+v", d)
	}
	if d := Take(t, s, rate, by(l, "a", -1)); bucket.Allowed(d) || !d[1].Allowed() || d[1].Remaining != 1 {
		t.Errorf("beside a rate that denies, a release gets %+v", d)
	}
	wantTake(t, s, by(l, "b", 1), 0, 0)
}

func holdersOfOneRequest(t *testing.T, h Harness) {
	s, _ := openNow(t, h)
	l := concurrencyOf(t, 3)
	if d := Take(t, s, by(l, "a", 1), by(l, "a", 1)); !bucket.Allowed(d) || d[0] != d[1] || d[0].Remaining != 2 {
		t.Errorf("a holder that takes twice gets %+v", d)
	}
	if d := Take(t, s, by(l, "b", 1), by(l, "a", 1), by(l, "c", 1), by(l, "d", 1)); bucket.Allowed(d) || !bucket.Allowed(d[:3]) || d[3].RetryAfter != bucket.Unknown {
		t.Errorf("three for two slots get %+v", d)
	}
	wantTake(t, s, by(l, "", 0), 0, 2)
	aside := by(l, "d", 1)
	aside.Role = bucket.Aside
	if d := Take(t, s, by(l, "b", 1), by(l, "c", 1), aside); !bucket.Allowed(d[:2]) || d[1].Remaining != 0 || d[2].Allowed() {
		t.Errorf("two for two slots, and one aside, get %+v", d)
	}
	if d := Take(t, s, by(l, "b", -1), by(l, "d", 1)); bucket.Allowed(d) || !d[0].Allowed() {
		t.Errorf("one that takes beside one that releases gets %+v", d)
	}
	wantTake(t, s, by(l, "d", 1), 0, 0)
	if d := Take(t, s, by(l, "d", 1), by(l, "d", -1)); !bucket.Allowed(d) || d[0].Remaining != 1 {
		t.Errorf("a holder that releases, and takes too, gets %+v", d)
	}
}

// The clock stands still, so that takes differ by their moments only because each has
// its own.
func giveBackOfHolders(t *testing.T, h Harness) {
	s, setClock := openNow(t, h)
	l := concurrencyOf(t, 9)
	back := func(d bucket.Decision, left int64) {
		t.Helper()
		GiveBack(t, s, []bucket.Hit{by(l, "a", 1)}, []bucket.Decision{d})
		wantRemaining(t, s, by(l, "", 0), left)
	}
	first := wantTake(t, s, by(l, "a", 1), 0, 8)
	again := wantTake(t, s, by(l, "a", 1), 0, 8)
	back(first, 8) // it was renewed
	back(again, 8) // it took nothing
	wantTake(t, s, by(l, "a", -1), 0, 9)
	second := wantTake(t, s, by(l, "a", 1), 0, 8)
	back(first, 8) // another take
	back(second, 9)
	back(second, 9)
	setClock(time.Second)
	third := wantTake(t, s, by(l, "a", 1), 0, 8)
	back(second, 8)
	back(third, 9)
	two := []bucket.Hit{by(l, "a", 1), by(l, "b", 1)}
	d := Take(t, s, two...)
	if d[0].At == d[1].At {
		t.Errorf("two holders of one request have one moment: %+v", d)
	}
	GiveBack(t, s, two, d)
	wantRemaining(t, s, by(l, "", 0), 9)
}

// Each slot that is freed is a write, a moment after the one before, so that the state
// gets further ahead of the clock than it was when the give-back began.
func giveBackAtTheSkew(t *testing.T, h Harness) {
	s, setClock := openNow(t, h)
	l := concurrencyOf(t, 9)
	hits := []bucket.Hit{by(l, "a", 1), by(l, "b", 1), by(l, "c", 1), by(l, "d", 1)}
	d := Take(t, s, hits...)
	setClock(3*us - bucket.DefaultMaxClockSkew) // d took 3 us later than a
	GiveBack(t, s, hits[:3], d[:3])
	wantRemaining(t, s, by(l, "", 0), 8)
}

func newNumbersOfHolders(t *testing.T, h Harness) {
	s, setClock := openNow(t, h)
	wide, narrow := concurrencyOf(t, 3), NewLimit(t, bucket.Spec{Algorithm: bucket.Concurrency, Requests: 1, Period: time.Second})
	for i, holder := range []string{"a", "b", "c"} {
		wantTake(t, s, by(wide, holder, 1), 0, int64(2-i))
	}
	wantTake(t, s, by(narrow, "d", 1), bucket.Unknown, 0)
	wantTake(t, s, by(narrow, "a", 1), 0, 0)
	setClock(time.Second + 10*us)
	wantTake(t, s, by(wide, "", 0), 0, 1) // a has the new hold, b and c the old one
	wantTake(t, s, by(narrow, "b", -1), 0, 0)
	wantTake(t, s, by(narrow, "c", -1), 0, 1)
}

// While no one may hold, those who held before release, and are not held against the
// limit when it is more again.
func releaseFromALimitOfNone(t *testing.T, h Harness) {
	s, setClock := openNow(t, h)
	l, none := concurrencyOf(t, 3), concurrencyOf(t, 0)
	wantTake(t, s, by(none, "a", -1), 0, 0)
	for i, holder := range []string{"a", "b", "c"} {
		wantTake(t, s, by(l, holder, 1), 0, int64(2-i))
	}
	wantTake(t, s, by(none, "a", 1), bucket.Never, 0)
	wantTake(t, s, by(none, "a", 0), bucket.Never, 0)
	wantTake(t, s, by(none, "", 0), bucket.Never, 0)
	wantTake(t, s, by(none, "d", 1), bucket.Never, 0)
	wantTake(t, s, by(none, "d", -1), 0, 0)
	wantTake(t, s, by(none, "a", -1), 0, 0)
	if d := Take(t, s, by(none, "b", -1), by(none, "d", 1)); bucket.Allowed(d) || !d[0].Allowed() {
		t.Errorf("a release beside a take that is denied gets %+v", d)
	}
	wantTake(t, s, by(l, "", 0), 0, 2)
	setClock(-time.Hour) // a wrong clock wrote it
	wantTake(t, s, by(none, "c", -1), 0, 0)
	wantTake(t, s, by(l, "", 0), 0, 3)
}

// wantRelease releases a holder's slot, and fails t unless that finds this.
func wantRelease(t *testing.T, s bucket.Store, h bucket.Hit, found bucket.Released) {
	t.Helper()
	h.Cost = -1
	if d := Check(t, s, h)[0]; d.Released != found {
		t.Errorf("a check of a release by %q finds %v, want %v", h.Holder, d.Released, found)
	}
	if d := Take(t, s, h)[0]; d.Released != found || !d.Allowed() {
		t.Errorf("a release by %q gets %+v, want that it finds %v", h.Holder, d, found)
	}
}

func releaseSaysWhatItFound(t *testing.T, h Harness) {
	s, setClock := openNow(t, h)
	l := concurrencyOf(t, 9)
	a, b, c := by(l, "a", 1), by(l, "b", 1), by(l, "c", 1)
	wantRelease(t, s, a, bucket.ReleasedNothing)
	Take(t, s, a)
	wantRelease(t, s, by(l, "", 1), bucket.ReleasedNothing)
	wantRelease(t, s, a, bucket.ReleasedSlot)
	wantRelease(t, s, a, bucket.ReleasedNothing)
	const second = time.Second
	setClock(second)
	Take(t, s, a)
	setClock(2 * second)
	Take(t, s, b)
	setClock(3 * second)
	Take(t, s, c)
	setClock(time.Minute + second)
	if d := Take(t, s, by(l, "", 0))[0]; d.Remaining != 7 || d.Released != bucket.ReleasedNothing {
		t.Errorf("once a has lapsed, a look gets %+v", d)
	}
	wantRelease(t, s, a, bucket.ReleasedTooLate)
	wantRelease(t, s, a, bucket.ReleasedNothing)
	setClock(2*time.Minute + 2*second - 1*us)
	wantRelease(t, s, b, bucket.ReleasedTooLate)
	setClock(2*time.Minute + 3*second)
	wantRelease(t, s, c, bucket.ReleasedNothing) // it was too long ago
	wantRemaining(t, s, by(l, "", 0), 9)
	// Who takes again after lapsing has a slot like any other.
	Take(t, s, a)
	setClock(3*time.Minute + 4*second)
	Take(t, s, a)
	wantRelease(t, s, a, bucket.ReleasedSlot)
	wantRemaining(t, s, by(l, "", 0), 9)
}

func freeAtLatest(t *testing.T, h Harness) {
	s, setClock := openNow(t, h)
	wide, narrow := concurrencyOf(t, 3), concurrencyOf(t, 1)
	for i, holder := range []string{"a", "b", "c"} {
		setClock(time.Duration(i) * time.Second)
		Take(t, s, by(wide, holder, 1))
	}
	setClock(10 * time.Second)
	if d := Take(t, s, by(wide, "d", 1))[0]; d.RetryAfter != bucket.Unknown || d.FreeAtLatest() != 50*time.Second {
		t.Errorf("while three of three hold, it gets %+v", d)
	}
	if d := Take(t, s, by(wide, "", 0))[0]; d.RetryAfter != bucket.Unknown || d.FreeAtLatest() != 50*time.Second {
		t.Errorf("while three of three hold, a look gets %+v", d)
	}
	if d := Take(t, s, by(narrow, "d", 1))[0]; d.FreeAtLatest() != 52*time.Second {
		t.Errorf("while three of one hold, it gets %+v", d)
	}
	Take(t, s, by(wide, "a", 1)) // again
	setClock(11 * time.Second)
	if d := Take(t, s, by(wide, "d", 1), by(wide, "e", 1)); d[0].FreeAtLatest() != 50*time.Second || d[1].FreeAtLatest() != 50*time.Second {
		t.Errorf("while three of three hold, two get %+v", d)
	}
	Take(t, s, by(wide, "b", -1))
	setClock(12 * time.Second)
	if d := Take(t, s, by(wide, "d", 1), by(wide, "e", 1), by(wide, "f", 1), by(wide, "g", 1)); !d[0].Allowed() || d[0].FreeAtLatest() != 0 ||
		d[1].FreeAtLatest() != 50*time.Second || d[3].FreeAtLatest() != 50*time.Second {
		t.Errorf("four for one slot get %+v", d)
	}
}

// neverMoreHold: however many take, renew, release and give back at once, no more than
// may ever hold.
func neverMoreHold(t *testing.T, h Harness) {
	const slots, rounds = 5, 60
	var stores []bucket.Store
	if h.OpenShared != nil {
		stores = h.OpenShared(t, daemons)
	} else {
		stores = []bucket.Store{h.Open(t, nil)}
	}
	l := concurrencyOf(t, slots)
	ctx, cancel := context.WithTimeout(context.Background(), answerTimeout)
	defer cancel()
	var held, taken atomic.Int64
	var done sync.WaitGroup
	for i := range daemons * callers {
		s := stores[i%len(stores)]
		take := func(hits ...bucket.Hit) []bucket.Decision {
			d := make([]bucket.Decision, len(hits))
			if err := s.Take(ctx, hits, d); err != nil {
				t.Errorf("Take: %v", err)
			}
			return d
		}
		done.Go(func() {
			for round := range rounds {
				mine, other := by(l, fmt.Sprint(i, " ", round%3), 1), by(l, fmt.Sprint(i, " other"), 1)
				group := []bucket.Hit{mine, other}[:1+round%2]
				d := take(group...)
				if t.Failed() {
					return
				}
				if !bucket.Allowed(d) {
					continue
				}
				taken.Add(1)
				if n := held.Add(int64(len(group))); n > slots {
					t.Errorf("%d hold", n)
				}
				if renewed := take(mine); !renewed[0].Allowed() || renewed[0].Renewal == bucket.NotRenewed {
					t.Errorf("a holder that takes again gets %+v", renewed)
				}
				held.Add(-int64(len(group)))
				if round%4 > 1 && len(group) == 1 {
					mine.Cost = -1
					take(mine)
					continue
				}
				// What was renewed is not given back.
				if err := s.GiveBack(ctx, group, d); err != nil {
					t.Errorf("GiveBack: %v", err)
				}
				mine.Cost = -1
				take(mine)
			}
		})
	}
	done.Wait()
	if taken.Load() < rounds {
		t.Errorf("only %d requests were allowed", taken.Load())
	}
	wantRemaining(t, stores[0], by(l, "", 0), slots)
}
