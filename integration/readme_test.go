package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
)

// commandOutput returns the output of a command as a page shows it.
func commandOutput(t testing.TB, page, command string) string {
	t.Helper()
	for _, text := range blocks(t, page, "console") {
		for _, part := range strings.Split("\n"+text, "\n$ ")[1:] {
			if name, output, _ := strings.Cut(part, "\n"); name == command {
				return strings.TrimSuffix(output, "\n") + "\n"
			}
		}
	}
	t.Fatalf("%s does not show %q", page, command)
	return ""
}

// shortened reports whether a shown text is a printed one with "..." for lines
// that are left out. Times may differ.
func shortened(shown, printed string) bool {
	times := regexp.MustCompile(`(full|try) again in .*`)
	lines := func(text string) []string {
		return strings.Split(strings.TrimSuffix(times.ReplaceAllString(text, "$1 again"), "\n"), "\n")
	}
	rest, gap := lines(printed), false
	for _, line := range lines(shown) {
		if line == "..." {
			gap = true
			continue
		}
		at := slices.Index(rest, line)
		if at < 0 || at > 0 && !gap {
			return false
		}
		rest, gap = rest[at+1:], false
	}
	return gap || len(rest) == 0
}

// make run prints the output in the README. The binary is built already.
func TestReadmeShowsMakeRun(t *testing.T) {
	t.Parallel()
	ports := "RUN=--grpc 127.0.0.1:0 --http 127.0.0.1:0 --admin 127.0.0.1:0"
	cmd := exec.Command("make", "-C", "..", "-s", "--no-print-directory", "-o", "build", "run", "BINARY="+binary, ports)
	cmd.Env = cleanEnv()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // with its children
	out := filepath.Join(t.TempDir(), "out")
	file, err := os.Create(out)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	cmd.Stdout = file
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) // Ctrl-C sends this
		_ = cmd.Wait()
	}()
	var printed []byte
	asynctest.Eventually(t, "make run says where it serves", func() bool {
		printed, err = os.ReadFile(out)
		return err == nil && strings.Contains(string(printed), "/rlconfig\n")
	})
	if shown := commandOutput(t, "README.md", "make run"); !shortened(shown, string(printed)) {
		t.Errorf("make run prints\n%s\nREADME.md shows\n%s", printed, shown)
	}
}

// make test runs the commands in the README, and tests its packages.
func TestReadmeShowsMakeTest(t *testing.T) {
	t.Parallel()
	out, err := exec.Command("make", "-C", "..", "-n", "--no-print-directory", "test", "GO=go").Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(commandOutput(t, "README.md", "make test")) {
		if fields := strings.Fields(line); fields[0] == "ok" {
			name, ok := strings.CutPrefix(fields[1], "github.com/ratelimitd/ratelimitd/")
			if tests, err := filepath.Glob(filepath.Join("..", name, "*_test.go")); !ok || err != nil || len(tests) == 0 {
				t.Errorf("%s has no tests: %v", fields[1], err)
			}
		} else if line != "...\n" && !strings.Contains("\n"+string(out), "\n"+line) {
			t.Errorf("make test does not run %s", line)
		}
	}
}

// check prints the output that a page has beside its limits.
func TestPagesShowCheck(t *testing.T) {
	t.Parallel()
	for page, limits := range map[string]string{"README.md": "domain:", "docs/leases.md": "domain: api"} {
		dir := t.TempDir()
		if err := os.Mkdir(filepath.Join(dir, "limits"), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, "limits"), "api.yaml", blockFrom(t, page, "yaml", limits))
		cmd := exec.Command(binary, "check", "limits")
		cmd.Dir, cmd.Env = dir, cleanEnv()
		out, err := cmd.CombinedOutput()
		if shown := commandOutput(t, page, "ratelimitd check limits"); err != nil || string(out) != shown {
			t.Errorf("check prints, %v,\n%s\n%s shows\n%s", err, out, page, shown)
		}
	}
}

// The README's shell commands do what it says.
func TestReadmeCommandsWork(t *testing.T) {
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

// The README's filter and rate_limits make Envoy limit, with the cluster of
// the linked page.
func TestReadmeMakesEnvoyLimit(t *testing.T) {
	t.Parallel()
	needEnvoy(t)
	filter := blockFrom(t, "README.md", "yaml", "- name: envoy.filters.http.ratelimit\n")
	routes := blockFrom(t, "README.md", "yaml", "rate_limits:\n")
	cluster := blockFrom(t, "docs/envoy.md", "yaml", "- name: ratelimitd\n")
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
                http_filters:
%s
                  - name: envoy.filters.http.router
                    typed_config:
                      "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router
                route_config:
                  virtual_hosts:
                    - name: all
                      domains: ["*"]
%s
                      routes: [{match: {prefix: /}, route: {cluster: backend}}]
  clusters:
%s
`, indent(18, filter), indent(22, routes), indent(4, cluster))
	config = strings.NewReplacer("timeout: 0.1s", patiently, "8081", portOf(t, d.grpc)).Replace(config)
	var backend strings.Builder
	b.cluster().write(t, &backend)
	e := startEnvoy(t, config+backend.String())
	if got := e.statuses(11, "readme", "/", "x-user: erin"); slices.Index(got, 429) != 10 {
		t.Errorf("a burst of 10 gives %v", got)
	}
}
