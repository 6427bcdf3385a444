package server_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/server"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

const takeLimits = `
domain: api
descriptors:
  - {key: token_bucket, rate_limit: {name: n, algorithm: token_bucket, requests: 10, period: 10s, burst: 4}}
  - {key: gcra, rate_limit: {name: n, algorithm: gcra, requests: 10, period: 10s, burst: 4}}
  - {key: leaky_bucket, rate_limit: {name: n, algorithm: leaky_bucket, requests: 10, period: 10s, burst: 4}}
  - {key: fixed_window, rate_limit: {name: n, algorithm: fixed_window, requests: 4, period: 10s}}
  - {key: sliding_window, rate_limit: {name: n, algorithm: sliding_window, requests: 4, period: 10s}}
  - {key: sliding_log, rate_limit: {name: n, algorithm: sliding_log, requests: 4, period: 10s}}
  - {key: closed, rate_limit: {requests: 0, period: 1s}}
  - {key: free, rate_limit: {unlimited: true}}
  - {key: shadow, shadow_mode: true, rate_limit: {name: s, algorithm: fixed_window, requests: 1, period: 1h}}
  - {key: paid, rate_limit: {algorithm: fixed_window, requests: 4, period: 1h, postpaid: true}}
  - key: several
    rate_limits:
      - {name: second, algorithm: fixed_window, requests: 2, period: 1s}
      - {name: hour, algorithm: fixed_window, requests: 3, period: 1h}
`

func (d *daemon) api() ratelimitv1.RateLimitServiceClient {
	return ratelimitv1.NewRateLimitServiceClient(d.conn)
}

// taking asks about descriptors such as "user=alice,plan=free", with a cost
// after a colon, "user=alice:3", or 1.
func taking(descriptors ...string) *ratelimitv1.TakeRequest {
	r := &ratelimitv1.TakeRequest{Domain: "api"}
	for _, text := range descriptors {
		text, cost, hasCost := strings.Cut(text, ":")
		d := &ratelimitv1.Descriptor{}
		for _, part := range strings.Split(text, ",") {
			k, v, _ := strings.Cut(part, "=")
			d.Entries = append(d.Entries, &ratelimitv1.Entry{Key: k, Value: v})
		}
		if hasCost {
			d.Cost = new(uint64)
			if _, err := fmt.Sscan(cost, d.Cost); err != nil {
				panic(err)
			}
		}
		r.Descriptors = append(r.Descriptors, d)
	}
	return r
}

func (d *daemon) take(descriptors ...string) *ratelimitv1.TakeResponse {
	d.t.Helper()
	return d.sendTake(taking(descriptors...))
}

func (d *daemon) sendTake(r *ratelimitv1.TakeRequest) *ratelimitv1.TakeResponse {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	response, err := d.api().Take(ctx, r)
	if err != nil {
		d.t.Fatal(err)
	}
	return response
}

func (d *daemon) giveBack(r *ratelimitv1.TakeRequest, taken *ratelimitv1.TakeResponse) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, err := d.api().GiveBack(ctx, givingBack(r, taken))
	return err
}

func givingBack(r *ratelimitv1.TakeRequest, taken *ratelimitv1.TakeResponse) *ratelimitv1.GiveBackRequest {
	back := &ratelimitv1.GiveBackRequest{Take: r}
	for _, l := range taken.GetLimits() {
		back.TakenAt = append(back.TakenAt, l.GetTakenAt())
		back.TakenBy = append(back.TakenBy, l.GetTakenBy())
	}
	return back
}

