package replay_test

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/config/forwardauth"
	"github.com/ratelimitd/ratelimitd/internal/decisionlog"
	"github.com/ratelimitd/ratelimitd/internal/filetest"
	"github.com/ratelimitd/ratelimitd/internal/replay"
)

func at(second float64) time.Time { return time.UnixMicro(began + int64(second*1e6)).UTC() }

// A report of a log that lacks decisions begins with that, and a comparison with it is
// not equal. One with bounds that left out none is.
func TestReportSaysWhatALogLacks(t *testing.T) {
	t.Parallel()
	r := newRecorder(t, limitOf("fixed_window", 2, 0))
	r.restart(decisionlog.Settings{Bounds: &decisionlog.Bounds{PerSubject: 10, SampleAllowed: 0.5, SampleDenied: 1}})
	r.take(asking("user=a", 1))
	report := replayed(t, replay.Options{}, r.log)
	if text := textOf(t, report); report.IsDifferent() || report.Warning() != "" ||
		!strings.Contains(text, "bounds of the log    decisions.per_subject: 10, decisions.sample.allowed:") {
		t.Errorf("none is lost: %s", text)
	}
	r.write(&decisionlog.Line{Kind: decisionlog.Lost, At: r.clock, Lost: 2})
	r.write(&decisionlog.Line{Kind: decisionlog.Lost, At: r.clock, Lost: 1})
	report = replayed(t, replay.Options{}, r.log)
	want := "WARNING: the log lacks at least 3 decisions of 4, so what follows is wrong by as much. Left out by decisions.per_subject: 10, decisions.sample.allowed: 0.5."
	if text := textOf(t, report); !strings.HasPrefix(text, want) || report.Comparison.Different != 0 || !report.IsDifferent() {
		t.Errorf("three are lost: %s", text)
	}
	var page bytes.Buffer
	if err := report.WriteHTML(&page); err != nil || !strings.Contains(page.String(), "Warning: the log lacks at least 3 decisions of 4") {
		t.Errorf("the page does not say it: %v", err)
	}
}

// A report says who is denied, when first, and for how long at most.
func TestReportSaysWhoIsDenied(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	fmt.Fprintln(&log, "time,domain,user")
	for _, r := range []struct {
		second float64
		user   string
	}{{0, "a"}, {0.1, "a"}, {0.2, "a"}, {0.7, "a"}, {1.1, "a"}, {1.2, "a"}, {1.4, "b"}, {1.5, "b"}, {9, "b"}, {9.1, "a"}} {
		fmt.Fprintf(&log, "%s,d,%s\n", at(r.second).Format(time.RFC3339Nano), r.user)
	}
	report, _, err := run(t, replay.Options{Limits: rulesOf(t, limitOf("sliding_log", 1, 0))}, replay.Table(""), &log)
	if err != nil {
		t.Fatal(err)
	}
	want := []replay.Subject{
		{Domain: "d", Rule: "user", Subject: "user=a", Denied: 4, FirstDenied: at(0.1), LongestLockout: 600_000, LockedOutAt: at(0.1)},
		{Domain: "d", Rule: "user", Subject: "user=b", Denied: 1, FirstDenied: at(1.5), LockedOutAt: at(1.5)},
	}
	if fmt.Sprint(report.Denied) != fmt.Sprint(want) {
		t.Errorf("wanted %v\ngot    %v", want, report.Denied)
	}
	if report.Requests != 10 || report.DeniedAfter != 5 || report.Recorded || report.Rules[0].Limits[0].After.Denied != 5 || !report.Last.Equal(at(9.1)) {
		t.Errorf("%+v", report)
	}
}

// Of two sets of limits, a report says what changes and for whom.
func TestReportSaysWhatChanges(t *testing.T) {
	t.Parallel()
	r := newRecorder(t, limitOf("fixed_window", 2, 0))
	for range 4 {
		r.after(1000)
		r.take(asking("user=a", 1))
		r.take(asking("user=b", 2))
	}
	// Then a passes twice and b once. With 3 a passes three times; with costs of 2, b once.
	for name, o := range map[string]replay.Options{
		"recorded": {Limits: rulesOf(t, limitOf("fixed_window", 3, 0))},
		"against":  {Limits: rulesOf(t, limitOf("fixed_window", 3, 0)), Against: rulesOf(t, limitOf("fixed_window", 2, 0))},
	} {
		got := replayed(t, o, r.log)
		if got.DeniedBefore != 5 || got.DeniedAfter != 4 || got.RequestsWon != 1 || got.RequestsLost != 0 ||
			len(got.NewlyAllowed) != 1 || got.NewlyAllowed[0].Subject != "user=a" || got.Rules[0].Before.Denied != 5 || got.Rules[0].NewlyAllowed != 1 || got.Rules[0].Limits[0].Before.Denied != 5 {
			t.Errorf("%s: %+v", name, got)
		}
	}
	got := replayed(t, replay.Options{Limits: rulesOf(t, limitOf("fixed_window", 1, 0))}, r.log)
	if got.RequestsLost != 2 || len(got.NewlyDenied) != 2 || got.NewlyDenied[0].NewlyDenied != 1 || got.Rules[0].NewlyDenied != 2 {
		t.Errorf("%+v", got)
	}
}

