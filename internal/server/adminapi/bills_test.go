package adminapi_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/access"
	"github.com/ratelimitd/ratelimitd/internal/filetest"
	"github.com/ratelimitd/ratelimitd/internal/server"
	"github.com/ratelimitd/ratelimitd/internal/server/servertest"
	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
)

const billedLimits = `
domain: api
descriptors:
- key: user
  rate_limits:
  - {name: hour, algorithm: fixed_window, requests: 100, period: 1h}
  - {name: day, algorithm: fixed_window, requests: 1000, period: 1d}
  descriptors:
  - key: request_id
    rate_limit: {name: flight, algorithm: concurrency, requests: 2, hold: 1m}
- {key: open, rate_limit: {unlimited: true}}
`

// startBilled starts a daemon whose admin API has members, and whose callers have names.
func startBilled(t *testing.T, callers string) *servertest.Daemon {
	t.Helper()
	members, _, _ := servertest.WithMembers(t, servertest.SomeMembers())
	change := []func(*server.Options){members, servertest.WithAssignments(servertest.NewAssignments(t))}
	if callers != "" {
		live := access.NewLiveCallers(filetest.Write(t, t.TempDir(), "callers.yaml", callers), slog.New(slog.DiscardHandler))
		if err := live.Reload(); err != nil {
			t.Fatal(err)
		}
		change = append(change, func(o *server.Options) { o.Requests.Callers = live })
	}
	return servertest.Start(t, billedLimits, change...)
}

// inspectBills returns what inspect tells of an ID: a line for each limit.
func inspectBills(d *servertest.Daemon, descriptor, id, caller string) string {
	d.T.Helper()
	client := d.Admin(nil)
	m := bothWays(d, func(ctx context.Context, q *adminv1.InspectRequest) (*adminv1.InspectResponse, error) {
		return client.Inspect(ctx, q)
	}, "/inspect", &adminv1.InspectRequest{Domain: "api", Entries: servertest.Taking(descriptor).Descriptors[0].Entries, Id: id, Caller: caller})
	return bills(m.GetDescriptor_())
}

func bills(d *adminv1.ExplainedDescriptor) string {
	var all []string
	for _, l := range d.GetLimits() {
		text := l.GetLimit().GetName() + " unknown"
		if b := l.GetBill(); b != nil {
			text = fmt.Sprint(l.GetLimit().GetName(), " ", b.GetCost(), " by ", b.GetTakes(), " for ", b.GetLeft().AsDuration())
		}
		all = append(all, text)
	}
	return strings.Join(all, ", ")
}

// An operator sees what an ID has charged: the estimate, what a settlement made of it, and
// nothing once it is too old.
func TestInspectTellsWhatAnIDHasCharged(t *testing.T) {
	t.Parallel()
	d := startBilled(t, "")
	want := func(descriptor, id, says string) {
		t.Helper()
		if got := inspectBills(d, descriptor, id, ""); got != says {
			t.Errorf("the id %q of %s: %s, want %s", id, descriptor, got, says)
		}
	}
	want("user=x", "one", "hour unknown, day unknown")
	d.TakeAs("one", "user=x:40")
	d.Clock.Move(10 * time.Minute)
	want("user=x", "one", "hour 40 by 1 for 50m0s, day 40 by 1 for 50m0s")
	want("user=y", "one", "hour unknown, day unknown")
	want("user=x", "two", "hour unknown, day unknown")
	want("user=x", "", "hour unknown, day unknown")
	d.Settle("one", "user=x:15")
	want("user=x", "one", "hour 15 by 1 for 50m0s, day 15 by 1 for 50m0s")
	d.TakeAs("one", "user=x:5")
	want("user=x", "one", "hour 20 by 2 for 1h0m0s, day 20 by 2 for 1h0m0s")
	d.TakeAs("none", "user=x:90") // is denied
	want("user=x", "none", "hour unknown, day unknown")
	d.TakeAs("one", "user=x,request_id=r")
	want("user=x,request_id=r", "one", "flight unknown") // slots are no costs
	want("open=x", "one", "")
	d.Settle("one", "user=x:0")
	want("user=x", "one", "hour 0 by 2 for 1h0m0s, day 0 by 2 for 1h0m0s")
	d.Clock.Move(time.Hour)
	want("user=x", "one", "hour unknown, day unknown")
}

// Where callers have names, each has IDs of its own.
func TestInspectTellsWhoseID(t *testing.T) {
	t.Parallel()
	d := startBilled(t, "- {name: shop, sha256: "+servertest.SumOf("shop's")+", domains: [api], may: [take]}\n")
	take := servertest.Taking("user=x:40")
	take.Id = "one"
	if _, err := d.API().Take(servertest.WithToken(t.Context(), "shop's"), take); err != nil {
		t.Fatal(err)
	}
	for caller, want := range map[string]string{
		"shop": "hour 40 by 1 for 1h0m0s, day 40 by 1 for 1h0m0s", "desk": "hour unknown, day unknown", "": "hour unknown, day unknown",
	} {
		if got := inspectBills(d, "user=x", "one", caller); got != want {
			t.Errorf("of %q: %s, want %s", caller, got, want)
		}
	}
}
