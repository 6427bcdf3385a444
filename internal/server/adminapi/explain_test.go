package adminapi

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/ratelimitd/ratelimitd/internal/assign"
	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/memstore"
	"github.com/ratelimitd/ratelimitd/internal/config/limitsfile"
	"github.com/ratelimitd/ratelimitd/internal/decide"
	"github.com/ratelimitd/ratelimitd/internal/filetest"
	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

// decider returns a decider on the limits, in memory, with a clock that stands still.
func decider(t testing.TB, limits string, change ...func(*decide.Options)) *decide.Decider {
	t.Helper()
	live := limitsfile.NewLive(filetest.Write(t, t.TempDir(), "limits.yaml", limits), nil)
	if err := live.Reload(); err != nil {
		t.Fatal(err)
	}
	now := func() int64 { return time.Date(2026, 1, 1, 0, 0, 10, 0, time.UTC).UnixMicro() }
	store := memstore.New(memstore.Options{MaxKeys: 1e5, Clock: now})
	t.Cleanup(func() { store.Close() })
	o := decide.Options{
		Live: live, Store: store, Refuses: func() error { return nil }, Assigned: assign.NewTable(), Now: now,
		Bounds:         decide.Bounds{Descriptors: 100, Entries: 32, Bytes: 1 << 20},
		UnknownDomains: new(atomic.Uint64),
		OwnLimits:      decide.NewResults(prometheus.NewCounterVec(prometheus.CounterOpts{Name: "own"}, []string{"result"})),
	}
	for _, f := range change {
		f(&o)
	}
	return decide.New(o)
}

func apiOn(d *decide.Decider) *API {
	return &API{Options: Options{Live: d.Live, Decider: d, Now: time.Now}}
}

// take reads "key=value,key=value:cost" for each descriptor.
func take(domain string, descriptors ...string) *ratelimitv1.TakeRequest {
	r := &ratelimitv1.TakeRequest{Domain: domain}
	for _, text := range descriptors {
		text, cost, hasCost := strings.Cut(text, ":")
		d := &ratelimitv1.Descriptor{}
		if hasCost {
			d.Cost = new(uint64)
			_, _ = fmt.Sscan(cost, d.Cost)
		}
		for _, part := range strings.Split(text, ",") {
			key, value, _ := strings.Cut(part, "=")
			d.Entries = append(d.Entries, &ratelimitv1.Entry{Key: key, Value: value})
		}
		r.Descriptors = append(r.Descriptors, d)
	}
	return r
}

func TestExplainAsAMessage(t *testing.T) {
	d := decider(t, `domain: d
descriptors:
- key: user
  on_store_failure: deny
  rate_limits: [{name: minute, requests: 3, period: 1m}]
- key: tenant
  plans: {free: {requests: 2, period: 1h}, pro: {unlimited: true}}
  plan: free
`)
	d.Assigned.Put(&assign.Assignment{
		Subject: assign.Subject{Domain: "d", Entries: []bucket.Entry{{Key: "tenant", Value: "x"}}},
		Base:    assign.Layer{Terms: assign.Terms{Plan: "pro"}, Reason: "paid", By: "ops", At: 1e15}, ETag: "7",
	})
	file := d.Live.Rules().Domain("d").File
	got, err := apiOn(d).Explain(context.Background(), &adminv1.ExplainRequest{Take: take("d", "user=x:4", "tenant=x", "uzer=y")})
	if err != nil {
		t.Fatal(err)
	}
	want := new(adminv1.ExplainResponse)
	if err := prototext.Unmarshal([]byte(strings.ReplaceAll(`
domain_known: true
descriptors {
  entries {key: "user" value: "x"}
  verdict: VERDICT_DENIED
  rule {domain: "d" path: "user" place {file: "PATH" line: 3}}
  depth: 1 reached {path: "user" place {file: "PATH" line: 3}}
  limits {
    limit {name: "minute" algorithm: ALGORITHM_TOKEN_BUCKET requests: 3 period {seconds: 60} capacity: 3 text: "3 at once, then one every 20s" on_store_failure: "deny"}
    source: SOURCE_FILE key: "d|user=x#token_bucket:minute" remaining: 3 reset_after {}
  }
}
descriptors {
  entries {key: "tenant" value: "x"}
  verdict: VERDICT_UNLIMITED
  rule {domain: "d" path: "tenant" place {file: "PATH" line: 6} default_plan: "free"}
  plan: "pro"
  depth: 1 reached {path: "tenant" place {file: "PATH" line: 6}}
  assignments {
    assignment {domain: "d" entries {key: "tenant" value: "x"} plan: "pro" reason: "paid" made_by: "ops" made_at {seconds: 1000000000} etag: "7"}
    applies: true
  }
}
descriptors {
  entries {key: "uzer" value: "y"}
  verdict: VERDICT_UNMATCHED_ALLOWED
  miss: MISS_KEY near {path: "user" place {file: "PATH" line: 3}}
}
denied_by_descriptor: 0
denied_by_limit: 0
`, "PATH", file)), want); err != nil {
		t.Fatal(err)
	}
	if !proto.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", prototext.Format(got), prototext.Format(want))
	}
}

