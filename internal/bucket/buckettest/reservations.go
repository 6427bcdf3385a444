package buckettest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// RunReservations tests what a store promises of takes with IDs and their settlements.
func RunReservations(t *testing.T, h Harness) {
	for _, l := range []law{
		{"reservations cannot overshoot together", noOvershoot},
		{"the last settlement counts", lastSettlementCounts},
		{"more is charged in full", moreIsChargedInFull},
		{"nothing of others is given back", nothingOfOthersIsGivenBack},
		{"what was not taken is not known", notTakenIsNotKnown},
		{"what was used in a denied group is known", usedInADeniedGroup},
		{"takes of one ID add up", takesAddUp},
		{"all takes of one ID go back", allTakesGoBack},
		{"a take is undone as if it had not been", undoneTake},
		{"each limit is settled by itself", eachLimitByItself},
		{"hostile IDs are apart", hostileIDs},
		{"large settlements", largeSettlements},
		{"settlements of several daemons", settlementsOfDaemons},
		{"an ID is known for as long as it lasts", knownAsLongAsItLasts},
		{"a bill says what is charged", billSaysWhatIsCharged},
		{"nothing goes back into another window", notIntoAnotherWindow},
		{"a bucket gives back what it has not refilled", bucketGivesBackTheRest},
		{"new numbers give back nothing of before", newNumbersGiveNothingBack},
	} {
		t.Run(l.name, func(t *testing.T) { l.test(t, h) })
	}
}

// Reserve takes hits as an ID that lasts an hour, or ends the test if that fails.
func Reserve(t testing.TB, s bucket.Store, id string, hits ...bucket.Hit) []bucket.Decision {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), answerTimeout)
	defer cancel()
	decisions := make([]bucket.Decision, len(hits))
	if err := s.Reserve(ctx, bucket.Reservation{ID: id, Lasts: time.Hour}, hits, decisions); err != nil {
		t.Fatalf("Reserve: %v", err)
	}
	return decisions
}

// Settle settles an ID to the costs of hits, or ends the test if that fails.
func Settle(t testing.TB, s bucket.Store, id string, hits ...bucket.Hit) []bucket.Settled {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), answerTimeout)
	defer cancel()
	settled := make([]bucket.Settled, len(hits))
	if err := s.Settle(ctx, id, hits, settled); err != nil {
		t.Fatalf("Settle: %v", err)
	}
	return settled
}

func of(h bucket.Hit, cost int64) bucket.Hit {
	h.Cost = cost
	return h
}

// wantSettled settles an ID to a cost and fails t unless that does this.
func wantSettled(t testing.TB, s bucket.Store, id string, h bucket.Hit, returned, added, remaining int64) {
	t.Helper()
	got := Settle(t, s, id, h)[0]
	if !got.IsKnown || got.Returned != returned || got.Added != added || got.Remaining != remaining {
		t.Errorf("%s: to settle %q to %d did %+v, want %d returned, %d added and %d remaining", h.Key, id, h.Cost, got, returned, added, remaining)
	}
	wantRemaining(t, s, h, remaining)
}

func wantUnknown(t testing.TB, s bucket.Store, id string, h bucket.Hit) {
	t.Helper()
	before := remaining(t, s, h)
	if got := Settle(t, s, id, h)[0]; got.IsKnown || got.Returned+got.Added+got.Takes+got.Remaining != 0 || got.At == 0 {
		t.Errorf("%s: %q is known: %+v", h.Key, id, got)
	}
	wantRemaining(t, s, h, before)
}

// noOvershoot: of five at once that reserve half of a limit two are admitted, and no
// third until one has settled for less.
func noOvershoot(t *testing.T, h Harness) {
	for _, x := range eachAlgorithm(t, 100, 50) {
		stores := shared(t, h, daemons)
		var admitted []string
		var mu sync.Mutex
		var all sync.WaitGroup
		for i := range 5 {
			all.Go(func() {
				id := fmt.Sprint(i)
				if bucket.Allowed(Reserve(t, stores[i%len(stores)], id, x)) {
					mu.Lock()
					defer mu.Unlock()
					admitted = append(admitted, id)
				}
			})
		}
		all.Wait()
		if len(admitted) != 2 {
			t.Fatalf("%s: %q were admitted", x.Key, admitted)
		}
		s := stores[0]
		if d := Reserve(t, s, "third", x); bucket.Allowed(d) {
			t.Errorf("%s: a third got %+v", x.Key, d)
		}
		wantSettled(t, s, admitted[0], of(x, 50), 0, 0, 0)
		if d := Reserve(t, s, "third", x); bucket.Allowed(d) {
			t.Errorf("%s: a third got %+v after one was settled for as much", x.Key, d)
		}
		wantSettled(t, s, admitted[0], of(x, 20), 30, 0, 30)
		if d := Reserve(t, s, "third", x); bucket.Allowed(d) {
			t.Errorf("%s: a third got %+v with 30 remaining", x.Key, d)
		}
		wantSettled(t, s, admitted[1], of(x, 30), 20, 0, 50)
		if d := Reserve(t, s, "third", x); !bucket.Allowed(d) {
			t.Errorf("%s: a third got %+v with 50 remaining", x.Key, d)
		}
		wantSettled(t, s, "third", of(x, 60), 0, 10, 0)
	}
}

