package takeapi_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/ratelimitd/ratelimitd/internal/access"
	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/filetest"
	"github.com/ratelimitd/ratelimitd/internal/server"
	"github.com/ratelimitd/ratelimitd/internal/server/servertest"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

const holderLimits = `
domain: api
descriptors:
- key: tenant
  rate_limit: {name: rate, algorithm: fixed_window, requests: 5, period: 1h}
  descriptors:
  - key: request_id
    rate_limit: {name: flight, algorithm: concurrency, requests: 2, hold: 1m}
`

// release releases what descriptors such as "tenant=a,request_id=1" hold.
func release(t *testing.T, d *servertest.Daemon, descriptors ...string) *ratelimitv1.ReleaseResponse {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), servertest.Patience)
	defer cancel()
	take := servertest.Taking(descriptors...)
	r, err := d.API().Release(ctx, &ratelimitv1.ReleaseRequest{Domain: take.GetDomain(), Descriptors: take.GetDescriptors()})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestSlotsAreTakenAndReleased(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t, holderLimits)
	one := d.Take("tenant=a", "tenant=a,request_id=1")
	if l := one.GetLimits()[1]; !one.GetAllowed() || l.GetAlgorithm() != ratelimitv1.Algorithm_ALGORITHM_CONCURRENCY || l.GetHeldFor().AsDuration() != time.Minute ||
		l.GetRequests() != 2 || l.GetRemaining() != 1 || l.GetTakenAt() == 0 || one.GetRetryUnknown() || l.GetRetryUnknown() {
		t.Errorf("the first gets %v", one)
	}
	if l := one.GetLimits()[0]; l.GetHeldFor() != nil || l.GetRetryUnknown() {
		t.Errorf("the rate says %v", l)
	}
	again := d.Take("tenant=a,request_id=1")
	if l := again.GetLimits()[0]; !again.GetAllowed() || l.GetHeldFor().AsDuration() != time.Minute || l.GetTakenAt() != 0 || l.GetRemaining() != 1 {
		t.Errorf("a renewal gets %v", again)
	}
	d.Take("tenant=a,request_id=2")
	d.Clock.Move(10 * time.Second)
	denied := d.Take("tenant=a", "tenant=a,request_id=3")
	l := denied.GetLimits()[1]
	if denied.GetAllowed() || denied.GetRetryAfter() != nil || !denied.GetRetryUnknown() || denied.GetDeniedBy() != 1 ||
		l.GetRetryAfter() != nil || !l.GetRetryUnknown() || l.GetFreeAtLatest().AsDuration().Round(time.Millisecond) != 50*time.Second || l.GetWait() != nil || l.GetHeldFor() != nil {
		t.Errorf("the third gets %v", denied)
	}
	if got := d.Take("tenant=a:0").GetLimits()[0].GetRemaining(); got != 4 {
		t.Errorf("%d remain of the rate, want 4: a denied request took from it", got)
	}
	// Another tenant has its own.
	if other := d.Take("tenant=b,request_id=1"); other.GetLimits()[0].GetRemaining() != 1 {
		t.Errorf("another tenant gets %v", other)
	}

	for _, c := range []struct {
		holder string
		want   ratelimitv1.Released
		left   uint64
	}{
		{"3", ratelimitv1.Released_RELEASED_NOTHING, 0},
		{"2", ratelimitv1.Released_RELEASED_SLOT, 1},
		{"2", ratelimitv1.Released_RELEASED_NOTHING, 1},
	} {
		// The take's own descriptors will do, whatever they cost and whatever else they name.
		r := release(t, d, "tenant=a:3", "tenant=a,request_id="+c.holder+":9", "other=x")
		if len(r.GetLimits()) != 1 || r.GetDegraded() {
			t.Fatalf("a release gets %v", r)
		}
		if l := r.GetLimits()[0]; l.GetReleased() != c.want || l.GetRemaining() != c.left || l.GetDescriptorIndex() != 1 || l.GetName() != "flight" {
			t.Errorf("a release by %s finds %v, want %v", c.holder, l, c.want)
		}
	}
	d.Clock.Move(time.Minute)
	if l := release(t, d, "tenant=a,request_id=1").GetLimits()[0]; l.GetReleased() != ratelimitv1.Released_RELEASED_TOO_LATE {
		t.Errorf("a late release finds %v", l)
	}
	if got := d.Take("tenant=a:0").GetLimits()[0].GetRemaining(); got != 4 {
		t.Errorf("%d remain of the rate, want 4: releases gave something back", got)
	}
}

