package integration

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/otlptest"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

// withoutData says why what asks for a series has no data in the demo.
var withoutData = map[string]string{
	"ratelimitd_xds_":                    "the demo has its limits from files; integration/xds looks at these",
	"ratelimitd_decision_log_otlp_":      "the demo has no collector for the log; integration looks at these by themselves",
	"ratelimitd_limit_pauses_total":      "no limit of the demo has block_for; internal/server looks at it",
	"ratelimitd_limit_denied:rate5m_day": "the demo is younger than a day; promtool looks at it",
}

// isWithoutData reports whether a query asks for a series without data.
func isWithoutData(expr string) bool {
	for series := range withoutData {
		if strings.Contains(expr, series) {
			return true
		}
	}
	return false
}

// demo is what deploy/compose.yaml shows, as far as it runs without containers: two daemons on a Redis under deploy/load.sh, one that has
// forward auth and no Redis, and the shipped Prometheus that scrapes them.
type demo struct {
	t          testing.TB
	daemons    []*daemon
	prometheus *prometheus
}

// startDemo starts it, and has it live through a change of the limits and a loss
// of Redis.
func startDemo(t testing.TB) *demo {
	t.Helper()
	needProxy(t, "prometheus")
	redis, limits := redistest.Start(t), t.TempDir()
	if err := os.CopyFS(limits, os.DirFS("../deploy/limits")); err != nil {
		t.Fatal(err)
	}
	flags := []string{"--store", "redis", "--redis-addresses", redis.Addr(), "--limits-path", limits,
		"--tracing-enabled", "--tracing-endpoint", otlptest.Start(t).HTTP, "--admin-tokens-file", write(t, t.TempDir(), "tokens.yaml", "[]\n")}
	recorded := func() []string {
		return append(slices.Clone(flags), "--decisions-path", filepath.Join(t.TempDir(), "decisions.jsonl"))
	}
	d := &demo{t: t, daemons: []*daemon{start(t, recorded()...), start(t, recorded()...), startAuth(t, "nginx")}}
	d.prometheus = startPrometheusOn(t, quickConfig(t, d.daemons))
	d.prometheus.wantValue(`count(ratelimitd_serving == 1)`, "3")
	if code, _ := get(t, "http://"+d.daemons[0].admin+"/admin/v1/domains"); code == http.StatusOK {
		t.Error("the admin API is open")
	}

	d.load(3)
	text, err := os.ReadFile(filepath.Join(limits, "batch.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	write(t, limits, "batch.yaml", strings.Replace(string(text), "requests: 500", "requests: 400", 1))
	d.prometheus.wantValue(`sum(ratelimitd_limits_reloads_total{result="success"})`, "5")
	redis.Kill()
	d.load(1)
	d.prometheus.wantValue(`sum(ratelimitd_degraded_answers_total) > bool 0`, "1")
	redis.Restart()
	d.prometheus.wantValue(`sum(ratelimitd_redis_breaker_open)`, "0")
	for counter, kinds := range map[string][]string{
		"ratelimitd_limit_decisions_total:result":  {"allowed", "near", "denied", "denied_by_other", "shadowed", "peeked"},
		"ratelimitd_limit_returned_cost_total:how": {"refunded", "given_back"},
		"ratelimitd_requests_total:outcome":        {"allowed", "denied", "peeked", "given_back", "error"},
	} {
		name, label, _ := strings.Cut(counter, ":")
		for _, kind := range kinds {
			d.prometheus.wantValue(fmt.Sprintf("sum(%s{%s=%q}) > bool 0", name, label, kind), "1")
		}
	}
	return d
}

// load runs deploy/load.sh for a number of rounds.
func (d *demo) load(rounds int) {
	d.t.Helper()
	var urls []string
	for _, one := range d.daemons {
		urls = append(urls, "http://"+one.http)
	}
	cmd := exec.Command("../deploy/load.sh", urls...)
	cmd.Env = append(os.Environ(), fmt.Sprint("ROUNDS=", rounds))
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		d.t.Fatalf("deploy/load.sh: %v\n%s", err, out)
	}
}

// quickConfig returns a copy of deploy/prometheus that scrapes the daemons, often.
func quickConfig(t testing.TB, daemons []*daemon) (file string) {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"recording.yaml", "alerts.yaml"} {
		write(t, dir, name, readPage(t, "deploy/prometheus/"+name))
	}
	text := readPage(t, "deploy/prometheus/prometheus.yml")
	targets := make([]string, len(daemons))
	for i, d := range daemons {
		targets[i] = fmt.Sprintf("%q", d.admin)
	}
	text = with(t, text, `targets: ["ratelimitd-a:6070", "ratelimitd-b:6070"]`, "targets: ["+strings.Join(targets, ", ")+"]")
	text = with(t, text, "scrape_interval: 15s", "scrape_interval: 500ms")
	text = with(t, text, "evaluation_interval: 15s", "evaluation_interval: 500ms")
	return write(t, dir, "prometheus.yml", text)
}