// The descriptors of an access log's requests are those that forward auth would ask
// about.
func TestAccessLogsAreRead(t *testing.T) {
	t.Parallel()
	file, err := forwardauth.Load(filetest.Write(t, t.TempDir(), "auth.yaml", `trusted_proxies: [10.0.0.0/8]
endpoints:
  - name: shop
    proxy: nginx
    domain: d
    descriptors:
      - entries: [{key: client, from: client_address}]
      - entries: [{key: path, from: path, prefixes: [/login], on_missing: omit}]
      - entries: [{key: key, from: header, name: X-Api-Key, on_missing: omit}]
      - entries: [{key: page, from: query, name: page, on_missing: omit}, {key: method, from: method}]
`))
	if err != nil {
		t.Fatal(err)
	}
	limits := "domain: d\ndescriptors: [{key: client}, {key: path}, {key: key}, {key: page, descriptors: [{key: method}]}]\n"
	limits = strings.NewReplacer("key: client", "key: client, rate_limit: {requests: 0, period: 1s}", "key: path", "key: path, rate_limit: {requests: 0, period: 1s}",
		"key: key", "key: key, rate_limit: {requests: 0, period: 1s}", "key: method", "key: method, rate_limit: {requests: 0, period: 1s}").Replace(limits)
	for name, log := range map[string]string{
		"json": `{"start_time":"2026-11-23T00:00:00.5Z","method":"get","path":"//login?page=3","x-api-key":"k","downstream_remote_address":"10.0.0.9:5","x_forwarded_for":"1.2.3.4","bytes":5,"tls":null}` + "\n",
	} {
		report, warnings, err := run(t, replay.Options{Limits: rulesOf(t, limits)}, replay.Access(file, file.Endpoint("shop")), strings.NewReader(log))
		if err != nil || len(warnings) > 0 || report.Requests != 1 {
			t.Fatal(name, err, warnings, report)
		}
		var got []string
		for _, s := range report.Denied {
			got = append(got, s.Domain+" "+s.Subject)
		}
		if want := "[d client=1.2.3.4 d key=k d page=3,method=GET d path=/login]"; fmt.Sprint(got) != want || !report.First.Equal(at(0.5)) {
			t.Errorf("%s: %v at %v", name, got, report.First)
		}
	}
	_, warnings, err := run(t, replay.Options{Limits: rulesOf(t, limits)}, replay.Access(file, file.Endpoint("shop")), strings.NewReader("{}\n{\"time\":1e300}\n{\n{\"time\":-5}\n"))
	if err != nil || len(warnings) != 4 || !strings.Contains(warnings[0], "test.log:1: time: found none") || !strings.Contains(warnings[1], "test.log:2: time: found") || !strings.Contains(warnings[2], "test.log:3: byte") {
		t.Errorf("%v %q", err, warnings)
	}
}

// Bad tables are reported with the line.
func TestBadTablesAreTold(t *testing.T) {
	t.Parallel()
	for log, says := range map[string]string{
		"a,b\n": "test.log:1: found the columns a,b; allowed: a column time", "time,,x\n": "column 2: found the name \"\"", "time,x\n": "no column domain",
		"time,x,x\n": "column 3: found the name", "\"": "test.log:1: column",
	} {
		if _, _, err := run(t, replay.Options{Limits: rulesOf(t, allAlgorithms)}, replay.Table(""), strings.NewReader(log)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, which does not say %q", log, err, says)
		}
	}
	for row, says := range map[string]string{
		"x,1,t": "time: found \"x\"", "1e300,1,t": "time: found", "-1,1,t": "time: found", "1,1e9,t": "cost: found", "1,9223372036854775807,t": "cost: found",
		"1,1": "found 2 cells; allowed: 3", "9999999999999999999,1,t": "time: found", "1,1,\"t": "column",
	} {
		report, warnings, err := run(t, replay.Options{Limits: rulesOf(t, allAlgorithms)}, replay.Table("d"), strings.NewReader("time,cost,token\n"+row+"\n0.5,1,\"a,b\"\n"))
		if err != nil || report.Requests != 1 || len(warnings) != 1 || !strings.Contains(warnings[0], "test.log:2: ") || !strings.Contains(warnings[0], says) {
			t.Errorf("%q: %v, %q, which does not say %q", row, err, warnings, says)
		}
	}
}

// A page is well-formed, has a chart and no script, and shows what a log says as
// text.
func TestPageShowsTheReport(t *testing.T) {
	t.Parallel()
	r := newRecorder(t, limitOf("token_bucket", 2, 0))
	for range 500 {
		r.after(20_000)
		r.take(asking("user=<script>alert(1)</script>", 1))
	}
	o := replay.Options{
		Limits:  rulesOf(t, limitOf("token_bucket", 5, 9)),
		Sources: replay.Sources{Version: "v1.2", Logs: []string{"a.jsonl", "b.jsonl"}, Limits: []string{"<new>/"}},
	}
	report := replayed(t, o, r.log)
	var page bytes.Buffer
	if err := report.WriteHTML(&page); err != nil {
		t.Fatal(err)
	}
	text := page.String()
	if strings.Contains(text, "<script") || strings.Count(text, "<svg") != 1 || !strings.Contains(text, "&lt;script&gt;") || strings.Contains(text, "ZgotmplZ") {
		t.Error(text)
	}
	for _, want := range []string{
		"ratelimitd v1.2", "<dt>logs</dt><dd><span>a.jsonl</span> <span>b.jsonl</span>", "<span>&#39;&lt;new&gt;/&#39;</span>", "<dt>before</dt><dd><span>as recorded</span>",
		">d</td><td class=\"r\" data-is=\"rule\">user</td><td class=\"s\"><code>&#39;user=&lt;script&gt;alert(1)&lt;/script&gt;&#39;</code></td></tr>",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %s: %s", want, text)
		}
	}
	for _, svg := range regexp.MustCompile("(?s)<svg.*?</svg>").FindAllString(text, -1) {
		d := xml.NewDecoder(strings.NewReader(svg))
		for {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatal(err, svg)
			}
		}
	}
	if _, err := json.Marshal(report); err != nil {
		t.Error(err)
	}
}
