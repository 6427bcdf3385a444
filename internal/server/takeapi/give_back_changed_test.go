package takeapi_test

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/buckettest"
	"github.com/ratelimitd/ratelimitd/internal/server"
	"github.com/ratelimitd/ratelimitd/internal/server/servertest"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

// userLimits is a limits file with a limit for each user, and other rules.
func userLimits(limit string, rules ...string) string {
	text := fmt.Sprintf("domain: api\ndescriptors:\n  - {key: user, rate_limit: {%s}}\n", limit)
	for _, rule := range rules {
		text += "  - {" + rule + "}\n"
	}
	return text
}

// startPair starts a daemon and returns a function that starts others on its
// store.
func startPair(t *testing.T, limits string) (d *servertest.Daemon, another func(limits string) *servertest.Daemon) {
	t.Helper()
	var store bucket.Store
	d = servertest.Start(t, limits, func(o *server.Options) { store = o.Store })
	return d, func(limits string) *servertest.Daemon { return servertest.Start(t, limits, servertest.On(store)) }
}

// A take is given back only to the limits that took it: other limits do not
// know how much of it still counts, and could admit too much.
func TestGiveBackToChangedLimitsIsRefused(t *testing.T) {
	t.Parallel()
	for _, a := range buckettest.Rates() {
		second := fmt.Sprintf("algorithm: %s, requests: 100, period: 1s", a)
		hour := fmt.Sprintf("algorithm: %s, requests: 100, period: 1h", a)
		for _, c := range []struct {
			name  string
			texts []string // of the limits file, one after the other
			// started loads each file in a new daemon, which learns only from taken_by
			// that others were in force.
			started bool
		}{
			{"a reload", []string{userLimits(second), userLimits(hour)}, false},
			{"a start", []string{userLimits(second), userLimits(hour)}, true},
			{"a start with another name", []string{userLimits(hour), userLimits(hour + ", name: n")}, true},
			{"there and back", []string{userLimits(hour), userLimits(second), userLimits(hour)}, false},
			{"a rule that came and went", []string{
				userLimits(hour), userLimits(hour, "key: user, value: x, rate_limit: {"+second+"}"), userLimits(hour),
			}, false},
		} {
			for _, isTold := range []bool{true, false} {
				if c.started && !isTold {
					continue
				}
				t.Run(fmt.Sprintf("%s/%s/taken_by %v", a, c.name, isTold), func(t *testing.T) {
					t.Parallel()
					d, another := startPair(t, c.texts[0])
					clock, request := d.Clock, servertest.Taking("user=x:100")
					taken := d.SendTake(request)
					for _, text := range c.texts[1:] {
						clock.Move(time.Second)
						if c.started {
							d = another(text)
						} else {
							d.Reload(text)
						}
						d.SendTake(request)
					}
					if r := d.Take("user=x"); r.GetAllowed() {
						t.Fatalf("not all is taken: %v", r)
					}
					back := servertest.GivingBack(request, taken)
					if !isTold {
						back.TakenBy = nil
					}
					if _, err := d.API().GiveBack(t.Context(), back); status.Code(err) != codes.FailedPrecondition {
						t.Errorf("got %v", err)
					}
					if r := d.Take("user=x"); r.GetAllowed() {
						t.Errorf("something came back: %v", r)
					}
				})
			}
		}
	}
}

// A take is given back if its limits still count alike, whatever else changed.
func TestGiveBackOutlivesOtherChanges(t *testing.T) {
	t.Parallel()
	const limit = "requests: 100, period: 1h"
	d, another := startPair(t, userLimits(limit))
	left := func(d *servertest.Daemon) uint64 { return d.Take("user=x:0").GetLimits()[0].GetRemaining() }
	request := servertest.Taking("user=x:40")
	for _, c := range []struct {
		name    string
		between func() *servertest.Daemon
	}{
		{"nothing", func() *servertest.Daemon { return d }},
		{"another daemon", func() *servertest.Daemon { return another(userLimits(limit)) }},
		{"another rule", func() *servertest.Daemon {
			d.Reload(userLimits(limit, "key: other, rate_limit: {"+limit+"}"))
			return d
		}},
		{"another writing", func() *servertest.Daemon {
			d.Reload(userLimits("unit: hour, requests_per_unit: 100, algorithm: token_bucket"))
			return d
		}},
		{"who is charged", func() *servertest.Daemon { d.Reload(userLimits(limit + ", postpaid: true")); return d }},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := left(d)
			taken := d.SendTake(request)
			d.Clock.Move(time.Millisecond)
			if err := c.between().GiveBack(request, taken); err != nil {
				t.Error(err)
			}
			if after := left(d); after != before {
				t.Errorf("%d are left, want %d", after, before)
			}
		})
	}
	// New limits give back their own takes.
	d.Reload(userLimits("requests: 200, period: 1h"))
	taken := d.SendTake(request)
	if err := d.GiveBack(request, taken); err != nil {
		t.Error(err)
	}
	if n := left(d); n != 200 {
		t.Errorf("%d of 200 are left", n)
	}
}

// A take gives back neither to a limit with other numbers nor to another
// descriptor. One wrong limit of several is enough for a refusal.
func TestGiveBackOfAnotherTakeIsRefused(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t, servertest.TakeLimits)
	with := func(requests uint64, r *ratelimitv1.TakeRequest) *ratelimitv1.TakeRequest {
		r.Descriptors[0].Numbers = &ratelimitv1.Numbers{Requests: requests, Period: durationpb.New(10 * time.Second)}
		return r
	}
	for _, c := range []struct {
		name        string
		taken, back *ratelimitv1.TakeRequest
		want        codes.Code
	}{
		{"the same numbers", with(50, servertest.Taking("gcra=x")), with(50, servertest.Taking("gcra=x")), codes.OK},
		{"other numbers", with(50, servertest.Taking("gcra=x")), with(60, servertest.Taking("gcra=x")), codes.FailedPrecondition},
		{"the rule's numbers", with(50, servertest.Taking("gcra=x")), servertest.Taking("gcra=x"), codes.FailedPrecondition},
		{"numbers without a rule", with(50, servertest.Taking("unknown=x")), with(50, servertest.Taking("unknown=x")), codes.OK},
		{"another value", servertest.Taking("gcra=x"), servertest.Taking("gcra=y"), codes.FailedPrecondition},
		{"another key", servertest.Taking("gcra=x"), servertest.Taking("token_bucket=x"), codes.FailedPrecondition},
		{"one of two", servertest.Taking("gcra=x", "token_bucket=x"), servertest.Taking("gcra=x", "token_bucket=y"), codes.FailedPrecondition},
	} {
		t.Run(c.name, func(t *testing.T) {
			taken := d.SendTake(c.taken)
			if err := d.GiveBack(c.back, taken); status.Code(err) != c.want {
				t.Errorf("got %v, want %s", err, c.want)
			}
			d.Clock.Move(time.Minute)
		})
	}
	// The limit that is the same got nothing back.
	taken := d.Take("fixed_window=x:3", "several=x")
	if err := d.GiveBack(servertest.Taking("fixed_window=x:3", "several=y"), taken); status.Code(err) != codes.FailedPrecondition {
		t.Error(err)
	}
	if r := d.Take("fixed_window=x:0"); r.GetLimits()[0].GetRemaining() != 1 {
		t.Errorf("it has %v", r)
	}
}