func TestTakeTellsEverything(t *testing.T) {
	t.Parallel()
	d := start(t, takeLimits)
	now := d.clock.micros.Load()
	for i, a := range bucket.Algorithms() {
		got := d.take("free=x", a.String()+"=x:3")
		want := &ratelimitv1.TakeResponse{Allowed: true, Limits: []*ratelimitv1.Limit{{
			DescriptorIndex: 1, Name: "n", Algorithm: ratelimitv1.Algorithm(i + 1),
			Requests: 10, Period: durationpb.New(10 * time.Second), Capacity: 4, Remaining: 1, Allowed: true, TakenAt: now,
		}}}
		l := want.Limits[0]
		switch {
		case a.IsBucket():
			l.ResetAfter = durationpb.New(3 * time.Second)
		case a == bucket.FixedWindow: // of which 0.25 s have passed
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
		// 2 of 1 are denied, and told when they are not.
		denied := d.take("free=x", a.String()+"=x:2")
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
		// More than there ever is has no time at which to come back.
		never := d.take(a.String() + "=x:5")
		if never.GetAllowed() || never.GetRetryAfter() != nil || never.GetLimits()[0].GetRetryAfter() != nil || never.DeniedBy == nil {
			t.Errorf("%s: 5 of 4 got %v", a, never)
		}
	}
}

func TestTakeShowsEachOfSeveralLimits(t *testing.T) {
	t.Parallel()
	d := start(t, takeLimits)
	ok := d.take("several=x:2", "unknown=x", "shadow=x")
	if !ok.GetAllowed() || len(ok.GetLimits()) != 3 || ok.GetLimits()[1].GetName() != "hour" || ok.GetLimits()[2].GetDescriptorIndex() != 2 || !ok.GetLimits()[2].GetShadow() {
		t.Errorf("got %v", ok)
	}
	// The second's limit denies, and the hour's has one left for a cost of 1.
	denied := d.take("shadow=x", "several=x")
	if denied.GetAllowed() || denied.GetDeniedBy() != 1 || denied.GetRetryAfter().AsDuration() != 750*time.Millisecond || !denied.GetLimits()[2].GetAllowed() {
		t.Errorf("got %v, want it denied by the second's limit", denied)
	}
	if s := denied.GetLimits()[0]; s.GetAllowed() || s.GetTakenAt() != 0 {
		t.Errorf("the shadow limit says %v", s)
	}
	d.clock.advance(time.Second)
	// Both deny 2; the hour's for longer.
	if r := d.take("several=x:2"); r.GetDeniedBy() != 1 || r.GetRetryAfter().AsDuration() < time.Hour/2 {
		t.Errorf("got %v, want it denied by the hour's limit", r)
	}
	if r := d.take("closed=x"); r.GetAllowed() || r.GetDeniedBy() != 0 || r.DeniedBy == nil || r.GetRetryAfter() != nil {
		t.Errorf("got %v, want it denied for ever", r)
	}
	if r := d.take("free=x"); !r.GetAllowed() || len(r.GetLimits()) != 0 {
		t.Errorf("got %v", r)
	}
	peek := d.take("sliding_log=p:0")
	if !peek.GetAllowed() || peek.GetLimits()[0].GetRemaining() != 4 || peek.GetLimits()[0].GetTakenAt() != 0 {
		t.Errorf("a peek got %v", peek)
	}
}

func TestTakeBringsItsOwnNumbers(t *testing.T) {
	t.Parallel()
	d := start(t, takeLimits)
	with := func(text string, requests uint32, period time.Duration, burst uint32) *ratelimitv1.TakeRequest {
		r := taking(text)
		r.Descriptors[0].Numbers = &ratelimitv1.Numbers{Requests: requests, Period: durationpb.New(period), Burst: burst}
		return r
	}
	d.take("token_bucket=x:3")
	// The state goes on.
	if r := d.sendTake(with("token_bucket=x", 100, 10*time.Second, 50)); r.GetLimits()[0].GetRemaining() != 46 || r.GetLimits()[0].GetCapacity() != 50 || r.GetLimits()[0].GetName() != "" {
		t.Errorf("got %v", r)
	}
	if r := d.sendTake(with("fixed_window=x", 7, 1500*time.Millisecond, 0)); r.GetLimits()[0].GetRemaining() != 6 || r.GetLimits()[0].GetPeriod().AsDuration() != 1500*time.Millisecond {
		t.Errorf("got %v", r)
	}
	if r := d.sendTake(with("unknown=x", 7, time.Minute, 0)); r.GetLimits()[0].GetAlgorithm() != ratelimitv1.Algorithm_ALGORITHM_FIXED_WINDOW {
		t.Errorf("got %v", r)
	}
	if r := d.sendTake(with("fixed_window=x", 7, 500*time.Millisecond, 0)); r.GetLimits()[0].GetPeriod().AsDuration() != 500*time.Millisecond {
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
		_, err := d.api().Take(t.Context(), c.request)
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: got %v, want %q", c.request, err, c.want)
		}
	}
}

