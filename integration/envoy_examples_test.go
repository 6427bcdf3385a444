package integration

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/bucket/redisstore/redistest"
)

// shown is a command that a text shows, and what it is said to print.
type shown struct {
	command, output string
}

// commands returns what a text shows as lines that begin with "$ ", each with
// the lines after it as its output, up to a blank line.
func commands(text string) (all []shown) {
	var last *shown
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		command, isCommand := strings.CutPrefix(line, "$ ")
		switch {
		case isCommand:
			all = append(all, shown{command: command})
			last = &all[len(all)-1]
		case line == "":
			last = nil
		case last != nil:
			last.output += line + "\n"
		}
	}
	return all
}

// comment returns the comment that a YAML file begins with.
func comment(t testing.TB, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(projectRoot, file))
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for line := range strings.Lines(string(text)) {
		said, ok := strings.CutPrefix(line, "#")
		if !ok {
			break
		}
		b.WriteString(said)
	}
	return b.String()
}

// run runs the commands in turn, with the ports that the replacer puts in, and
// holds that each prints what it is said to.
func run(t testing.TB, all []shown, ports *strings.Replacer) {
	t.Helper()
	for _, wrong := range surprises(t, all, ports) {
		t.Error(wrong)
	}
}

// surprises runs the commands and returns what they print that they are not
// said to.
func surprises(t testing.TB, all []shown, ports *strings.Replacer) (wrong []string) {
	t.Helper()
	if len(all) == 0 {
		t.Fatal("no command is shown")
	}
	for _, c := range all {
		cmd := exec.Command("sh", "-c", ports.Replace(c.command))
		cmd.Env = append(cleanEnv(), "PATH="+filepath.Dir(binary)+":"+os.Getenv("PATH"))
		cmd.Dir = projectRoot
		out, err := cmd.Output()
		if got, want := strings.TrimSpace(string(out)), strings.TrimSpace(c.output); got != want {
			wrong = append(wrong, fmt.Sprintf("%s\nprints %q (%v), want %q", c.command, got, err, want))
		}
	}
	return wrong
}

// example is a folder of deploy/envoy/ that runs.
type example struct {
	*envoy
	daemon *daemon
	ports  *strings.Replacer
}

// startExample starts an example as its comment says, but on free ports.
func startExample(t testing.TB, name string, args ...string) *example {
	t.Helper()
	needEnvoy(t)
	dir := filepath.Join(projectRoot, "deploy/envoy", name)
	d := start(t, append(args, "--limits-path", filepath.Join(dir, "limits.yaml"))...)
	ports := freePorts(t, "8081", portOf(t, d.grpc))
	return &example{startEnvoy(t, patientExample(t, name, ports)), d, ports}
}

// freePorts puts free ports in the place of those of the examples, and of what
// else is given in pairs.
func freePorts(t testing.TB, pairs ...string) *strings.Replacer {
	t.Helper()
	for _, port := range []string{"8888", "8889"} {
		pairs = append(pairs, port, fmt.Sprint(redistest.FreePort(t)))
	}
	return strings.NewReplacer(pairs...)
}

// patientExample is the configuration of an example that waits longer for the
// daemon: the machine may be busy.
func patientExample(t testing.TB, name string, ports *strings.Replacer) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(projectRoot, "deploy/envoy", name, "envoy.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	const short = "timeout: 0.1s"
	if strings.Count(string(text), short) != 1 {
		t.Fatalf("%s: the rate-limit filter has no %q", name, short)
	}
	return ports.Replace(strings.Replace(string(text), short, patiently, 1))
}

// Every example does what its comment shows.
func TestEnvoyExamples(t *testing.T) {
	t.Parallel()
	needEnvoy(t)
	files, err := filepath.Glob("../deploy/envoy/*/limits.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		name := filepath.Base(filepath.Dir(file))
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all := commands(comment(t, filepath.Join("deploy/envoy", name, "envoy.yaml")))
			// What is charged when a stream is done may come late, on a machine
			// that is busy.
			var wrong []string
			for range 3 {
				x := startExample(t, name)
				if wrong = surprises(t, all, x.ports); len(wrong) == 0 {
					return
				}
			}
			t.Error(strings.Join(wrong, "\n"))
		})
	}
}

// The example of logins fails closed: without Redis the daemon denies, and
// without a daemon Envoy.
func TestEnvoyLoginFailsClosed(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	x := startExample(t, "login", append(redisFlags("single", server.Addr()), "--drain-delay", "0s")...)
	login := func() answer {
		return x.send(http.DefaultClient, http.MethodPost, x.url("front", "/login"), "", "x-account: carol", "x-password: right")
	}
	if a := login(); a.status != 200 {
		t.Errorf("a login gives %v", a)
	}
	server.Kill()
	if a := login(); a.status != 429 || a.header.Get("retry-after") != "1" {
		t.Errorf("without Redis a login gives %v", a)
	}
	x.daemon.stop(os.Interrupt)
	if a := login(); a.status != 503 {
		t.Errorf("without a daemon a login gives %v", a)
	}
}

// The page of the examples names each of them.
func TestEnvoyExamplesAreListed(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../deploy/envoy/README.md")
	if err != nil {
		t.Fatal(err)
	}
	folders, err := os.ReadDir("../deploy/envoy")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range folders {
		if f.IsDir() && !regexp.MustCompile(`\]\(`+f.Name()+`/envoy.yaml\)`).Match(page) {
			t.Errorf("deploy/envoy/README.md does not link to %s", f.Name())
		}
	}
}
