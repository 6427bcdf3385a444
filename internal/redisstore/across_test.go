package redisstore_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
)

func dailyWindow(t testing.TB, n int64, change func(*bucket.Spec)) *bucket.Limit {
	t.Helper()
	s := bucket.Spec{Algorithm: bucket.FixedWindow, Requests: n, Period: 24 * time.Hour}
	if change != nil {
		change(&s)
	}
	return newLimit(t, s)
}

func postpaid(s *bucket.Spec) { s.Postpaid = bucket.PostpaidAlways }

func onFailure(m bucket.FailureMode) func(*bucket.Spec) {
	return func(s *bucket.Spec) { s.OnStoreFailure = m }
}

// Each request that Redis did not decide alone counts once, whichever of its commands
// failed, and however many did. A check is no answer.
func TestDegradedCountsOnceARequest(t *testing.T) {
	t.Parallel()
	plain, paid := dailyWindow(t, 100, nil), dailyWindow(t, 100, postpaid)
	denied := dailyWindow(t, 0, nil)
	for _, c := range []struct {
		name string
		hits func(users []string) []bucket.Hit
		// spoilt are the hits that Redis cannot read before the call.
		spoilt []int
		call   int
		check  bool
	}{
		{"all of it", func(u []string) []bucket.Hit { return []bucket.Hit{hit(plain, u[0], 1), hit(plain, u[1], 1)} }, []int{0, 1}, 1, false},
		{"one of its checks", func(u []string) []bucket.Hit { return []bucket.Hit{hit(plain, u[0], 1), hit(plain, u[1], 1)} }, []int{1}, 1, false},
		{"one of its takes", func(u []string) []bucket.Hit { return []bucket.Hit{hit(plain, u[0], 1), hit(plain, u[1], 1)} }, []int{1}, 3, false},
		{"its refund", func(u []string) []bucket.Hit { return []bucket.Hit{hit(plain, u[0], 1), hit(plain, u[1], -1)} }, []int{1}, 1, false},
		{"its refund, after the takes", func(u []string) []bucket.Hit { return []bucket.Hit{hit(plain, u[0], 1), hit(plain, u[1], -1)} }, []int{1}, 4, false},
		{"several refunds", func(u []string) []bucket.Hit {
			return []bucket.Hit{hit(plain, u[0], 1), hit(plain, u[1], -1), hit(plain, u[2], -1)}
		}, []int{1, 2}, 1, false},
		{"a take and a refund", func(u []string) []bucket.Hit {
			return []bucket.Hit{hit(plain, u[0], 1), hit(plain, u[1], 1), hit(plain, u[2], -1)}
		}, []int{0, 2}, 1, false},
		{"a take and a refund of one tag", func(u []string) []bucket.Hit {
			return []bucket.Hit{hit(plain, u[0], 1), hit(plain, u[1], 1), hit(paid, u[1], -1)}
		}, []int{1}, 1, false},
		{"only refunds", func(u []string) []bucket.Hit { return []bucket.Hit{hit(plain, u[0], -1), hit(plain, u[1], -1)} }, []int{1}, 1, false},
		{"a denied request", func(u []string) []bucket.Hit { return []bucket.Hit{hit(denied, u[0], 1), hit(plain, u[1], 1)} }, []int{1}, 1, false},
		{"what a denied request charges", func(u []string) []bucket.Hit { return []bucket.Hit{hit(denied, u[0], 1), hit(paid, u[1], 1)} }, []int{1}, 3, false},
		{"a denied request and what it charges", func(u []string) []bucket.Hit {
			return []bucket.Hit{hit(denied, u[0], 1), hit(paid, u[1], 1), hit(paid, u[2], 1)}
		}, []int{1, 2}, 1, false},
		{"a check over several tags", func(u []string) []bucket.Hit { return []bucket.Hit{hit(plain, u[0], 1), hit(plain, u[1], 1)} }, []int{0, 1}, 1, true},
		{"a check of one tag", func(u []string) []bucket.Hit { return []bucket.Hit{hit(plain, u[0], 1)} }, []int{0}, 1, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newAcrossRig(t, bucket.FailAllow)
			hits := c.hits(r.users)
			const asked = 3
			for range asked {
				for _, i := range c.spoilt {
					r.mend(hits[i])
				}
				r.comeBefore(c.call, func() {
					for _, i := range c.spoilt {
						r.spoil(hits[i])
					}
				})
				d := make([]bucket.Decision, len(hits))
				ask := r.store.Take
				if c.check {
					ask = r.store.Check
				}
				if err := ask(context.Background(), hits, d); err != nil {
					t.Fatal(err)
				}
				if !slices.ContainsFunc(d, func(d bucket.Decision) bool { return d.Degraded }) {
					t.Fatalf("the answer is not marked as degraded: %+v", d)
				}
			}
			want := float64(asked)
			if c.check {
				want = 0 // it is no answer
			}
			if n := r.counted("unreadable"); n != want || r.counted() != n {
				t.Errorf("%v degraded answers of %d are counted, want %v", n, asked, want)
			}
		})
	}
}

