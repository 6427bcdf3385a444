package integration

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/ratelimitd/ratelimitd/internal/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/config"
	"github.com/ratelimitd/ratelimitd/internal/config/settings"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

// projectRoot is the project's folder, as seen from this package.
const projectRoot = ".."

// dockerfile is what the tests know of the Dockerfile: its instructions, those
// of the final stage apart.
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
		*last = append(*last, instruction{name, strings.TrimSpace(args)})
	}
	if len(stages) != 2 {
		t.Fatalf("Dockerfile: %d stages, want one that builds and the final one", len(stages))
	}
	return dockerfile{build: stages[0], final: stages[1]}
}

// argsOf returns the arguments of all instructions of that name.
func argsOf(instructions []instruction, name string) []string {
	var found []string
	for _, i := range instructions {
		if i.name == name {
			found = append(found, i.args)
		}
	}
	return found
}

// jsonWords are an instruction's arguments in its JSON form.
func jsonWords(t *testing.T, text string) []string {
	t.Helper()
	var list []string
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		t.Fatalf("Dockerfile: %s is no JSON list: %v", text, err)
	}
	return list
}

// environ is the environment of the final image.
func (d dockerfile) environ() []string {
	var all []string
	for _, line := range argsOf(d.final, "ENV") {
		all = append(all, strings.Fields(line)...)
	}
	return all
}

