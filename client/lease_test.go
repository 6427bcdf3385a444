package client_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/ratelimitd/ratelimitd/client"
	"github.com/ratelimitd/ratelimitd/client/internal/daemontest"
	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

// lender answers takes on streams, by default with all that they ask for, and keeps them.
type lender struct {
	daemontest.Script
	goodFor time.Duration

	mu     sync.Mutex
	answer func(*ratelimitv1.TakeRequest) *ratelimitv1.TakeResponse // nil for none; under mu
	takes  []*ratelimitv1.TakeRequest
	backs  []*ratelimitv1.GiveBackRequest
}

// long is the lease of tests whose clock stands still.
const long = time.Hour

func newLender(goodFor time.Duration) *lender {
	l := &lender{goodFor: goodFor}
	l.answer = l.lend
	l.OnStream = func(stream daemontest.Stream) error {
		for {
			m, err := stream.Recv()
			if err != nil {
				return nil
			}
			answers := new(ratelimitv1.TakeStreamResponse)
			for _, n := range m.GetTakes() {
				answers.Results = append(answers.Results, &ratelimitv1.NumberedResult{Number: n.GetNumber(), Result: l.take(n.GetTake())})
			}
			if err := stream.Send(answers); err != nil {
				return err
			}
		}
	}
	l.OnGiveBack = func(r *ratelimitv1.GiveBackRequest) (*ratelimitv1.GiveBackResponse, error) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.backs = append(l.backs, r)
		return new(ratelimitv1.GiveBackResponse), nil
	}
	return l
}

func (l *lender) take(r *ratelimitv1.TakeRequest) *ratelimitv1.TakeResult {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.takes = append(l.takes, r)
	answer := l.answer(r)
	if answer == nil {
		return &ratelimitv1.TakeResult{Result: &ratelimitv1.TakeResult_Error{Error: &ratelimitv1.Error{Code: uint32(codes.Unavailable)}}}
	}
	return &ratelimitv1.TakeResult{Result: &ratelimitv1.TakeResult_Response{Response: answer}}
}

func (l *lender) lend(r *ratelimitv1.TakeRequest) *ratelimitv1.TakeResponse {
	return &ratelimitv1.TakeResponse{
		Allowed: true, Granted: r.GetLease(), GoodFor: durationpb.New(l.goodFor),
		Limits: []*ratelimitv1.Limit{{Allowed: true, Remaining: plenty, TakenAt: 7, TakenBy: 8}},
	}
}

func (l *lender) setAnswer(f func(*ratelimitv1.TakeRequest) *ratelimitv1.TakeResponse) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.answer = f
}

// charged returns how many units of a descriptor were taken by asks, how many of them were
// given back, and how many asks there were.
func (l *lender) charged() (units, back uint64, asks int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.takes {
		units += max(1, r.GetDescriptors()[0].GetCost(), r.GetLease())
	}
	for _, r := range l.backs {
		back += r.GetTake().GetDescriptors()[0].GetCost()
	}
	return units, back, len(l.takes)
}

// clock is one for leases. It stands still.
type clock struct{ mono, wall atomic.Int64 }

func (k *clock) set(c *client.Client) {
	c.SetLeaseClock(func() (mono, wall time.Duration) {
		return time.Duration(k.mono.Load()), time.Duration(k.wall.Load())
	})
}

func (k *clock) pass(mono, wall time.Duration) {
	k.mono.Add(int64(mono))
	k.wall.Add(int64(wall))
}

func borrower(t testing.TB, l *lender, options ...client.Option) (*client.Client, *clock) {
	t.Helper()
	c, k := connect(t, l.Serve(t), options...), new(clock)
	k.pass(time.Second, time.Second)
	k.set(c)
	return c, k
}

// plenty is what remains of the limits of a lender. What a lease has left is beyond that.
const plenty = 1 << 40

// lease asks until the client decides by itself and has some units left.
func lease(t testing.TB, c *client.Client, k *clock, r client.Request) *client.Result {
	t.Helper()
	for range 100 {
		k.pass(1, 1)
		got, err := c.Take(within(t), r)
		if err != nil || !got.Allowed {
			t.Fatal(got, err)
		}
		if got.Leased && got.Limits[0].Remaining > plenty+10 {
			return got
		}
	}
	t.Fatal("no lease came")
	return nil
}

