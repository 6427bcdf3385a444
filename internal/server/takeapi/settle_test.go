package takeapi_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/ratelimitd/ratelimitd/internal/assign"
	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/server"
	"github.com/ratelimitd/ratelimitd/internal/server/servertest"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

// tokenLimits are those of a gateway for language models, and one that replaces another.
const tokenLimits = `
domain: api
descriptors:
  - {key: user, rate_limit: {name: minute, algorithm: sliding_window, requests: 100, period: 1m}}
  - key: team
    rate_limits:
      - {name: hour, algorithm: fixed_window, requests: 1000, period: 1h}
      - {name: day, algorithm: token_bucket, requests: 5000, period: 1d}
  - {key: calls, rate_limit: {name: calls, algorithm: fixed_window, requests: 10, period: 1m}}
  - {key: vip, rate_limit: {name: wide, algorithm: fixed_window, requests: 500, period: 1h, replaces: [{name: minute}]}}
  - {key: tenant, plan: free, plans: {free: {name: n, requests: 100, period: 1h, algorithm: fixed_window}, pro: {name: n, requests: 300, period: 1h, algorithm: fixed_window}}}
`

// said says what a response says of each limit.
func said(r *ratelimitv1.SettleResponse) string {
	var b strings.Builder
	fmt.Fprint(&b, r.GetSettled())
	for _, l := range r.GetLimits() {
		if !l.GetSettled() {
			fmt.Fprintf(&b, "; %d %s unknown", l.GetDescriptorIndex(), l.GetName())
			continue
		}
		fmt.Fprintf(&b, "; %d %s -%d +%d of %d, %d left", l.GetDescriptorIndex(), l.GetName(), l.GetReturned(), l.GetAdded(), l.GetTakes(), l.GetRemaining())
	}
	return b.String()
}

func wantSaid(t *testing.T, r *ratelimitv1.SettleResponse, want string) {
	t.Helper()
	if got := said(r); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Of five that reserve half of a limit at once two pass, and no third until one has
// settled for less.
func TestReservationsCannotOvershootTogether(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t, tokenLimits)
	var mu sync.Mutex
	var passed []string
	var all sync.WaitGroup
	for i := range 5 {
		all.Go(func() {
			if id := fmt.Sprint(i); d.TakeAs(id, "user=alice:50", "team=red:50", "calls=alice").GetAllowed() {
				mu.Lock()
				defer mu.Unlock()
				passed = append(passed, id)
			}
		})
	}
	all.Wait()
	if len(passed) != 2 {
		t.Fatalf("%q passed", passed)
	}
	if r := d.TakeAs("third", "user=alice:50"); r.GetAllowed() {
		t.Errorf("a third passes: %v", r)
	}
	wantSaid(t, d.Settle(passed[0], "user=alice:20", "team=red:20", "calls=alice"),
		"true; 0 minute -30 +0 of 1, 30 left; 1 hour -30 +0 of 1, 930 left; 1 day -30 +0 of 1, 4930 left")
	wantSaid(t, d.Settle(passed[1], "user=alice:30", "team=red:30"),
		"true; 0 minute -20 +0 of 1, 50 left; 1 hour -20 +0 of 1, 950 left; 1 day -20 +0 of 1, 4950 left")
	if r := d.TakeAs("third", "user=alice:50"); !r.GetAllowed() {
		t.Errorf("after both have settled for 50 a third gets %v", r)
	}
	// Calls were not settled.
	if r := d.Take("calls=alice:0"); r.GetLimits()[0].GetRemaining() != 8 {
		t.Errorf("of the calls %v", r)
	}
}

// What was not taken is not known, whatever the reason, and the answer says so.
func TestWhatIsNotKnownIsSaid(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t, tokenLimits)
	take := servertest.Taking("user=alice:40")
	take.Id, take.SettleWithin = "short", durationpb.New(10*time.Second)
	d.SendTake(take)
	d.TakeAs("denied", "user=alice:90")
	d.TakeAs("peek", "user=alice:0")
	d.Take("user=alice:10")
	for _, id := range []string{"denied", "peek", "nobody"} {
		wantSaid(t, d.Settle(id, "user=alice:0"), "false; 0 minute unknown")
	}
	wantSaid(t, d.Settle("short", "user=bob:0", "team=red:3", "nothing=x:1"), "false; 0 minute unknown; 1 hour unknown; 1 day unknown")
	d.Clock.Move(10*time.Second - time.Microsecond)
	wantSaid(t, d.Settle("short", "user=alice:30"), "true; 0 minute -10 +0 of 1, 60 left")
	d.Clock.Move(time.Microsecond)
	wantSaid(t, d.Settle("short", "user=alice:0"), "false; 0 minute unknown")
	if r := d.Take("user=alice:0"); r.GetLimits()[0].GetRemaining() != 60 {
		t.Errorf("after all of that: %v", r)
	}
}

// What is assigned while a request runs changes nothing of what it used.
func TestAssignmentsDoNotHinderSettlements(t *testing.T) {
	t.Parallel()
	a := servertest.StartAssigned(t, tokenLimits)
	d := a.Daemon
	d.TakeAs("one", "user=alice:40", "tenant=acme:60")
	a.Says("user=alice", assign.Terms{Blocked: true})
	a.Says("tenant=acme", assign.Terms{Plan: "pro"})
	wantSaid(t, d.Settle("one", "user=alice:90", "tenant=acme:10"),
		"true; 0 minute -0 +50 of 1, 10 left; 1 n -50 +0 of 1, 290 left")
	a.Says("user=alice", assign.Terms{Unlimited: true})
	wantSaid(t, d.Settle("one", "user=alice:5", "tenant=acme:11"), "true; 1 n -0 +1 of 1, 289 left")
	a.Says("user=alice", assign.Terms{Numbers: []assign.Numbers{{Limit: "minute", Requests: 100}}})
	wantSaid(t, d.Settle("one", "user=alice:5"), "true; 0 minute -85 +0 of 1, 95 left")
}

