package integration

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

// documents returns the names of the pages in docs/.
func documents(t *testing.T) []string {
	t.Helper()
	pages, err := filepath.Glob("../docs/*.md")
	if err != nil || len(pages) == 0 {
		t.Fatal(pages, err)
	}
	for i := range pages {
		pages[i] = filepath.Base(pages[i])
	}
	return pages
}

// blocks returns the fenced blocks of a page in one language.
func blocks(t testing.TB, page, language string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", page))
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, m := range regexp.MustCompile("(?s)```"+language+"\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		found = append(found, m[1])
	}
	if len(found) == 0 {
		t.Fatalf("%s has no block of %s", page, language)
	}
	return found
}

// Every limits file in the documentation loads.
func TestDocumentedLimitsLoad(t *testing.T) {
	t.Parallel()
	for _, page := range []string{"README.md", "docs/algorithms.md", "docs/limits.md", "docs/leases.md", "docs/envoy.md", "docs/forward-auth.md", "docs/steer.md", "docs/cookbook.md", "docs/testing.md"} {
		t.Run(page, func(t *testing.T) {
			seen := 0
			for _, text := range blocks(t, page, "yaml") {
				if !strings.HasPrefix(text, "domain:") {
					continue
				}
				seen++
				path := write(t, t.TempDir(), "limits.yaml", text)
				if _, stderr, code := command(t, "check", path); code != 0 || stderr != "" {
					t.Errorf("check exits with %d: %s\n%s", code, stderr, text)
				}
			}
			if seen == 0 {
				t.Error("it has no limits file")
			}
		})
	}
}

// blockFrom returns the fenced block of a page that begins with a text.
func blockFrom(t testing.TB, page, language, begin string) string {
	t.Helper()
	for _, text := range blocks(t, page, language) {
		if strings.HasPrefix(text, begin) {
			return text
		}
	}
	t.Fatalf("%s has no block of %s that begins with %q", page, language, begin)
	return ""
}

// check refuses a file, and compares two, as the page about limits shows.
func TestLimitsPageShowsCheck(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "limits"), 0o700); err != nil {
		t.Fatal(err)
	}
	file := func(descriptors string) {
		t.Helper()
		write(t, filepath.Join(dir, "limits"), "api.yaml", "domain: api\ndescriptors:\n"+descriptors)
	}
	check := func(script string, wantCode int) string {
		t.Helper()
		cmd := exec.Command("sh", "-c", script)
		cmd.Dir, cmd.Env = dir, append(cleanEnv(), "PATH="+filepath.Dir(binary)+":"+os.Getenv("PATH"))
		out, _ := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code != wantCode {
			t.Errorf("%s exits with %d: %s", script, code, out)
		}
		return string(out)
	}

	const path = "  - {key: path, value: /api/*, rate_limit: {requests: 5, period: 1s, algorithm: %s}}\n"
	file("  - {key: user, rate_limit: {requests: 10, period: 1m}}\n" + fmt.Sprintf(path, "token_bucket"))
	if err := os.Rename(filepath.Join(dir, "limits", "api.yaml"), filepath.Join(dir, "old.yaml")); err != nil {
		t.Fatal(err)
	}
	file("  - {key: user, rate_limit: {requests: 20, period: 1m}}\n" +
		"  - {key: user, value: alice, rate_limit: {requests: 100, period: 1m}}\n" + fmt.Sprintf(path, "sliding_window"))
	shown := strings.TrimPrefix(blockFrom(t, "docs/limits.md", "console", "$ git show "), "$ ")
	script, want, _ := strings.Cut(shown, "\n")
	if got := check(strings.Replace(script, "git show main:limits/api.yaml", "cat old.yaml", 1), 2); got != want {
		t.Errorf("check --diff prints\n%s\nthe page shows\n%s", got, want)
	}

	file("  - key: user\n    rate_limit:\n      period: 90\n      requests: 1\n")
	if got := check("ratelimitd check limits", 1); !strings.Contains(readPage(t, "docs/limits.md"), "```\n"+got+"```") {
		t.Errorf("the page does not show what check prints:\n%s", got)
	}
}