func mustTake(t testing.TB, c *client.Client, r client.Request) *client.Result {
	t.Helper()
	got, err := c.Take(within(t), r)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func costing(cost uint64) client.Request {
	r := one("api", "user", "x")
	r.Descriptors[0].Cost = cost
	return r
}

func TestLeaseEndsByWhicheverClockIsAhead(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		mono, wall time.Duration
		isLeased   bool
	}{
		"before its end":           {long / 100 * 98, long / 100 * 98, true},
		"a hundredth before":       {long / 100 * 99, long / 100 * 99, false},
		"the machine slept":        {0, long, false},
		"the wall clock went back": {long, -long, false},
		"the process was stopped":  {long, long, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, k := borrower(t, newLender(long))
			lease(t, c, k, costing(1))
			k.pass(row.mono, row.wall)
			if got := mustTake(t, c, costing(1)); got.Leased != row.isLeased || !got.Allowed {
				t.Errorf("%+v", got)
			}
		})
	}
}

func TestLeaseCountsFromBeforeTheRequestIsSent(t *testing.T) {
	t.Parallel()
	l := newLender(long)
	c, k := borrower(t, l)
	lends := l.lend
	l.setAnswer(func(r *ratelimitv1.TakeRequest) *ratelimitv1.TakeResponse {
		if r.GetLease() > 0 {
			k.pass(long, long)
		}
		return lends(r)
	})
	for range 20 {
		if got := mustTake(t, c, costing(1)); got.Leased {
			t.Fatal("a lease was used that was over when it came")
		}
		k.pass(long/10, long/10)
	}
	asynctest.Eventually(t, "all but what was asked for goes back", func() bool {
		units, back, asks := l.charged()
		return units > uint64(asks) && units-back == uint64(asks)
	})
}

func TestRequestsThatAreNeverLeased(t *testing.T) {
	t.Parallel()
	two := func(a, b client.Descriptor) client.Request {
		a.Entries, b.Entries = []client.Entry{client.E("a", "b")}, []client.Entry{client.E("c", "d")}
		return client.Request{Domain: "api", Descriptors: []client.Descriptor{a, b}}
	}
	named := costing(1)
	named.ID = "id"
	rare := one("api", "user", "x")
	for name, row := range map[string]struct {
		request client.Request
		options []client.Option
		pause   time.Duration
		change  func(*ratelimitv1.TakeResponse)
	}{
		"with an ID":             {request: named},
		"with numbers":           {request: two(client.Descriptor{Numbers: &client.Numbers{Requests: 5, Period: time.Second}}, client.Descriptor{})},
		"peeks":                  {request: two(client.Descriptor{Peek: true}, client.Descriptor{})},
		"of two costs":           {request: two(client.Descriptor{Cost: 2}, client.Descriptor{})},
		"by option":              {request: rare, options: []client.Option{client.WithoutLeases()}},
		"rare":                   {request: rare, pause: long},
		"of limits without":      {request: rare, change: func(r *ratelimitv1.TakeResponse) { r.GoodFor = nil }},
		"of a limit nearly used": {request: rare, change: func(r *ratelimitv1.TakeResponse) { r.Limits[0].Remaining = 7 }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLender(long)
			c, k := borrower(t, l, row.options...)
			l.setAnswer(func(r *ratelimitv1.TakeRequest) *ratelimitv1.TakeResponse {
				answer := l.lend(r)
				if row.change != nil {
					row.change(answer)
				}
				return answer
			})
			for range 30 {
				k.pass(1+row.pause, 1+row.pause)
				if got := mustTake(t, c, row.request); got.Leased {
					t.Fatalf("%+v", got)
				}
			}
			if units, _, asks := l.charged(); asks != 30 || slices.ContainsFunc(l.takes, func(r *ratelimitv1.TakeRequest) bool { return r.GetLease() > 0 }) {
				t.Error(units, asks)
			}
		})
	}
}

