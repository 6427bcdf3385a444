package takeapi_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"regexp"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/decide"
	"github.com/ratelimitd/ratelimitd/internal/server"
	"github.com/ratelimitd/ratelimitd/internal/server/servertest"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

// manyTaker takes on a store, one after the other, as if that had three nodes, and counts the
// takes and how often it is asked.
type manyTaker struct {
	bucket.Store
	asked, takes, mixed, atOnce atomic.Int64
	panics                      atomic.Bool
}

// NodeOf implements decide.ManyTaker. What asks about two nodes is of none.
func (m *manyTaker) NodeOf(hits []bucket.Hit) any {
	of := len(hits[0].Place) % 3
	for i := range hits {
		if len(hits[i].Place)%3 != of {
			return nil
		}
	}
	return of
}

// TakeMany implements decide.ManyTaker.
func (m *manyTaker) TakeMany(ctx context.Context, takes []bucket.Take) {
	if m.panics.Load() {
		panic("in the store")
	}
	m.asked.Add(1)
	for _, take := range takes {
		if m.NodeOf(take.Hits) != m.NodeOf(takes[0].Hits) {
			m.mixed.Add(1)
		}
	}
	m.takes.Add(int64(len(takes)))
	m.atOnce.Store(max(m.atOnce.Load(), int64(len(takes))))
	for i := range takes {
		takes[i].Err = m.Take(ctx, takes[i].Hits, takes[i].Decisions)
	}
}

// waits makes the store of a server one that waits, which decides many takes at a time if
// many is not nil.
func waits(s bucket.Store, many decide.ManyTaker) func(*server.Options) {
	return func(o *server.Options) { o.Store, o.RemoteStore, o.Many = s, true, many }
}

// asker asks by chance, each subject once in a message, so that it does not matter which take
// is decided first.
type asker struct {
	*rand.Rand
	named []*ratelimitv1.TakeRequest // takes with IDs
	ids   int
}

// message returns takes, and on a stream settlements.
func (a *asker) message(isStreamed bool) []*ratelimitv1.NumberedTake {
	keys := []string{"token_bucket", "gcra", "leaky_bucket", "fixed_window", "sliding_window", "sliding_log", "closed", "free", "shadow", "paid", "several", "leased", "nobody"}
	var takes []*ratelimitv1.NumberedTake
	named := a.named
	for i, value := range a.Perm(150)[:1+a.IntN(130)] {
		n := &ratelimitv1.NumberedTake{Number: uint64(i), Take: servertest.Taking(fmt.Sprintf("%s=%d:%d", keys[a.IntN(len(keys))], value, a.IntN(4)))}
		n.Take.Lease = uint64(a.IntN(7))
		switch a.IntN(20) {
		case 0:
			n.Take.Domain = ""
		case 1:
			n.Take.Descriptors = append(n.Take.Descriptors, servertest.Taking("free=x", "nobody=x").Descriptors...)
		case 2:
			n.Take.Descriptors = nil
		case 3:
			a.ids++
			n.Take = servertest.Taking(fmt.Sprintf("%s=of-%d:2", keys[a.IntN(len(keys))], a.ids))
			n.Take.Id = fmt.Sprint("id-", a.ids)
			a.named = append(a.named, n.Take)
		case 4:
			if isStreamed && len(named) > 0 {
				take := named[0] // of an earlier message, each once
				named, a.named = named[1:], a.named[1:]
				n.Take, n.Settle = nil, &ratelimitv1.SettleRequest{Domain: take.Domain, Id: take.Id, Descriptors: take.Descriptors}
			}
		}
		takes = append(takes, n)
	}
	return takes
}

