package takeapi_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/buckettest"
	"github.com/ratelimitd/ratelimitd/internal/server"
	"github.com/ratelimitd/ratelimitd/internal/server/servertest"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

func TestTakeTellsEverything(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t, servertest.TakeLimits)
	now := d.Clock.Micros()
	for i, a := range buckettest.Rates() {
		got := d.Take("free=x", a.String()+"=x:3")
		want := &ratelimitv1.TakeResponse{Allowed: true, Limits: []*ratelimitv1.Limit{{
			DescriptorIndex: 1, Name: "n", Algorithm: ratelimitv1.Algorithm(i + 1),
			Requests: 10, Period: durationpb.New(10 * time.Second), Capacity: 4, Remaining: 1, Allowed: true, TakenAt: now,
		}}}
		l := want.Limits[0]
		switch {
		case a.IsBucket():
			l.ResetAfter = durationpb.New(3 * time.Second)
		case a == bucket.FixedWindow: // 0.25 s have passed
			l.Requests, l.ResetAfter = 4, durationpb.New(9750*time.Millisecond)
		default:
			l.Requests, l.ResetAfter = 4, durationpb.New(10*time.Second)
		}
		if got.GetLimits()[0].GetTakenBy() == 0 {
			t.Errorf("%s: it is not told what took: %v", a, got)
		}
		got.GetLimits()[0].TakenBy = 0
		if !proto.Equal(got, want) {
			t.Errorf("%s:\n got %v\nwant %v", a, got, want)
		}
		// 2 of 1 are denied, and the answer says when they are not.
		denied := d.Take("free=x", a.String()+"=x:2")
		want.Allowed, l.Allowed, l.TakenAt, want.DeniedBy = false, false, 0, new(uint32)
		l.RetryAfter = l.ResetAfter
		if a.IsBucket() {
			l.RetryAfter = durationpb.New(time.Second)
		}
		if a == bucket.LeakyBucket {
			l.Wait = durationpb.New(3 * time.Second)
		}
		want.RetryAfter = l.RetryAfter
		if !proto.Equal(denied, want) {
			t.Errorf("%s:\n got %v\nwant %v", a, denied, want)
		}
		// A cost above the capacity has no retry time.
		never := d.Take(a.String() + "=x:5")
		if never.GetAllowed() || never.GetRetryAfter() != nil || never.GetLimits()[0].GetRetryAfter() != nil || never.DeniedBy == nil {
			t.Errorf("%s: 5 of 4 got %v", a, never)
		}
	}
}

func TestTakeShowsEachOfSeveralLimits(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t, servertest.TakeLimits)
	ok := d.Take("several=x:2", "unknown=x", "shadow=x")
	if !ok.GetAllowed() || len(ok.GetLimits()) != 3 || ok.GetLimits()[1].GetName() != "hour" || ok.GetLimits()[2].GetDescriptorIndex() != 2 || !ok.GetLimits()[2].GetShadow() {
		t.Errorf("got %v", ok)
	}
	// The limit of a second denies; that of an hour has one left for a cost of 1.
	denied := d.Take("shadow=x", "several=x")
	if denied.GetAllowed() || denied.GetDeniedBy() != 1 || denied.GetRetryAfter().AsDuration() != 750*time.Millisecond || !denied.GetLimits()[2].GetAllowed() {
		t.Errorf("got %v, want it denied by the second's limit", denied)
	}
	if s := denied.GetLimits()[0]; s.GetAllowed() || s.GetTakenAt() != 0 {
		t.Errorf("the shadow limit says %v", s)
	}
	d.Clock.Move(time.Second)
	// Both deny 2; the hour's denies for longer.
	if r := d.Take("several=x:2"); r.GetDeniedBy() != 1 || r.GetRetryAfter().AsDuration() < time.Hour/2 {
		t.Errorf("got %v, want it denied by the hour's limit", r)
	}
	if r := d.Take("closed=x"); r.GetAllowed() || r.GetDeniedBy() != 0 || r.DeniedBy == nil || r.GetRetryAfter() != nil {
		t.Errorf("got %v, want it denied for ever", r)
	}
	if r := d.Take("free=x"); !r.GetAllowed() || len(r.GetLimits()) != 0 {
		t.Errorf("got %v", r)
	}
	peek := d.Take("sliding_log=p:0")
	if !peek.GetAllowed() || peek.GetLimits()[0].GetRemaining() != 4 || peek.GetLimits()[0].GetTakenAt() != 0 {
		t.Errorf("a peek got %v", peek)
	}
}

