package replay_test

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/config"
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
func hourly(t *testing.T, requests int, domains ...string) *config.Rules {
	t.Helper()
	var texts []config.Text
	for _, domain := range domains {
		texts = append(texts, config.Text{Name: domain + ".yaml", Text: fmt.Sprintf(`domain: %s
descriptors:
  - key: user
    rate_limits: [{name: hour, algorithm: sliding_window, requests: %d, period: 1h}, {name: trial, algorithm: sliding_window, requests: 60, period: 1h, shadow_mode: true}]
`, domain, requests)})
	}
	rules, err := config.LoadOptions{}.RulesOf(texts)
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
	o := replay.Options{Limits: hourly(t, 80, "d"), Against: hourly(t, 7, "d", "e")}
	report, _, err := run(t, o, replay.Table(""), twoDomains())
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if err := report.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	const want = `180 requests from 2026-11-23 00:00:00 to 2026-11-23 00:01:29
denied            166 (92.22%) before, 10 (5.556%) after
newly denied      0
newly allowed     156
no rule any more  in e

domain d
  RULE  LIMIT  ASKED  DENIED BEFORE  AFTER                NEWLY DENIED  NEWLY ALLOWED
  user         90     83 (92.22%)    10 (11.11%)          0             73
        hour   90     83 (92.22%)    10 (11.11%)
        trial  90     0 (0%)         0 (0%), 30 shadowed
`
	if got := text.String(); !strings.HasPrefix(got, want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// A page says before and after only where there are both, has no charts where nothing
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
