package client_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ratelimitd/ratelimitd/client"
	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(asynctest.Settling{Tests: m, IsSettled: func() bool { return goleak.Find() == nil }})
}

func TestAllowAllowsUpToTheLimit(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t, limits).Address)
	for i, want := range []bool{true, true, true, false, false} {
		if got, err := c.Allow(within(t), "api", client.E("user", "alice")); got != want || err != nil {
			t.Errorf("request %d: %v, %v", i, got, err)
		}
	}
	if got, err := c.Allow(within(t), "api", client.E("user", "bob")); !got || err != nil {
		t.Errorf("another user: %v, %v", got, err)
	}
	if s := c.Stats(); s.Allowed != 4 || s.Denied != 2 || s.Failed() != 0 || s.Alone != 0 || s.Streams < 1 {
		t.Errorf("stats: %+v", s)
	}
}

func TestTakeTellsWhatEachLimitSays(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t, limits).Address)
	r := client.Request{Domain: "api", Descriptors: []client.Descriptor{
		{Entries: []client.Entry{client.E("unknown", "x")}},
		{Entries: []client.Entry{client.E("named", "x")}, Cost: 2},
	}}
	got, err := c.Take(within(t), r)
	if err != nil {
		t.Fatal(err)
	}
	if !got.Allowed || got.DeniedBy != -1 || got.Denier() != nil || got.RetryAfter != 0 || got.Degraded || got.Failure != nil || len(got.Limits) != 2 {
		t.Fatalf("%+v", got)
	}
	short, long := got.Limits[0], got.Limits[1]
	if short.Descriptor != 1 || short.Name != "short" || short.Algorithm != client.SlidingWindow || short.Requests != 2 ||
		short.Period != time.Minute || short.Capacity != 2 || short.Remaining != 0 || !short.Allowed || short.ResetAfter != time.Minute {
		t.Errorf("short: %+v", short)
	}
	if long.Name != "long" || long.Algorithm != client.LeakyBucket || long.Requests != 10 || long.Period != time.Hour ||
		long.Capacity != 4 || long.Remaining != 2 || long.ResetAfter != 12*time.Minute || long.Wait != 0 {
		t.Errorf("long: %+v", long)
	}

	got, err = c.Take(within(t), r)
	if err != nil {
		t.Fatal(err)
	}
	if denier := got.Denier(); got.Allowed || got.DeniedBy != 0 || denier == nil || denier.Allowed || denier.RetryAfter != got.RetryAfter ||
		got.RetryAfter <= 0 || got.RetryAfter > time.Minute || !got.Limits[1].Allowed {
		t.Errorf("denied: %+v", got)
	}
}

func TestDescriptorTakesItsCost(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t, limits).Address)
	for name, test := range map[string]struct {
		before     uint64 // taken first, of the 3 that there are
		descriptor client.Descriptor
		allowed    bool
		remaining  uint64
		retryNever bool
	}{
		"a peek takes nothing":         {0, client.Descriptor{Peek: true}, true, 3, false},
		"no cost is a cost of 1":       {0, client.Descriptor{}, true, 2, false},
		"a cost of 2":                  {1, client.Descriptor{Cost: 2}, true, 0, false},
		"a cost of more than remains":  {2, client.Descriptor{Cost: 2}, false, 1, false},
		"a peek where nothing remains": {3, client.Descriptor{Peek: true}, false, 0, false},
		"a cost above the capacity":    {3, client.Descriptor{Cost: 4}, false, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := one("api", "user", name)
			r.Descriptors[0].Cost = test.before
			if test.before > 0 {
				if got, err := c.Take(within(t), r); err != nil || !got.Allowed {
					t.Fatal(got, err)
				}
			}
			test.descriptor.Entries = r.Descriptors[0].Entries
			got, err := c.Take(within(t), client.Request{Domain: "api", Descriptors: []client.Descriptor{test.descriptor}})
			if err != nil || got.Allowed != test.allowed || got.Limits[0].Remaining != test.remaining {
				t.Fatalf("found %+v, %v", got, err)
			}
			if isNever := got.RetryAfter == client.Never; isNever != test.retryNever {
				t.Errorf("retry after %v", got.RetryAfter)
			}
			if denier := got.Denier(); !test.allowed && denier.RetryAfter != got.RetryAfter {
				t.Errorf("the denier's retry after %v, the request's %v", denier.RetryAfter, got.RetryAfter)
			}
		})
	}
}