func TestTakeBringsItsOwnNumbers(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t, servertest.TakeLimits)
	with := func(text string, requests uint64, period time.Duration, burst uint64) *ratelimitv1.TakeRequest {
		r := servertest.Taking(text)
		r.Descriptors[0].Numbers = &ratelimitv1.Numbers{Requests: requests, Period: durationpb.New(period), Burst: burst}
		return r
	}
	d.Take("token_bucket=x:3")
	// A state of its own, since the rule's has less.
	if r := d.SendTake(with("token_bucket=x", 100, 10*time.Second, 50)); r.GetLimits()[0].GetRemaining() != 49 || r.GetLimits()[0].GetCapacity() != 50 || r.GetLimits()[0].GetName() != "" {
		t.Errorf("got %v", r)
	}
	if r := d.SendTake(with("token_bucket=most", math.MaxUint32, time.Hour, math.MaxUint32)); r.GetLimits()[0].GetCapacity() != math.MaxUint32 {
		t.Errorf("got %v", r)
	}
	if r := d.SendTake(with("fixed_window=x", 7, 1500*time.Millisecond, 0)); r.GetLimits()[0].GetRemaining() != 6 || r.GetLimits()[0].GetPeriod().AsDuration() != 1500*time.Millisecond {
		t.Errorf("got %v", r)
	}
	if r := d.SendTake(with("unknown=x", 7, time.Minute, 0)); r.GetLimits()[0].GetAlgorithm() != ratelimitv1.Algorithm_ALGORITHM_FIXED_WINDOW {
		t.Errorf("got %v", r)
	}
	if r := d.SendTake(with("fixed_window=x", 7, 500*time.Millisecond, 0)); r.GetLimits()[0].GetPeriod().AsDuration() != 500*time.Millisecond {
		t.Errorf("got %v", r)
	}
	parts := func(seconds int64, nanos int32) *ratelimitv1.TakeRequest {
		r := with("token_bucket=x", 1, 0, 0)
		r.Descriptors[0].Numbers.Period = &durationpb.Duration{Seconds: seconds, Nanos: nanos}
		return r
	}
	for _, c := range []struct {
		request *ratelimitv1.TakeRequest
		want    string
	}{
		{parts(1, 2e9), "descriptors[0].numbers.period: found 1 seconds and 2000000000 nanos; allowed: nanos under a second"},
		{parts(1, 1e9), "descriptors[0].numbers.period: found 1 seconds and 1000000000 nanos; allowed: nanos under a second"},
		{parts(-1, -1e9), "descriptors[0].numbers.period: found -1 seconds and -1000000000 nanos; allowed: nanos under a second"},
		{parts(0, -1e6), "descriptors[0].numbers.period: found -1ms; allowed: 1ms to 366d"},
		{parts(2, -1e6), "descriptors[0].numbers.period: found 2 seconds and -1000000 nanos"},
		{parts(-1, 1e6), "descriptors[0].numbers.period: found -1 seconds and 1000000 nanos"},
		{parts(math.MinInt64, math.MinInt32), "descriptors[0].numbers.period: found -9223372036854775808 seconds"},
		{parts(math.MaxInt64, 999_999_999), "descriptors[0].numbers.period: found"},
		{with("token_bucket=x", 1, 0, 0), "descriptors[0].numbers.period: found 0s; allowed: 1ms to 366d"},
		{with("token_bucket=x", 1, -time.Second, 0), "descriptors[0].numbers.period: found -1s"},
		{with("token_bucket=x", 1, math.MaxInt64, 0), "descriptors[0].numbers.period: found"},
		{with("token_bucket=x", 1, time.Second+time.Microsecond, 0), "descriptors[0].numbers.period: found 1.000001s"},
		{with("fixed_window=x", 1, time.Second, 9), "descriptors[0].numbers.burst: found 9"},
		{with("sliding_log=x", 2000, time.Second, 0), "descriptors[0].numbers.requests: found 2000"},
		{&ratelimitv1.TakeRequest{}, "domain is empty"},
		{&ratelimitv1.TakeRequest{Domain: "api"}, "descriptors is empty"},
	} {
		t.Run(c.want, func(t *testing.T) {
			_, err := d.API().Take(t.Context(), c.request)
			if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v: got %v, want %q", c.request, err, c.want)
			}
		})
	}
}

