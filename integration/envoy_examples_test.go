package integration

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

// shown is a command in a text, with its expected output.
type shown struct {
	command, output string
}

// commands returns the lines of a text that begin with "$ ". The lines after
// each, up to a blank line, are its output.
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

// comment returns the comment at the beginning of a YAML file.
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

// surprises runs the commands in turn and returns unexpected output. The replacer puts in
// the ports.
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
	return &example{envoy: startEnvoy(t, patientExample(t, name, ports)), daemon: d, ports: ports}
}

// freePorts replaces the ports of the examples by free ones, and the first of
// each further pair by the second.
func freePorts(t testing.TB, pairs ...string) *strings.Replacer {
	t.Helper()
	for _, port := range []string{"8888", "8889"} {
		pairs = append(pairs, port, fmt.Sprint(redistest.FreePort(t)))
	}
	return strings.NewReplacer(pairs...)
}

// patientExample is the configuration of an example, with a longer timeout for
// the daemon: the machine may be busy.
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
func TestEnvoyExamplesDoWhatTheyShow(t *testing.T) {
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
			said := comment(t, filepath.Join("deploy/envoy", name, "envoy.yaml"))
			// A charge at the end of a stream may come late on a busy machine.
			var wrong []string
			for range 3 {
				x := startExample(t, name)
				all := commands(strings.ReplaceAll(said, "localhost:9901", x.admin))
				if wrong = surprises(t, all, x.ports); len(wrong) == 0 {
					return
				}
			}
			t.Error(strings.Join(wrong, "\n"))
		})
	}
}

// The example of logins fails closed: the daemon denies without Redis, and
// Envoy denies without a daemon.
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

// The page of the examples names each example.
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

// flat removes the indentation of a text: pages show parts of a file.
func flat(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString(strings.TrimSpace(line) + "\n")
	}
	return b.String()
}

// The pages about Envoy show parts of examples, which run, and of limits of a gateway.
func TestEnvoyDocsShowTheExamples(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../deploy/envoy/*/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	files = append(files, "../deploy/llm/limits.yaml")
	var all strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all.WriteString("\n" + flat(string(text)))
	}
	for _, page := range []string{"docs/envoy.md", "docs/tokens.md"} {
		t.Run(page, func(t *testing.T) {
			for _, text := range blocks(t, page, "yaml") {
				if !strings.Contains(all.String(), "\n"+flat(text)) {
					t.Errorf("this is no part of an example:\n%s", text)
				}
			}
		})
	}
}

// The commands of the pages about Envoy print what the pages show. They start
// the daemon and Envoy themselves.
func TestEnvoyDocsCommandsWork(t *testing.T) {
	t.Parallel()
	path := needEnvoy(t)
	for page, example := range map[string]string{"docs/envoy.md": "http", "docs/tokens.md": "tokens"} {
		t.Run(example, func(t *testing.T) {
			t.Parallel()
			grpc := freeAddress(t)
			ports := freePorts(t, "8081", portOf(t, grpc))
			dir := t.TempDir()
			config := write(t, dir, "envoy.yaml", patientExample(t, example, ports))
			// Other tests run their own Envoy on this machine.
			write(t, dir, "envoy", "#!/bin/sh\nexec "+path+" --disable-hot-restart --concurrency 1 \"$@\"\n")
			if err := os.Chmod(filepath.Join(dir, "envoy"), 0o700); err != nil {
				t.Fatal(err)
			}
			script := strings.Join(blocks(t, page, "sh"), "")
			_, said, _ := strings.Cut(readPage(t, page), "The last line prints `")
			want, _, _ := strings.Cut(said, "`")
			cmd := exec.Command("sh", "-c", ports.Replace(strings.ReplaceAll(script, "deploy/envoy/"+example+"/envoy.yaml", config)))
			cmd.Dir = projectRoot
			cmd.Env = append(cleanEnv(), "PATH="+dir+":"+filepath.Dir(binary)+":"+os.Getenv("PATH"),
				"RATELIMITD_GRPC_ADDRESS="+grpc, "RATELIMITD_HTTP_ADDRESS=", "RATELIMITD_ADMIN_ADDRESS=", "RATELIMITD_ASSIGNMENTS_PATH=")
			cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // with its children
			out, err := os.Create(filepath.Join(dir, "out"))
			if err != nil {
				t.Fatal(err)
			}
			defer out.Close()
			cmd.Stdout = out // a file, because its children may keep it open
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }()
			ended := make(chan error, 1)
			go func() { ended <- cmd.Wait() }()
			select {
			case <-ended:
			case <-time.After(time.Minute):
				t.Error("the commands do not end")
			}
			got, err := os.ReadFile(out.Name())
			if err != nil || want == "" || !strings.HasSuffix(strings.TrimSpace(string(got)), want) {
				t.Errorf("the commands of %s print, %v:\n%s\nwant %q in the end", page, err, got, want)
			}
		})
	}
}

func readPage(t testing.TB, page string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(projectRoot, page))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