// spans stand for Grafana's, such as a slow machine does not outlast.
var spans = strings.NewReplacer("$__rate_interval", "10m", "$__range", "10m")

// choices returns what may stand in the queries of a dashboard for its variables: all
// values of those that have several at a time, and each value of the others, as
// Prometheus has them now.
func (d *demo) choices(file string, board dashboard) []*strings.Replacer {
	d.t.Helper()
	chosen := [][]string{{"$job", "ratelimitd"}}
	for _, v := range board.Templating.List {
		if v.Type != "query" {
			continue
		}
		var further [][]string
		for _, c := range chosen {
			values := d.values(file, v, strings.NewReplacer(c...))
			if !v.single() {
				values = []string{".*"}
			}
			for _, value := range values {
				further = append(further, append(slices.Clone(c), "$"+v.Name, value))
			}
		}
		chosen = further
	}
	var all []*strings.Replacer
	for _, c := range chosen {
		all = append(all, strings.NewReplacer(c...))
	}
	return all
}

// TestDemoShowsSomethingInEachPanel runs what Grafana and Prometheus would run by
// what ships, in a real Prometheus.
func TestDemoShowsSomethingInEachPanel(t *testing.T) {
	t.Parallel()
	d := startDemo(t)
	for file, board := range readDashboards(t) {
		choices := d.choices(file, board)
		filled := func(expr string, choices ...*strings.Replacer) (all []string) {
			for _, c := range choices {
				all = append(all, c.Replace(spans.Replace(expr)))
			}
			return all
		}
		for _, a := range board.Annotations.List {
			if expr := a.expr(); expr != "" {
				d.wantData(fmt.Sprint(file, ": ", a["name"]), filled(expr, choices...)...)
			}
		}
		for _, p := range board.Panels {
			for _, q := range p.Targets {
				d.wantData(file+": "+p.Title+" "+q.RefID, filled(q.Expr, choices...)...)
			}
		}
		// Whatever is chosen, there is something to see at the top: panels[0] is a row.
		for _, c := range choices {
			q := board.Panels[1].Targets[0]
			d.wantData(file+": "+board.Panels[1].Title, filled(q.Expr, c)...)
		}
	}
	for _, r := range d.rules() {
		if r.Alert == "" {
			d.wantData("recording.yaml", r.Record)
		} else {
			d.prometheus.query(r.Expr)
		}
	}
	for page, queries := range documentedQueries(t) {
		for _, q := range queries {
			d.wantData(page, q)
		}
	}
	d.wantHealthyRules()
	d.checkNames()
}

// wantData waits until one of the queries has a value that is a number, unless it is
// known that the demo has none.
func (d *demo) wantData(who string, exprs ...string) {
	d.t.Helper()
	has := func() bool {
		return slices.ContainsFunc(exprs, func(expr string) bool {
			return slices.ContainsFunc(d.prometheus.query(expr), func(v string) bool { return v != "NaN" })
		})
	}
	if !isWithoutData(exprs[0]) {
		asynctest.Eventually(d.t, who+" has data of "+exprs[0], has)
	} else if has() {
		d.t.Errorf("%s has data of %s, and is listed as one that has none", who, exprs[0])
	}
}