func TestTakeManyAnswersEachTake(t *testing.T) {
	t.Parallel()
	for _, waits := range []bool{false, true} {
		t.Run(fmt.Sprint("waits ", waits), func(t *testing.T) {
			d := servertest.Start(t, servertest.TakeLimits, func(o *server.Options) { o.RemoteStore, o.Requests.Bounds.Takes = waits, 40 })
			request := &ratelimitv1.TakeManyRequest{}
			for range 6 {
				request.Takes = append(request.Takes, servertest.Taking("gcra=x"))
			}
			request.Takes = append(request.Takes, &ratelimitv1.TakeRequest{}, servertest.Taking("free=x"))
			response, err := d.API().TakeMany(t.Context(), request)
			if err != nil {
				t.Fatal(err)
			}
			results := response.GetResults()
			if len(results) != 8 {
				t.Fatalf("%d results of 8", len(results))
			}
			allowed := 0
			for _, r := range results[:6] {
				if r.GetResponse().GetAllowed() {
					allowed++
				}
			}
			if allowed != 4 || codes.Code(results[6].GetError().GetCode()) != codes.InvalidArgument ||
				!strings.Contains(results[6].GetError().GetMessage(), "domain is empty") || !results[7].GetResponse().GetAllowed() {
				t.Errorf("got %v", response)
			}
			for _, n := range []int{0, 41} {
				many := &ratelimitv1.TakeManyRequest{}
				for range n {
					many.Takes = append(many.Takes, servertest.Taking("free=x"))
				}
				if _, err := d.API().TakeMany(t.Context(), many); status.Code(err) != codes.InvalidArgument {
					t.Errorf("%d takes: got %v", n, err)
				}
			}
		})
	}
}

// TakeMany matches its takes twice: to bound the answer, and to decide. What is wrong
// with one is also reported after the second match.
func TestTakeManyRefusesTheTakeWithInvalidNumbers(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t, servertest.TakeLimits)
	bad := servertest.Taking("gcra=x", "sliding_log=x")
	bad.Descriptors[1].Numbers = &ratelimitv1.Numbers{Requests: 2000, Period: durationpb.New(time.Second)}
	response, err := d.API().TakeMany(t.Context(), &ratelimitv1.TakeManyRequest{Takes: []*ratelimitv1.TakeRequest{bad, servertest.Taking("gcra=x")}})
	if err != nil {
		t.Fatal(err)
	}
	results := response.GetResults()
	if e := results[0].GetError(); codes.Code(e.GetCode()) != codes.InvalidArgument || !strings.HasPrefix(e.GetMessage(), "descriptors[1].numbers.requests: found 2000") {
		t.Errorf("the invalid take got %v", results[0])
	}
	if r := results[1].GetResponse(); !r.GetAllowed() || r.GetLimits()[0].GetRemaining() != 3 {
		t.Errorf("the other got %v; the invalid one takes nothing", results[1])
	}
}

func TestTakesAndGiveBacksWorkOverHTTP(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t, servertest.TakeLimits)
	p := d.Fetch("POST", "http", "/v1/take", strings.NewReader(`{"domain":"api","descriptors":[{"entries":[{"key":"gcra","value":"x"}],"cost":3}]}`))
	var taken ratelimitv1.TakeResponse
	if err := protojson.Unmarshal([]byte(p.Body), &taken); p.Code != 200 || err != nil || taken.GetLimits()[0].GetRemaining() != 1 {
		t.Fatalf("%d %s, %v", p.Code, p.Body, err)
	}
	p = d.Fetch("POST", "http", "/v1/take", strings.NewReader(`{"domain":"api","descriptors":[{"entries":[{"key":"gcra","value":"x"}],"cost":2}]}`))
	if p.Code != 429 || p.Header.Get("retry-after") != "1" || !strings.Contains(p.Body, `"deniedBy"`) {
		t.Errorf("%d %v %s", p.Code, p.Header, p.Body)
	}
	back, err := protojson.Marshal(servertest.GivingBack(servertest.Taking("gcra=x:3"), &taken))
	if err != nil {
		t.Fatal(err)
	}
	if p = d.Fetch("POST", "http", "/v1/give-back", strings.NewReader(string(back))); p.Code != 200 {
		t.Errorf("%d %s", p.Code, p.Body)
	}
	if r := d.Take("gcra=x:0"); r.GetLimits()[0].GetRemaining() != 4 {
		t.Errorf("after the give-back: %v", r)
	}
}
