package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/config/settings"
)

// dockerfile is the instructions of the Dockerfile, with those of the final
// stage apart.
type dockerfile struct {
	build, final []instruction
}

type instruction struct {
	name, args string
}

func (i instruction) String() string { return i.name + " " + i.args }

func readDockerfile(t *testing.T) dockerfile {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(projectRoot, "Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	var stages [][]instruction
	joined := strings.ReplaceAll(string(text), "\\\n", " ")
	for line := range strings.Lines(joined) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		name, args, _ := strings.Cut(line, " ")
		if name == "FROM" {
			stages = append(stages, nil)
		}
		if len(stages) == 0 {
			t.Fatalf("Dockerfile: %q stands before the first FROM", line)
		}
		last := &stages[len(stages)-1]
		*last = append(*last, instruction{name: name, args: strings.TrimSpace(args)})
	}
	if len(stages) != 2 {
		t.Fatalf("Dockerfile: %d stages, want one that builds and the final one", len(stages))
	}
	return dockerfile{build: stages[0], final: stages[1]}
}

// argsOf returns the arguments of all instructions with a name.
func argsOf(instructions []instruction, name string) []string {
	var found []string
	for _, i := range instructions {
		if i.name == name {
			found = append(found, i.args)
		}
	}
	return found
}

// jsonWords returns an instruction's arguments in JSON form.
func jsonWords(t *testing.T, text string) []string {
	t.Helper()
	var list []string
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		t.Fatalf("Dockerfile: %s is no JSON list: %v", text, err)
	}
	return list
}

// environ returns the environment of the final image.
func (d dockerfile) environ() []string {
	var all []string
	for _, line := range argsOf(d.final, "ENV") {
		all = append(all, strings.Fields(line)...)
	}
	return all
}

// The build compiles for what the image is for, on whatever machine it runs.
func TestDockerfileCompilesForItsTarget(t *testing.T) {
	d := readDockerfile(t)
	if from := argsOf(d.build, "FROM")[0]; !strings.HasPrefix(from, "--platform=${BUILDPLATFORM:-linux} ") {
		t.Errorf("the build runs FROM %s, which is emulated for other machines", from)
	}
	for _, arg := range []string{"TARGETOS", "TARGETARCH"} {
		if !slices.Contains(argsOf(d.build, "ARG"), arg) {
			t.Errorf("the build does not get %s", arg)
		}
	}
	// In the place of go, a program that says for what it is called.
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "go"), []byte("#!/bin/sh\necho \"$1 ${GOOS:-own} ${GOARCH:-own} cgo=$CGO_ENABLED\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	runs := argsOf(d.build, "RUN")
	build, _, _ := strings.Cut(runs[len(runs)-1], " && ")
	for want, target := range map[string][]string{
		"build linux arm64 cgo=0\n": {"TARGETOS=linux", "TARGETARCH=arm64"},
		"build linux amd64 cgo=0\n": {"TARGETOS=linux", "TARGETARCH=amd64"},
		"build own own cgo=0\n":     nil, // before BuildKit
	} {
		cmd := exec.Command("/bin/sh", "-c", build)
		cmd.Env = append(target, "PATH="+bin)
		if out, err := cmd.CombinedOutput(); err != nil || string(out) != want {
			t.Errorf("for %v the build runs go %q, %v", target, out, err)
		}
	}
}

func TestDockerfileFitsTheDaemon(t *testing.T) {
	d := readDockerfile(t)
	if from := argsOf(d.final, "FROM"); from[0] != "scratch" {
		t.Errorf("the final image is from %s, want scratch: no shell", from[0])
	}
	if run := argsOf(d.final, "RUN"); len(run) > 0 {
		t.Errorf("the final stage runs %q; it has nothing to run it with", run)
	}
	for _, i := range append(d.build, d.final...) {
		// Builders before BuildKit support neither.
		if strings.Contains(i.args, "--mount") || strings.Contains(i.args, "--chmod") {
			t.Errorf("%s: needs BuildKit", i)
		}
	}
	for _, r := range readModule(t, projectRoot).Require {
		folder, own := strings.CutPrefix(r.Mod.Path, project)
		files := fmt.Sprintf("%[1]s/go.mod %[1]s/go.sum %[1]s/", folder)
		replace := fmt.Sprintf("-replace=%s=./%s ", r.Mod.Path, folder)
		if own && (!slices.Contains(argsOf(d.build, "COPY"), files) || !strings.Contains(argsOf(d.build, "RUN")[0], replace)) {
			t.Errorf("the build does not take %s from here", r.Mod.Path)
		}
	}
	if build := argsOf(d.build, "RUN"); !strings.Contains(build[len(build)-1], "ln -s ratelimitd /out/bin/ratelimit") {
		t.Error("there is no link by the name of envoyproxy/ratelimit")
	}
	if copied := argsOf(d.final, "COPY"); !slices.Contains(copied, "--from=build /out/bin/ /bin/") {
		t.Errorf("COPY %q: the link is not among what is copied", copied)
	}
	user := argsOf(d.final, "USER")
	if len(user) != 1 || strings.Trim(user[0], "0123456789:") != "" || strings.HasPrefix(user[0], "0") {
		t.Errorf("USER %q, want one number that is not root", user)
	}
	s := settingsOf(t, d.environ())
	// The user may write where assignments are kept.
	folder := path.Dir(settings.UsualPath)
	if build := argsOf(d.build, "RUN"); !strings.HasSuffix(build[len(build)-1], "mkdir -p /out"+folder) {
		t.Errorf("the build does not make %s", folder)
	}
	if copied := argsOf(d.final, "COPY"); !slices.Contains(copied, "--from=build --chown="+user[0]+" /out/var/ /var/") {
		t.Errorf("COPY %q: %s does not belong to the user", copied, folder)
	}
	checkEverywhereWithoutPprof(t, s)
	var ports []string
	for _, address := range []string{s.HTTP.Address, s.GRPC.Address, s.Admin.Address} {
		ports = append(ports, portOf(t, address))
	}
	if exposed := strings.Fields(strings.Join(argsOf(d.final, "EXPOSE"), " ")); !slices.Equal(exposed, ports) {
		t.Errorf("EXPOSE %v, want where HTTP, gRPC and admin listen, %v", exposed, ports)
	}
	entrypoint := jsonWords(t, argsOf(d.final, "ENTRYPOINT")[0])
	if cmd := jsonWords(t, argsOf(d.final, "CMD")[0]); !slices.Equal(cmd, []string{"serve"}) {
		t.Errorf("CMD %v, want serve", cmd)
	}
	_, health, _ := strings.Cut(argsOf(d.final, "HEALTHCHECK")[0], "CMD ")
	if got, want := jsonWords(t, health), append(entrypoint, "health"); !slices.Equal(got, want) {
		t.Errorf("HEALTHCHECK runs %v, want %v", got, want)
	}
	labels := strings.Join(argsOf(d.final, "LABEL"), " ")
	for _, name := range []string{"title", "description", "source", "version", "revision"} {
		if !strings.Contains(labels, "org.opencontainers.image."+name+"=") {
			t.Errorf("the label %s is missing", name)
		}
	}
}
