package decide_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ratelimitd/ratelimitd/internal/assign"
	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/decide"
	"github.com/ratelimitd/ratelimitd/internal/fleet"
	"github.com/ratelimitd/ratelimitd/internal/redisconn"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

const tenureLimits = `
domain: d
descriptors:
  - key: user
    rate_limit: {requests: 10, period: 1h, algorithm: fixed_window}
`

// away is a daemon that can be stopped for a while in the middle of a decision.
type away struct {
	*rig
	stopped atomic.Int64 // for how long in all, a time.Duration
	// inTake, if it is not nil, is called once when the store has decided.
	inTake atomic.Pointer[func()]
	// catchUp is called before the tenure begins again.
	catchUp atomic.Pointer[func() error]
	unsure  prometheus.Counter
}

// takes is a store that calls inTake when it has decided.
type takes struct {
	bucket.Store
	a *away
}

func (s takes) Take(ctx context.Context, hits []bucket.Hit, decisions []bucket.Decision) error {
	err := s.Store.Take(ctx, hits, decisions)
	if f := s.a.inTake.Swap(nil); f != nil {
		(*f)()
	}
	return err
}

func (s takes) Reserve(ctx context.Context, r bucket.Reservation, hits []bucket.Hit, decisions []bucket.Decision) error {
	err := s.Store.Reserve(ctx, r, hits, decisions)
	if f := s.a.inTake.Swap(nil); f != nil {
		(*f)()
	}
	return err
}

// stop is SIGSTOP for ten seconds, and SIGCONT.
func (a *away) stop() { a.stopped.Add(int64(10 * time.Second)) }