func TestSlotIsGivenBack(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t, holderLimits)
	r := servertest.Taking("tenant=a", "tenant=a,request_id=1")
	first, renewed := d.SendTake(r), d.SendTake(r)
	for name, taken := range map[string]*ratelimitv1.TakeResponse{"a renewal": renewed, "what was renewed": first} {
		if err := d.GiveBack(r, taken); err != nil {
			t.Fatal(err)
		}
		if got := d.Take("tenant=a,request_id=x:0").GetLimits()[0].GetRemaining(); got != 1 {
			t.Errorf("a give-back of %s leaves %d free, want 1", name, got)
		}
	}
	other := servertest.Taking("tenant=a,request_id=2")
	if err := d.GiveBack(other, d.SendTake(other)); err != nil {
		t.Fatal(err)
	}
	if got := d.Take("tenant=a,request_id=x:0").GetLimits()[0].GetRemaining(); got != 1 {
		t.Errorf("a give-back leaves %d free, want 1", got)
	}
}

// Slots can be released and given back also where nothing else can be.
func TestReleaseWithoutRefunds(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t, holderLimits, func(o *server.Options) { o.Requests.Refunds = false })
	slot, both := servertest.Taking("tenant=a,request_id=1"), servertest.Taking("tenant=a", "tenant=a,request_id=2")
	if err := d.GiveBack(slot, d.SendTake(slot)); err != nil {
		t.Errorf("a give-back of a slot gets %v", err)
	}
	if err := d.GiveBack(both, d.SendTake(both)); status.Code(err) != codes.PermissionDenied {
		t.Errorf("a give-back of a rate gets %v", err)
	}
	if r := release(t, d, "tenant=a", "tenant=a,request_id=2"); len(r.GetLimits()) != 1 || r.GetLimits()[0].GetReleased() != ratelimitv1.Released_RELEASED_SLOT {
		t.Errorf("a release gets %v", r)
	}
	refund := servertest.Request("api", 1, "tenant=a,request_id=3")
	refund.Descriptors[0].IsNegativeHits = true
	d.Take("tenant=a,request_id=3")
	if _, err := d.Try(refund); err != nil {
		t.Errorf("a refund of a slot gets %v", err)
	}
	if got := d.Take("tenant=a,request_id=x:0").GetLimits()[0].GetRemaining(); got != 2 {
		t.Errorf("%d of 2 are free", got)
	}
	for _, other := range []string{"tenant=a", "unknown=x"} {
		refund := servertest.Request("api", 1, other)
		refund.Descriptors[0].IsNegativeHits = true
		if _, err := d.Try(refund); status.Code(err) != codes.PermissionDenied {
			t.Errorf("a refund of %s gets %v", other, err)
		}
	}
}

// What a holder cannot be asked is refused, before anything is taken.
func TestBadHoldersAreRefused(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t, holderLimits)
	own := servertest.Taking("tenant=a,request_id=1")
	own.Descriptors[0].Numbers = &ratelimitv1.Numbers{Requests: 7, Period: durationpb.New(time.Minute)}
	for want, r := range map[string]*ratelimitv1.TakeRequest{
		"descriptors[1].entries[1].value: found an empty text":                   servertest.Taking("tenant=a", "tenant=a,request_id="),
		"descriptors[1]: found a cost of 2 for the rule tenant / request_id":     servertest.Taking("tenant=a", "tenant=a,request_id=1:2"),
		"descriptors[0].numbers: found numbers for the rule tenant / request_id": own,
	} {
		_, err := d.API().Take(context.Background(), r)
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), want) {
			t.Errorf("%v gets %v, want %s", r, err, want)
		}
	}
	refund := servertest.Request("api", 2, "tenant=a,request_id=1")
	refund.Descriptors[0].IsNegativeHits = true
	if _, err := d.Try(refund); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "found a cost of -2") {
		t.Errorf("a refund of 2 gets %v", err)
	}
	if got := d.Take("tenant=a:0").GetLimits()[0].GetRemaining(); got != 5 {
		t.Errorf("%d of 5 remain of the rate", got)
	}
}

// However long the names of holders are, they are told apart, and no short name is equal to
// the hash of a long one.
func TestLongHolders(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t, holderLimits)
	long := strings.Repeat("x", 8000)
	for i, c := range []struct {
		holder string
		left   uint64
	}{
		{long, 1}, {long, 1}, {long + "y", 0}, {long, 0},
	} {
		if got := d.Take("tenant=a,request_id=" + c.holder); !got.GetAllowed() || got.GetLimits()[0].GetRemaining() != c.left {
			t.Errorf("take %d gets %v", i, got.GetLimits()[0])
		}
	}
	hashed := servertest.Taking("tenant=a,request_id=")
	hashed.Descriptors[0].Entries[1].Value = bucket.HolderOf(long)
	if got := d.SendTake(hashed); got.GetAllowed() {
		t.Error("the hash of a holder's name stands for it")
	}
	if r := release(t, d, "tenant=a,request_id="+long); r.GetLimits()[0].GetReleased() != ratelimitv1.Released_RELEASED_SLOT {
		t.Errorf("a release finds %v", r)
	}
}