func TestDescriptorsNumbersReplaceTheRules(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t, limits).Address)
	r := one("api", "user", "x")
	plan := &client.Numbers{Requests: 500, Period: 90*time.Minute + 250*time.Millisecond, Burst: 7}
	r.Descriptors[0].Numbers = plan
	got, err := c.Take(within(t), r)
	if err != nil || got.Limits[0].Requests != 500 || got.Limits[0].Period != plan.Period || got.Limits[0].Capacity != 7 {
		t.Errorf("found %+v, %v", got, err)
	}
}

func TestGiveBackReturnsWhatWasTaken(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t, limits).Address)
	r := one("api", "slow", "x")
	first, err := c.Take(within(t), r)
	if err != nil || !first.Allowed {
		t.Fatal(first, err)
	}
	denied, err := c.Take(within(t), r)
	if err != nil || denied.Allowed {
		t.Fatal(denied, err)
	}
	if err := c.GiveBack(within(t), denied); err != nil {
		t.Error(err)
	}
	if got, err := c.Take(within(t), r); err != nil || got.Allowed {
		t.Error("what was denied gave something back", got, err)
	}
	if err := c.GiveBack(within(t), first); err != nil {
		t.Error(err)
	}
	if got, err := c.Take(within(t), r); err != nil || !got.Allowed {
		t.Error("it was not given back", got, err)
	}
}

func TestGiveBackIsSentOnce(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t, limits).Address)
	r := one("api", "window", "x")
	var first *client.Result
	for range 3 {
		taken, err := c.Take(within(t), r)
		if err != nil || !taken.Allowed {
			t.Fatal(taken, err)
		}
		if first == nil {
			first = taken
		}
	}
	for range 2 {
		if err := c.GiveBack(within(t), first); err != nil {
			t.Error(err)
		}
	}
	for i := range 2 {
		if got, err := c.Take(within(t), r); err != nil || got.Allowed != (i == 0) {
			t.Errorf("take %d after a give-back: %+v, %v", i, got, err)
		}
	}
}

func TestTakeRefusesInvalidRequests(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t, limits).Address, client.OnFailure(client.FailAllow()))
	bad := "a\xffb"
	for want, r := range map[string]client.Request{
		"domain is empty":                    {},
		"domain: found":                      one(bad, "user", "x"),
		"descriptors is empty":               {Domain: "api"},
		"descriptors[0].entries is empty":    {Domain: "api", Descriptors: []client.Descriptor{{}}},
		"descriptors[0].entries[0].key":      one("api", bad, "x"),
		"descriptors[0].entries[0].value":    one("api", "user", bad),
		"found 2; a peek has none":           {Domain: "api", Descriptors: []client.Descriptor{{Entries: []client.Entry{client.E("a", "b")}, Peek: true, Cost: 2}}},
		"period":                             {Domain: "api", Descriptors: []client.Descriptor{{Entries: []client.Entry{client.E("user", "b")}, Numbers: &client.Numbers{Requests: 1}}}},
		"at most":                            one("api", "user", strings.Repeat("x", 70_000)),
		"larger than max":                    one("api", "user", strings.Repeat("x", 700_000)),
		"the limit of FailLocal: algorithm:": {Domain: "api", Descriptors: one("api", "user", "x").Descriptors, OnFailure: client.FailLocal(client.Limit{Requests: 1, Period: time.Second})},
	} {
		t.Run(want, func(t *testing.T) {
			if got, err := c.Take(within(t), r); got != nil || err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("want an error with %q, got %v, %v", want, got, err)
			}
		})
	}
	if ok, err := c.Allow(within(t), "api", client.E("user", bad)); ok || err == nil {
		t.Error(ok, err)
	}
	if ok, err := c.Allow(within(t), "api", client.E("user", "still here")); !ok || err != nil {
		t.Error("after invalid requests:", ok, err)
	}
	if n := c.Stats().Failed(); n != 0 {
		t.Errorf("%d invalid requests count as failures", n)
	}
}

func TestGiveBackFailsOnceTheClientIsClosed(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t, limits).Address)
	taken, err := c.Take(within(t), one("api", "user", "x"))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if err := c.GiveBack(within(t), taken); !errors.Is(err, client.ErrClosed) {
		t.Error(err)
	}
}

func TestRequestThatTheDaemonRefusesIsAnError(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t, limits).Address)
	r := one("api", "user", "x")
	r.Descriptors = slices.Repeat(r.Descriptors, 101)
	_, err := c.Take(within(t), r)
	if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "101") {
		t.Error(err)
	}
}