// A pause is shown with its end, by the daemon's clock, and looking does not start one.
func TestExplainSaysUntilWhenAPauseLasts(t *testing.T) {
	d := decider(t, "domain: d\ndescriptors: [{key: login, rate_limit: {requests: 1, period: 1m, block_for: 10m}}]\n")
	a := apiOn(d)
	a.Now = func() time.Time { return time.Unix(1_767_225_610, 0) }
	until := func() *timestamppb.Timestamp {
		t.Helper()
		r, err := a.Explain(t.Context(), &adminv1.ExplainRequest{Take: take("d", "login=x")})
		if err != nil {
			t.Fatal(err)
		}
		return r.GetDescriptors()[0].GetLimits()[0].GetPausedUntil()
	}
	for i, want := range []*timestamppb.Timestamp{nil, nil, {Seconds: 1_767_226_210}} {
		if got := until(); !proto.Equal(got, want) {
			t.Errorf("after %d takes: paused until %v, want %v", i, got, want)
		}
		c := d.NewCall()
		c.Domain = "d"
		c.Descriptors = append(c.Descriptors, decide.Descriptor{Entries: []bucket.Entry{{Key: "login", Value: "x"}}})
		if err := c.Check(false); err != nil {
			t.Fatal(err)
		}
		if err := d.Decide(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
}

func TestExplainRefusesWhatATakeRefuses(t *testing.T) {
	d := decider(t, "domain: d\ndescriptors: [{key: user, rate_limit: {requests: 3, period: 1m}}]\n")
	many := make([]string, 101)
	for _, tc := range []struct {
		take *ratelimitv1.TakeRequest
		code codes.Code
	}{
		{nil, codes.InvalidArgument},
		{take("d"), codes.InvalidArgument},
		{take("d", many...), codes.InvalidArgument},
		{take("d", "user="+strings.Repeat("x", 1<<20)), codes.InvalidArgument},
		{&ratelimitv1.TakeRequest{Domain: "d", Descriptors: []*ratelimitv1.Descriptor{{
			Entries: []*ratelimitv1.Entry{{Key: "user", Value: "x"}}, Numbers: &ratelimitv1.Numbers{Requests: 1, Period: durationpb.New(-1)},
		}}}, codes.InvalidArgument},
		{take("d", "user=x"), codes.OK},
	} {
		if _, err := apiOn(d).Explain(context.Background(), &adminv1.ExplainRequest{Take: tc.take}); status.Code(err) != tc.code {
			t.Errorf("got %v, want %s", err, tc.code)
		}
	}
	failing := decider(t, "domain: d\ndescriptors: [{key: user, rate_limit: {requests: 3, period: 1m}}]\n",
		func(o *decide.Options) { o.Store = failingChecks{o.Store} })
	if _, err := apiOn(failing).Explain(context.Background(), &adminv1.ExplainRequest{Take: take("d", "user=x")}); status.Code(err) != codes.Unavailable {
		t.Errorf("where the store fails: %v", err)
	}
}

// failingChecks is a store that does not answer.
type failingChecks struct{ bucket.Store }

func (failingChecks) Check(context.Context, []bucket.Hit, []bucket.Decision) error {
	return errors.New("no answer")
}

// However a request of the default bounds is made, its explanation has no more than
// twice its bytes and 2 MiB.
func TestExplanationsAreBounded(t *testing.T) {
	const depth = 32
	var limits strings.Builder
	limits.WriteString("domain: d\ndescriptors:\n")
	for i := range depth {
		indent := strings.Repeat(" ", 2*i)
		for j := range 30 {
			fmt.Fprintf(&limits, "%s- {key: k, value: '%s%d'}\n%[1]s- {key: k, value: '%[2]s%d*'}\n", indent, strings.Repeat("x", 300), j)
		}
		fmt.Fprintf(&limits, "%s- key: k\n", indent)
		if i < depth-1 {
			fmt.Fprintf(&limits, "%s  descriptors:\n", indent)
			continue
		}
		limits.WriteString(indent + "  plans:\n")
		for p := range 20 {
			fmt.Fprintf(&limits, "%s    p%d: [", indent, p)
			for l := range 10 {
				fmt.Fprintf(&limits, "{name: %s%d, requests: %d, period: 1h}, ", strings.Repeat("n", 60), l, 1+l)
			}
			limits.WriteString("]\n")
		}
		limits.WriteString(indent + "  plan: p0\n")
	}
	d := decider(t, limits.String())
	value := strings.Repeat("x", 300)
	for name, text := range map[string]string{
		"to the end":           strings.Repeat("k="+value+",", depth-1) + "k=" + value,
		"quotes and controls":  strings.Repeat("k="+strings.Repeat("\x01\"", 150)+",", depth-1) + "k=",
		"one level too early":  strings.Repeat("k="+value+",", depth-2) + "k=" + value,
		"nothing but commas":   strings.Repeat("=,", depth-1) + "=",
		"a key that is no key": "kk=" + value,
		"almost":               strings.Repeat("k="+strings.ToUpper(value)+"1,", depth-1) + "k=" + value,
	} {
		t.Run(name, func(t *testing.T) {
			asked := make([]string, 100)
			for i := range asked {
				asked[i] = text
			}
			r := take("d", asked...)
			began := time.Now()
			m, err := apiOn(d).Explain(context.Background(), &adminv1.ExplainRequest{Take: r})
			if err != nil {
				t.Fatal(err)
			}
			size, took := proto.Size(m), time.Since(began)
			t.Logf("a request of %d bytes: an answer of %d after %s", proto.Size(r), size, took)
			if bound := 2*proto.Size(r) + 2<<20; size > bound {
				t.Errorf("%d bytes, where %d are allowed", size, bound)
			}
			if took > 30*time.Second {
				t.Errorf("it took %s", took)
			}
		})
	}
}
