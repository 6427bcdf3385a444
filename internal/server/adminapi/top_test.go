package adminapi_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/decide"
	"github.com/ratelimitd/ratelimitd/internal/server"
	"github.com/ratelimitd/ratelimitd/internal/server/servertest"
	"github.com/ratelimitd/ratelimitd/internal/top"
	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
)

const topLimits = `
domain: api
descriptors:
  - {key: user, rate_limit: {requests: 3, period: 1h}}
  - {key: closed, rate_limit: {requests: 0, period: 1h}}
  - {key: shadow, shadow_mode: true, rate_limit: {requests: 0, period: 1h}}
  - key: plan
    plans:
      free: {requests: 0, period: 1h}
    plan: free
`

// topOf returns who had the most: "closed a=b 3-4" for 3 or 4.
func topOf(d *servertest.Daemon, r *adminv1.TopRequest) (rows []string, _ *adminv1.TopResponse) {
	d.T.Helper()
	got, err := d.Admin(nil).Top(metadata.AppendToOutgoingContext(d.T.Context(), "authorization", "Bearer help"), r)
	if err != nil {
		d.T.Fatal(err)
	}
	for _, s := range got.GetSubjects() {
		text := s.GetDomain() + " " + s.GetRule()
		for _, e := range s.GetEntries() {
			text += " " + e.GetKey() + "=" + e.GetValue()
		}
		rows = append(rows, fmt.Sprintf("%s %d-%d", text, s.GetCount()-s.GetError(), s.GetCount()))
	}
	return rows, got
}

