package decide_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/assign"
	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/decide"
	"github.com/ratelimitd/ratelimitd/internal/decide/decidetest"
)

const plannedLimits = `
domain: d
descriptors:
  - key: user
    plans:
      free: {name: n, requests: 1, period: 1h, algorithm: fixed_window}
      pro: {name: n, requests: 3, period: 1h, algorithm: fixed_window}
    plan: free
  - key: tenant
    descriptors:
      - key: call
        plans:
          free: {name: slots, algorithm: concurrency, requests: 1, hold: 1h}
          pro: {name: slots, algorithm: concurrency, requests: 3, hold: 1h}
        plan: free
`

// requestsOf returns the number of the limit that decides a descriptor now, and whether it
// is denied.
func (r *rig) requestsOf(text string) (requests int64, isDenied bool) {
	r.T.Helper()
	c := r.Take(decidetest.Asking(text, 0))
	return c.Outcomes[0].Limits[0].Requests, c.Denied
}

// Each layer decides from the top until it ends, and then what is below it.
func TestLayersDecideUntilTheyEnd(t *testing.T) {
	t.Parallel()
	r := newRig(t, plannedLimits)
	until := func(minutes int64) int64 { return decidetest.Started.UnixMicro() + minutes*60e6 }
	numbers := func(requests int64) assign.Terms {
		return assign.Terms{Numbers: []assign.Numbers{{Limit: "n", Requests: requests}}}
	}
	base := numbers(5)
	base.Plan = "pro"
	r.Assigned.Put(&assign.Assignment{
		Subject: assign.Subject{Domain: "d", Entries: decidetest.Entries("user=a")},
		Base:    assign.Layer{Terms: base},
		Layers: []assign.Layer{
			{Terms: numbers(6), Until: until(4)},
			{Terms: numbers(7), Until: until(3)},
			{Terms: assign.Terms{Plan: "free"}, Until: until(5)},
			{Terms: assign.Terms{Unlimited: true}, Until: until(2)},
			{Terms: assign.Terms{Blocked: true}, Until: until(1)},
		},
	})
	for minute, want := range []int64{0, -1, 7, 6, 5, 5} {
		r.Clock.Store(until(int64(minute)))
		if c := r.Take(decidetest.Asking("user=a", 0)); minute == 1 {
			if c.Denied || len(c.Outcomes[0].Limits) != 0 {
				t.Errorf("in minute 1 it is denied %t, by %v", c.Denied, c.Outcomes[0].Limits)
			}
			continue
		}
		requests, isDenied := r.requestsOf("user=a")
		if isDenied != (minute == 0) || requests != want {
			t.Errorf("in minute %d it is denied %t, by a limit of %d, want %d", minute, isDenied, requests, want)
		}
	}
	if retry := r.blockedFor("user=a", until(0)); retry != time.Minute {
		t.Errorf("the block lasts %v, want a minute", retry)
	}
}

// Assigned numbers may bring a block_for, and keep that of the limit otherwise.
func TestAssignedNumbersMayPause(t *testing.T) {
	t.Parallel()
	r := newRig(t, "domain: d\ndescriptors: [{key: user, rate_limit: {requests: 5, period: 1m, block_for: 10m}}]\n")
	for subject, blockFor := range map[string]time.Duration{"user=kept": 0, "user=own": time.Hour} {
		r.assign(subject, assign.Terms{Numbers: []assign.Numbers{{Requests: 1, BlockFor: blockFor}}})
		r.Take(decidetest.Asking(subject, 1))
		c := r.Take(decidetest.Asking(subject, 1))
		if got := c.Outcomes[0].Decisions[0].Paused; got != max(blockFor, 10*time.Minute) {
			t.Errorf("%s is paused for %v", subject, got)
		}
	}
}

// blockedFor returns when a descriptor that is blocked at a time may be asked for again.
func (r *rig) blockedFor(text string, now int64) time.Duration {
	r.T.Helper()
	r.Clock.Store(now)
	c := r.Take(decidetest.Asking(text, 1))
	return c.Outcomes[0].Decisions[0].RetryAfter
}

