package buckettest

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// Harness says how the suite tests a store.
type Harness struct {
	// Open returns an empty store that reads clock, or a real clock if that is
	// nil. The harness closes the store when t ends.
	Open func(t *testing.T, clock func() int64) bucket.Store
	// OpenShared returns n stores with a real clock that share their states, as
	// those of n daemons do; nil if such stores share nothing.
	OpenShared func(t *testing.T, n int) []bucket.Store
	// Traces is the number of random traces, and Algorithms are those that they choose
	// from; the listed ones if empty.
	Traces     int
	Algorithms []bucket.Algorithm
	// NoClock says that Open cannot take a clock: tests that need one are skipped.
	NoClock bool
	// OnePlace says that hits in several places are not decided atomically.
	OnePlace bool
	// Reserves says that half of the traces name takes and settle them.
	Reserves bool
	// Without has the names of laws and scenarios to skip, or "reloads", with the reason: a
	// store behind a protocol may not be able to ask them.
	Without map[string]string
	// Sees, if set, reduces the expected decisions on hits to what this store
	// reports.
	Sees func(hits []bucket.Hit, decisions []bucket.Decision)
	// Asks, if set, turns a trace's ops into ops that this store can be asked.
	Asks func(ops []Op) []Op
}

// lacks reports whether to skip a law or scenario.
func (h *Harness) lacks(t *testing.T, name string) bool {
	reason, lacks := h.Without[name]
	if lacks {
		t.Logf("without %q: %s", name, reason)
	}
	return lacks
}

// sees calls Sees if it is set.
func (h *Harness) sees(hits []bucket.Hit, decisions []bucket.Decision) {
	if h.Sees != nil {
		h.Sees(hits, decisions)
	}
}

// checkWithout fails t for names in Without that no law or scenario has.
func (h *Harness) checkWithout(t *testing.T) {
	known := map[string]bool{reloads: true}
	for _, l := range laws {
		known[l.name] = true
	}
	for _, sc := range scenarios {
		known[sc.name] = true
	}
	for name := range h.Without {
		if !known[name] {
			t.Errorf("there is no law or scenario %q to be without", name)
		}
	}
}

// reloads names the test of a reload that some daemons have made and others have not.
const reloads = "reloads"

// Run tests everything that bucket.Store promises.
func Run(t *testing.T, h Harness) {
	h.checkWithout(t)
	t.Run("laws", func(t *testing.T) { runLaws(t, h) })
	t.Run("shared", func(t *testing.T) { runShared(t, h) })
	if h.NoClock {
		return
	}
	t.Run("scenarios", func(t *testing.T) { runScenarios(t, h) })
	if !h.lacks(t, reloads) {
		t.Run(reloads, func(t *testing.T) { runSideBySide(t, h) })
	}
	t.Run("traces", func(t *testing.T) { runTraces(t, h) })
}

// manyTraces is a number of traces that meets, for each algorithm, states that a
// wrong clock wrote, and costs and limits near the largest.
const manyTraces = 500

// MayBeLarge reports whether limits of an algorithm may be as large as any.
func MayBeLarge(a bucket.Algorithm) bool {
	_, err := bucket.NewLimit(bucket.Spec{Algorithm: a, Requests: bucket.MaxRequests, Period: time.Second})
	return err == nil
}

// runTraces runs random traces, several at a time.
func runTraces(t *testing.T, h Harness) {
	const workers = 4
	var mended, large Counts
	if len(h.Algorithms) == 0 {
		h.Algorithms = Rates()
	}
	t.Run("workers", func(t *testing.T) { runWorkers(t, h, workers, &mended, &large) })
	for _, a := range h.Algorithms {
		if h.Traces >= manyTraces && mended.Total()[a] == 0 {
			t.Errorf("%s: no state was mended: the traces look at too little", a)
		}
		if h.Traces >= manyTraces && MayBeLarge(a) && large.Total()[a] == 0 {
			t.Errorf("%s: nothing large was charged: the traces look at too little", a)
		}
	}
}