// shared opens n stores that share their states.
func shared(t *testing.T, h Harness, n int) []bucket.Store {
	if h.OpenShared != nil {
		return h.OpenShared(t, n)
	}
	return slices.Repeat([]bucket.Store{h.Open(t, nil)}, n)
}

func lastSettlementCounts(t *testing.T, h Harness) {
	s := h.Open(t, nil)
	for _, x := range eachAlgorithm(t, 100, 50) {
		Take(t, s, of(x, 7))
		Reserve(t, s, "a", x)
		for _, step := range []struct{ cost, returned, added, remaining int64 }{
			{50, 0, 0, 43},
			{10, 40, 0, 83},
			{10, 0, 0, 83},
			{60, 0, 50, 33},
			{55, 5, 0, 38},
			{5, 50, 0, 88},
			{0, 5, 0, 93},
			{0, 0, 0, 93},
			{12, 0, 12, 81},
			{0, 12, 0, 93},
		} {
			wantSettled(t, s, "a", of(x, step.cost), step.returned, step.added, step.remaining)
		}
	}
}

func moreIsChargedInFull(t *testing.T, h Harness) {
	s := h.Open(t, nil)
	for _, x := range eachAlgorithm(t, 100, 50) {
		Reserve(t, s, "a", x)
		wantSettled(t, s, "a", of(x, 150), 0, 100, 0)
		if d := Take(t, s, of(x, 1)); bucket.Allowed(d) {
			t.Errorf("%s: beyond the limit, another take got %+v", x.Key, d)
		}
		wantSettled(t, s, "a", of(x, 90), 60, 0, 10)
	}
}

// nothingOfOthersIsGivenBack: who settles to more than a state can hold, and then to less,
// gets back no more than the state has taken, and so nothing that others have charged. The
// same of a take that is charged anyway.
func nothingOfOthersIsGivenBack(t *testing.T, h Harness) {
	s := h.Open(t, nil)
	for _, x := range eachAlgorithm(t, 100, 60) {
		Take(t, s, of(x, 60))
		Reserve(t, s, "a", of(x, 10))
		for range 3 {
			got := Settle(t, s, "a", of(x, bucket.MaxCost))[0]
			if got.Remaining != 0 {
				t.Errorf("%s: to settle to the highest cost did %+v", x.Key, got)
			}
			if got := Settle(t, s, "a", of(x, 0))[0]; got.Remaining < 39 || got.Remaining > 40 {
				t.Errorf("%s: to settle to the highest cost, and then to nothing, did %+v; others have charged 60 of 100", x.Key, got)
			}
		}
	}
	for _, a := range Rates() {
		x := Hit(NewLimit(t, bucket.Spec{Name: "post", Algorithm: a, Requests: 100, Period: still, Postpaid: bucket.PostpaidAlways}), a.String(), 60)
		Take(t, s, x)
		Reserve(t, s, "a", of(x, bucket.MaxCost))
		if got := Settle(t, s, "a", of(x, 0))[0]; got.Remaining < 39 || got.Remaining > 40 {
			t.Errorf("%s: to settle a take of the highest cost to nothing did %+v; others have charged 60 of 100", x.Key, got)
		}
	}
}