func TestGiveBackReturnsWhatWasTaken(t *testing.T) {
	t.Parallel()
	d := start(t, takeLimits)
	var names []string
	for _, a := range bucket.Algorithms() {
		names = append(names, a.String()+"=x:3")
	}
	names = append(names, "free=x", "shadow=x", "several=x:2", "unknown=x", "paid=x:2", "gcra=peek:0")
	request := taking(names...)
	left := func() (left []uint32) {
		peek := taking(names...)
		for _, x := range peek.Descriptors {
			x.Cost = new(uint64)
		}
		for _, l := range d.sendTake(peek).GetLimits() {
			left = append(left, l.GetRemaining())
		}
		return left
	}
	before := left()
	taken := d.sendTake(request)
	if err := d.giveBack(request, taken); err != nil {
		t.Fatal(err)
	}
	if after := left(); !slices.Equal(after, before) {
		t.Errorf("%v are left after a give-back, want %v", after, before)
	}
	// Again, nothing is above full.
	if err := d.giveBack(request, taken); err != nil {
		t.Fatal(err)
	}
	if after := left(); !slices.Equal(after, before) {
		t.Errorf("%v are left after a second give-back, want %v", after, before)
	}
	// What was denied took nothing, but from what is paid afterwards.
	request = taking("sliding_log=y:5", "gcra=y:2", "paid=y:3")
	taken = d.sendTake(request)
	if at := givingBack(request, taken).GetTakenAt(); at[0] != 0 || at[1] != 0 || at[2] == 0 {
		t.Errorf("of a denied take %v were taken", at)
	}
	if err := d.giveBack(request, taken); err != nil {
		t.Fatal(err)
	}
	if r := d.take("gcra=y:0", "paid=y:0"); r.GetLimits()[0].GetRemaining() != 4 || r.GetLimits()[1].GetRemaining() != 4 {
		t.Errorf("after that, got %v", r)
	}
	// A window that is over takes nothing back.
	request = taking("fixed_window=z:3")
	taken = d.sendTake(request)
	d.clock.advance(10 * time.Second)
	d.take("fixed_window=z:2")
	if err := d.giveBack(request, taken); err != nil {
		t.Fatal(err)
	}
	if r := d.take("fixed_window=z:0"); r.GetLimits()[0].GetRemaining() != 2 {
		t.Errorf("what was taken from an earlier window came back into this one: %v", r)
	}
}

// returningStore decides the second hit of each take without its state, and
// keeps what is given back.
type returningStore struct {
	fakeStore
	returned []string
}

func (s *returningStore) Take(_ context.Context, _ []bucket.Hit, decisions []bucket.Decision) error {
	for i := range decisions {
		decisions[i] = bucket.Decision{At: int64(100 + i)}
		if i == 1 {
			decisions[i].Degraded, decisions[i].Share = true, math.MaxUint32
		}
	}
	return nil
}

func (s *returningStore) GiveBack(_ context.Context, hits []bucket.Hit, decisions []bucket.Decision) error {
	for i := range hits {
		d := decisions[i]
		s.returned = append(s.returned, fmt.Sprintf("%s at %d, degraded %v, share %d", hits[i].Key, d.At, d.Degraded, d.Share))
	}
	return nil
}