func runWorkers(t *testing.T, h Harness, workers int, mended, large *Counts) {
	for w := range workers {
		t.Run(fmt.Sprint("worker", w), func(t *testing.T) {
			t.Parallel()
			store, setClock := openAt(t, h)
			for i := w; i < h.Traces; i += workers {
				opt := Options{Domain: fmt.Sprint("trace", i), OnePlace: h.OnePlace, Algorithms: h.Algorithms, Reserves: h.Reserves && i/workers%2 == 0}
				tr := RandomTrace(Chance(uint64(i), 20), opt)
				if h.Asks != nil {
					tr = NewTrace(h.Asks(tr.Ops))
				}
				tr.Sees = h.Sees
				err := tr.Run(store, setClock)
				if m, ok := err.(*Mismatch); ok {
					err = m.Shrink(func() (bucket.Store, func(int64)) { return openAt(t, h) })
				}
				if err != nil {
					t.Fatalf("trace %d: %v", i, err)
				}
				mended.Add(tr.Mended)
				large.Add(tr.Large)
			}
		})
	}
}

// openAt opens a store whose clock is set by the function that it returns.
func openAt(t *testing.T, h Harness) (bucket.Store, func(int64)) {
	var clock atomic.Int64 // the store may read it in the background
	return h.Open(t, clock.Load), clock.Store
}

// NewLimit returns a limit with these numbers, or ends the test.
func NewLimit(t testing.TB, s bucket.Spec) *bucket.Limit {
	t.Helper()
	l, err := bucket.NewLimit(s)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// still is a period in which nothing is refilled while a test runs.
const still = bucket.MaxPeriod

// stillLimit is a limit that does not refill while a test runs.
func stillLimit(t *testing.T, a bucket.Algorithm, requests int64) *bucket.Limit {
	return NewLimit(t, bucket.Spec{Algorithm: a, Requests: requests, Period: still})
}

// Hit returns a hit on a limit by a descriptor with one entry, user=value.
func Hit(l *bucket.Limit, value string, cost int64) bucket.Hit {
	return hitOn(l, "test", []bucket.Entry{{Key: "user", Value: value}}, cost)
}

func hitOn(l *bucket.Limit, domain string, entries []bucket.Entry, cost int64) bucket.Hit {
	subject := bucket.AppendSubject(nil, domain, entries)
	return bucket.Hit{Limit: l, Key: l.AppendKey(nil, subject), Place: subject, Cost: cost}
}

// answerTimeout is how long a store may take to answer on a slow machine.
const answerTimeout = 30 * time.Second

// Take takes hits from a store, or ends the test if that fails.
func Take(t testing.TB, s bucket.Store, hits ...bucket.Hit) []bucket.Decision {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), answerTimeout)
	defer cancel()
	decisions := make([]bucket.Decision, len(hits))
	if err := s.Take(ctx, hits, decisions); err != nil {
		t.Fatalf("Take: %v", err)
	}
	return decisions
}

// Check checks hits at a store, or ends the test if that fails.
func Check(t testing.TB, s bucket.Store, hits ...bucket.Hit) []bucket.Decision {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), answerTimeout)
	defer cancel()
	decisions := make([]bucket.Decision, len(hits))
	if err := s.Check(ctx, hits, decisions); err != nil {
		t.Fatalf("Check: %v", err)
	}
	return decisions
}

// GiveBack gives hits back to a store, or ends the test if that fails. It leaves the
// decisions as they are.
func GiveBack(t testing.TB, s bucket.Store, hits []bucket.Hit, decisions []bucket.Decision) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), answerTimeout)
	defer cancel()
	if err := s.GiveBack(ctx, hits, slices.Clone(decisions)); err != nil {
		t.Fatalf("GiveBack: %v", err)
	}
}

// remaining peeks at a limit.
func remaining(t testing.TB, s bucket.Store, h bucket.Hit) int64 {
	t.Helper()
	h.Cost = 0
	return Take(t, s, h)[0].Remaining
}

func wantRemaining(t testing.TB, s bucket.Store, h bucket.Hit, want int64) {
	t.Helper()
	if got := remaining(t, s, h); got != want {
		t.Errorf("%s: %d remain, want %d", h.Key, got, want)
	}
}