// settingsOf loads settings from an environment in which every name must be
// known.
func settingsOf(t *testing.T, environ []string) settings.Settings {
	t.Helper()
	s, warnings, err := settings.Load(nil, environ, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range warnings {
		t.Error(w)
	}
	return s
}

func portOf(t testing.TB, address string) string {
	t.Helper()
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	return port
}

func checkEverywhereWithoutPprof(t *testing.T, s settings.Settings) {
	t.Helper()
	host, _, err := net.SplitHostPort(s.Admin.Address)
	if err != nil || host != "" {
		t.Errorf("the admin port listens at %s, want all addresses", s.Admin.Address)
	}
	if s.Admin.Pprof {
		t.Error("profiles are served, and not only on loopback")
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
		// Builders before BuildKit know neither.
		if strings.Contains(i.args, "--mount") || strings.Contains(i.args, "--chmod") {
			t.Errorf("%s: needs BuildKit", i)
		}
	}
	if build := argsOf(d.build, "RUN"); !strings.Contains(build[len(build)-1], "ln -s ratelimitd /out/ratelimit") {
		t.Error("there is no link by the name of envoyproxy/ratelimit")
	}
	if copied := argsOf(d.final, "COPY"); !slices.Contains(copied, "--from=build /out/ /bin/") {
		t.Errorf("COPY %q: the link is not among what is copied", copied)
	}
	user := argsOf(d.final, "USER")
	if len(user) != 1 || strings.Trim(user[0], "0123456789:") != "" || strings.HasPrefix(user[0], "0") {
		t.Errorf("USER %q, want one number that is not root", user)
	}
	s := settingsOf(t, d.environ())
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

// composition is what the tests read of deploy/compose.yaml.
type composition struct {
	Services map[string]composeService `yaml:"services"`
}

type composeService struct {
	Image       string            `yaml:"image"`
	Command     []string          `yaml:"command"`
	Environment map[string]string `yaml:"environment"`
	Volumes     []string          `yaml:"volumes"`
	Ports       []string          `yaml:"ports"`
	Healthcheck struct {
		Test []string `yaml:"test"`
	} `yaml:"healthcheck"`
	DependsOn map[string]struct {
		Condition string `yaml:"condition"`
	} `yaml:"depends_on"`
}

func readComposition(t *testing.T) composition {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(projectRoot, "deploy/compose.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var c composition
	if err := yaml.Unmarshal(text, &c); err != nil {
		t.Fatalf("deploy/compose.yaml: %v", err)
	}
	return c
}

func TestCompositionFitsItself(t *testing.T) {
	c := readComposition(t)
	daemons := 0
	published := map[string]string{} // host's address to service
	for name, s := range c.Services {
		for _, v := range s.Volumes {
			from, _, _ := strings.Cut(v, ":")
			if _, err := os.Stat(filepath.Join(projectRoot, "deploy", from)); err != nil {
				t.Errorf("%s mounts %s: %v", name, v, err)
			}
			if !strings.HasSuffix(v, ":ro") {
				t.Errorf("%s may write to %s", name, v)
			}
		}
		for _, p := range s.Ports {
			at := p[:strings.LastIndex(p, ":")]
			if !strings.HasPrefix(at, "127.0.0.1:") {
				t.Errorf("%s publishes %s beyond this machine", name, p)
			}
			if other := published[at]; other != "" {
				t.Errorf("%s and %s are both published at %s", name, other, at)
			}
			published[at] = name
		}
		for other, d := range s.DependsOn {
			o, ok := c.Services[other]
			if !ok {
				t.Errorf("%s depends on %s, which is no service", name, other)
			}
			if d.Condition == "service_healthy" && len(o.Healthcheck.Test) == 0 {
				t.Errorf("%s waits until %s is healthy, which has no health check", name, other)
			}
		}
		oneShot := slices.Contains(s.Command, "create")
		if len(s.Healthcheck.Test) == 0 && !oneShot {
			t.Errorf("%s has no health check", name)
		}
		if strings.HasPrefix(s.Image, "ratelimitd") {
			daemons++
			t.Run(name, func(t *testing.T) { checkDaemon(t, c, s) })
		}
	}
	if daemons != 2 {
		t.Errorf("%d daemons, want 2", daemons)
	}
	checkEnvoy(t, c)
}

// checkEnvoy holds that the composition's Envoy reads its configuration, asks
// services, and listens where it is published and looked at.
func checkEnvoy(t *testing.T, c composition) {
	t.Helper()
	s, ok := c.Services["envoy"]
	if !ok {
		t.Fatal("there is no envoy")
	}
	const file = "./envoy/compose/envoy.yaml"
	if want := []string{file + ":" + s.Command[len(s.Command)-1] + ":ro"}; !slices.Equal(s.Volumes, want) {
		t.Errorf("envoy mounts %v, want %v, which its command %v reads", s.Volumes, want, s.Command)
	}
	text, err := os.ReadFile(filepath.Join(projectRoot, "deploy", file))
	if err != nil {
		t.Fatal(err)
	}
	port, ports := "", []string(nil)
	for _, m := range regexp.MustCompile(`{address: ([^,{]+), port_value: (\d+)}`).FindAllStringSubmatch(string(text), -1) {
		switch host := m[1]; host {
		case "127.0.0.1": // its own backend
		case "0.0.0.0":
			port = m[2]
			ports = append(ports, "127.0.0.1:"+port+":"+port)
		default:
			if _, ok := c.Services[host]; !ok || s.DependsOn[host].Condition != "service_healthy" {
				t.Errorf("envoy asks %s, which is no service that it waits for", host)
			}
		}
	}
	if !slices.Equal(s.Ports, ports) {
		t.Errorf("envoy publishes %v, want what listens, %v", s.Ports, ports)
	}
	if look := strings.Join(s.Healthcheck.Test, " "); !strings.HasSuffix(look, "/dev/tcp/127.0.0.1/"+port) {
		t.Errorf("the health check is %q, want one that looks at the port %s", look, port)
	}
}

// What the composition's comment shows, its Envoy does with two daemons on one
// store.
func TestCompositionsEnvoyLimits(t *testing.T) {
	t.Parallel()
	needEnvoy(t)
	flags := append(redisFlags("single", redistest.Single(t)), "--limits-path", "../deploy/limits")
	var pairs []string
	for _, name := range []string{"ratelimitd-a", "ratelimitd-b"} {
		port := portOf(t, start(t, flags...).grpc)
		pairs = append(pairs, "address: "+name+", port_value: 8081", "address: 127.0.0.1, port_value: "+port)
	}
	ports := freePorts(t, append(pairs, "address: 0.0.0.0", "address: 127.0.0.1")...)
	e := startEnvoy(t, patientExample(t, "compose", ports))
	asynctest.Eventually(t, "Envoy knows who is ready", func() bool { return e.stat("cluster.ratelimitd.membership_healthy") == 2 })
	run(t, commands(comment(t, "deploy/compose.yaml")), ports)
	// The configuration's own comment shows the same; Bob has no more.
	own := strings.ReplaceAll(comment(t, "deploy/envoy/compose/envoy.yaml"), "bob", "carol")
	run(t, commands(own), ports)
}

func checkDaemon(t *testing.T, c composition, s composeService) {
	d := readDockerfile(t)
	var environ []string
	for name, value := range s.Environment {
		environ = append(environ, name+"="+value)
	}
	// Of two with one name the first counts.
	settings := settingsOf(t, append(environ, d.environ()...))
	checkEverywhereWithoutPprof(t, settings)
	if settings.Store != "redis" || settings.Redis.Mode != "cluster" {
		t.Errorf("the store is %s in mode %s, want a Redis Cluster", settings.Store, settings.Redis.Mode)
	}
	for _, address := range settings.Redis.Addresses {
		host, _, err := net.SplitHostPort(address)
		if _, ok := c.Services[host]; err != nil || !ok {
			t.Errorf("the Redis node %s is no service", address)
		}
	}
	var ports []string
	for _, p := range s.Ports {
		ports = append(ports, p[strings.LastIndex(p, ":")+1:])
	}
	for _, address := range []string{settings.HTTP.Address, settings.GRPC.Address, settings.Admin.Address} {
		if port := portOf(t, address); !slices.Contains(ports, port) {
			t.Errorf("the port %s is not published", port)
		}
	}
	binary := jsonWords(t, argsOf(d.final, "ENTRYPOINT")[0])[0]
	if want := []string{"CMD", binary, "health"}; !slices.Equal(s.Healthcheck.Test, want) {
		t.Errorf("the health check is %v, want %v", s.Healthcheck.Test, want)
	}
	for _, v := range s.Volumes {
		from, to, _ := strings.Cut(v, ":")
		if strings.TrimSuffix(to, ":ro") == settings.Limits.Path {
			rules, err := config.LoadRules(filepath.Join(projectRoot, "deploy", from))
			if err != nil {
				t.Fatal(err)
			}
			if len(rules.Domains()) == 0 {
				t.Errorf("%s holds no limits", from)
			}
			return
		}
	}
	t.Errorf("nothing is mounted at %s", settings.Limits.Path)
}

// TestImageBuildsAndServes builds the final image of the Dockerfile and runs it. Only the
// image that the build starts from is left out, for it may not be there: the
// build's command runs here, on exactly the files that the build would see.
func TestImageBuildsAndServes(t *testing.T) {
	if testing.Short() {
		t.Skip("builds an image")
	}
	arch, err := exec.Command("docker", "version", "--format", "{{.Server.Arch}}").Output()
	if err != nil {
		t.Skipf("no Docker engine answers: %v", err)
	}
	d := readDockerfile(t)
	stage := t.TempDir() // what the stage "build" would have made, from /
	buildBinary(t, d, stage, strings.TrimSpace(string(arch)))
	image := finalImage(t, d, stage)
	binary := jsonWords(t, argsOf(d.final, "ENTRYPOINT")[0])[0]
	limits := settings.Default().Limits.Path

	t.Run("without limits", func(t *testing.T) {
		out, code := docker(t, "", "run", "--rm", "--network", "none", image)
		if code != 1 || !strings.Contains(out, limits) {
			t.Errorf("exit %d, want 1 and a word about %s:\n%s", code, limits, out)
		}
	})
	t.Run("version", func(t *testing.T) {
		out, code := docker(t, "", "run", "--rm", "--network", "none", image, "version")
		if code != 0 || !strings.HasPrefix(out, "ratelimitd v1.2.3-test ") {
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
		// A link, lest the image hold the binary twice.
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

	container := createContainer(t, "--network", "none", "--cap-drop", "ALL", image)
	// Not mounted: the engine need not see our files.
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
		_, code := docker(t, "", "exec", container, binary, "health")
		return code == 0
	})
	processes := strings.Split(mustDocker(t, "", "top", container, "-eo", "pid,uid"), "\n")
	for _, p := range processes[1:] { // after the head of the table
		if fields := strings.Fields(p); len(fields) != 2 || fields[1] != "65532" {
			t.Errorf("a process (pid, uid) runs as %v, want the user 65532", fields)
		}
	}
	ask := []string{"exec", container, binary, "query", "--domain", "api", "user=alice"}
	for i := range 10 {
		if out, code := docker(t, "", ask...); code != 0 {
			t.Fatalf("question %d: exit %d: %s", i+1, code, out)
		}
	}
	if out, code := docker(t, "", ask...); code != 3 {
		t.Errorf("question 11: exit %d, want 3: %s", code, out)
	}
	asynctest.Eventually(t, "the engine calls it healthy", func() bool {
		return mustDocker(t, "", "inspect", "--format", "{{.State.Health.Status}}", container) == "healthy"
	})
	mustDocker(t, "", "stop", container)
	if code := mustDocker(t, "", "inspect", "--format", "{{.State.ExitCode}}", container); code != "0" {
		t.Errorf("exit %s after SIGTERM, want 0", code)
	}
}

// buildBinary runs the command of the stage that builds, on the files that it gets.
func buildBinary(t *testing.T, d dockerfile, stage, arch string) {
	t.Helper()
	// The stage without what needs its base image.
	var files strings.Builder
	files.WriteString("FROM scratch\n")
	for _, i := range d.build {
		if i.name == "WORKDIR" || i.name == "COPY" {
			files.WriteString(i.String() + "\n")
		}
	}
	image := imageOf(t, files.String(), projectRoot)
	mustDocker(t, "", "cp", createContainer(t, image, "none")+":/.", stage)

	run := argsOf(d.build, "RUN")
	command := strings.ReplaceAll(run[len(run)-1], " /out/", " "+stage+"/out/")
	cmd := exec.Command("sh", "-c", command)
	cmd.Dir = filepath.Join(stage, argsOf(d.build, "WORKDIR")[0])
	cmd.Env = append(os.Environ(), "VERSION=v1.2.3-test", "GOOS=linux", "GOARCH="+arch)
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
			file := filepath.Join(stage, strings.Fields(from)[0])
			if _, err := os.Stat(file); err != nil { // of the base image: it does not matter which
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

// imageOf builds an image that ends with the test, and returns its ID.
func imageOf(t *testing.T, dockerfile, folder string) string {
	t.Helper()
	out := mustDocker(t, dockerfile, "build", "--quiet", "--force-rm", "--file", "-", folder)
	id := out[strings.LastIndex(out, "\n")+1:]
	t.Cleanup(func() { docker(t, "", "rmi", "--force", id) })
	return id
}

// createContainer creates a container that ends with the test, and returns its ID.
func createContainer(t *testing.T, args ...string) string {
	t.Helper()
	id := mustDocker(t, "", append([]string{"create"}, args...)...)
	t.Cleanup(func() { docker(t, "", "rm", "--force", "--volumes", id) })
	return id
}

// mustDocker runs a docker command that has to work and returns what it printed.
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

// docker runs a docker command and returns what it printed and its exit code.
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
	// Not the test's context: what cleans up runs after its end.
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, "docker", args...)
	cmd.Stdin = strings.NewReader(stdin)
	return cmd
}