// A caller that left before its answer got none, so its request is not counted.
func TestCallersThatLeftAreNotCounted(t *testing.T) {
	t.Parallel()
	r := newAcrossRig(t, bucket.FailAllow)
	l := dailyWindow(t, 100, nil)
	hits := []bucket.Hit{hit(l, r.users[0], 1), hit(l, r.users[1], 1)}
	for range 5 {
		ctx, leave := context.WithCancel(context.Background())
		r.spoil(hits[0])
		r.comeBefore(3, leave)
		if err := r.store.Take(ctx, hits, make([]bucket.Decision, 2)); err == nil {
			t.Error("a caller that left was answered")
		}
		r.mend(hits[0])
		if o := r.take(hits...); o.err != nil || o.decisions[0].Degraded || o.decisions[1].Degraded {
			t.Errorf("the next request got %+v, %v", o.decisions, o.err)
		}
	}
	if n := r.counted(); n != 0 {
		t.Errorf("%v degraded answers are counted, want none", n)
	}
}

// Redis is not asked again for a tag that it did not decide before, and is for
// the others.
func TestRefundGoesWhereItsTakeWent(t *testing.T) {
	t.Parallel()
	r := newAcrossRig(t, bucket.FailAllow)
	plain, other := dailyWindow(t, 100, nil), dailyWindow(t, 100, func(s *bucket.Spec) { s.Name = "other" })
	spoilt := hit(plain, r.users[0], 1)
	refunds := []bucket.Hit{hit(other, r.users[0], -5), hit(other, r.users[1], -5), hit(other, r.users[2], -5)}
	for _, h := range refunds {
		h.Cost = 10
		take(t, r.direct, h)
	}
	// Its calls are the check of each, and the take of two.
	r.comeBefore(4, func() { r.spoil(spoilt) })
	o := r.take(append([]bucket.Hit{spoilt, hit(plain, r.users[1], 1)}, refunds...)...)
	if o.err != nil {
		t.Fatal(o.err)
	}
	for i, isDegraded := range []bool{true, false, true, false, false} {
		if o.decisions[i].Degraded != isDegraded {
			t.Errorf("hit %d, where Redis fails for the first: %+v", i, o.decisions[i])
		}
	}
	for i, want := range []int64{90, 95, 95} {
		if n := r.left(refunds[i]); n != want {
			t.Errorf("after refund %d %d of 100 remain, want %d", i, n, want)
		}
	}
}

