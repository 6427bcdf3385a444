package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	projectRoot = "../.."
	testVersion = "v1.2.3"
)

// testTime is when everything in the releases of tests was made.
var testTime = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// plain has the binaries of tests built as other tests do, so that packages are compiled
// once: without the profile that guides the compiler.
const plain = "-pgo=off"

// testBinary returns the daemon for this machine, of the tree as it is: that of make test,
// if there is one.
var testBinary = sync.OnceValues(func() ([]byte, error) {
	if built := os.Getenv("TEST_DAEMON"); built != "" {
		return os.ReadFile(built)
	}
	dir, err := os.MkdirTemp("", "ratelimitd-packaging-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	root, err := filepath.Abs(projectRoot)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, "ratelimitd")
	if err := (repository{root: root}).buildWith(plain, testVersion, host, path); err != nil {
		return nil, err
	}
	return os.ReadFile(path)
})

// smallBinary returns a program that stands for the daemon where only its name counts: it
// is packed in no time.
var smallBinary = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "ratelimitd-packaging-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	const text = "package main\n\nimport \"os\"\n\nfunc main() { os.Stdout.WriteString(os.Args[1] + \"\\n\") }\n"
	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(text), 0o600); err != nil {
		return nil, err
	}
	path := filepath.Join(dir, "ratelimitd")
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", path, "main.go")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOFLAGS=", "GOWORK=off", "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, out)
	}
	return os.ReadFile(path)
})

func must(t *testing.T, made func() ([]byte, error)) []byte {
	t.Helper()
	binary, err := made()
	if err != nil {
		t.Fatal(err)
	}
	return binary
}

// copyTree copies the files of the project into an empty folder, as one commit, in which
// the modules have the version of the tests.
func copyTree(t *testing.T, folder string, mode os.FileMode) repository {
	t.Helper()
	out, err := exec.Command("git", "-C", projectRoot, "ls-files", "-z", "--cached", "--others", "--exclude-standard").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range strings.Split(strings.TrimRight(string(out), "\x00"), "\x00") {
		data, err := os.ReadFile(filepath.Join(projectRoot, name))
		if os.IsNotExist(err) {
			continue // removed, and not committed yet
		}
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(folder, name), data, mode)
	}
	if err := setVersion(folder, testVersion, new(strings.Builder)); err != nil {
		t.Fatal(err)
	}
	when := "SOURCE_DATE_EPOCH"
	t.Setenv(when, "") // of the machine
	git(t, folder, "init", "--quiet")
	commit(t, folder)
	r, err := openRepository(folder)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// commit commits all, at a time that is the same for all tests.
func commit(t *testing.T, folder string) {
	t.Helper()
	git(t, folder, "add", "--all")
	git(t, folder, "-c", "core.hooksPath=/dev/null", "commit", "--quiet", "--message", "all")
}

func git(t *testing.T, folder string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", append([]string{"-C", folder, "-c", "user.name=x", "-c", "user.email=x@example.com", "-c", "gc.auto=0"}, args...)...)
	date := fmt.Sprint(testTime.Unix(), " +0000")
	cmd.Env = append(os.Environ(), "GIT_AUTHOR_DATE="+date, "GIT_COMMITTER_DATE="+date, "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %q: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

func write(t *testing.T, path string, data []byte, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, mode); err != nil {
		t.Fatal(err)
	}
}

// need skips a test without a program, except in CI, which has them all.
func need(t *testing.T, program string) {
	t.Helper()
	if _, err := exec.LookPath(program); err == nil {
		return
	}
	if os.Getenv("CI") == "true" {
		t.Fatalf("there is no %s", program)
	}
	t.Skipf("there is no %s", program)
}
