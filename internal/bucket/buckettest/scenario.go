package buckettest

import (
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// scenario is a short sequence of requests with every number written out, for a
// person to check. It starts at a full hour, from which times count.
type scenario struct {
	name string
	// limits that take turns on one key: rules before and after a reload.
	limits []bucket.Spec
	steps  []step
}

// step is one request of a scenario, and its decision.
type step struct {
	at        time.Duration
	cost      int64
	remaining int64
	retry     time.Duration
	reset     time.Duration
	wait      time.Duration
	limit     int // the index of its limit
	back      int // the index of the step that it gives back; -1 for a take
}

// ok is an allowed hit: its time, its cost, what remains after it, and how long
// until all is back.
func ok(at time.Duration, cost, remaining int64, reset time.Duration) step {
	return step{at: at, cost: cost, remaining: remaining, reset: reset, back: -1}
}

// no is a denied hit.
func no(at time.Duration, cost, remaining int64, retry, reset time.Duration) step {
	return step{at: at, cost: cost, remaining: remaining, retry: retry, reset: reset, back: -1}
}

// back gives back what the take of another step got.
func back(at time.Duration, of int) step { return step{at: at, back: of} }

func (st step) waits(d time.Duration) step { st.wait = d; return st }
func (st step) by(limit int) step          { st.limit = limit; return st }

const (
	us  = time.Microsecond
	s   = time.Second
	mn  = time.Minute
	hr  = time.Hour
	day = 24 * hr
	nvr = bucket.Never
)

// fullHour is 2027-01-15 08:00:00 UTC.
const fullHour = int64(1_800_000_000_000_000)

func perMinute(a bucket.Algorithm, requests, burst int64) bucket.Spec {
	return bucket.Spec{Algorithm: a, Requests: requests, Period: mn, Burst: burst}
}

// blocking are the numbers of a limit that blocks who goes over.
func blocking(a bucket.Algorithm, requests int64, period, blockFor time.Duration) bucket.Spec {
	return bucket.Spec{Algorithm: a, Requests: requests, Period: period, BlockFor: blockFor}
}

// reported are the numbers of a limit that is charged what a caller reports.
func reported(a bucket.Algorithm, requests int64, period time.Duration) bucket.Spec {
	return bucket.Spec{Algorithm: a, Requests: requests, Period: period, Postpaid: bucket.PostpaidAuto}
}

func runScenarios(t *testing.T, h Harness) {
	for _, sc := range scenarios {
		if h.lacks(t, sc.name) {
			continue
		}
		t.Run(sc.name, func(t *testing.T) {
			store, setClock := openAt(t, h)
			sc.run(t, &h, store, setClock)
		})
	}
}

func (sc *scenario) run(t *testing.T, h *Harness, store bucket.Store, setClock func(int64)) {
	var limits []*bucket.Limit
	for _, spec := range sc.limits {
		limits = append(limits, NewLimit(t, spec).Reported())
	}
	got := make([][]bucket.Decision, len(sc.steps))
	for i, l := range sc.steps {
		setClock(fullHour + l.at.Microseconds())
		if l.back >= 0 {
			of := sc.steps[l.back]
			GiveBack(t, store, []bucket.Hit{Hit(limits[of.limit], sc.name, of.cost)}, got[l.back])
			continue
		}
		x := Hit(limits[l.limit], sc.name, l.cost)
		got[i] = Take(t, store, x)
		d := got[i][0]
		want := []bucket.Decision{{Remaining: l.remaining, RetryAfter: l.retry, ResetAfter: l.reset, Wait: l.wait, At: d.At}}
		h.sees([]bucket.Hit{x}, want)
		w := want[0]
		if d.Remaining != w.Remaining || d.RetryAfter != w.RetryAfter || d.ResetAfter != w.ResetAfter || d.Wait != w.Wait {
			t.Errorf("step %d, at %v, cost %d:\n got remaining %d, retry %v, reset %v, wait %v\nwant remaining %d, retry %v, reset %v, wait %v",
				i, l.at, l.cost, d.Remaining, d.RetryAfter, d.ResetAfter, d.Wait, w.Remaining, w.RetryAfter, w.ResetAfter, w.Wait)
		}
	}
}