// A request over several tags asks each once to check it, and once more to take,
// peek or refund, unless it is denied. A request of one tag is one command.
func TestEachTagIsAskedOnceAStep(t *testing.T) {
	t.Parallel()
	r := newAcrossRig(t, bucket.FailError)
	plain, none := dailyWindow(t, 100, nil), dailyWindow(t, 0, nil)
	other := dailyWindow(t, 100, func(s *bucket.Spec) { s.Name = "other" })
	blocking := dailyWindow(t, 1, func(s *bucket.Spec) { s.Name, s.BlockFor = "blocking", time.Hour })
	for _, c := range []struct {
		name  string
		hits  []bucket.Hit
		calls int
	}{
		{"takes", []bucket.Hit{hit(plain, r.users[0], 1), hit(plain, r.users[1], 1)}, 4},
		{"a take and a peek", []bucket.Hit{hit(plain, r.users[0], 1), hit(plain, r.users[1], 0)}, 4},
		{"a take and a refund", []bucket.Hit{hit(plain, r.users[0], 1), hit(plain, r.users[1], -1)}, 4},
		{"a denied take", []bucket.Hit{hit(plain, r.users[0], 1), hit(none, r.users[1], 1)}, 2},
		{"a limit with a block", []bucket.Hit{hit(plain, r.users[0], 1), hit(blocking, r.users[1], 1)}, 4},
		{"a denied take that starts a pause", []bucket.Hit{hit(plain, r.users[0], 1), hit(blocking, r.users[1], 1)}, 3},
		{"a take in a pause", []bucket.Hit{hit(plain, r.users[0], 1), hit(blocking, r.users[1], 1)}, 2},
		{"one tag after several", []bucket.Hit{hit(plain, r.users[0], 1)}, 1},
		{"two limits of one tag", []bucket.Hit{hit(plain, r.users[1], 1), hit(other, r.users[1], 1)}, 1},
	} {
		r.comeBefore(0, nil)
		if o := r.take(c.hits...); o.err != nil {
			t.Fatal(o.err)
		}
		r.mu.Lock()
		if r.calls != c.calls {
			t.Errorf("%s: %d calls, want %d", c.name, r.calls, c.calls)
		}
		r.mu.Unlock()
	}
}

// If several modes decide parts of one request, each is counted once.
func TestDegradedCountsEachModeOnce(t *testing.T) {
	t.Parallel()
	r := newAcrossRig(t, bucket.FailAllow)
	allow, local := dailyWindow(t, 100, nil), dailyWindow(t, 100, onFailure(bucket.FailLocal))
	hits := []bucket.Hit{hit(allow, r.users[0], 1), hit(local, r.users[1], -1), hit(allow, r.users[2], -1), hit(local, r.users[3], 1)}
	for _, h := range hits {
		r.spoil(h)
	}
	if o := r.take(hits...); o.err != nil {
		t.Fatal(o.err)
	}
	if a, l := r.counted("allow"), r.counted("local"); a != 1 || l != 1 {
		t.Errorf("counted %v for allow and %v for local, want 1 each", a, l)
	}
}

// When a part of a request fails for good, at any step, what the other parts took is
// given back; postpaid charges stay.
func TestFailedRequestIsFree(t *testing.T) {
	t.Parallel()
	plain, paid := dailyWindow(t, 100, nil), dailyWindow(t, 100, postpaid)
	for _, c := range []struct {
		name string
		cost int64 // of the hit that fails
		call int   // before which its state becomes unreadable
	}{
		{"check", 1, 1},
		{"take", 1, 4},
		{"refund", -1, 6},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newAcrossRig(t, bucket.FailError)
			taken, charged, failing := hit(plain, r.users[0], 2), hit(paid, r.users[1], 3), hit(plain, r.users[2], c.cost)
			r.comeBefore(c.call, func() { r.spoil(failing) })
			if o := r.take(taken, charged, failing); o.err == nil {
				t.Fatalf("the request got %+v", o.decisions)
			}
			if n := r.left(taken); n != 100 {
				t.Errorf("%d of 100 remain of a limit that a failed request took from", n)
			}
			want := int64(97)
			if c.name == "check" {
				want = 100
			}
			if n := r.left(charged); n != want {
				t.Errorf("%d of 100 remain of a postpaid limit, want %d", n, want)
			}
			if n := r.counted("error"); n != 1 || r.counted() != 1 {
				t.Errorf("%v answers of mode error are counted, want 1", n)
			}
		})
	}
}

