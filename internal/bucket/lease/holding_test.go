package lease_test

import (
	"errors"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket/lease"
)

// host stops no timer and keeps what is left.
type host struct{ spares []lease.Spare[string] }

func (h *host) After(time.Duration, func()) func() { return func() {} }
func (h *host) Spare(s lease.Spare[string])        { h.spares = append(h.spares, s) }
func at(d time.Duration) lease.Instant             { return lease.Instant{Mono: int64(d), Wall: int64(d)} }
func denied(goodFor time.Duration) (a lease.Answer[string]) {
	return lease.Answer[string]{Value: "no", Charged: 1, GoodFor: goodFor}
}

// over returns a holding whose limit has denied, whose denial has ended, and an ask that
// others wait for, sent at a second.
func over(t *testing.T) (*lease.Holding[string], lease.Ask) {
	t.Helper()
	h := lease.New[string](new(host), "key", at(0))
	h.Note(denied(time.Millisecond))
	a, probe := h.Ask(at(time.Second), 1, false)
	if probe != nil {
		t.Fatal("nobody asks")
	}
	return h, a
}

// wait returns what a request waits for.
func wait(t *testing.T, h *lease.Holding[string], now time.Duration) *lease.Probe {
	t.Helper()
	h.Wait(1)
	_, probe := h.Ask(at(now), 1, false)
	if probe == nil {
		t.Fatal("two ask at once, over the limit")
	}
	return probe
}

func TestOneAsksOverTheLimit(t *testing.T) {
	t.Parallel()
	h, a := over(t)
	probe := wait(t, h, time.Second)
	h.Learn(a, denied(time.Millisecond), at(2*time.Second))
	<-probe.Done()
	if probe.Err() != nil {
		t.Error(probe.Err())
	}
	// The denial has ended. It decides those who came before its request was sent.
	for came, want := range map[time.Duration]bool{time.Second - 1: true, time.Second: false, 2 * time.Second: false} {
		if u, ok := h.Decide(1, at(2*time.Second), int64(came)); ok != want || u.Allowed {
			t.Errorf("who came at %v is decided: %v", came, ok)
		}
	}
	if _, next := h.Ask(at(2*time.Second), 1, false); next != nil {
		t.Error("nobody asks after the answer")
	}
}

func TestThoseWhoWaitShareAGrant(t *testing.T) {
	t.Parallel()
	h, a := over(t)
	for range 5 {
		wait(t, h, time.Second)
	}
	// Who asked was allowed, and some remains.
	h.Learn(a, lease.Answer[string]{Allowed: true, Charged: 1, Used: 1, GoodFor: time.Millisecond, Remaining: 4}, at(time.Second))
	b, probe := h.Ask(at(time.Second), 1, false)
	if probe != nil || b.Units != 5 {
		t.Fatalf("%d units are asked for, while 5 wait", b.Units)
	}
	wait(t, h, time.Second)
	h.Learn(b, lease.Answer[string]{Value: "yes", Allowed: true, Charged: 4, Used: 1, GoodFor: time.Millisecond, Denial: "none", Denies: true}, at(time.Second))
	for range 3 {
		if u, ok := h.Decide(1, at(time.Second), int64(time.Second)); !ok || u.Answer != "yes" {
			t.Error("what was granted is not used")
		}
	}
	// Nothing was left: that denies those who came before it was asked for, and no other.
	if u, ok := h.Decide(1, at(time.Second), int64(time.Second)-1); !ok || u.Allowed || u.Answer != "none" {
		t.Error("who waited when nothing was left is not denied")
	}
	if _, ok := h.Decide(1, at(time.Second), int64(time.Second)); ok {
		t.Error("who came later is decided")
	}
	// Enough remains for all who wait: they need not wait for each other.
	h.Wait(-6)
	c, _ := h.Ask(at(2*time.Second), 1, false)
	h.Learn(c, lease.Answer[string]{Allowed: true, Charged: 1, Used: 1, GoodFor: time.Millisecond, Remaining: 1000}, at(2*time.Second))
	for range 2 {
		if _, probe := h.Ask(at(2*time.Second), 1, false); probe != nil {
			t.Error("one waits although enough remains")
		}
	}
}