func TestLeaseHasAtMostAQuarterOfWhatRemains(t *testing.T) {
	t.Parallel()
	l := newLender(long)
	c, k := borrower(t, l)
	l.setAnswer(func(r *ratelimitv1.TakeRequest) *ratelimitv1.TakeResponse {
		answer := l.lend(r)
		answer.Limits[0].Remaining = 100
		answer.Limits = append(answer.Limits, &ratelimitv1.Limit{Allowed: true, Remaining: 40, TakenAt: 7})
		return answer
	})
	for range 200 {
		k.pass(1, 1)
		mustTake(t, c, costing(1))
	}
	asynctest.Eventually(t, "nothing is asked", func() bool { return !c.IsAskingAhead() })
	most := uint64(0)
	for _, r := range l.takes {
		most = max(most, r.GetLease())
	}
	if most != 10 {
		t.Errorf("up to %d units were asked for, of 40 that remain", most)
	}
}

func TestLeaseSeveralDescriptorsAndCosts(t *testing.T) {
	t.Parallel()
	l := newLender(long)
	c, k := borrower(t, l)
	r := client.Request{Domain: "api", Descriptors: []client.Descriptor{
		{Entries: []client.Entry{client.E("a", "b")}, Cost: 3},
		{Entries: []client.Entry{client.E("c", "d"), client.E("e", "")}, Cost: 3},
	}}
	got := lease(t, c, k, r)
	if got.DeniedBy != -1 {
		t.Errorf("%+v", got)
	}
	r.Descriptors[0].Cost, r.Descriptors[1].Cost = 1, 0 // which is 1
	if got := mustTake(t, c, r); !got.Leased {
		t.Errorf("another cost: %+v", got)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if len(l.backs) == 0 {
		t.Error("nothing went back")
	}
	for _, back := range l.backs {
		left := back.GetTake().GetDescriptors()[0].GetCost()
		want := &ratelimitv1.GiveBackRequest{
			Take: &ratelimitv1.TakeRequest{Domain: "api", Descriptors: []*ratelimitv1.Descriptor{
				{Entries: []*ratelimitv1.Entry{{Key: "a", Value: "b"}}, Cost: new(left)},
				{Entries: []*ratelimitv1.Entry{{Key: "c", Value: "d"}, {Key: "e"}}, Cost: new(left)},
			}},
			TakenAt: []int64{7}, TakenBy: []uint64{8},
		}
		if left == 0 || !proto.Equal(back, want) {
			t.Errorf("%v went back, not %v", back, want)
		}
	}
}

func TestDenialIsRepeatedForAsMuchOrMore(t *testing.T) {
	t.Parallel()
	l := newLender(long)
	c, k := borrower(t, l)
	mustTake(t, c, costing(1)) // learns that there are leases
	l.setAnswer(func(*ratelimitv1.TakeRequest) *ratelimitv1.TakeResponse {
		answer := daemontest.Denied(10 * time.Minute)
		answer.GoodFor = durationpb.New(10 * time.Minute)
		return answer
	})
	if got := mustTake(t, c, costing(5)); got.Allowed || got.Leased || got.RetryAfter != 10*time.Minute {
		t.Fatalf("%+v", got)
	}
	k.pass(4*time.Minute, 4*time.Minute)
	for _, row := range []struct {
		cost     uint64
		isLeased bool
	}{{5, true}, {9, true}, {4, false}, {4, true}} {
		got := mustTake(t, c, costing(row.cost))
		if got.Allowed || got.Leased != row.isLeased || got.Denier() == nil {
			t.Errorf("cost %d: %+v", row.cost, got)
		}
		if row.isLeased && row.cost > 4 && (got.RetryAfter != 6*time.Minute || got.Denier().RetryAfter != 6*time.Minute) {
			t.Errorf("cost %d may be tried again after %v", row.cost, got.RetryAfter)
		}
	}
	if ok, err := c.Allow(within(t), "api", client.E("user", "x")); ok || err != nil {
		t.Error(ok, err)
	}
	k.pass(10*time.Minute, 10*time.Minute)
	if got := mustTake(t, c, costing(9)); got.Leased {
		t.Errorf("after its end: %+v", got)
	}
	if s := c.Stats(); s.LeasedDenied != 3 || s.Denied != 4 {
		t.Errorf("%+v", s)
	}
}

// Over a limit, those who wait for another's answer are decided by it, and also if none came.
func TestCallersWhoWaitForAnother(t *testing.T) {
	t.Parallel()
	denied := func(goodFor time.Duration) *ratelimitv1.TakeResponse {
		answer := daemontest.Denied(goodFor)
		answer.GoodFor = durationpb.New(goodFor)
		return answer
	}
	for name, row := range map[string]struct {
		answer  *ratelimitv1.TakeResponse // nil for none
		givesUp bool
	}{
		"are denied":                 {answer: denied(time.Hour)},
		"ask if the other gave up":   {answer: denied(time.Hour), givesUp: true},
		"fail if there is no answer": {},
		"ask if the denial is over":  {answer: denied(time.Nanosecond)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLender(long)
			c, k := borrower(t, l, client.OnFailure(client.FailDeny()))
			l.setAnswer(func(*ratelimitv1.TakeRequest) *ratelimitv1.TakeResponse { return denied(time.Nanosecond) })
			mustTake(t, c, costing(1)) // learns that there are leases, over the limit
			asked, release := make(chan struct{}), make(chan struct{})
			var once sync.Once
			l.setAnswer(func(*ratelimitv1.TakeRequest) *ratelimitv1.TakeResponse {
				once.Do(func() { close(asked); <-release })
				return row.answer
			})
			ctx, giveUp := context.WithCancel(within(t))
			var first, running sync.WaitGroup
			first.Go(func() {
				if got, err := c.Take(ctx, costing(1)); row.givesUp != (err != nil) || !row.givesUp && got.Allowed {
					t.Error(got, err)
				}
			})
			<-asked
			for range 8 {
				k.pass(1, 1)
				running.Go(func() {
					if got := mustTake(t, c, costing(1)); got.Allowed || (got.Failure != nil) != (row.answer == nil) {
						t.Errorf("%+v", got)
					}
				})
			}
			if row.givesUp {
				giveUp()
				first.Wait()
			}
			close(release)
			first.Wait()
			running.Wait()
			giveUp()
		})
	}
}

