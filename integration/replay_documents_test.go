package integration

import (
	"compress/gzip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Every replay on its page, and in testdata/replay, prints what is shown there.
func TestDocumentedReplays(t *testing.T) {
	t.Parallel()
	const page = "docs/replay.md"
	dir := t.TempDir()
	for name, begins := range map[string][2]string{
		"decisions.jsonl": {"json", `{"v":1,"kind":"limits"`},
		"access.log":      {"json", `{"start_time"`},
		"requests.csv":    {"csv", "time,"},
		"new.yaml":        {"yaml", "domain: shop\ndescriptors:\n  - {key: user, rate_limit: {name: second, requests: 2"},
		"auth.yaml":       {"yaml", "endpoints:"},
	} {
		write(t, dir, name, blockFrom(t, page, begins[0], begins[1]))
	}
	examples := blocks(t, page, "console")
	for _, name := range []string{"against.txt", "map.txt", "same.txt"} {
		examples = append(examples, replayData(t, name))
	}
	write(t, dir, "old.yaml", replayData(t, "old.yaml"))
	file := regexp.MustCompile(`[a-z]+\.(log|jsonl|csv|yaml)`)
	version := regexp.MustCompile(`(?m)^(by +ratelimitd ).*$`)
	for _, shown := range examples {
		line, want, _ := strings.Cut(shown, "\n")
		words := strings.Fields(strings.TrimPrefix(line, "$ ratelimitd "))
		for i, word := range words {
			if file.MatchString(word) {
				words[i] = filepath.Join(dir, word)
			}
		}
		got, stderr, code := command(t, words...)
		got = version.ReplaceAllString(strings.ReplaceAll(got, dir+string(filepath.Separator), ""), "${1}0.1.0")
		if code != 0 || stderr != "" || got != want {
			t.Errorf("%s exits with %d: %s\n%s", line, code, stderr, got)
		}
	}
	html := filepath.Join(dir, "report.html")
	if _, stderr, code := command(t, "replay", "--limits", filepath.Join(dir, "new.yaml"), "--json", "--html", html, filepath.Join(dir, "decisions.jsonl")); code != 0 {
		t.Error(stderr)
	}
	if text, err := os.ReadFile(html); err != nil || !strings.Contains(string(text), "<svg") {
		t.Error("the page has no chart:", err)
	}
}

// replayData returns a file of examples that the page about replays has no room for.
func replayData(t testing.TB, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "replay", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
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

// The documented name of a rotated log finds all of it, and no line twice.
func TestReplayOfARotatedLog(t *testing.T) {
	t.Parallel()
	const page = "docs/replay.md"
	log := blockFrom(t, page, "json", `{"v":1,"kind":"limits"`)
	limits := write(t, t.TempDir(), "new.yaml", blockFrom(t, page, "yaml", "domain: shop"))
	lines := strings.SplitAfter(log, "\n")
	dir := t.TempDir()
	write(t, dir, "decisions-2026-11-23T00-00-00.001.jsonl.gz", gzipped(t, strings.Join(lines[:2], "")))
	write(t, dir, "decisions-2026-11-23T00-00-00.151.jsonl", lines[0]+strings.Join(lines[2:4], ""))
	partial := write(t, dir, "decisions-2026-11-23T00-00-00.151.jsonl.gz", gzipped(t, lines[0]+lines[2])[:20])
	write(t, dir, "decisions.jsonl", lines[0]+strings.Join(lines[4:], ""))

	text, err := os.ReadFile(filepath.Join(projectRoot, page))
	if err != nil {
		t.Fatal(err)
	}
	glob := regexp.MustCompile("`ratelimitd replay --limits new/ ([^`]*)`").FindSubmatch(text)
	if glob == nil {
		t.Fatal("the page names no rotated log")
	}
	names, err := filepath.Glob(filepath.Join(dir, string(glob[1])))
	if err != nil || len(names) != 4 {
		t.Fatalf("it finds %q: %v", names, err)
	}
	out, stderr, code := command(t, append([]string{"replay", "--limits", limits}, names...)...)
	if code != 0 || stderr != "" || !strings.HasPrefix(out, "5 requests ") {
		t.Errorf("it exits with %d: %s\n%s", code, stderr, out)
	}
	if strings.Contains(out, filepath.Base(partial)) {
		t.Errorf("it names what it has not read:\n%s", out)
	}
}

// gzipped returns a compressed text.
func gzipped(t *testing.T, text string) string {
	t.Helper()
	var out strings.Builder
	w := gzip.NewWriter(&out)
	if _, err := w.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.String()
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
		{"--csv -", "found --csv without --limits"},
		{"--map no.yaml -", "--map: "},
		{"--against " + limits + " -", "found --against without --limits; allowed: --limits NEW --against OLD"},
		{filepath.Join(dir, "new.yaml"), "for an access log give --map FILE, for a table --csv"},
		{"--limits no.yaml -", "ratelimitd: --limits: stat no.yaml: "},
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
