package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

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

// Every limits file in the documentation is one.
func TestDocumentedLimits(t *testing.T) {
	t.Parallel()
	for _, page := range []string{"README.md", "docs/limits.md", "docs/envoy.md", "docs/tokens.md", "docs/forward-auth.md"} {
		seen := 0
		for _, text := range blocks(t, page, "yaml") {
			if !strings.HasPrefix(text, "domain:") {
				continue
			}
			seen++
			path := write(t, t.TempDir(), "limits.yaml", text)
			if _, stderr, code := command(t, "check", path); code != 0 || stderr != "" {
				t.Errorf("%s: check exits with %d: %s\n%s", page, code, stderr, text)
			}
		}
		if seen == 0 {
			t.Errorf("%s has no limits file", page)
		}
	}
}

// Every command of the README's "Ask it" does what it says.
func TestReadmeCommands(t *testing.T) {
	t.Parallel()
	d := start(t, "--limits-path", "../deploy/limits")
	want := []string{
		"allowed  user=alice",
		"allowed  tenant=acme,user=bob",
		"HTTP/1.1 200 OK",
	}
	got := ""
	for _, text := range blocks(t, "README.md", "sh") {
		text = strings.ReplaceAll(text, "localhost:8080", d.http)
		cmd := exec.Command("sh", "-ec", text)
		cmd.Env = append(cleanEnv(), "PATH="+filepath.Dir(binary)+":"+os.Getenv("PATH"), "RATELIMITD_GRPC_ADDRESS="+d.grpc)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%s\n%v: %s", text, err, out)
		}
		got += string(out)
	}
	for _, w := range want {
		if !strings.Contains(got, w) {
			t.Errorf("the output lacks %q:\n%s", w, got)
		}
	}
}

// The README's smallest user of Redis is the one that a test runs a store as.
func TestReadmeACL(t *testing.T) {
	t.Parallel()
	tested, err := os.ReadFile("../docs/deploy.md")
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile("(?m)^ACL SETUSER .*$").FindString(string(readme))
	if line == "" || !strings.Contains(string(tested), "\n"+line+"\n") {
		t.Errorf("docs/deploy.md has no %q", line)
	}
}

func TestReadmeGo(t *testing.T) {
	t.Parallel()
	d := start(t, "--limits-path", "../deploy/limits")
	if err := os.MkdirAll("../build", 0o755); err != nil {
		t.Fatal(err)
	}
	// In the module's tree, where its dependencies are known.
	dir, err := os.MkdirTemp("../build", "readme-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	write(t, dir, "main.go", blocks(t, "README.md", "go")[0])
	out, err := exec.Command("go", "run", filepath.Join(dir, "main.go"), d.grpc).CombinedOutput()
	if err != nil || string(out) != "true <nil>\n" {
		t.Errorf("%v: %s", err, out)
	}
}

// What the README says that Envoy's configuration needs makes it limit.
func TestReadmeEnvoy(t *testing.T) {
	t.Parallel()
	needEnvoy(t)
	var filters, routes string
	for _, text := range blocks(t, "README.md", "yaml") {
		switch {
		case strings.HasPrefix(text, "http_filters:"):
			filters = text
		case strings.HasPrefix(text, "rate_limits:"):
			routes = text
		}
	}
	filters, clusters, ok := strings.Cut(filters, "clusters:\n")
	if !ok || routes == "" {
		t.Fatal("the README does not show filters, clusters and what to ask about")
	}
	d := start(t, "--limits-path", "../deploy/limits")
	b := startBackend(t)
	config := fmt.Sprintf(`
static_resources:
  listeners:
    - name: readme
      address: {socket_address: {address: 127.0.0.1, port_value: 0}}
      filter_chains:
        - filters:
            - name: envoy.filters.network.http_connection_manager
              typed_config:
                "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
                stat_prefix: readme
                route_config:
                  virtual_hosts:
                    - name: all
                      domains: ["*"]
%s
                      routes: [{match: {prefix: /}, route: {cluster: backend}}]
%s
  clusters:
%s
`, indent(22, routes), indent(16, filters), indent(2, clusters))
	config = strings.NewReplacer("timeout: 0.1s", patiently, "8081", portOf(t, d.grpc)).Replace(config)
	var backend strings.Builder
	b.cluster().write(t, &backend)
	e := startEnvoy(t, config+backend.String())
	if got := e.statuses(11, "readme", "/", "x-user: erin"); slices.Index(got, 429) != 10 {
		t.Errorf("a burst of 10 gives %v", got)
	}
}

// Links between the pages lead somewhere.
func TestDocumentedLinks(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("../docs/*.md")
	if err != nil || len(pages) == 0 {
		t.Fatal(pages, err)
	}
	for _, page := range append(pages, "../README.md", "../deploy/envoy/README.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`\]\(([^)#:]*)(#[^)]*)?\)`).FindAllStringSubmatch(string(text), -1) {
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