// What remains may stay above 0 while more and more wait for it.
func TestWhoHasWaitedAsksBesideOthers(t *testing.T) {
	t.Parallel()
	h, a := over(t)
	if probe := wait(t, h, 2*time.Second); probe.Sent != int64(time.Second) {
		t.Errorf("sent at %v", time.Duration(probe.Sent))
	}
	h.Learn(a, lease.Answer[string]{Allowed: true, Charged: 1, Used: 1, GoodFor: time.Minute, Remaining: 0}, at(2*time.Second))
	b, _ := h.Ask(at(2*time.Second), 1, false)
	probe := wait(t, h, 2*time.Second)
	if _, other := h.Ask(at(2*time.Second), 1, true); other != nil {
		t.Error("who has waited waits for one more")
	}
	if wait(t, h, 2*time.Second) != probe {
		t.Error("others wait for who has waited")
	}
	h.Learn(b, denied(time.Millisecond), at(3*time.Second))
	<-probe.Done()
}

func TestOneAsksForAGrant(t *testing.T) {
	t.Parallel()
	h := lease.New[string](new(host), "key", at(0))
	now := time.Duration(0)
	ask := func() (lease.Ask, *lease.Probe) {
		now += time.Microsecond
		return h.Ask(at(now), 1, false)
	}
	a, probe := ask()
	for ; a.Units == 0; a, probe = ask() {
		if probe != nil {
			t.Fatal("one waits for an ask without a lease")
		}
		h.Learn(a, lease.Answer[string]{Allowed: true, Charged: 1, Used: 1, GoodFor: time.Second, Remaining: 1 << 30}, at(now))
	}
	if _, probe = ask(); probe == nil {
		t.Fatal("two ask for a grant")
	}
	if !h.Learn(a, lease.Answer[string]{Allowed: true, Charged: 40, GoodFor: time.Second, Remaining: 1 << 30}, at(now)) {
		t.Error("nothing was granted")
	}
	<-probe.Done()
	for isLow := false; !isLow; {
		u, ok := h.Decide(1, at(now), int64(now))
		if isLow = u.IsLow; !ok {
			t.Fatal("a grant is used up before the next is asked for")
		}
	}
	if a = h.AskAhead(at(now), 1); a.Units == 0 {
		t.Fatal("no other grant is asked for")
	}
	if _, probe = ask(); probe == nil || h.AskAhead(at(now), 1).Units > 0 {
		t.Error("two ask for the next grant")
	}
}

func TestThoseWhoWaitLearnWhyThereIsNoAnswer(t *testing.T) {
	t.Parallel()
	for _, err := range []error{nil, errors.New("the daemon is away")} {
		h, a := over(t)
		probe := wait(t, h, time.Second)
		h.Forgo(a, at(time.Second), err)
		<-probe.Done()
		if probe.Err() != err {
			t.Errorf("%v, not %v", probe.Err(), err)
		}
		if _, next := h.Ask(at(time.Second), 1, false); next != nil {
			t.Error("nobody asks after an ask without an answer")
		}
	}
}

// Once a lease is shorter, no more is asked for than is used in it.
func TestAsksForLessOnceALeaseIsShorter(t *testing.T) {
	t.Parallel()
	h := lease.New[string](new(host), "key", at(0))
	now, asked := time.Duration(0), uint64(0)
	use := func(goodFor time.Duration) {
		for range 10_000 {
			now += time.Millisecond
			if _, ok := h.Decide(1, at(now), int64(now)); ok {
				continue
			}
			a, _ := h.Ask(at(now), 1, false)
			asked = max(asked, a.Units)
			h.Learn(a, lease.Answer[string]{Allowed: true, Charged: max(1, int64(a.Units)), Used: 1, GoodFor: goodFor, Remaining: 1 << 30}, at(now))
		}
	}
	use(time.Second)
	if asked < 700 || asked > 1000 {
		t.Errorf("%d units are asked for, while 1,000 are used in a lease", asked)
	}
	use(20 * time.Millisecond)
	asked = 0
	use(20 * time.Millisecond)
	if asked < 10 || asked > 20 {
		t.Errorf("%d units are asked for, while 20 are used in a lease", asked)
	}
}
