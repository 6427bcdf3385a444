package integration

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
)

// startDemoCommand starts ratelimitd demo, waits until it has printed everything, and returns what
// it printed. Its temporary folder is in tmp.
func startDemoCommand(t *testing.T, tmp string, args ...string) (d *daemon, printed string) {
	t.Helper()
	cmd := exec.Command(binary, append([]string{"demo"}, args...)...)
	// A demo is the same whatever the daemon's environment is here.
	cmd.Env = append(cleanEnv(), "TMPDIR="+tmp, "RATELIMITD_STORE=redis", "RATELIMITD_LIMITS_PATH=/nowhere")
	d = launchCommand(t, cmd)
	d.waitForLog("in force within a second")
	return d, d.logText()
}

var anyPorts = []string{"--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0", "--admin", "127.0.0.1:0"}

// wantEmpty checks that nothing is left in a folder.
func wantEmpty(t *testing.T, dir string) {
	t.Helper()
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("the demo leaves %v, %v", left, err)
	}
}

// A user with only the program sees a caller denied, and can run what the demo prints.
func TestDemoDeniesAndSaysWhatToTry(t *testing.T) {
	t.Parallel()
	tmp := t.TempDir()
	d, printed := startDemoCommand(t, tmp, anyPorts...)
	for _, want := range []string{
		`\nThe rule user of the domain api limits each user \(api\.yaml:\d+\): 10 at once, then one every 6s\.\n`,
		`\n   1  user=alice  allowed, 9 left\n`,
		`\n  \d\d  user=alice  DENIED by the rule user; try again in \ds\n`,
		`\n   1  user=bob  allowed, 9 left\n`,
	} {
		if !regexp.MustCompile(want).MatchString(printed) {
			t.Errorf("the demo does not say %s:\n%s", want, printed)
		}
	}

	var commands []string
	for _, line := range strings.Split(printed, "\n") {
		if regexp.MustCompile(`^  (\S*ratelimitd|curl|export) `).MatchString(line) {
			commands = append(commands, line)
		}
	}
	out := d.shell(strings.Join(commands, "\n"))
	for _, want := range []string{
		"denied   user=carol",
		"HTTP/1.1 200 OK",
		"It would be denied: ",
		"user=alice", // of top
		"created    tenant=acme of api: plan pro",
		"allowed  tenant=acme  month: 999,999 left",
		"domain api (",
	} {
		at := strings.Index(out, want)
		if at < 0 {
			t.Fatalf("what the demo names lacks %q:\n%s\nprints\n%s", want, strings.Join(commands, "\n"), out)
		}
		out = out[at+len(want):]
	}
	if len(commands) != 8 {
		t.Errorf("%d commands, want 8: %q", len(commands), commands)
	}

	if code := d.stop(os.Interrupt); code != 0 {
		t.Errorf("Ctrl-C exits with %d", code)
	}
	wantEmpty(t, tmp)
}

// shell runs commands that people paste, and returns all that they print.
func (d *daemon) shell(commands string) string {
	d.t.Helper()
	cmd := exec.Command("sh", "-c", commands)
	cmd.Env = cleanEnv()
	out, err := cmd.CombinedOutput()
	if err != nil {
		d.t.Errorf("%s: %v\n%s", commands, err, out)
	}
	return string(out)
}

// A demo whose terminal is closed ends, and so does one whose reader goes away first.
func TestDemoLeavesNothingWhenItsTerminalCloses(t *testing.T) {
	t.Parallel()
	tmp := t.TempDir()
	d, _ := startDemoCommand(t, tmp, anyPorts...)
	if code := d.stop(syscall.SIGHUP); code != 0 {
		t.Errorf("the end of the terminal exits with %d", code)
	}
	wantEmpty(t, tmp)
}

// The limits that a demo keeps can be edited, and are those of the next one.
func TestDemoKeepsItsFolder(t *testing.T) {
	t.Parallel()
	tmp, dir := t.TempDir(), filepath.Join(t.TempDir(), "demo")
	args := append([]string{"--dir", dir}, anyPorts...)
	d, printed := startDemoCommand(t, tmp, args...)
	token := readFile(t, filepath.Join(dir, "token"))
	api := filepath.Join(dir, "limits", "api.yaml")
	write(t, filepath.Dir(api), "api.yaml", with(t, readFile(t, api), "requests: 10", "requests: 3"))
	_, address, _ := strings.Cut(printed, "gRPC on ")
	address, _, _ = strings.Cut(address, ",")
	asynctest.Eventually(t, "an edited file is in force", func() bool {
		out, _, _ := command(t, "take", "--address", address, "--domain", "api", "--peek", "user=erin")
		return strings.Contains(out, "3 at once")
	})
	d.stop(syscall.SIGTERM)
	_, printed = startDemoCommand(t, tmp, args...)
	if !strings.Contains(printed, "   1  user=alice  allowed, 2 left\n") {
		t.Errorf("the next demo has other limits:\n%s", printed)
	}
	if after := readFile(t, filepath.Join(dir, "token")); after != token {
		t.Error("the next demo has another token")
	}
	wantEmpty(t, tmp)
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Where the usual ports are taken the demo finds others, and says which.
func TestDemoFindsFreePorts(t *testing.T) {
	t.Parallel()
	for _, port := range []string{"8081", "8080", "6070"} {
		if l, err := net.Listen("tcp", "127.0.0.1:"+port); err == nil { // or another has it
			defer l.Close()
		}
	}
	tmp := t.TempDir()
	_, printed := startDemoCommand(t, tmp)
	for port, name := range map[string]string{"8081": "gRPC", "8080": "HTTP", "6070": "admin"} {
		if want := fmt.Sprintf("127.0.0.1:%s is taken: the %s port is another.\n", port, name); !strings.Contains(printed, want) {
			t.Errorf("the demo does not say %q:\n%s", want, printed)
		}
	}
	if !regexp.MustCompile(`ratelimitd take --address 127\.0\.0\.1:\d+ --domain api`).MatchString(printed) {
		t.Errorf("the demo's commands do not say which port:\n%s", printed)
	}
}

// A port that is named is the one, and limits without what the demo asks for are refused.
func TestDemoSaysWhatItCannotUse(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	limits := write(t, t.TempDir(), "limits.yaml", "domain: other\n")
	for want, args := range map[string][]string{
		"address already in use; allowed: a free port, ":    {"--http", l.Addr().String(), "--grpc", "127.0.0.1:0", "--admin", "127.0.0.1:0"},
		"found no limit for user=alice of the domain api; ": {"--limits", limits},
		"flag --grpc: found ":                               {"--grpc", "nowhere"},
		"found nothing; allowed: host:port":                 {"--grpc", ""},
		"a folder for the demo's files, which --dir may n":  {"--dir", "/dev/null/demo"},
	} {
		tmp := t.TempDir()
		if _, stderr, code := commandEnv(t, []string{"TMPDIR=" + tmp}, append([]string{"demo"}, args...)...); code != 1 || !strings.Contains(stderr, want) {
			t.Errorf("demo %q exits with %d: %s\nwant %s", args, code, stderr, want)
		}
		wantEmpty(t, tmp)
	}
}
