package replay_test

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/config/limitsfile"
	"github.com/ratelimitd/ratelimitd/internal/config/rules"
	"github.com/ratelimitd/ratelimitd/internal/replay"
)

// twoDomains is a table of one request a second for a minute and a half in each of
// two domains.
func twoDomains() *bytes.Buffer {
	log := bytes.NewBufferString("time,domain,user\n")
	for i := range 90 {
		for _, domain := range []string{"d", "e"} {
			fmt.Fprintf(log, "%s,%s,a\n", at(float64(i)).Format(time.RFC3339Nano), domain)
		}
	}
	return log
}

// hourly returns limits of domains, each with two limits on a rule.
func hourly(t *testing.T, requests int, domains ...string) *rules.Set {
	t.Helper()
	var texts []limitsfile.Text
	for _, domain := range domains {
		texts = append(texts, limitsfile.Text{Name: domain + ".yaml", Text: fmt.Sprintf(`domain: %s
descriptors:
  - key: user
    rate_limits: [{name: hour, algorithm: sliding_window, requests: %d, period: 1h}, {name: trial, algorithm: sliding_window, requests: 60, period: 1h, shadow_mode: true}]
`, domain, requests)})
	}
	rules, err := limitsfile.Options{}.LoadTexts(texts)
	if err != nil {
		t.Fatal(err)
	}
	return rules
}

// The columns of rules go on below their limits, moments of a long log have no
// milliseconds, a domain that --limits leaves out is named, and so is what a limit on
// trial would have denied.
func TestTextIsATable(t *testing.T) {
	t.Parallel()
	o := replay.Options{
		Limits: hourly(t, 80, "d"), Against: hourly(t, 7, "d", "e"),
		Sources: replay.Sources{
			Version: "v1.2", Limits: []string{"new/d.yaml"}, Against: []string{"d.yaml", "the e.yaml"},
			Logs: []string{"decisions-2026-11-22T00-00-00.000.jsonl.gz", "decisions-2026-11-23T00-00-00.000.jsonl.gz", "decisions.jsonl"},
		},
	}
	report, _, err := run(t, o, replay.Table(""), twoDomains())
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if err := report.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	const want = `180 requests from 2026-11-23 00:00:00 to 2026-11-23 00:01:29
logs              decisions-2026-11-22T00-00-00.000.jsonl.gz
                  decisions-2026-11-23T00-00-00.000.jsonl.gz decisions.jsonl
limits            new/d.yaml
before            d.yaml 'the e.yaml'
by                ratelimitd v1.2
denied            166 (92.22%) before, 10 (5.556%) after
subjects denied   2 of 2 (100%) before, 1 of 2 (50%) after
newly denied      0 requests, 0 subjects
newly allowed     156 requests, 1 subject
no rule any more  in e

domain d
  RULE  LIMIT       ASKED  DENIED BEFORE  AFTER                NEWLY  NO MORE
  user              90     83 (92.22%)    10 (11.11%)          0      73
        (subjects)  1      1 (100%)       1 (100%)             0      0
        hour        90     83 (92.22%)    10 (11.11%)
        trial       90     0 (0%)         0 (0%), 30 shadowed
`
	if got := text.String(); !strings.HasPrefix(got, want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	const last = `newly allowed
  TIMES  FIRST DENIED  LONGEST LOCK-OUT  DOMAIN  RULE  SUBJECT
  83     -             -                 e       user  user=a
  73     00:01:20      9s from 00:01:20  d       user  user=a
`
	if got := text.String(); !strings.HasSuffix(got, last) {
		t.Errorf("got\n%s\nwant\n%s", got, last)
	}
}

// A subject is the end of its line, whole and as a person pastes it into a command; in
// JSON without the quotes of the shell. Moments have the date where there are several.
func TestSubjectsArePasted(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 5000)
	log := "time,domain,user,path\n"
	for i, value := range []string{"a b,", "it's", `"q"=`, "$(id)\x1b[2J\u202e", long} {
		day := time.Duration(i) * 24 * time.Hour
		log += fmt.Sprintf("%s,the d,\"%s\",/\n", at(0).Add(day).Format(time.RFC3339), strings.ReplaceAll(value, `"`, `""`))
	}
	limits := "domain: the d\ndescriptors: [{key: user, descriptors: [{key: path, rate_limit: {requests: 0, period: 1s}}]}]\n"
	report, warnings, err := run(t, replay.Options{Limits: rulesOf(t, limits)}, replay.Table(""), strings.NewReader(log))
	if err != nil || len(warnings) > 0 {
		t.Fatal(err, warnings)
	}
	var text bytes.Buffer
	if err := report.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"  1      2026-11-23 00:00:00  0s                'the d'  user / path  'user=a b\\,,path=/'\n",
		`  'the d'  user / path  'user=it'\''s,path=/'` + "\n",
		`  'the d'  user / path  'user="q"=,path=/'` + "\n",
		`  'the d'  user / path  'user=$(id)\u{1b}[2J\u{202e},path=/'` + "\n",
		"  'the d'  user / path  user=" + long + ",path=/\n",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("it lacks %.100s:\n%s", want, text.String())
		}
	}
	var subjects []string
	for _, s := range report.Denied {
		subjects = append(subjects, s.Subject)
	}
	if !slices.Contains(subjects, `user=a b\,,path=/`) || !slices.Contains(subjects, "user=it's,path=/") {
		t.Errorf("JSON has %q", subjects)
	}
}

// A page says before and after only where there are both, has no chart where nothing
// is denied, and draws few requests as one line.
func TestPageFitsTheReport(t *testing.T) {
	t.Parallel()
	page := func(o replay.Options) string {
		report, _, err := run(t, o, replay.Table(""), twoDomains())
		if err != nil {
			t.Fatal(err)
		}
		var page bytes.Buffer
		if err := report.WriteHTML(&page); err != nil {
			t.Fatal(err)
		}
		_, body, _ := strings.Cut(page.String(), "<body>")
		return body
	}
	alone := page(replay.Options{Limits: hourly(t, 7, "d")})
	if regexp.MustCompile(`before|newly|>after|denied after`).MatchString(alone) || !strings.Contains(alone, "denied (46.11%)") {
		t.Errorf("a page without a comparison compares: %s", alone)
	}
	for _, m := range regexp.MustCompile(`class="line \w+" d="([^"]*)"`).FindAllStringSubmatch(alone, -1) {
		if strings.Count(m[1], "M") != 1 {
			t.Errorf("the line is in pieces: %s", m[1])
		}
	}
	if n := strings.Count(alone, "<svg"); n != 1 {
		t.Errorf("there are %d charts: %s", n, alone)
	}
	if none := page(replay.Options{Limits: hourly(t, 1000, "d")}); strings.Contains(none, "<svg") {
		t.Errorf("nothing is denied, and there is a chart: %s", none)
	}
	both := page(replay.Options{Limits: hourly(t, 1000, "d"), Against: hourly(t, 7, "d", "e")})
	for _, want := range []string{"denied before", "denied after", "newly allowed", "No rule any more in e", `class="line before"`} {
		if !strings.Contains(both, want) {
			t.Errorf("a page that compares lacks %q: %s", want, both)
		}
	}
}