func TestGiveBackOfALeasedTakeGoesIntoItsLease(t *testing.T) {
	t.Parallel()
	l := newLender(long)
	c, k := borrower(t, l)
	first := lease(t, c, k, costing(1))
	for range 2 { // the second does nothing
		if err := c.GiveBack(within(t), first); err != nil {
			t.Error(err)
		}
	}
	second := mustTake(t, c, costing(1))
	if second.Limits[0].Remaining != first.Limits[0].Remaining {
		t.Errorf("%d remain, then %d", first.Limits[0].Remaining, second.Limits[0].Remaining)
	}
	k.pass(10*long, 10*long)
	mustTake(t, c, costing(1))
	asynctest.Eventually(t, "the rest goes back", func() bool { _, back, _ := l.charged(); return back > 0 })
	_, before, _ := l.charged()
	if err := c.GiveBack(within(t), second); err != nil {
		t.Error(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if _, back, _ := l.charged(); back != before {
		t.Errorf("%d units of a lease that was over went back", back-before)
	}
}

func TestLeaseGoesOnWhileTheDaemonIsAway(t *testing.T) {
	t.Parallel()
	l := newLender(long)
	c, k := borrower(t, l, client.OnFailure(client.FailDeny()))
	lease(t, c, k, costing(1))
	l.setAnswer(func(*ratelimitv1.TakeRequest) *ratelimitv1.TakeResponse { return nil })
	k.pass(long/2, long/2)
	if got := mustTake(t, c, costing(1)); !got.Leased || !got.Allowed {
		t.Errorf("during the lease: %+v", got)
	}
	k.pass(long/2, long/2)
	if got := mustTake(t, c, costing(1)); got.Leased || got.Allowed || got.Failure == nil {
		t.Errorf("after the lease: %+v", got)
	}
	l.setAnswer(l.lend)
	k.pass(long, long)
	lease(t, c, k, costing(1))
}

// A daemon whose store went away may have granted from what it keeps itself.
func TestGrantThatIsGoodForNoTimeGoesBack(t *testing.T) {
	t.Parallel()
	l := newLender(long)
	l.setAnswer(func(r *ratelimitv1.TakeRequest) *ratelimitv1.TakeResponse {
		answer := l.lend(r)
		if r.GetLease() > 0 {
			answer.GoodFor, answer.Degraded = nil, true
		}
		return answer
	})
	c, k := borrower(t, l)
	const takes = 100
	for range takes {
		k.pass(1, 1)
		if got := mustTake(t, c, costing(1)); !got.Allowed || got.Leased {
			t.Fatalf("%+v", got)
		}
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if units, back, _ := l.charged(); units == takes || units-back != takes {
		t.Errorf("%d units were charged for %d takes, and %d went back", units, takes, back)
	}
}

func TestAnswerThatIsLostLeasesNothing(t *testing.T) {
	t.Parallel()
	l := newLender(long)
	c, k := borrower(t, l)
	arrived, release := make(chan struct{}), make(chan struct{})
	held := false
	l.setAnswer(func(r *ratelimitv1.TakeRequest) *ratelimitv1.TakeResponse {
		if r.GetLease() > 0 && !held {
			held = true
			close(arrived)
			<-release
		}
		return l.lend(r)
	})
	ctx, cancel := context.WithCancel(within(t))
	go func() { <-arrived; cancel() }()
	for ctx.Err() == nil {
		k.pass(1, 1)
		if got, err := c.Take(ctx, costing(1)); err == nil && got.Leased {
			t.Error("leased before the answer to the first ask")
		}
	}
	close(release)
	if s := c.Stats(); s.Leases != 0 || s.Failed() != 0 {
		t.Errorf("%+v", s)
	}
	lease(t, c, k, costing(1)) // asks again
}

// What is used is charged, and what is charged is used or goes back, while grants end as
// their last units are used.
func TestEveryUnitIsUsedOrGoesBack(t *testing.T) {
	t.Parallel()
	l := newLender(3 * time.Millisecond)
	c := connect(t, l.Serve(t))
	var allowed atomic.Uint64
	var running sync.WaitGroup
	for i := range 16 {
		running.Go(func() {
			cost := uint64(1 + i%3)
			for n := range 3000 {
				got := mustTake(t, c, costing(cost))
				if !got.Allowed {
					t.Error("denied")
				}
				allowed.Add(cost)
				if n%300 == 0 {
					time.Sleep(time.Millisecond) // so that grants end unused too
				}
			}
		})
	}
	running.Wait()
	asynctest.Eventually(t, "nothing is asked", func() bool { return !c.IsAskingAhead() }) // or its answer is lost
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	units, back, _ := l.charged()
	if s := c.Stats(); units-back != allowed.Load() || s.Leases == 0 || s.Leased == 0 || s.LeaseReturned != back {
		t.Errorf("%d units were charged, %d went back, %d were used: %+v", units, back, allowed.Load(), s)
	}
}

// A daemon that is not what it seems decides for no longer than a lease may be.
func TestLeaseOfYearsIsNotBelieved(t *testing.T) {
	t.Parallel()
	l := newLender(100 * 365 * 24 * time.Hour)
	c := connect(t, l.Serve(t))
	for got := mustTake(t, c, costing(1)); !got.Leased || got.Limits[0].Remaining == plenty; got = mustTake(t, c, costing(1)) {
	}
	asynctest.Eventually(t, "what is granted ends", func() bool { _, back, _ := l.charged(); return back > 0 })
}

// Where an answer says that a bucket has nothing left, those who waited for it are denied
// until the next token.
func TestWhoWaitsWhenNothingIsLeftIsDenied(t *testing.T) {
	t.Parallel()
	l := newLender(long)
	c, k := borrower(t, l)
	l.setAnswer(func(*ratelimitv1.TakeRequest) *ratelimitv1.TakeResponse {
		k.pass(1, 1)
		answer := daemontest.Denied(time.Nanosecond)
		if rand.N(2) == 0 { // not in turns, or those who wait may meet the same of both each time
			answer = &ratelimitv1.TakeResponse{Allowed: true, Limits: []*ratelimitv1.Limit{{
				Allowed: true, Algorithm: ratelimitv1.Algorithm_ALGORITHM_TOKEN_BUCKET, Requests: 10, Period: durationpb.New(time.Second),
			}}}
		}
		answer.GoodFor = durationpb.New(time.Nanosecond)
		return answer
	})
	var isDenied atomic.Bool
	var running sync.WaitGroup
	for range 8 {
		running.Go(func() {
			for ctx := within(t); !isDenied.Load(); {
				got, err := c.Take(ctx, costing(1))
				if err != nil {
					t.Error(err)
					return
				}
				if got.Leased && !got.Allowed && got.RetryAfter == 100*time.Millisecond+time.Microsecond && got.Denier().RetryAfter == got.RetryAfter {
					isDenied.Store(true)
				}
			}
		})
	}
	running.Wait()
}