// What another took in the store's place is given back as that.
func TestDegradedTakeIsGivenBackAsDegraded(t *testing.T) {
	t.Parallel()
	store := new(returningStore)
	d := start(t, takeLimits, on(store))
	request := taking("gcra=x", "gcra=y", "gcra=z")
	taken := d.sendTake(request)
	if err := d.giveBack(request, taken); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"api|gcra=x#gcra:n at 100, degraded false, share 0",
		"api|gcra=z#gcra:n at 102, degraded false, share 0",
		"api|gcra=y#gcra:n at 101, degraded true, share 4294967295",
	}
	if !slices.Equal(store.returned, want) {
		t.Errorf("given back: %q, want %q", store.returned, want)
	}
	// What the store took is of no share, and a share's number has 32 bits.
	for i, other := range []uint64{1, 1 << 32} {
		taken := proto.Clone(taken).(*ratelimitv1.TakeResponse)
		taken.Limits[i].TakenBy ^= other
		if err := d.giveBack(request, taken); status.Code(err) != codes.FailedPrecondition {
			t.Errorf("limit %d: %v", i, err)
		}
	}
}

func TestWrongGiveBacksAreRefused(t *testing.T) {
	t.Parallel()
	d := start(t, takeLimits)
	noPeriod := taking("gcra=x")
	noPeriod.Descriptors[0].Numbers = &ratelimitv1.Numbers{Requests: 1}
	for _, c := range []struct {
		back *ratelimitv1.GiveBackRequest
		code codes.Code
		want string
	}{
		{&ratelimitv1.GiveBackRequest{}, codes.InvalidArgument, "domain is empty"},
		{&ratelimitv1.GiveBackRequest{Take: noPeriod, TakenAt: []int64{1}}, codes.InvalidArgument, "descriptors[0].numbers.period: found 0s"},
		{&ratelimitv1.GiveBackRequest{Take: taking("several=x"), TakenAt: []int64{1}}, codes.FailedPrecondition, "the limits have changed"},
		{&ratelimitv1.GiveBackRequest{Take: taking("gcra=x"), TakenAt: []int64{1, 2}}, codes.FailedPrecondition, "the limits have changed"},
		{&ratelimitv1.GiveBackRequest{Take: taking("gcra=x"), TakenAt: []int64{1}, TakenBy: []uint64{1, 2}}, codes.InvalidArgument, "taken_by: found 2 beside 1 of taken_at; allowed: as many, or none"},
		{&ratelimitv1.GiveBackRequest{Take: taking("gcra=x"), TakenAt: []int64{1}, TakenBy: []uint64{2}}, codes.FailedPrecondition, "the limits have changed"},
		{&ratelimitv1.GiveBackRequest{Take: taking("gcra=x"), TakenAt: []int64{0}, TakenBy: []uint64{2}}, codes.OK, ""},
		{&ratelimitv1.GiveBackRequest{Take: taking("gcra=x"), TakenAt: []int64{1}, TakenBy: []uint64{0}}, codes.OK, ""},
		{&ratelimitv1.GiveBackRequest{Take: taking("gcra=x"), TakenAt: []int64{math.MinInt64}}, codes.InvalidArgument, "taken_at[0]: found -9223372036854775808"},
		{&ratelimitv1.GiveBackRequest{Take: taking("gcra=x"), TakenAt: []int64{math.MaxInt64}}, codes.InvalidArgument, "taken_at[0]: found"},
		{&ratelimitv1.GiveBackRequest{Take: taking("gcra=x"), TakenAt: []int64{1}}, codes.OK, ""},
		{&ratelimitv1.GiveBackRequest{Take: taking("gcra=x"), TakenAt: []int64{-1}}, codes.OK, ""},
	} {
		_, err := d.api().GiveBack(t.Context(), c.back)
		if status.Code(err) != c.code || !strings.Contains(fmt.Sprint(err), c.want) {
			t.Errorf("%v: got %v, want %v %q", c.back, err, c.code, c.want)
		}
	}
	off := start(t, takeLimits, func(o *server.Options) { o.Requests.Refunds = false })
	request := taking("gcra=x")
	if err := off.giveBack(request, off.sendTake(request)); status.Code(err) != codes.PermissionDenied {
		t.Errorf("where refunds are off, got %v", err)
	}
	var refused atomic.Bool
	failing := start(t, takeLimits, func(o *server.Options) {
		o.Store = failingReturns{o.Store}
		o.Health.Refuses = func() error {
			if refused.Load() {
				return errors.New("it disagrees with the others")
			}
			return nil
		}
	})
	taken := failing.sendTake(request)
	for _, want := range []string{"the store is away", "it disagrees with the others"} {
		if err := failing.giveBack(request, taken); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
		refused.Store(true)
	}
}