func notTakenIsNotKnown(t *testing.T, h Harness) {
	s := h.Open(t, nil)
	for _, x := range eachAlgorithm(t, 10, 6) {
		wantUnknown(t, s, "nobody", x)
		Reserve(t, s, "a", x)
		wantUnknown(t, s, "b", of(x, 1))
		if d := Reserve(t, s, "denied", x); bucket.Allowed(d) {
			t.Fatalf("%s: 12 of 10 were allowed", x.Key)
		}
		wantUnknown(t, s, "denied", of(x, 0))
		wantUnknown(t, s, "denied", of(x, 9))
		Reserve(t, s, "peek", of(x, 0))
		wantUnknown(t, s, "peek", of(x, 3))
		Reserve(t, s, "refund", of(x, -1))
		wantUnknown(t, s, "refund", of(x, 3))
		other := Hit(x.Limit, string(x.Key)+" other", 6)
		wantUnknown(t, s, "a", other)
		Take(t, s, other) // a take without an ID
		wantUnknown(t, s, "a", of(other, 0))
		wantSettled(t, s, "a", of(x, 2), 4, 0, 9) // 1 was refunded
	}
	for _, x := range eachAlgorithm(t, 0, 1) {
		Reserve(t, s, "none", x)
		wantUnknown(t, s, "none", x)
	}
}

func usedInADeniedGroup(t *testing.T, h Harness) {
	s := h.Open(t, nil)
	for _, a := range Rates() {
		post := Hit(NewLimit(t, bucket.Spec{Name: "post", Algorithm: a, Requests: 10, Period: still, Postpaid: bucket.PostpaidAlways}), a.String(), 14)
		plain := Hit(stillLimit(t, a, 3), a.String(), 1)
		full := Hit(stillLimit(t, a, 3), a.String()+" full", 4)
		if d := Reserve(t, s, "a", post, plain, full); bucket.Allowed(d) {
			t.Fatalf("%s: 4 of 3 were allowed: %+v", a, d)
		}
		wantUnknown(t, s, "a", plain)
		wantUnknown(t, s, "a", full)
		wantSettled(t, s, "a", of(post, 4), 10, 0, 6)
	}
}

func takesAddUp(t *testing.T, h Harness) {
	s := h.Open(t, nil)
	for _, x := range eachAlgorithm(t, 100, 50) {
		Reserve(t, s, "a", of(x, 20))
		Reserve(t, s, "a", of(x, 30), of(x, 10)) // equal keys are one hit
		Reserve(t, s, "a", of(x, 5))
		wantRemaining(t, s, x, 35)
		if got := Settle(t, s, "a", of(x, 40))[0]; got.Takes != 3 || got.Returned != 25 || got.Remaining != 60 {
			t.Errorf("%s: three takes of 65 to 40: %+v", x.Key, got)
		}
		if got := Settle(t, s, "a", of(x, 10), of(x, 20)); got[0] != got[1] || got[0].Returned != 10 {
			t.Errorf("%s: equal keys to 10 and 20: %+v", x.Key, got)
		}
		wantRemaining(t, s, x, 70)
	}
}

// allTakesGoBack: as many takes of one ID as a bill keeps apart go back whole, wherever their
// hits are, among those of others.
func allTakesGoBack(t *testing.T, h Harness) {
	for n := 1; n <= bucket.MaxPortions; n += 3 {
		s, setClock := openNow(t, h)
		for _, a := range Rates() {
			x := Hit(NewLimit(t, bucket.Spec{Algorithm: a, Requests: 200, Period: 10 * time.Hour}), fmt.Sprint(a, n), 2)
			for i := range n {
				setClock(time.Duration(i) * time.Second)
				Reserve(t, s, "a", x)
				Take(t, s, of(x, 1))
			}
			setClock(time.Minute)
			wantSettled(t, s, "a", of(x, 0), int64(2*n), 0, 200-int64(n))
		}
	}
}

// undoneTake: a cost below 0 takes one take out, and the last one all that is left.
func undoneTake(t *testing.T, h Harness) {
	s := h.Open(t, nil)
	for _, x := range eachAlgorithm(t, 100, 50) {
		Reserve(t, s, "a", of(x, 20))
		wantSettled(t, s, "a", of(x, -20), 20, 0, 100)
		wantUnknown(t, s, "a", of(x, 30))
		Reserve(t, s, "a", of(x, 20))
		Reserve(t, s, "a", of(x, 30))
		wantSettled(t, s, "a", of(x, -30), 30, 0, 80)
		wantSettled(t, s, "a", of(x, 5), 15, 0, 95)
		wantSettled(t, s, "a", of(x, -20), 5, 0, 100) // no more than there still is
		wantUnknown(t, s, "a", of(x, 5))
		Reserve(t, s, "a", of(x, 5))
		wantSettled(t, s, "a", of(x, 8), 0, 3, 92)
		wantSettled(t, s, "a", of(x, -5), 8, 0, 100) // what settling added too
		wantUnknown(t, s, "a", of(x, 5))
	}
}