// ask sends takes on a stream, or in a TakeManyRequest if that is nil, and returns their
// results by their numbers.
func ask(t *testing.T, d *servertest.Daemon, s ratelimitv1.RateLimitService_TakeStreamClient, takes []*ratelimitv1.NumberedTake) map[uint64]*ratelimitv1.TakeResult {
	t.Helper()
	got := make(map[uint64]*ratelimitv1.TakeResult)
	if s == nil {
		r := new(ratelimitv1.TakeManyRequest)
		for _, n := range takes {
			r.Takes = append(r.Takes, n.GetTake())
		}
		response, err := d.API().TakeMany(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		for i, result := range response.GetResults() {
			got[uint64(i)] = result
		}
		return got
	}
	if err := s.Send(&ratelimitv1.TakeStreamRequest{Takes: takes}); err != nil {
		t.Fatal(err)
	}
	for len(got) < len(takes) {
		r, err := s.Recv()
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range r.GetResults() {
			got[n.GetNumber()] = n.GetResult()
		}
	}
	return got
}

// Whether the store is asked about the takes of a message one by one or together, answers and
// counts are the same.
func TestTakesTogetherAreAnsweredAsAlone(t *testing.T) {
	t.Parallel()
	const limits = servertest.TakeLimits + "  - {key: leased, rate_limit: {requests: 5, period: 1s, lease: 100ms}}\n"
	clock := asynctest.NewClock()
	many := &manyTaker{Store: servertest.Memory(t, clock)}
	together := servertest.Start(t, limits, waits(many, many))
	alone := servertest.Start(t, limits, waits(servertest.Memory(t, clock), nil))
	inTurn := servertest.Start(t, limits, servertest.On(servertest.Memory(t, clock)))
	all := []*servertest.Daemon{together, alone, inTurn}
	streams := make([]ratelimitv1.RateLimitService_TakeStreamClient, len(all))
	for i, d := range all {
		streams[i] = d.Stream()
	}
	a := asker{Rand: rand.New(rand.NewPCG(1, 2))}
	denied, failed, settled, granted := 0, 0, 0, 0
	for m := range 60 {
		isStreamed := m%3 > 0
		takes := a.message(isStreamed)
		var want map[uint64]*ratelimitv1.TakeResult
		for i, d := range all {
			s := streams[i]
			if !isStreamed {
				s = nil
			}
			got := ask(t, d, s, takes)
			if i == 0 {
				want = got
			}
			for n, r := range want {
				if !proto.Equal(r, got[n]) {
					t.Fatalf("%v gets\n%v and\n%v", takes[n], r, got[n])
				}
			}
		}
		for _, r := range want {
			switch {
			case r.GetError() != nil:
				failed++
			case r.GetSettled() != nil:
				settled++
			case r.GetResponse().GetGranted() > 0:
				granted++
			case !r.GetResponse().GetAllowed():
				denied++
			}
		}
		clock.Move(time.Duration(a.IntN(3000)) * time.Millisecond)
	}
	if granted < 30 || denied < 100 || failed < 100 || settled < 50 || many.takes.Load() < 1000 || many.takes.Load() < 6*many.asked.Load() || many.mixed.Load() > 0 || many.atOnce.Load() > 64 {
		t.Errorf("%d granted, %d denied, %d failed, %d settled; the store was asked %d times about %d takes, at most %d at once", granted, denied, failed, settled, many.asked.Load(), many.takes.Load(), many.atOnce.Load())
	}
	counted := regexp.MustCompile(`^ratelimitd_(requests|decisions|limit|rule|unmatched|unknown|reservations).*_total`)
	want := all[1].Metrics()
	compared := 0
	for _, d := range []*servertest.Daemon{together, inTurn} {
		for series, n := range d.Metrics() {
			if counted.MatchString(series) {
				compared++
				if n != want[series] {
					t.Errorf("%s is %v, want %v", series, n, want[series])
				}
			}
		}
	}
	if compared < 50 {
		t.Errorf("only %d series are compared", compared)
	}
}

// A panic while takes are decided together fails these, and nothing else.
func TestPanicOfTakesTogether(t *testing.T) {
	t.Parallel()
	many := &manyTaker{Store: servertest.Memory(t, asynctest.NewClock())}
	many.panics.Store(true)
	d := servertest.Start(t, servertest.TakeLimits, waits(many, many))
	s := d.Stream()
	for _, want := range []codes.Code{codes.Internal, codes.OK} {
		if err := s.Send(servertest.Numbered(1, servertest.Taking("gcra=x"), servertest.Taking("gcra=y"), servertest.Taking("gcra=z"))); err != nil {
			t.Fatal(err)
		}
		for n := 0; n < 3; {
			r, err := s.Recv()
			if err != nil {
				t.Fatal(err)
			}
			for _, result := range r.GetResults() {
				n++
				if code := codes.Code(result.GetResult().GetError().GetCode()); code != want {
					t.Errorf("code %s, want %s", code, want)
				}
			}
		}
		many.panics.Store(false)
	}
}

// A caller who sends much more than he may have in flight gets all answers, whatever size his
// messages have.
func TestTakesTogetherBeyondWhatMayBeInFlight(t *testing.T) {
	t.Parallel()
	many := &manyTaker{Store: servertest.Memory(t, asynctest.NewClock())}
	d := servertest.Start(t, servertest.TakeLimits, waits(many, many))
	s := d.Stream()
	const messages, takes = 20, 900
	go func() {
		for m := range messages {
			var all []*ratelimitv1.TakeRequest
			for i := range takes {
				all = append(all, servertest.Taking(fmt.Sprintf("gcra=%d-%d", m, i)))
			}
			if s.Send(servertest.Numbered(uint64(m*takes), all...)) != nil {
				return
			}
		}
		_ = s.CloseSend()
	}()
	results, err := readAll(s)
	if err != nil && err != io.EOF || len(results) != messages*takes {
		t.Errorf("%d answers of %d, and %v", len(results), messages*takes, err)
	}
}