// values returns the values to choose from for a variable, where others have been
// chosen.
func (d *demo) values(file string, v variable, chosen *strings.Replacer) []string {
	d.t.Helper()
	text := chosen.Replace(v.Query.(map[string]any)["query"].(string))
	m := regexp.MustCompile(`^label_values\((.*), (\w+)\)$`).FindStringSubmatch(text)
	if m == nil {
		d.t.Fatalf("%s: the variable %s is %s", file, v.Name, text)
	}
	var answer struct{ Data []string }
	d.get("/api/v1/label/"+m[2]+"/values?match[]="+url.QueryEscape(m[1]), &answer)
	if len(answer.Data) == 0 {
		d.t.Errorf("%s: there are no values of %s", file, text)
	}
	return answer.Data
}

// get reads an answer of Prometheus.
func (d *demo) get(path string, into any) {
	d.t.Helper()
	code, body := get(d.t, "http://"+d.prometheus.address+path)
	if err := json.Unmarshal([]byte(body), into); err != nil || code != http.StatusOK {
		d.t.Fatalf("%s: %d %s", path, code, body)
	}
}

// rule is a recording rule or an alert.
type rule struct {
	Record, Alert, Expr, For string
	Labels, Annotations      map[string]string
}

// rules returns the shipped rules.
func (d *demo) rules() []rule {
	return append(readRules(d.t, "recording.yaml"), readRules(d.t, "alerts.yaml")...)
}

// readRules returns the rules of a file in deploy/prometheus.
func readRules(t testing.TB, file string) (all []rule) {
	t.Helper()
	var groups struct {
		Groups []struct{ Rules []rule }
	}
	if err := yaml.Unmarshal([]byte(readPage(t, "deploy/prometheus/"+file)), &groups); err != nil {
		t.Fatal(err)
	}
	for _, g := range groups.Groups {
		all = append(all, g.Rules...)
	}
	return all
}

// wantHealthyRules waits until Prometheus has evaluated each rule without an error.
func (d *demo) wantHealthyRules() {
	d.t.Helper()
	var answer struct {
		Data struct {
			Groups []struct {
				Rules []struct{ Name, Health, LastError string }
			}
		}
	}
	asynctest.Eventually(d.t, "Prometheus evaluates all rules", func() bool {
		d.get("/api/v1/rules", &answer)
		n := 0
		for _, g := range answer.Data.Groups {
			for _, r := range g.Rules {
				if r.Health == "err" {
					d.t.Fatalf("%s: %s", r.Name, r.LastError)
				}
				if r.Health == "ok" {
					n++
				}
			}
		}
		return n == len(d.rules())
	})
}

// checkNames checks that each series that documents, dashboards and rules name is on
// the page of a daemon, or is one of those that the demo cannot have.
func (d *demo) checkNames() {
	d.t.Helper()
	shown := make(map[string]string)
	for _, one := range d.daemons {
		one.exposed(shown)
	}
	files, err := filepath.Glob("../docs/*.md")
	if err != nil {
		d.t.Fatal(err)
	}
	for _, more := range []string{"../deploy/grafana/dashboards/*.json", "../deploy/prometheus/*"} {
		found, err := filepath.Glob(more)
		if err != nil || len(found) == 0 {
			d.t.Fatal(more, err)
		}
		files = append(files, found...)
	}
	// Recorded series have colons around such a name.
	name := regexp.MustCompile(`[:]?\bratelimitd_\w+[:*{]?`)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			d.t.Fatal(err)
		}
		for _, n := range name.FindAllString(string(text), -1) {
			n = strings.TrimSuffix(n, "{")
			if strings.ContainsAny(n, ":*") || isWithoutData(n) || shown[n] != "" || shown[histogramOf(n)] == "histogram" {
				continue
			}
			d.t.Errorf("%s names %s, which no daemon shows", file, n)
		}
	}
}

// histogramOf returns the metric that a series of a histogram belongs to.
func histogramOf(series string) string {
	return regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(series, "")
}

// documentedQueries returns the queries that pages show in blocks of PromQL.
func documentedQueries(t testing.TB) map[string][]string {
	t.Helper()
	all := make(map[string][]string)
	for _, page := range []string{"docs/runbook.md"} {
		all[page] = blocks(t, page, "promql")
	}
	return all
}