func eachLimitByItself(t *testing.T, h Harness) {
	s := h.Open(t, nil)
	hits := eachAlgorithm(t, 100, 50)
	aside := Hit(stillLimit(t, bucket.FixedWindow, 100), "aside", 50)
	aside.Role = bucket.Aside
	Reserve(t, s, "a", append(slices.Clone(hits), aside)...)
	var goals []bucket.Hit
	for i, x := range hits {
		goals = append(goals, of(x, 40+int64(5*i)))
	}
	goals = append(goals, Hit(hits[0].Limit, "stranger", 9), of(aside, 1))
	settled := Settle(t, s, "a", goals...)
	for i, x := range hits {
		wantRemaining(t, s, x, 60-int64(5*i))
		if got := settled[i]; !got.IsKnown || got.Returned != max(0, 10-int64(5*i)) || got.Added != max(0, int64(5*i)-10) {
			t.Errorf("%s: %+v", x.Key, got)
		}
	}
	if stranger := settled[len(hits)]; stranger.IsKnown {
		t.Errorf("beside the others a limit that was not taken from is known: %+v", stranger)
	}
	wantRemaining(t, s, aside, 99)
}

// hostileIDs: neither an ID nor an entry's value makes two bills share a key.
func hostileIDs(t *testing.T, h Harness) {
	s := h.Open(t, nil)
	l := stillLimit(t, bucket.FixedWindow, 1000)
	x := Hit(l, "x", 1)
	var ids []string
	for _, subject := range HostileSubjects() {
		for _, e := range subject {
			for _, id := range []string{e.Key, e.Value, "~" + e.Value, string(x.Key) + "~" + e.Value} {
				if id != "" && !slices.Contains(ids, id) {
					ids = append(ids, id)
				}
			}
		}
	}
	hits := []bucket.Hit{x, Hit(l, "x~a", 1), Hit(l, "x#fixed_window~a", 1), Hit(l, strings.Repeat("x", bucket.MaxKey), 1)}
	for _, y := range hits {
		for _, id := range ids {
			Reserve(t, s, id, y)
		}
		wantRemaining(t, s, y, 1000-int64(len(ids)))
	}
	for _, y := range hits {
		for i, id := range ids {
			wantSettled(t, s, id, of(y, 0), 1, 0, 1000-int64(len(ids)-i-1))
		}
	}
}

func largeSettlements(t *testing.T, h Harness) {
	s := h.Open(t, nil)
	var hits, goals []bucket.Hit
	for i := range 200 {
		a := Rates()[i%len(Rates())]
		x := Hit(stillLimit(t, a, 9), fmt.Sprint(i), 5)
		hits, goals = append(hits, x), append(goals, of(x, int64(i%9)))
	}
	Reserve(t, s, "a", hits...)
	for i, got := range Settle(t, s, "a", goals...) {
		if !got.IsKnown || got.Remaining != 9-int64(i%9) {
			t.Fatalf("%s: %+v", hits[i].Key, got)
		}
	}
}

// settlementsOfDaemons: whatever several daemons reserve and settle at once, in the end
// what was used is what counts, and the limit never admits more than its requests.
func settlementsOfDaemons(t *testing.T, h Harness) {
	for _, x := range eachAlgorithm(t, 1000, 1) {
		stores := shared(t, h, daemons)
		var used atomic.Int64
		var all sync.WaitGroup
		for i := range daemons * callers {
			all.Go(func() {
				for n := range int64(asks) {
					id := fmt.Sprint(i, " ", n)
					reserved := 1 + (int64(i)+n)%40
					if !bucket.Allowed(Reserve(t, stores[i%daemons], id, of(x, reserved))) {
						continue
					}
					// Two processes settle it, one of them twice, and it is used up to
					// what was reserved.
					goal := (n * 7) % (reserved + 1)
					var both sync.WaitGroup
					both.Go(func() { Settle(t, stores[(i+1)%daemons], id, of(x, goal)) })
					Settle(t, stores[i%daemons], id, of(x, goal))
					both.Wait()
					used.Add(goal)
					if n := used.Load(); n > 1000 {
						t.Errorf("%s: %d were used", x.Key, n)
					}
				}
			})
		}
		all.Wait()
		for _, s := range stores {
			// Of each that used nothing a bucket keeps what it has refilled meanwhile.
			left, want := remaining(t, s, x), 1000-used.Load()
			if left != want && !(x.Limit.Algorithm.IsBucket() && left == want-1) {
				t.Errorf("%s: %d remain, want %d", x.Key, left, want)
			}
		}
	}
}