// What the fallback granted in a request that failed is given back to it too.
func TestFailedRequestIsFreeInTheFallback(t *testing.T) {
	t.Parallel()
	r := newAcrossRig(t, bucket.FailError)
	taken := hit(newLimit(t, bucket.Spec{
		Algorithm: bucket.SlidingWindow, Requests: 3, Period: 24 * time.Hour, OnStoreFailure: bucket.FailLocal,
	}), r.users[0], 2)
	failing := hit(dailyWindow(t, 100, nil), r.users[1], -1)
	r.spoil(taken)
	// Its calls are the check of each, and the refund: the take is the fallback's.
	r.comeBefore(3, func() { r.spoil(failing) })
	if o := r.take(taken, failing); o.err == nil {
		t.Fatalf("the request got %+v", o.decisions)
	}
	if o := r.take(taken); !o.degraded() || !o.decisions[0].Allowed() || o.decisions[0].Remaining != 1 {
		t.Errorf("after a failed request a take of 2 from a share of 3 gets %+v, %v", o.decisions, o.err)
	}
}

// A caller with a deadline is answered before it, also where the checks get no
// answer: these wait for half of its time.
func TestDeadlineOfAChecksCaller(t *testing.T) {
	t.Parallel()
	r := newAcrossRig(t, bucket.FailAllow)
	l := dailyWindow(t, 100, nil)
	answered := make(chan struct{})
	r.comeBefore(1, func() { <-answered })
	defer close(answered)
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	d := make([]bucket.Decision, 2)
	if err := r.store.Take(ctx, []bucket.Hit{hit(l, r.users[0], 1), hit(l, r.users[1], 1)}, d); err != nil {
		t.Fatalf("a caller got %v", err)
	}
	if !d[0].Degraded || !d[1].Degraded {
		t.Errorf("without an answer of Redis: %+v", d)
	}
}

// A caller that disconnected uses its memory again while its command is in flight. The
// command still has its own keys.
func TestCommandOfACallerThatLeftHasItsOwnKeys(t *testing.T) {
	t.Parallel()
	r := newAcrossRig(t, bucket.FailError)
	l, other := dailyWindow(t, 100, nil), dailyWindow(t, 100, func(s *bucket.Spec) { s.Name = "other" })
	left, refund := hit(l, r.users[0], 1), hit(l, r.users[1], -1)
	others := []bucket.Hit{hit(other, r.users[1], 1), hit(other, r.users[0], 1)}
	for range 10 {
		r.take(others...) // so that there is memory to use again
	}
	// Its calls are two checks, and the take of one.
	held := newHeldCommand(t)
	r.comeBefore(3, held.wait)
	ctx, leave := context.WithCancel(context.Background())
	gone := make(chan error)
	go func() { gone <- r.store.Take(ctx, []bucket.Hit{left, refund}, make([]bucket.Decision, 2)) }()
	<-held.reached
	leave()
	if err := <-gone; !errors.Is(err, context.Canceled) {
		t.Errorf("a caller that left got the error %v", err)
	}
	const asked = 50
	answers := make(chan outcome, asked)
	for range asked {
		go func() { answers <- r.take(others...) }()
	}
	asynctest.Eventually(t, "the others wait", func() bool { return metric(t, r.metrics, "redis_queue_length") >= asked })
	held.release()
	for range asked {
		if o := <-answers; o.err != nil || !bucket.Allowed(o.decisions) {
			t.Errorf("another caller got %+v, %v", o.decisions, o.err)
		}
	}
	if n := r.left(left); n != 99 {
		t.Errorf("%d of 100 remain after a take that was sent, want 99", n)
	}
}
