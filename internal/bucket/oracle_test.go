package bucket_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/buckettest"
	"github.com/ratelimitd/ratelimitd/internal/bucket/soaktest"
)

// steps is the plainest store: a map of states and the steps on them.
type steps struct {
	mu     sync.Mutex
	clock  func() int64
	states map[string]*bucket.State
	bills  map[string]*bucket.Bill
}

func newSteps(clock func() int64) *steps {
	return &steps{clock: clock, states: map[string]*bucket.State{}, bills: map[string]*bucket.Bill{}}
}

// state returns the state of the hit's key.
func (s *steps) state(h bucket.Hit) *bucket.State {
	key := string(h.Key)
	if s.states[key] == nil {
		s.states[key] = new(bucket.State)
	}
	return s.states[key]
}

// mended is state before a request.
func (s *steps) mended(h bucket.Hit, clock int64) *bucket.State {
	state := s.state(h)
	h.Limit.Mend(state, clock, bucket.DefaultMaxClockSkew.Microseconds())
	return state
}

func (s *steps) Check(ctx context.Context, hits []bucket.Hit, decisions []bucket.Decision) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	clock := s.clock()
	merged, of := bucket.Merge(nil, nil, hits)
	decided := s.decide(merged, clock)
	for i, j := range of {
		decisions[i] = decided[j]
	}
	return nil
}

// decide decides each merged hit by itself.
func (s *steps) decide(merged []bucket.Hit, clock int64) []bucket.Decision {
	decided := make([]bucket.Decision, len(merged))
	var pending bucket.Pending
	for i, h := range merged {
		decided[i] = h.Limit.Decide(s.mended(h, clock), clock, h.Demand(pending.Before(merged, decided, i)))
	}
	return decided
}

func (s *steps) Take(ctx context.Context, hits []bucket.Hit, decisions []bucket.Decision) error {
	return s.take(ctx, hits, decisions, func(*bucket.Hit, *bucket.Decision, int64) {})
}

func (s *steps) Reserve(ctx context.Context, r bucket.Reservation, hits []bucket.Hit, decisions []bucket.Decision) error {
	return s.take(ctx, hits, decisions, func(h *bucket.Hit, d *bucket.Decision, room int64) {
		if h.IsReserved() {
			s.bill(h, r.ID).Add(h.Limit, s.clock(), d.At, min(h.Cost, room), r.Lasts)
		}
	})
}

// bill returns the bill of an ID beside the state of the hit's key.
func (s *steps) bill(h *bucket.Hit, id string) *bucket.Bill {
	key := string(bucket.AppendBill(nil, h.Key, id))
	if s.bills[key] == nil {
		s.bills[key] = new(bucket.Bill)
	}
	return s.bills[key]
}

func (s *steps) Settle(_ context.Context, id string, hits []bucket.Hit, settled []bucket.Settled) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	clock := s.clock()
	merged, of := bucket.Merge(nil, nil, hits)
	for i := range merged {
		if h := &merged[i]; s.bill(h, id).IsKnown(clock) {
			s.mended(*h, clock)
		}
	}
	done := make([]bucket.Settled, len(merged))
	for i := range merged {
		h := &merged[i]
		done[i].At = clock
		if b := s.bill(h, id); b.IsKnown(clock) {
			done[i] = b.Settle(h.Limit, s.state(*h), clock, h.Cost)
		}
	}
	for i, j := range of {
		settled[i] = done[j]
	}
	return nil
}