// What the page about tokens reserves, it settles, and so does the example.
func TestDocumentedReservationIsSettled(t *testing.T) {
	t.Parallel()
	d := start(t, "--limits-path", "../deploy/llm/limits.yaml")
	var got strings.Builder
	for line := range strings.Lines(blockFrom(t, "docs/tokens.md", "console", "$ ratelimitd take ")) {
		cmd := exec.Command("sh", "-c", strings.TrimPrefix(line, "$ "))
		cmd.Env = append(cleanEnv(), "PATH="+filepath.Dir(binary)+":"+os.Getenv("PATH"), "RATELIMITD_GRPC_ADDRESS="+d.grpc, "RATELIMITD_ADMIN_ADDRESS="+d.admin)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v: %s", line, err, out)
		}
		got.Write(out)
	}
	for _, want := range []string{"96,000 left", "3,188 went back", "has charged 812"} {
		if !strings.Contains(got.String(), want) {
			t.Errorf("they do not print %q:\n%s", want, got.String())
		}
	}
	fresh := start(t, "--limits-path", "../deploy/llm/limits.yaml") // the example has the same id
	out, err := exec.Command(buildExample(t, "llm"), fresh.grpc).CombinedOutput()
	if want := "settled: true 3188 came back\n<nil>\n"; err != nil || string(out) != want {
		t.Errorf("the example prints %s, %v, want %s", out, err, want)
	}
}

// A daemon starts on a cluster as the page about configuration shows.
func TestDocumentedClusterStarts(t *testing.T) {
	t.Parallel()
	shown := blockFrom(t, "docs/configuration.md", "sh", "ratelimitd serve ")
	nodes := strings.Join(redistest.Cluster(t), ",")
	words := strings.Fields(strings.Replace(shown, "redis-1:6379,redis-2:6379", nodes, 1))
	if !slices.Contains(words, nodes) {
		t.Fatalf("%s names other nodes", shown)
	}
	// The cluster of the tests may be slow, and the keys are its own.
	own := []string{"--redis-prefix", fmt.Sprintf("it-%x", rand.Uint64()), "--redis-timeout", "10s", "--limits-path", "../deploy/limits"}
	d := start(t, append(words[2:], own...)...)
	if !ok(d.ask("api", 1, "user=frank")) {
		t.Error("the first request is denied")
	}
}

// The index names each page.
func TestDocumentsAreListed(t *testing.T) {
	t.Parallel()
	index := readPage(t, "docs/README.md")
	for _, name := range documents(t) {
		if name != "README.md" && !strings.Contains(index, "]("+name) {
			t.Errorf("docs/README.md does not link to %s", name)
		}
	}
}

// The light pictures and the dark ones differ only in style.
func TestPicturesAreEqual(t *testing.T) {
	t.Parallel()
	style := regexp.MustCompile("(?s)<style>.*</style>")
	for _, name := range []string{"overview", "dashboard", "load", "leases", "algorithms", "explain", "top", "replay"} {
		light := style.ReplaceAllString(readPage(t, "docs/"+name+"-light.svg"), "")
		dark := style.ReplaceAllString(readPage(t, "docs/"+name+"-dark.svg"), "")
		if light != dark {
			t.Errorf("%s, light:\n%s\ndark:\n%s", name, light, dark)
		}
	}
}

// The page about migration has a row for each difference that the model of
// envoyproxy/ratelimit knows, and no other.
func TestMigrationTellsEveryDifference(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../internal/server/envoyrls/differential_model*_test.go")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	known := make(map[string]bool)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`// Differs \(([^)]*)\)`).FindAllStringSubmatch(string(text), -1) {
			known[m[1]] = true
		}
	}
	_, differs, _ := strings.Cut(readPage(t, "docs/migrate.md"), "\n## What differs\n")
	told := make(map[string]bool)
	for _, m := range regexp.MustCompile(`(?m)^\| ([a-z][^|]*) \|`).FindAllStringSubmatch(differs, -1) {
		told[m[1]] = true
	}
	if !maps.Equal(known, told) {
		t.Errorf("the page tells of\n%v\nthe model knows\n%v", told, known)
	}
}

// Links between the pages lead somewhere.
func TestDocumentedLinksLeadSomewhere(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("../*.md")
	if err != nil || len(pages) == 0 {
		t.Fatal(pages, err)
	}
	for _, name := range documents(t) {
		pages = append(pages, "../docs/"+name)
	}
	link := regexp.MustCompile(`(?:\]\(|src="|srcset=")([^)#:"]*)(#[^)"]*)?[)"]`)
	for _, page := range append(pages, "../deploy/envoy/README.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			target := page
			if m[1] != "" {
				target = filepath.Join(filepath.Dir(page), m[1])
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: %v", page, err)
			} else if m[2] != "" && !hasAnchor(t, target, m[2][1:]) {
				t.Errorf("%s: %s has no heading %s", page, target, m[2])
			}
		}
	}
}

// hasAnchor reports whether a page has a heading that the anchor leads to.
func hasAnchor(t *testing.T, page, anchor string) bool {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(string(text), -1) {
		plain := regexp.MustCompile(`[^a-z0-9 -]`).ReplaceAllString(strings.ToLower(m[1]), "")
		if strings.ReplaceAll(plain, " ", "-") == anchor {
			return true
		}
	}
	return false
}
