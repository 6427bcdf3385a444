package integration

import (
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// promtool checks what ships for Prometheus, and runs the tests of the alerts.
func TestPromtoolAcceptsTheRules(t *testing.T) {
	t.Parallel()
	promtool := needProxy(t, "promtool")
	for _, args := range [][]string{
		{"check", "config", "deploy/prometheus/prometheus.yml"},
		{"check", "rules", "--lint=all", "--lint-fatal", "deploy/prometheus/recording.yaml", "deploy/prometheus/alerts.yaml"},
		{"test", "rules", "deploy/prometheus/alerts_test.yaml", "deploy/prometheus/alerts_day_test.yaml"},
	} {
		cmd := exec.Command(promtool, args...)
		cmd.Dir = projectRoot
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v\n%s", args, err, out)
		}
	}
}

// Each alert says what it is about and where to read on, and the tests have it fire.
func TestAlertsAreWhole(t *testing.T) {
	t.Parallel()
	const runbook = "https://github.com/ratelimitd/ratelimitd/blob/main/docs/runbook.md#"
	fires, silent := make(map[string]bool), make(map[string]bool)
	for _, file := range []string{"alerts_test.yaml", "alerts_day_test.yaml"} {
		var tests struct {
			Tests []struct {
				Checks []struct {
					Alert string `yaml:"alertname"`
					Want  []any  `yaml:"exp_alerts"`
				} `yaml:"alert_rule_test"`
			}
		}
		readYAML(t, "deploy/prometheus/"+file, &tests)
		for _, one := range tests.Tests {
			for _, c := range one.Checks {
				fires[c.Alert] = fires[c.Alert] || len(c.Want) > 0
				silent[c.Alert] = silent[c.Alert] || len(c.Want) == 0
			}
		}
	}
	paragraphs := runbookParagraphs(t)
	names := make([]string, 0, len(paragraphs))
	for _, r := range readRules(t, "alerts.yaml") {
		names = append(names, r.Alert)
		if r.For == "" || !slices.Contains([]string{"critical", "warning", "info"}, r.Labels["severity"]) || r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
			t.Errorf("%s lasts %q, and has %v and %v", r.Alert, r.For, r.Labels, r.Annotations)
		}
		if url := r.Annotations["runbook_url"]; url != runbook+strings.ToLower(r.Alert) {
			t.Errorf("%s leads to %s", r.Alert, url)
		}
		if !fires[r.Alert] || !silent[r.Alert] {
			t.Errorf("%s: promtool tests that it fires: %v, that it does not: %v", r.Alert, fires[r.Alert], silent[r.Alert])
		}
		for _, part := range []string{"**Means**", "**Look**", "**Do**"} {
			if !strings.Contains(paragraphs[r.Alert], part) {
				t.Errorf("docs/runbook.md does not say what %s: %s", r.Alert, part)
			}
		}
	}
	for name := range paragraphs {
		if !slices.Contains(names, name) {
			t.Errorf("docs/runbook.md has %s, which is no alert", name)
		}
	}
	for _, r := range readRules(t, "recording.yaml") {
		// level:metric:operations
		if !regexp.MustCompile(`^[a-z_]+:ratelimitd_[a-z_]+:[a-z0-9_]+$`).MatchString(r.Record) {
			t.Errorf("%s is no name of a recorded series", r.Record)
		}
	}
}

// runbookParagraphs returns what docs/runbook.md says of each alert.
func runbookParagraphs(t testing.TB) map[string]string {
	t.Helper()
	all := make(map[string]string)
	for _, part := range strings.Split(readPage(t, "docs/runbook.md"), "\n## ")[1:] {
		if heading, text, _ := strings.Cut(part, "\n"); heading != "Queries" {
			all[heading] = text
		}
	}
	return all
}
