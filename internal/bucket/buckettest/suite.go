package buckettest

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// Harness is what the suite needs to know of a store.
type Harness struct {
	// Open returns a store without a history. It reads clock where it is
	// given, else a real one. The harness closes it when t ends.
	Open func(t *testing.T, clock func() int64) bucket.Store
	// OpenShared returns n stores that share their state, as that many
	// daemons do, with a real clock; nil if these stores share nothing.
	OpenShared func(t *testing.T, n int) []bucket.Store
	// Traces is how many random traces are run.
	Traces int
	// NoClock says that Open cannot take a clock: what needs one is skipped.
	NoClock bool
	// OnePlace says that hits in several places are not decided atomically.
	OnePlace bool
	// Without names the laws and scenarios that the store cannot be asked, and
	// why: a store behind a protocol may have no words for them.
	Without map[string]string
	// Sees, if set, leaves of the decisions that a take of hits gets what this
	// store tells.
	Sees func(hits []bucket.Hit, decisions []bucket.Decision)
	// Asks, if set, makes of a trace's ops such as the store can be asked.
	Asks func(ops []Op) []Op
}

// lacks reports whether the store cannot be asked a law or scenario.
func (h *Harness) lacks(t *testing.T, name string) bool {
	reason, lacks := h.Without[name]
	if lacks {
		t.Logf("without %q: %s", name, reason)
	}
	return lacks
}

// sees is Sees where it is set.
func (h *Harness) sees(hits []bucket.Hit, decisions []bucket.Decision) {
	if h.Sees != nil {
		h.Sees(hits, decisions)
	}
}

// checkWithout wants what a store is run without to be something.
func (h *Harness) checkWithout(t *testing.T) {
	known := map[string]bool{}
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

// Run holds a store against everything that bucket.Store promises.
func Run(t *testing.T, h Harness) {
	h.checkWithout(t)
	t.Run("laws", func(t *testing.T) { runLaws(t, h) })
	t.Run("shared", func(t *testing.T) { runShared(t, h) })
	if h.NoClock {
		return
	}
	t.Run("scenarios", func(t *testing.T) { runScenarios(t, h) })
	t.Run("reloads", func(t *testing.T) { runSideBySide(t, h) })
	t.Run("traces", func(t *testing.T) { runTraces(t, h) })
}

// manyTraces are enough of them to meet states of each algorithm that a wrong
// clock wrote.
const manyTraces = 500

// runTraces runs random traces, several at a time.
func runTraces(t *testing.T, h Harness) {
	const workers = 4
	var mended Tally
	t.Run("workers", func(t *testing.T) { runWorkers(t, h, workers, &mended) })
	for _, a := range bucket.Algorithms() {
		if h.Traces >= manyTraces && mended.Total()[a] == 0 {
			t.Errorf("%s: no state was mended: the traces look at too little", a)
		}
	}
}

func runWorkers(t *testing.T, h Harness, workers int, mended *Tally) {
	for w := range workers {
		t.Run(fmt.Sprint("worker", w), func(t *testing.T) {
			t.Parallel()
			store, setClock := openAt(t, h)
			for i := w; i < h.Traces; i += workers {
				opt := Options{Domain: fmt.Sprint("trace", i), OnePlace: h.OnePlace}
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
			}
		})
	}
}

// openAt opens a store whose clock is set by the function that it returns.
func openAt(t *testing.T, h Harness) (bucket.Store, func(int64)) {
	var clock atomic.Int64 // the store may read it in the background
	return h.Open(t, clock.Load), clock.Store
}

// newLimit returns a limit with these numbers.
func newLimit(t *testing.T, s bucket.Spec) *bucket.Limit {
	t.Helper()
	l, err := bucket.NewLimit(s)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// still is a period during which a test sees nothing come back.
const still = bucket.MaxPeriod

// stillLimit is a limit that does not refill while a test runs.
func stillLimit(t *testing.T, a bucket.Algorithm, requests int64) *bucket.Limit {
	return newLimit(t, bucket.Spec{Algorithm: a, Requests: requests, Period: still})
}

// hit is a hit on the limit of one subject.
func hit(l *bucket.Limit, subject string, cost int64) bucket.Hit {
	return hitOn(l, "d", []bucket.Entry{{Key: "k", Value: subject}}, cost)
}

func hitOn(l *bucket.Limit, domain string, entries []bucket.Entry, cost int64) bucket.Hit {
	subject := bucket.AppendSubject(nil, domain, entries)
	return bucket.Hit{Limit: l, Key: l.AppendKey(nil, subject), Place: subject, Cost: cost}
}

// patience is how long a store may take to answer on a slow machine.
const patience = 30 * time.Second

func take(t *testing.T, s bucket.Store, hits ...bucket.Hit) []bucket.Decision {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	decisions := make([]bucket.Decision, len(hits))
	if err := s.Take(ctx, hits, decisions); err != nil {
		t.Fatalf("Take: %v", err)
	}
	return decisions
}

func check(t *testing.T, s bucket.Store, hits ...bucket.Hit) []bucket.Decision {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	decisions := make([]bucket.Decision, len(hits))
	if err := s.Check(ctx, hits, decisions); err != nil {
		t.Fatalf("Check: %v", err)
	}
	return decisions
}

func giveBack(t *testing.T, s bucket.Store, hits []bucket.Hit, decisions []bucket.Decision) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := s.GiveBack(ctx, hits, decisions); err != nil {
		t.Fatalf("GiveBack: %v", err)
	}
}

// remaining peeks at a limit.
func remaining(t *testing.T, s bucket.Store, h bucket.Hit) int64 {
	t.Helper()
	h.Cost = 0
	return take(t, s, h)[0].Remaining
}

func wantRemaining(t *testing.T, s bucket.Store, h bucket.Hit, want int64) {
	t.Helper()
	if got := remaining(t, s, h); got != want {
		t.Errorf("%s: %d remain, want %d", h.Key, got, want)
	}
}
