package integration

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/config/settings"
)

// TestImageBuildsAndServes builds the final image of the Dockerfile and runs it. The build
// stage, whose base image may be missing, runs here, around the daemon of the tests.
func TestImageBuildsAndServes(t *testing.T) {
	t.Parallel()
	if err := exec.Command("docker", "version").Run(); err != nil {
		t.Skipf("no Docker engine answers: %v", err)
	}
	d := readDockerfile(t)
	stage := t.TempDir() // the output of the stage "build", from /
	buildStage(t, d, stage)
	image := finalImage(t, d, stage)
	inside := jsonWords(t, argsOf(d.final, "ENTRYPOINT")[0])[0]
	limits := settings.Default().Limits.Path

	t.Run("without limits", func(t *testing.T) {
		out, code := docker(t, "", "run", "--rm", "--network", "none", image)
		if code != 1 || !strings.Contains(out, limits) {
			t.Errorf("exit %d, want 1 and a word about %s:\n%s", code, limits, out)
		}
	})
	t.Run("version", func(t *testing.T) {
		out, code := docker(t, "", "run", "--rm", "--network", "none", image, "version")
		if code != 0 || !strings.HasPrefix(out, "ratelimitd ") {
			t.Errorf("exit %d: %s", code, out)
		}
	})
	t.Run("in the place of envoyproxy/ratelimit", func(t *testing.T) {
		for _, args := range [][]string{{"--entrypoint", "/bin/ratelimit", image}, {image, "/bin/ratelimit"}} {
			all := append([]string{"run", "--rm", "--network", "none", "--env", "REDIS_SOCKET_TYPE=tcp"}, args...)
			if out, code := docker(t, "", all...); code != 1 || !strings.Contains(out, "variable REDIS_URL: it is not set") {
				t.Errorf("%v: exit %d, want 1 and a word about REDIS_URL:\n%s", args, code, out)
			}
		}
		// The link keeps the image from having the binary twice.
		file := tar.NewReader(strings.NewReader(mustDocker(t, "", "cp", createContainer(t, image)+":/bin/ratelimit", "-")))
		if h, err := file.Next(); err != nil || h.Typeflag != tar.TypeSymlink || h.Linkname != "ratelimitd" {
			t.Errorf("/bin/ratelimit is %+v, %v", h, err)
		}
	})
	t.Run("no shell", func(t *testing.T) {
		if out, code := docker(t, "", "run", "--rm", "--network", "none", "--entrypoint", "/bin/sh", image, "-c", "true"); code == 0 {
			t.Errorf("there is one: %s", out)
		}
	})

	t.Run("a folder for assignments", func(t *testing.T) {
		file := tar.NewReader(strings.NewReader(mustDocker(t, "", "cp", createContainer(t, image)+":"+path.Dir(settings.UsualPath), "-")))
		if h, err := file.Next(); err != nil || h.Typeflag != tar.TypeDir || h.Uid != 65532 || h.Gid != 65532 || h.Mode&0o700 != 0o700 {
			t.Errorf("it is %+v, %v", h, err)
		}
	})

	container := createContainer(t, "--network", "none", "--cap-drop", "ALL", "--health-interval", "1s", image)
	// The files are copied, because the engine may not see ours.
	tree := t.TempDir()
	if err := os.CopyFS(filepath.Join(tree, limits), os.DirFS(filepath.Join(projectRoot, "deploy/limits"))); err != nil {
		t.Fatal(err)
	}
	mustDocker(t, "", "cp", filepath.Join(tree, "etc"), container+":/")
	mustDocker(t, "", "start", container)
	t.Cleanup(func() {
		if t.Failed() {
			out, _ := docker(t, "", "logs", container)
			t.Log(out)
		}
	})
	asynctest.Eventually(t, "ratelimitd health", func() bool {
		_, code := docker(t, "", "exec", container, inside, "health")
		return code == 0
	})
	processes := strings.Split(mustDocker(t, "", "top", container, "-eo", "pid,uid"), "\n")
	for _, p := range processes[1:] { // the first line is the head
		if fields := strings.Fields(p); len(fields) != 2 || fields[1] != "65532" {
			t.Errorf("a process (pid, uid) runs as %v, want the user 65532", fields)
		}
	}
	if out, code := docker(t, "", "exec", container, inside, "take", "--domain", "api", "--count", "100", "user=alice"); code != 3 || !strings.HasPrefix(out, "allowed") {
		t.Errorf("100 requests on a limit of 10: exit %d: %s", code, out)
	}
	asynctest.Eventually(t, "the engine calls it healthy", func() bool {
		return mustDocker(t, "", "inspect", "--format", "{{.State.Health.Status}}", container) == "healthy"
	})
	mustDocker(t, "", "stop", container)
	if code := mustDocker(t, "", "inspect", "--format", "{{.State.ExitCode}}", container); code != "0" {
		t.Errorf("exit %s after SIGTERM, want 0", code)
	}
}