// take is Take, and calls charged with each hit that is charged.
func (s *steps) take(ctx context.Context, hits []bucket.Hit, decisions []bucket.Decision, charged func(h *bucket.Hit, d *bucket.Decision, room int64)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	clock := s.clock()
	merged, of := bucket.Merge(nil, nil, hits)
	decided := s.decide(merged, clock)
	granted := bucket.GroupAllowed(merged, decided)
	for i, h := range merged {
		if bucket.Due(&h, &decided[i], granted) {
			room := int64(0)
			if h.IsReserved() {
				room = h.Limit.Room(s.state(h), clock)
			}
			decided[i] = h.Limit.Charge(s.state(h), clock, h.Demand(0), decided[i])
			charged(&h, &decided[i], room)
		} else {
			s.state(h).StartPause(&h, clock, &decided[i])
		}
	}
	for i := range hits {
		decisions[i] = decided[of[i]]
	}
	return nil
}

func (s *steps) GiveBack(_ context.Context, hits []bucket.Hit, decisions []bucket.Decision) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	clock := s.clock()
	merged, of := bucket.Merge(nil, nil, hits)
	decided := make([]bucket.Decision, len(merged))
	for i, j := range of {
		decided[j] = decisions[i]
	}
	granted := bucket.GroupAllowed(merged, decided)
	for i, h := range merged {
		if bucket.Charged(&h, &decided[i], granted) {
			s.mended(h, clock)
		}
	}
	for i, h := range merged {
		if bucket.Charged(&h, &decided[i], granted) {
			h.Limit.GiveBack(s.state(h), clock, decided[i].At, h.Demand(0))
		}
	}
	return nil
}

func (s *steps) Locate(h *bucket.Hit) bucket.Location { return bucket.Location{Key: string(h.Key)} }

func (s *steps) Forget(keys []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range keys {
		delete(s.states, key)
	}
}

func (s *steps) Ping(context.Context) error { return nil }
func (s *steps) Close() error               { return nil }

// openSteps returns the steps as a store, with the setter of its clock.
func openSteps() (bucket.Store, func(int64)) {
	var now int64
	return newSteps(func() int64 { return now }), func(clock int64) { now = clock }
}

// TestStepsAreAsTheOracleSays runs random traces on the bare steps.
func TestStepsAreAsTheOracleSays(t *testing.T) {
	const workers = 4
	traces := soaktest.Long(10_000, 200_000)
	var mended, large buckettest.Counts
	t.Run("traces", func(t *testing.T) {
		for w := range workers {
			t.Run("", func(t *testing.T) {
				t.Parallel()
				for seed := w; seed < traces; seed += workers {
					opt := buckettest.Options{Domain: "d", Algorithms: bucket.Algorithms(), Reserves: seed%2 == 0}
					trace := checkTrace(t, buckettest.Chance(uint64(seed), 10), opt)
					mended.Add(trace.Mended)
					large.Add(trace.Large)
				}
			})
		}
	})
	for _, a := range bucket.Algorithms() {
		if n := mended.Total()[a]; n < traces/100 {
			t.Errorf("%s: only %d states were mended: the test looks at too little", a, n)
		}
		if n := large.Total()[a]; buckettest.MayBeLarge(a) && n < traces/100 {
			t.Errorf("%s: only %d large hits were charged: the test looks at too little", a, n)
		}
	}
}

// checkTrace runs a trace on the steps and returns it.
func checkTrace(t *testing.T, c buckettest.Choices, opt buckettest.Options) *buckettest.Trace {
	trace := buckettest.RandomTrace(c, opt)
	err := trace.Run(openSteps())
	if m, ok := err.(*buckettest.Mismatch); ok {
		err = m.Shrink(openSteps)
	}
	if err != nil {
		t.Fatal(err)
	}
	return trace
}

// TestConformance runs the stores' suite on the bare steps.
func TestConformance(t *testing.T) {
	h := buckettest.Harness{
		Open: func(_ *testing.T, clock func() int64) bucket.Store {
			if clock == nil {
				clock = func() int64 { return time.Now().UnixMicro() }
			}
			return newSteps(clock)
		},
		Traces:     500,
		Algorithms: bucket.Algorithms(),
		Reserves:   true,
	}
	buckettest.Run(t, h)
	buckettest.RunHolders(t, h)
	buckettest.RunReservations(t, h)
}