func knownAsLongAsItLasts(t *testing.T, h Harness) {
	for _, x := range eachAlgorithm(t, 100, 50) {
		s, setClock := openNow(t, h)
		Reserve(t, s, "a", x)
		setClock(30 * time.Minute)
		Reserve(t, s, "later", of(x, 10))
		setClock(time.Hour - time.Microsecond)
		if got := Settle(t, s, "a", of(x, 20))[0]; !got.IsKnown || got.Returned != 30 {
			t.Errorf("%s: at the last moment %+v", x.Key, got)
		}
		setClock(time.Hour)
		wantUnknown(t, s, "a", of(x, 0))
		if got := Settle(t, s, "later", of(x, 0))[0]; !got.IsKnown || got.Returned != 10 {
			t.Errorf("%s: a later one: %+v", x.Key, got)
		}
		Reserve(t, s, "a", of(x, 5)) // begins again
		if got := Settle(t, s, "a", of(x, 1))[0]; got.Takes != 1 || got.Returned != 4 {
			t.Errorf("%s: an ID that comes again: %+v", x.Key, got)
		}
	}
}

func notIntoAnotherWindow(t *testing.T, h Harness) {
	for _, a := range []bucket.Algorithm{bucket.FixedWindow, bucket.SlidingWindow, bucket.SlidingLog} {
		x := Hit(NewLimit(t, bucket.Spec{Algorithm: a, Requests: 100, Period: time.Minute}), a.String(), 50)
		s, setClock := openNow(t, h)
		Reserve(t, s, "a", x)
		setClock(61 * time.Second)
		Take(t, s, of(x, 40))
		wantSettled(t, s, "a", of(x, 0), 0, 0, 60)
		// What was not given back is not charged again.
		wantSettled(t, s, "a", of(x, 50), 0, 0, 60)
		wantSettled(t, s, "a", of(x, 55), 0, 5, 55)
		wantSettled(t, s, "a", of(x, 0), 5, 0, 60)
	}
}

func bucketGivesBackTheRest(t *testing.T, h Harness) {
	for _, a := range []bucket.Algorithm{bucket.TokenBucket, bucket.GCRA, bucket.LeakyBucket} {
		x := Hit(NewLimit(t, bucket.Spec{Algorithm: a, Requests: 60, Period: time.Minute, Burst: 100}), a.String(), 50)
		s, setClock := openNow(t, h)
		Reserve(t, s, "a", x)
		Take(t, s, of(x, 40))
		setClock(20 * time.Second) // 20 of 90 are refilled
		wantSettled(t, s, "a", of(x, 25), 25, 0, 55)
		// 25 tokens would have lasted 25 s. Nothing but that is left of them.
		wantSettled(t, s, "a", of(x, 0), 5, 0, 60)
		wantSettled(t, s, "a", of(x, 0), 0, 0, 60)

		whole := Hit(x.Limit, a.String()+" whole", 50)
		Reserve(t, s, "b", whole)
		setClock(20*time.Second + time.Millisecond)
		wantSettled(t, s, "b", of(whole, 0), 50, 0, 100)
	}
}

// newNumbersGiveNothingBack: what other numbers charged says nothing of what still counts;
// what came after it does.
func newNumbersGiveNothingBack(t *testing.T, h Harness) {
	for _, a := range Rates() {
		if a.HasSpans() {
			continue
		}
		slow := NewLimit(t, bucket.Spec{Algorithm: a, Requests: 100, Period: still})
		fast := NewLimit(t, bucket.Spec{Algorithm: a, Requests: 100, Period: still / 2})
		s, setClock := openNow(t, h)
		x, y := Hit(slow, a.String(), 50), Hit(fast, a.String(), 5)
		Reserve(t, s, "a", x)
		wantSettled(t, s, "a", of(y, 10), 0, 0, 50)
		Reserve(t, s, "a", y)
		wantSettled(t, s, "a", of(y, 0), 5, 0, 50)
		wantSettled(t, s, "a", of(y, 60), 0, 10, 40)
		setClock(time.Microsecond)
		wantSettled(t, s, "a", of(y, 52), 8, 0, 48)
	}
}