// buildStage runs the commands of the build stage, with the daemon of the tests in the
// place of what go would build.
func buildStage(t *testing.T, d dockerfile, stage string) {
	t.Helper()
	bin := t.TempDir()
	const builds = "#!/bin/sh\nwhile [ $# -gt 0 ]; do\n  [ \"$1\" = -o ] && mkdir -p \"$(dirname \"$2\")\" && cp '%s' \"$2\"\n  shift\ndone\n"
	if err := os.WriteFile(filepath.Join(bin, "go"), fmt.Appendf(nil, builds, binary), 0o755); err != nil {
		t.Fatal(err)
	}
	command := strings.ReplaceAll(strings.Join(argsOf(d.build, "RUN"), " && "), " /out", " "+stage+"/out")
	cmd := exec.Command("sh", "-c", command)
	cmd.Dir, cmd.Env = stage, []string{"PATH=" + bin + ":" + os.Getenv("PATH")}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", command, err, out)
	}
}

// finalImage builds the final stage, with the files in stage.
func finalImage(t *testing.T, d dockerfile, stage string) string {
	t.Helper()
	var final strings.Builder
	for _, i := range d.final {
		from, fromStage := strings.CutPrefix(i.args, "--from=build ")
		if i.name == "COPY" && fromStage {
			i.args = from
			words := strings.Fields(from)
			file := filepath.Join(stage, words[len(words)-2]) // what stands before it are flags
			if _, err := os.Stat(file); err != nil {          // a file of the base image may be anything
				if err := os.MkdirAll(path.Dir(file), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, nil, 0o644); err != nil {
					t.Fatal(err)
				}
			}
		}
		final.WriteString(i.String() + "\n")
	}
	return imageOf(t, final.String(), stage)
}

// imageOf builds an image that is removed after the test, and returns its ID.
func imageOf(t *testing.T, dockerfile, folder string) string {
	t.Helper()
	out := mustDocker(t, dockerfile, "build", "--quiet", "--force-rm", "--file", "-", folder)
	id := out[strings.LastIndex(out, "\n")+1:]
	t.Cleanup(func() { docker(t, "", "rmi", "--force", id) })
	return id
}

// createContainer creates a container that is removed after the test, and
// returns its ID.
func createContainer(t *testing.T, args ...string) string {
	t.Helper()
	id := mustDocker(t, "", append([]string{"create"}, args...)...)
	t.Cleanup(func() { docker(t, "", "rm", "--force", "--volumes", id) })
	return id
}

// mustDocker runs a docker command that must succeed, and returns its output.
func mustDocker(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	cmd := dockerCommand(t, stdin, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("docker %s: %v\n%s%s", strings.Join(args, " "), err, stdout.String(), stderr.String())
	}
	return strings.TrimSpace(stdout.String())
}

// docker runs a docker command and returns its output and exit code.
func docker(t *testing.T, stdin string, args ...string) (string, int) {
	t.Helper()
	cmd := dockerCommand(t, stdin, args...)
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		t.Fatalf("docker: %v", err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

func dockerCommand(t *testing.T, stdin string, args ...string) *exec.Cmd {
	// The test's context is not used: cleanups run after its end.
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, "docker", args...)
	cmd.Stdin = strings.NewReader(stdin)
	return cmd
}
