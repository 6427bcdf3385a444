package integration

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/config/limitsfile"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

// composition is the part of deploy/compose.yaml that the tests read.
type composition struct {
	Services map[string]composeService `yaml:"services"`
}

type composeService struct {
	Image       string            `yaml:"image"`
	Command     []string          `yaml:"command"`
	Profiles    []string          `yaml:"profiles"`
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
	published := map[string]string{} // service by the host's address
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
		if len(s.Profiles) > 0 {
			t.Errorf("%s has the profiles %v: one command is to start all", name, s.Profiles)
		}
		if pinned := regexp.MustCompile(`^(ratelimitd:latest|.+:v?\d+\.\d+\.\d+)$`); !pinned.MatchString(s.Image) {
			t.Errorf("%s runs %s, a version that changes by itself", name, s.Image)
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
	for _, name := range []string{"envoy", "redis-1", "prometheus", "grafana", "load"} {
		if _, ok := c.Services[name]; !ok {
			t.Errorf("there is no %s", name)
		}
	}
	checkEnvoy(t, c)
}

// checkEnvoy checks the composition's Envoy: it reads its configuration, asks
// services, and listens at the published and checked ports.
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

// The composition's Envoy does what its comment shows, with two daemons on one
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
	for _, file := range []string{"deploy/compose.yaml", "deploy/envoy/compose/envoy.yaml"} {
		var wrong []string
		// A user gains a request in 6 s, for which a slow machine may stand still.
		for try := range 3 {
			user := fmt.Sprint(filepath.Base(file), try)
			if wrong = surprises(t, commands(strings.ReplaceAll(comment(t, file), "bob", user)), ports); len(wrong) == 0 {
				break
			}
		}
		for _, w := range wrong {
			t.Error(w)
		}
	}
}

func checkDaemon(t *testing.T, c composition, s composeService) {
	d := readDockerfile(t)
	var environ []string
	for name, value := range s.Environment {
		environ = append(environ, name+"="+value)
	}
	// The first of two with one name counts.
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
			rules, err := limitsfile.Load(filepath.Join(projectRoot, "deploy", from))
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