func newAway(t *testing.T) *away {
	t.Helper()
	a := &away{unsure: prometheus.NewCounter(prometheus.CounterOpts{Name: "unsure"})}
	conn, err := redisconn.New(redisconn.Options{Mode: redisconn.Single, Addresses: []string{redistest.Single(t)},
		Prefix: fmt.Sprintf("test-%x", rand.Uint64()), Timeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	members := fleet.New(fleet.Register{Redis: conn}, fleet.Options{Address: "web-1", HashTags: 1, StateFormat: 1, Reads: []int{1},
		Clock: func() time.Time { return time.Now().Add(time.Duration(a.stopped.Load())) }})
	members.Tenure().OnRegain(func(context.Context) error {
		if f := a.catchUp.Load(); f != nil {
			return (*f)()
		}
		return nil
	})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { members.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
		conn.Close()
	})
	a.rig = newRig(t, tenureLimits, func(o *decide.Options) {
		o.Store = takes{o.Store, a}
		o.Tenure, o.Unsure = members.Tenure(), a.unsure
		o.Degrade = func(_ context.Context, _ bucket.Reservation, hits []bucket.Hit, decisions []bucket.Decision, _ error) error {
			for i := range hits {
				decisions[i] = bucket.Decision{Degraded: true}
			}
			return nil
		}
	})
	asynctest.Eventually(t, "the tenure begins", members.Tenure().Holds)
	return a
}

// remaining is what the user has left.
func (a *away) remaining(user string) int64 {
	c := a.take(asking("user="+user, 0))
	return c.Outcomes[0].Decisions[0].Remaining
}

// A decision whose daemon was stopped before it knew of it is given back, and made
// again by what was assigned meanwhile.
func TestDecisionWithoutTenureIsMadeAgain(t *testing.T) {
	t.Parallel()
	a := newAway(t)
	// A change that was made while the daemon was stopped.
	change := func() error {
		a.assign("user=a", assign.Terms{Numbers: []assign.Numbers{{Requests: 3}}})
		return nil
	}
	for i := range 5 {
		stop := a.stop
		a.inTake.Store(&stop)
		if i == 2 {
			a.catchUp.Store(&change)
		}
		c := a.take(asking("user=a", 1))
		if c.IsUnsure || c.Denied != (i >= 3) {
			t.Errorf("request %d: unsure %t, denied %t", i, c.IsUnsure, c.Denied)
		}
		if want := []int64{9, 8, 0, 0, 0}[i]; a.remaining("a") != want {
			t.Errorf("after request %d %d remain, want %d", i, a.remaining("a"), want)
		}
	}
	if n := a.Tenure.Losses(); n != 5 {
		t.Errorf("the tenure was lost %d times, want 5", n)
	}
}

// A daemon that is stopped in each try does not try for ever.
func TestDecisionThatIsNeverSureIsDegraded(t *testing.T) {
	t.Parallel()
	a := newAway(t)
	tries := 0
	var stop func()
	stop = func() {
		tries++
		a.stop()
		a.inTake.Store(&stop)
	}
	a.inTake.Store(&stop)
	c := a.take(asking("user=a", 1))
	a.inTake.Store(nil)
	if len(c.Outcomes) != 1 || !c.IsUnsure || !c.Outcomes[0].Decisions[0].Degraded || tries != 4 {
		t.Errorf("after %d tries: unsure %t, %+v", tries, c.IsUnsure, c.Outcomes)
	}
	if got := a.remaining("a"); got != 10 {
		t.Errorf("%d remain, want 10", got)
	}
}

// A take with an ID that is given back and made again is one take, and is settled as one.
func TestTakeWithAnIDWithoutTenureIsMadeAgain(t *testing.T) {
	t.Parallel()
	a := newAway(t)
	stop := a.stop
	a.inTake.Store(&stop)
	c := a.NewCall()
	c.Domain, c.ID = "d", "one"
	c.Descriptors = append(c.Descriptors, asking("user=a", 6))
	if err := errors.Join(c.Check(true), a.Decide(t.Context(), c)); err != nil || c.IsUnsure || c.Denied {
		t.Fatalf("%v; unsure %t, denied %t", err, c.IsUnsure, c.Denied)
	}
	if n := a.remaining("a"); n != 4 {
		t.Errorf("%d remain, want 4", n)
	}
	settlement := a.NewCall()
	settlement.Domain, settlement.ID, settlement.IsSettlement = "d", "one", true
	settlement.Descriptors = append(settlement.Descriptors, asking("user=a", 1))
	if err := errors.Join(settlement.Check(true), a.Settle(t.Context(), settlement)); err != nil {
		t.Fatal(err)
	}
	if s := settlement.Settled[0]; s.Takes != 1 || s.Returned != 5 || s.Remaining != 9 {
		t.Errorf("it is settled as %+v", s)
	}
}

// A refund cannot be taken back, so it is not made again: its answer is degraded.
func TestRefundWithoutTenureIsMadeOnce(t *testing.T) {
	t.Parallel()
	a := newAway(t)
	a.take(asking("user=a", 6))
	stop := a.stop
	a.inTake.Store(&stop)
	refund := asking("user=a", 2)
	refund.Refund = true
	if c := a.take(refund); !c.IsUnsure {
		t.Error("its answer is not degraded")
	}
	if n := a.remaining("a"); n != 6 {
		t.Errorf("%d remain, want 6", n)
	}
}

// A daemon that cannot catch up answers by its failure mode, and marks also what needs
// no limit.
func TestAnswersWithoutTenureAreDegraded(t *testing.T) {
	t.Parallel()
	a := newAway(t)
	a.assign("user=free", assign.Terms{Unlimited: true})
	for _, user := range []string{"user=a", "user=free", "nobody=x"} {
		if c := a.take(asking(user, 1)); c.IsUnsure || c.Denied {
			t.Errorf("%s with tenure: unsure %t, denied %t", user, c.IsUnsure, c.Denied)
		}
	}
	cannot := func() error { return errors.New("Redis is away") }
	a.catchUp.Store(&cannot)
	a.stop()
	for _, user := range []string{"user=a", "user=free", "nobody=x"} {
		if c := a.take(asking(user, 1)); !c.IsUnsure || c.Denied {
			t.Errorf("%s without tenure: unsure %t, denied %t", user, c.IsUnsure, c.Denied)
		}
	}
	a.catchUp.Store(nil)
	asynctest.Eventually(t, "the tenure begins again", func() bool { return !a.take(asking("user=a", 1)).IsUnsure })
	if n := a.remaining("a"); n != 8 {
		t.Errorf("%d remain, want 8: what was decided without the store was charged there", n)
	}
}