// failingReturns takes, but gives nothing back.
type failingReturns struct{ bucket.Store }

func (failingReturns) GiveBack(context.Context, []bucket.Hit, []bucket.Decision) error {
	return errors.New("the store is away")
}

func TestTakeManyAnswersEachTake(t *testing.T) {
	t.Parallel()
	for _, waits := range []bool{false, true} {
		d := start(t, takeLimits, func(o *server.Options) { o.StoreWaits, o.Requests.Bounds.Takes = waits, 40 })
		request := &ratelimitv1.TakeManyRequest{}
		for range 6 {
			request.Takes = append(request.Takes, taking("gcra=x"))
		}
		request.Takes = append(request.Takes, &ratelimitv1.TakeRequest{}, taking("free=x"))
		response, err := d.api().TakeMany(t.Context(), request)
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
				many.Takes = append(many.Takes, taking("free=x"))
			}
			if _, err := d.api().TakeMany(t.Context(), many); status.Code(err) != codes.InvalidArgument {
				t.Errorf("%d takes: got %v", n, err)
			}
		}
	}
}

func TestTakesAndGiveBacksWorkOverHTTP(t *testing.T) {
	t.Parallel()
	d := start(t, takeLimits)
	p := d.fetch("POST", "http", "/v1/take", strings.NewReader(`{"domain":"api","descriptors":[{"entries":[{"key":"gcra","value":"x"}],"cost":3}]}`))
	var taken ratelimitv1.TakeResponse
	if err := protojson.Unmarshal([]byte(p.body), &taken); p.code != 200 || err != nil || taken.GetLimits()[0].GetRemaining() != 1 {
		t.Fatalf("%d %s, %v", p.code, p.body, err)
	}
	p = d.fetch("POST", "http", "/v1/take", strings.NewReader(`{"domain":"api","descriptors":[{"entries":[{"key":"gcra","value":"x"}],"cost":2}]}`))
	if p.code != 429 || p.header.Get("retry-after") != "1" || !strings.Contains(p.body, `"deniedBy"`) {
		t.Errorf("%d %v %s", p.code, p.header, p.body)
	}
	back, err := protojson.Marshal(givingBack(taking("gcra=x:3"), &taken))
	if err != nil {
		t.Fatal(err)
	}
	if p = d.fetch("POST", "http", "/v1/give-back", strings.NewReader(string(back))); p.code != 200 {
		t.Errorf("%d %s", p.code, p.body)
	}
	if r := d.take("gcra=x:0"); r.GetLimits()[0].GetRemaining() != 4 {
		t.Errorf("after the give-back: %v", r)
	}
	for _, c := range []struct {
		path, body string
		code       int
		want       string
	}{
		{"/v1/take", `{`, 400, "the body is no TakeRequest in protobuf JSON"},
		{"/v1/take", `{"domain":"api","descriptors":[]}`, 400, "descriptors is empty"},
		{"/v1/take", `{"domain":"api","what":1}`, 400, "unknown field"},
		{"/v1/give-back", `{"take":{"domain":"api","descriptors":[{"entries":[{"key":"gcra","value":"x"}]}]}}`, 409, "limits have changed"},
	} {
		if p := d.fetch("POST", "http", c.path, strings.NewReader(c.body)); p.code != c.code || !strings.Contains(p.body, c.want) {
			t.Errorf("%s %s: %d %s, want %d %q", c.path, c.body, p.code, p.body, c.code, c.want)
		}
	}
}