// With a holder two beginnings are looked up: the plan is as of now all the same.
func TestPlanOfAHolderIsAsOfNow(t *testing.T) {
	t.Parallel()
	r := newRig(t, plannedLimits)
	r.Assigned.Put(&assign.Assignment{
		Subject: assign.Subject{Domain: "d", Entries: decidetest.Entries("tenant=x,call=1")},
		Base:    assign.Layer{Terms: assign.Terms{Plan: "pro"}},
		Layers:  []assign.Layer{{Terms: assign.Terms{Plan: "free"}, Until: decidetest.Started.UnixMicro() + 1}},
	})
	if requests, _ := r.requestsOf("tenant=x,call=1"); requests != 1 {
		t.Errorf("the number is %d, want 1", requests)
	}
	r.Clock.Add(1)
	if requests, _ := r.requestsOf("tenant=x,call=1"); requests != 3 {
		t.Errorf("once the layer has ended the number is %d, want 3", requests)
	}
}

// Whoever moves the start of a month to the minute just begun, however often, begins no
// month: what was used counts until the first start after the change.
func TestMovedStartBeginsNoWindow(t *testing.T) {
	t.Parallel()
	r := newRig(t, "domain: d\ndescriptors: [{key: user, rate_limit: {requests: 10, calendar: month}}]")
	clock := decidetest.Started.Truncate(time.Minute)
	take := func() (admitted int) {
		clock = clock.Add(time.Second)
		r.Clock.Store(clock.UnixMicro())
		for range 12 {
			if !r.Take(decidetest.Asking("user=a", 1)).Denied {
				admitted++
			}
		}
		return admitted
	}
	if got := take(); got != 10 {
		t.Fatalf("admitted %d, want 10", got)
	}
	var starts time.Time
	for range 3 {
		starts = clock.Truncate(time.Minute).Add(time.Minute)
		clock = starts.Add(time.Second)
		a := assign.Assignment{
			Subject: assign.Subject{Domain: "d", Entries: decidetest.Entries("user=a")},
			Base:    assign.Layer{Terms: assign.Terms{Calendar: assign.Calendar{Starts: starts.UTC().Format("2 15:04")}}, At: clock.UnixMicro()},
		}
		r.Assigned.Put(&a)
		if got := take(); got != 0 {
			t.Errorf("a month from %s: admitted %d", starts, got)
		}
		r.Assigned.Delete(a.Subject, "2")
		if got := take(); got != 0 {
			t.Errorf("the file's month again: admitted %d", got)
		}
	}
}

// A release frees a slot whatever has become of the limit since it was taken.
func TestSlotIsReleasedWhateverTheLimitIsNow(t *testing.T) {
	t.Parallel()
	const limits = `
domain: d
descriptors:
  - key: user
    descriptors:
      - key: call
        rate_limit: {algorithm: concurrency, requests: %d, hold: 1h}
`
	for name, change := range map[string]func(r *rig){
		"as it was": func(*rig) {},
		"another number in the file": func(r *rig) {
			r.Reload(fmt.Sprintf(limits, 12))
		},
		"another hold in the file": func(r *rig) {
			r.Reload(strings.Replace(fmt.Sprintf(limits, 2), "1h", "2h", 1))
		},
		"a number assigned": func(r *rig) { r.assign("user=a", assign.Terms{Numbers: []assign.Numbers{{Requests: 1}}}) },
		"blocked":           func(r *rig) { r.assign("user=a", assign.Terms{Blocked: true}) },
		"unlimited":         func(r *rig) { r.assign("user=a", assign.Terms{Unlimited: true}) },
	} {
		for how, release := range map[string]func(r *rig) bucket.Released{
			"a release": func(r *rig) bucket.Released {
				c := r.NewCall()
				c.Domain, c.Releases = "d", true
				c.Descriptors = append(c.Descriptors, decide.Descriptor{Entries: decidetest.Entries("user=a,call=1"), Refund: true})
				if err := errors.Join(c.Check(true), r.Decide(context.Background(), c)); err != nil {
					r.T.Fatal(err)
				}
				return c.Outcomes[0].Decisions[0].Released
			},
			"a refund": func(r *rig) bucket.Released {
				asked := decidetest.Asking("user=a,call=1", 1)
				asked.Refund = true
				decisions := r.Take(asked).Outcomes[0].Decisions
				return decisions[len(decisions)-1].Released
			},
		} {
			t.Run(name+", "+how, func(t *testing.T) {
				t.Parallel()
				r := newRig(t, fmt.Sprintf(limits, 2))
				for _, call := range []string{"user=a,call=1", "user=a,call=2"} {
					if r.Take(decidetest.Asking(call, 1)).Denied {
						t.Fatal("a slot is denied")
					}
				}
				change(r)
				if got := release(r); got != bucket.ReleasedSlot {
					t.Errorf("it released %v, want a slot", got)
				}
			})
		}
	}
}