func wantRows(t *testing.T, got []string, want ...string) {
	t.Helper()
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestTopTellsWhoWasDenied(t *testing.T) {
	t.Parallel()
	members, _, _ := servertest.WithMembers(t, servertest.SomeMembers())
	d := servertest.Start(t, topLimits, members, servertest.KeepingTops)
	for range 3 {
		d.Ask("api", 1, "closed=a", "user=x") // the second is not denied by itself
	}
	d.Ask("api", 5, "closed=b")
	d.Ask("api", 1, "shadow=c") // is let pass
	d.Ask("api", 2, "user=alice")
	d.Ask("api", 2, "user=alice")
	d.Ask("api", 1, "plan=p")
	d.Ask("api", 1, "nothing=n")
	rows, got := topOf(d, &adminv1.TopRequest{})
	wantRows(t, rows, "api closed closed=a 3-3", "api closed closed=b 1-1", "api plan (plan free) plan=p 1-1", "api user user=alice 1-1")
	if got.GetTotal() != 6 || got.GetOthersAtMost() != 0 || got.GetDaemons() != 1 || got.GetOthersUnknown() != "" || len(got.GetPending()) > 0 || got.GetCovered() == nil {
		t.Errorf("got %v", got)
	}
	rows, got = topOf(d, &adminv1.TopRequest{Rows: 1, Window: adminv1.TopWindow_TOP_WINDOW_HOUR})
	wantRows(t, rows, "api closed closed=a 3-3")
	if got.GetOthersAtMost() != 1 {
		t.Errorf("others had at most %d", got.GetOthersAtMost())
	}
	rows, _ = topOf(d, &adminv1.TopRequest{Domain: "api", Rule: "plan"})
	wantRows(t, rows, "api plan (plan free) plan=p 1-1")
	rows, _ = topOf(d, &adminv1.TopRequest{Domain: "api", Rule: "user", By: adminv1.TopBy_TOP_BY_USED})
	wantRows(t, rows, "api user user=alice 2-2")

	// They stay over a reload, and go with their rule.
	d.Reload(strings.Replace(topLimits, "key: closed", "key: other", 1))
	rows, got = topOf(d, &adminv1.TopRequest{Window: adminv1.TopWindow_TOP_WINDOW_QUARTER_HOUR})
	wantRows(t, rows, "api plan (plan free) plan=p 1-1", "api user user=alice 1-1")
	if got.GetTotal() != 2 {
		t.Errorf("got %v", got)
	}
}

// A reservation counts as what it reserved, what a settlement adds to it counts too, and a
// slot counts once, however often it is renewed.
func TestTopCountsWhatWasCharged(t *testing.T) {
	t.Parallel()
	members, _, _ := servertest.WithMembers(t, servertest.SomeMembers())
	d := servertest.Start(t, billedLimits, members, servertest.KeepingTops)
	want := func(rows ...string) {
		t.Helper()
		got, _ := topOf(d, &adminv1.TopRequest{By: adminv1.TopBy_TOP_BY_USED})
		wantRows(t, got, rows...)
	}
	d.TakeAs("one", "user=x:40")
	want("api user user=x 40-40")
	d.Settle("one", "user=x:10")
	want("api user user=x 40-40")
	d.Settle("one", "user=x:60")
	want("api user user=x 90-90")
	d.Settle("unknown", "user=x:60")
	want("api user user=x 90-90")
	for range 3 {
		d.Take("user=y,request_id=r")
		want("api user user=x 90-90", "api user / request_id user=y request_id= 1-1")
	}
}

func TestTopRefusesWhatItCannotAnswer(t *testing.T) {
	t.Parallel()
	members, _, _ := servertest.WithMembers(t, servertest.SomeMembers())
	d := servertest.Start(t, topLimits, members, func(o *server.Options) { o.Tops = decide.Tops{Denied: true, Budget: top.NewBudget(1 << 20)} })
	for _, tc := range []struct {
		path, token string
		code        int
		text        string
	}{
		{"/top?domain=apo", "help", 404, "(api?)"},
		{"/top?domain=api&rule=usr", "help", 404, `the domain api has none of this path`},
		{"/top?rule=user", "help", 400, "without a domain"},
		{"/top?by=used", "help", 412, "set top.subjects: all in the settings file of each daemon (or --top-subjects all, or RATELIMITD_TOP_SUBJECTS=all)"},
		{"/top?by=x", "help", 400, `by: found \"x\"; allowed: denied, used`},
		{"/top?window=2m", "help", 400, `window: found \"2m\"; allowed: 15m, 1h, 1m`},
		{"/top?rows=501", "help", 400, "rows: found 501; allowed: 1 to 500"},
		{"/top", "view", 403, "to see who is over takes the role support"},
		{"/top", "", 401, ""},
	} {
		if p := d.AskAdmin("GET", tc.path, tc.token, ""); p.Code != tc.code || !strings.Contains(p.Body, tc.text) {
			t.Errorf("%s: %d %s", tc.path, p.Code, p.Body)
		}
	}
	if _, err := d.Admin(nil).Top(metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer help"), &adminv1.TopRequest{By: 7}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("got %v", err)
	}
}

// Each name costs time to compare, and a domain may have very many.
func TestAMisspelledRuleIsComparedWithSomeOfVeryMany(t *testing.T) {
	t.Parallel()
	var limits strings.Builder
	limits.WriteString("domain: api\ndescriptors:\n")
	add := func(key, value string) {
		fmt.Fprintf(&limits, "  - {key: %s, value: %q, rate_limit: {unit: hour, requests_per_unit: 1}}\n", key, value)
	}
	add("first", "x")
	for i := range 10_000 {
		add("user", fmt.Sprint(i))
	}
	add("last", "x")
	members, _, _ := servertest.WithMembers(t, servertest.SomeMembers())
	d := servertest.Start(t, limits.String(), members, servertest.KeepingTops)
	for rule, isCompared := range map[string]bool{"firt=x": true, "lst=x": false} {
		if p := d.AskAdmin("GET", "/top?domain=api&rule="+url.QueryEscape(rule), "help", ""); p.Code != 404 || strings.Contains(p.Body, "=x?)") != isCompared {
			t.Errorf("%s: %d %s", rule, p.Code, p.Body)
		}
	}
}

// What callers send is shown, whatever it is, and bounded.
func TestTopShowsWhatCallersSend(t *testing.T) {
	t.Parallel()
	members, _, _ := servertest.WithMembers(t, servertest.SomeMembers())
	d := servertest.Start(t, topLimits, members, servertest.KeepingTops)
	long := strings.Repeat("\u00e9", 200) // two bytes each
	d.Ask("api", 1, "closed="+long)
	_, got := topOf(d, &adminv1.TopRequest{})
	s := got.GetSubjects()
	if len(s) != 1 || !s[0].GetCut() || !strings.HasPrefix(long, strings.TrimRight(s[0].GetEntries()[0].GetValue(), "\uFFFD")) {
		t.Errorf("got %v", s)
	}
}

func TestTopAddsWhatOtherDaemonsCounted(t *testing.T) {
	t.Parallel()
	members, _, _ := servertest.WithMembers(t, servertest.SomeMembers())
	var failure error
	d := servertest.Start(t, topLimits, members, servertest.KeepingTops, func(o *server.Options) {
		o.Admin.AskTop = func(_ context.Context, _ top.Question, take func(top.Answer)) ([]string, error) {
			other := top.NewSketch(top.NewBudget(1<<20), func() int64 { return 1 << 20 })
			other.Add(top.AppendSubject(nil, []bucket.Entry{{Key: "closed", Value: "a"}}), 10)
			other.Add(top.AppendSubject(nil, []bucket.Entry{{Key: "closed", Value: "z"}}), 2)
			a := top.Answer{Total: 12, Rules: []top.RuleSummary{{Domain: "api", Rule: "closed", Summary: other.Summary()}}}
			take(a)
			return []string{"gone"}, failure
		}
	})
	d.Ask("api", 1, "closed=a")
	rows, got := topOf(d, &adminv1.TopRequest{})
	wantRows(t, rows, "api closed closed=a 11-11", "api closed closed=z 2-2")
	if got.GetTotal() != 13 || got.GetDaemons() != 2 || len(got.GetPending()) != 1 || got.GetPending()[0].GetId() != "gone" {
		t.Errorf("got %v", got)
	}
	failure = errors.New("away\xff")
	if _, got = topOf(d, &adminv1.TopRequest{}); got.GetOthersUnknown() != "away\uFFFD" {
		t.Errorf("got %v", got)
	}
}

func TestBytesOfTopsAreShown(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t, topLimits, servertest.KeepingTops)
	wantBytes := func(when string, isRight func(float64) bool) {
		t.Helper()
		if n, shown := d.Metrics()["ratelimitd_top_bytes"]; !shown || !isRight(n) {
			t.Errorf("%s: %v bytes, shown: %t", when, n, shown)
		}
	}
	wantBytes("before any denial", func(n float64) bool { return n == 0 })
	d.Ask("api", 1, "closed=a")
	wantBytes("after one", func(n float64) bool { return n > 0 && n < top.MaxBytes })
	d.Reload(strings.Replace(topLimits, "closed", "open", 1))
	wantBytes("after its rule has gone", func(n float64) bool { return n == 0 })
}

// The least memory that requests may have is enough, however much there is to look at.
func TestTopNeedsLittleMemory(t *testing.T) {
	t.Parallel()
	members, _, _ := servertest.WithMembers(t, servertest.SomeMembers())
	d := servertest.Start(t, topLimits, members, servertest.KeepingTops, func(o *server.Options) { o.Requests.Memory = 16 << 20 })
	d.Ask("api", 1, "closed=a")
	rows, _ := topOf(d, &adminv1.TopRequest{})
	wantRows(t, rows, "api closed closed=a 1-1")
}