// A descriptor without a cost is there for what its rule says of others.
func TestReplacedLimitsAreNotSettled(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t, tokenLimits)
	d.TakeAs("one", "user=alice:40", "vip=alice")
	wantSaid(t, d.Settle("one", "user=alice:30", "vip=alice"), "false")
	wantSaid(t, d.Settle("one", "user=alice:30", "vip=alice:1"), "true; 1 wide -0 +0 of 1, 499 left")
}

func TestWrongIDsAndSettlementsAreRefused(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t, tokenLimits, func(o *server.Options) { o.Requests.Bounds.SettleWithin = 2 * time.Hour })
	within := func(id string, within *durationpb.Duration) *ratelimitv1.TakeRequest {
		r := servertest.Taking("user=alice")
		r.Id, r.SettleWithin = id, within
		return r
	}
	longest := strings.Repeat("é", 32)
	for want, r := range map[string]proto.Message{
		"id: found 65 bytes; allowed: 1 to 64":                       within(longest+"x", nil),
		"settle_within: found 1m0s without an id":                    within("", durationpb.New(time.Minute)),
		"settle_within: found 0s; allowed: 1us to 2h0m0s":            within("x", new(durationpb.Duration)),
		"settle_within: found 2h0m0.000001s; allowed: 1us to 2h0m0s": within("x", durationpb.New(2*time.Hour+time.Microsecond)),
		"settle_within: found -1s":                                   within("x", durationpb.New(-time.Second)),
		"(setting api.max_settle_within)":                            within("x", &durationpb.Duration{Seconds: math.MaxInt64, Nanos: math.MaxInt32}),
		"id is empty":                                                servertest.Settling("", "user=alice:1"),
		"descriptors: found no cost":                                 servertest.Settling("x", "user=alice"),
		"descriptors is empty":                                       servertest.Settling("x"),
		"descriptors[0].cost: found 18446744073709551615":            servertest.Settling("x", fmt.Sprint("user=alice:", uint64(math.MaxUint64))),
		"descriptors[1].cost: found 4503599627370498; allowed: 0 to": servertest.Settling("x", "user=alice:1", fmt.Sprint("team=red:", int64(bucket.MaxCost+1))),
	} {
		var err error
		switch r := r.(type) {
		case *ratelimitv1.TakeRequest:
			_, err = d.API().Take(t.Context(), r)
		case *ratelimitv1.SettleRequest:
			_, err = d.API().Settle(t.Context(), r)
		}
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want it to say %q", err, want)
		}
	}
	for _, ok := range []*ratelimitv1.TakeRequest{within(longest, nil), within("x", durationpb.New(2*time.Hour)), within("x", durationpb.New(time.Microsecond))} {
		if _, err := d.API().Take(t.Context(), ok); err != nil {
			t.Errorf("%v: %v", ok, err)
		}
	}
}

// Settlements come over a stream too, each with its number, and beside takes.
func TestSettlementsOverAStream(t *testing.T) {
	t.Parallel()
	for _, waits := range []bool{false, true} {
		d := servertest.Start(t, tokenLimits, func(o *server.Options) { o.RemoteStore = waits })
		s := d.Stream()
		ask := func(asked ...*ratelimitv1.NumberedTake) map[uint64]*ratelimitv1.TakeResult {
			t.Helper()
			if err := s.Send(&ratelimitv1.TakeStreamRequest{Takes: asked}); err != nil {
				t.Fatal(err)
			}
			got := map[uint64]*ratelimitv1.TakeResult{}
			for len(got) < len(asked) {
				r, err := s.Recv()
				if err != nil {
					t.Fatal(err)
				}
				for _, one := range r.GetResults() {
					got[one.GetNumber()] = one.GetResult()
				}
			}
			return got
		}
		take := servertest.Taking("user=alice:40")
		take.Id = "one"
		ask(&ratelimitv1.NumberedTake{Number: 1, Take: take})
		got := ask(
			&ratelimitv1.NumberedTake{Number: 2, Settle: servertest.Settling("one", "user=alice:25")},
			&ratelimitv1.NumberedTake{Number: 3, Take: servertest.Taking("calls=alice")},
			&ratelimitv1.NumberedTake{Number: 4, Settle: servertest.Settling("another", "user=alice:25")},
			&ratelimitv1.NumberedTake{Number: 5, Settle: servertest.Settling("", "user=alice:25")},
		)
		wantSaid(t, got[2].GetSettled(), "true; 0 minute -15 +0 of 1, 75 left")
		wantSaid(t, got[4].GetSettled(), "false; 0 minute unknown")
		if !got[3].GetResponse().GetAllowed() || got[3].GetSettled() != nil || got[5].GetError().GetCode() != uint32(codes.InvalidArgument) {
			t.Errorf("got %v", got)
		}
	}
}

// A settlement that the store does not answer is an error, and may be sent again.
func TestSettlementWithoutAStore(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t, tokenLimits, func(o *server.Options) { o.Store = failingSettlements{o.Store} })
	if _, err := d.API().Settle(t.Context(), servertest.Settling("one", "user=alice:1")); status.Code(err) != codes.Unavailable {
		t.Errorf("got %v", err)
	}
}

// failingSettlements takes, but cannot settle.
type failingSettlements struct{ bucket.Store }

func (failingSettlements) Settle(context.Context, string, []bucket.Hit, []bucket.Settled) error {
	return errors.New("the store is away")
}
