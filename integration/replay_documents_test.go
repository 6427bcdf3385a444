package integration

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Every replay on its page prints what is shown there.
func TestDocumentedReplays(t *testing.T) {
	t.Parallel()
	const page = "docs/replay.md"
	dir := t.TempDir()
	for name, begins := range map[string][2]string{
		"decisions.log": {"json", `{"v":1,"kind":"limits"`},
		"access.log":    {"json", `{"start_time"`},
		"requests.csv":  {"csv", "time,"},
		"new.yaml":      {"yaml", "domain: shop\ndescriptors:\n  - {key: user, rate_limit: {name: second, requests: 2"},
		"old.yaml":      {"yaml", "domain: shop\ndescriptors:\n  - {key: user, rate_limit: {name: second, requests: 1"},
		"auth.yaml":     {"yaml", "endpoints:"},
	} {
		write(t, dir, name, blockFrom(t, page, begins[0], begins[1]))
	}
	file := regexp.MustCompile(`[a-z]+\.(log|csv|yaml)`)
	for _, shown := range blocks(t, page, "console") {
		line, want, _ := strings.Cut(shown, "\n")
		words := strings.Fields(strings.TrimPrefix(line, "$ ratelimitd "))
		for i, word := range words {
			if file.MatchString(word) {
				words[i] = filepath.Join(dir, word)
			}
		}
		got, stderr, code := command(t, words...)
		if code != 0 || stderr != "" || got != want {
			t.Errorf("%s exits with %d: %s\n%s", line, code, stderr, got)
		}
		if _, proposed, ok := strings.Cut(got, "# limits file"); ok {
			path := write(t, dir, "proposed.yaml", "# limits file"+proposed)
			if _, stderr, code := command(t, "check", path); code != 0 || stderr != "" {
				t.Errorf("what is proposed does not load: %s", stderr)
			}
		}
	}
	html := filepath.Join(dir, "report.html")
	if _, stderr, code := command(t, "replay", "--limits", filepath.Join(dir, "new.yaml"), "--json", "--html", html, filepath.Join(dir, "decisions.log")); code != 0 {
		t.Error(stderr)
	}
	if text, err := os.ReadFile(html); err != nil || !strings.Contains(string(text), "<svg") {
		t.Error("the page has no chart:", err)
	}
}

// A replay takes the daemon's settings from the log, also to read other limits, and
// flags go before them.
func TestReplayTakesSettingsFromTheLog(t *testing.T) {
	t.Parallel()
	const page = "docs/replay.md"
	dir, apart := t.TempDir(), t.TempDir()
	limits := write(t, dir, "new.yaml", blockFrom(t, page, "yaml", "domain: shop"))
	write(t, apart, "a.yaml", "domain: shop\ndescriptors: [{key: user, rate_limit: {requests: 0, period: 1s}}]\n")
	write(t, apart, "b.yaml", "domain: shop\ndescriptors: [{key: other, rate_limit: {requests: 0, period: 1s}}]\n")
	log := strings.Replace(blockFrom(t, page, "json", `{"v":1,"kind":"limits"`), `"files":`, `"settings":{"shadow_mode":true,"merge_domains":true},"files":`, 1)
	for _, c := range []struct {
		args string
		says string
		code int
	}{
		{"--limits " + limits, "2 (40%) before, 0 (0%) after", 0},
		{"--limits " + limits + " --shadow-mode=false", "2 (40%) before, 1 (20%) after", 0},
		{"--limits " + apart, "2 (40%) before, 0 (0%) after", 0},
		{"--limits " + apart + " --merge-domains=false", "", 1},
		{"", "2 (40%) before, 0 (0%) after", 2},
		{"--shadow-mode=false", "2 (40%) before, 2 (40%) after", 0},
	} {
		out, stderr, code := commandInput(t, log, append(append([]string{"replay"}, strings.Fields(c.args)...), "-")...)
		if code != c.code || !strings.Contains(out, c.says) {
			t.Errorf("%s exits with %d: %s\n%s", c.args, code, stderr, out)
		}
	}
}

// A replay that decides otherwise than recorded exits with 2, and one that cannot be
// run says what to do.
func TestReplayExits(t *testing.T) {
	t.Parallel()
	const page = "docs/replay.md"
	dir := t.TempDir()
	log := blockFrom(t, page, "json", `{"v":1,"kind":"limits"`)
	limits := write(t, dir, "new.yaml", blockFrom(t, page, "yaml", "domain: shop"))
	otherwise := strings.Replace(log, `"remaining":1,"reset`, `"remaining":5,"reset`, 1)
	out, _, code := commandInput(t, otherwise, "replay", "-")
	if code != 2 || !strings.Contains(out, "standard input:2") || !strings.Contains(out, "recorded 5, replayed 1") {
		t.Errorf("%d: %s", code, out)
	}
	for _, bad := range []struct{ args, says string }{
		{"", "a log, or - for standard input"},
		{"no.log", "no such file"},
		{"--csv -", "found no --limits"},
		{"--against " + limits + " -", "found no --limits"},
		{"--limits " + limits + " --fit 5 -", "such as 99.9%"},
		{"--limits no.yaml -", "--limits: "},
		{"--limits " + limits + " --map no.yaml -", "--map: "},
		{"--limits " + limits + " --max-keys 1 -", "--max-keys"},
		{dir, "found the folder"},
	} {
		_, stderr, code := commandInput(t, log, append([]string{"replay"}, strings.Fields(bad.args)...)...)
		if code != 1 || !strings.Contains(stderr, bad.says) {
			t.Errorf("replay %s exits with %d, and does not say %q: %s", bad.args, code, bad.says, stderr)
		}
	}
}