// Envoy's RPC takes and releases, as Envoy asks it with apply_on_stream_done.
func TestSlotsOverEnvoysRPC(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t, holderLimits)
	ask := func(holder string, releases bool) string {
		r := servertest.Request("api", 0, "tenant=a,request_id="+holder)
		if releases {
			r.HitsAddend = 1
			r.Descriptors[0].IsNegativeHits = true
		}
		return servertest.Show(d.Send(r))
	}
	for i, c := range []struct {
		holder   string
		releases bool
		want     string
	}{
		{"1", false, "OK; OK flight 2/UNKNOWN remaining 1 reset 1m0s"},
		{"2", false, "OK; OK flight 2/UNKNOWN remaining 0 reset 1m0s"},
		{"3", false, "OVER_LIMIT; OVER_LIMIT flight 2/UNKNOWN remaining 0 reset 1m0s"},
		{"3", true, "OK; OK flight 2/UNKNOWN remaining 0 reset 1m0s"},
		{"1", true, "OK; OK flight 2/UNKNOWN remaining 1 reset 1m0s"},
		{"3", false, "OK; OK flight 2/UNKNOWN remaining 0 reset 1m0s"},
	} {
		if got := ask(c.holder, c.releases); got != c.want {
			t.Errorf("request %d gets %s, want %s", i, got, c.want)
		}
	}
}

// hangingUp is a store whose caller "gone" disconnects while it decides.
type hangingUp struct {
	bucket.Store
	hangUp func()
}

func (h hangingUp) Take(ctx context.Context, hits []bucket.Hit, decisions []bucket.Decision) error {
	err := h.Store.Take(ctx, hits, decisions)
	if hits[0].Holder == "gone" && hits[0].Cost > 0 {
		h.hangUp()
		<-ctx.Done()
	}
	return err
}

// A caller that hangs up before the answer leaves no slot.
func TestSlotOfACallerThatHungUp(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	d := servertest.Start(t, holderLimits, func(o *server.Options) { o.Store = hangingUp{o.Store, cancel} })
	if _, err := d.API().Take(ctx, servertest.Taking("tenant=a,request_id=gone")); status.Code(err) != codes.Canceled {
		t.Fatalf("the take ends with %v", err)
	}
	asynctest.Eventually(t, "the slot is free", func() bool { return d.Take("tenant=a,request_id=x:0").GetLimits()[0].GetRemaining() == 2 })
}

// askOnStream sends requests on a stream, each after the answer to the one before.
func askOnStream(t *testing.T, d *servertest.Daemon, ctx context.Context, all ...*ratelimitv1.NumberedTake) (results []*ratelimitv1.TakeResult) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, servertest.Patience)
	defer cancel()
	s, err := d.API().TakeStream(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range all {
		if err := s.Send(&ratelimitv1.TakeStreamRequest{Takes: []*ratelimitv1.NumberedTake{n}}); err != nil {
			t.Fatal(err)
		}
		r, err := s.Recv()
		if err != nil {
			t.Fatal(err)
		}
		results = append(results, r.GetResults()[0].GetResult())
	}
	return results
}

func TestSlotsOnAStream(t *testing.T) {
	t.Parallel()
	for _, waits := range []bool{false, true} {
		t.Run(fmt.Sprint("waits ", waits), func(t *testing.T) {
			t.Parallel()
			d := servertest.Start(t, holderLimits, func(o *server.Options) { o.RemoteStore = waits })
			take := servertest.Taking("tenant=a", "tenant=a,request_id=1")
			got := askOnStream(t, d, context.Background(),
				&ratelimitv1.NumberedTake{Take: take},
				&ratelimitv1.NumberedTake{Take: take, Release: true},
				&ratelimitv1.NumberedTake{Take: take, Release: true},
				&ratelimitv1.NumberedTake{Settle: servertest.Settling("x", "tenant=a:1"), Release: true},
				&ratelimitv1.NumberedTake{Take: servertest.Taking("tenant=a,request_id="), Release: true},
				&ratelimitv1.NumberedTake{Take: take},
			)
			if !got[0].GetResponse().GetAllowed() || got[0].GetResponse().GetLimits()[1].GetHeldFor().AsDuration() != time.Minute {
				t.Errorf("a take gets %v", got[0])
			}
			for i, want := range []ratelimitv1.Released{ratelimitv1.Released_RELEASED_SLOT, ratelimitv1.Released_RELEASED_NOTHING} {
				r := got[1+i].GetReleased()
				if len(r.GetLimits()) != 1 || r.GetLimits()[0].GetReleased() != want || r.GetLimits()[0].GetDescriptorIndex() != 1 {
					t.Errorf("release %d gets %v", i, r)
				}
			}
			for _, i := range []int{3, 4} { // a settlement that releases, and nobody's release
				if codes.Code(got[i].GetError().GetCode()) != codes.InvalidArgument {
					t.Errorf("request %d gets %v", i, got[i])
				}
			}
			// The end of the stream frees nothing.
			if free := d.Take("tenant=a,request_id=x:0").GetLimits()[0].GetRemaining(); free != 1 {
				t.Errorf("%d are free, want 1", free)
			}
		})
	}
}

// A holder belongs to the caller who took its slot, over Envoy's RPC too: no other releases
// or renews it, not even one who may refund. Its subject's slots are everyone's.
func TestHoldersBelongToTheirCallers(t *testing.T) {
	t.Parallel()
	path := filetest.Write(t, t.TempDir(), "callers.yaml", "- {name: shop, sha256: "+servertest.SumOf("shop's")+", domains: [api]}\n"+
		"- {name: desk, sha256: "+servertest.SumOf("desk's")+", domains: [api], may: [take, refund]}\n"+
		"- {name: sweeper, sha256: "+servertest.SumOf("sweeper's")+", domains: [api], may: [refund]}\n")
	live := access.NewLiveCallers(path, slog.New(slog.DiscardHandler))
	if err := live.Reload(); err != nil {
		t.Fatal(err)
	}
	d := servertest.Start(t, holderLimits, func(o *server.Options) { o.Requests.Callers = live })
	take := servertest.Taking("tenant=a,request_id=1")
	ask := func(token string, takes ...*ratelimitv1.NumberedTake) []*ratelimitv1.TakeResult {
		t.Helper()
		return askOnStream(t, d, servertest.WithToken(context.Background(), token), takes...)
	}
	takes, releases := &ratelimitv1.NumberedTake{Take: take}, &ratelimitv1.NumberedTake{Take: take, Release: true}
	wantReleased := func(token string, want ratelimitv1.Released) {
		t.Helper()
		if got := ask(token, releases)[0]; got.GetReleased().GetLimits()[0].GetReleased() != want {
			t.Errorf("a release by %s gets %v, want %s", token, got, want)
		}
	}
	// In TakeMany too, which matches all requests first.
	many, err := d.API().TakeMany(servertest.WithToken(t.Context(), "shop's"), &ratelimitv1.TakeManyRequest{Takes: []*ratelimitv1.TakeRequest{take, take}})
	if err != nil || many.GetResults()[1].GetResponse().GetLimits()[0].GetRemaining() != 1 {
		t.Errorf("a take and its renewal get %v, %v", many, err)
	}
	wantReleased("desk's", ratelimitv1.Released_RELEASED_NOTHING)
	refund := servertest.Request("api", 1, "tenant=a,request_id=1")
	refund.Descriptors[0].IsNegativeHits = true
	if _, err := d.RLS.ShouldRateLimit(servertest.WithToken(t.Context(), "desk's"), refund); err != nil {
		t.Error(err)
	}
	if got := ask("desk's", takes)[0].GetResponse(); !got.GetAllowed() || got.GetLimits()[0].GetRemaining() != 0 {
		t.Errorf("a take by another with the same holder gets %v, want the second of 2 slots", got)
	}
	if got := ask("sweeper's", releases)[0]; codes.Code(got.GetError().GetCode()) != codes.PermissionDenied {
		t.Errorf("a release without the right to take gets %v", got)
	}
	// A release over Envoy's RPC is no refund.
	if _, err := d.RLS.ShouldRateLimit(servertest.WithToken(t.Context(), "shop's"), refund); err != nil {
		t.Error(err)
	}
	wantReleased("shop's", ratelimitv1.Released_RELEASED_NOTHING)
	rate := servertest.Request("api", 1, "tenant=a")
	rate.Descriptors[0].IsNegativeHits = true
	if _, err := d.RLS.ShouldRateLimit(servertest.WithToken(t.Context(), "shop's"), rate); status.Code(err) != codes.PermissionDenied {
		t.Errorf("a refund without the right gets %v", err)
	}
	if _, err := d.RLS.ShouldRateLimit(servertest.WithToken(t.Context(), "desk's"), refund); err != nil {
		t.Error(err)
	}
	wantReleased("desk's", ratelimitv1.Released_RELEASED_NOTHING)
}
