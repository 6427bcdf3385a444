package integration

import (
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
)

// envoy is a running Envoy.
type envoy struct {
	t     testing.TB
	dir   string // its own folder, for its log and more
	admin string // host:port

	listeners map[string]string // host:port by name

	kill func() // with SIGKILL
}

// startEnvoy starts an Envoy with a configuration and waits until its
// listeners listen.
func startEnvoy(t testing.TB, text string) *envoy {
	t.Helper()
	e := &envoy{t: t, dir: t.TempDir()}
	log, err := os.Create(filepath.Join(e.dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	adminFile := filepath.Join(e.dir, "admin")
	cmd := exec.Command(needEnvoy(t), "--concurrency", "1", "--disable-hot-restart", "--log-level", "warning", "--file-flush-interval-msec", "50",
		"--service-cluster", "edge", "--service-node", "edge-1", "--admin-address-path", adminFile,
		"--config-path", write(t, e.dir, "envoy.yaml", text),
		"--config-yaml", "admin: {address: {socket_address: {address: 127.0.0.1, port_value: 0}}}")
	cmd.Stdout, cmd.Stderr = log, log
	err = cmd.Start()
	log.Close()
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	e.kill = func() {
		_ = cmd.Process.Kill()
		<-ended
	}
	t.Cleanup(func() {
		e.kill()
		if t.Failed() {
			t.Logf("the configuration of Envoy:\n%s\nits log:\n%s", text, e.file("log"))
		}
	})
	asynctest.Eventually(t, "Envoy is ready", func() bool {
		select {
		case <-ended:
			t.Fatalf("Envoy has ended:\n%s", e.file("log"))
		default:
		}
		e.admin = e.file("admin")
		return e.admin != "" && e.ready()
	})
	e.listeners = e.findListeners()
	return e
}

func (e *envoy) ready() bool {
	r, err := http.Get("http://" + e.admin + "/ready")
	if err != nil {
		return false
	}
	defer r.Body.Close()
	return r.StatusCode == http.StatusOK
}

// file returns the content of a file that Envoy has written into its folder.
func (e *envoy) file(name string) string {
	text, err := os.ReadFile(filepath.Join(e.dir, name))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		e.t.Fatal(err)
	}
	return string(text)
}

func (e *envoy) findListeners() map[string]string {
	e.t.Helper()
	_, page := get(e.t, "http://"+e.admin+"/listeners?format=json")
	var all struct {
		Status []struct {
			Name  string `json:"name"`
			Local struct {
				Socket struct {
					Address string `json:"address"`
					Port    int    `json:"port_value"`
				} `json:"socket_address"`
			} `json:"local_address"`
		} `json:"listener_statuses"`
	}
	if err := json.Unmarshal([]byte(page), &all); err != nil {
		e.t.Fatalf("%s: %v", page, err)
	}
	found := make(map[string]string)
	for _, l := range all.Status {
		found[l.Name] = net.JoinHostPort(l.Local.Socket.Address, strconv.Itoa(l.Local.Socket.Port))
	}
	return found
}

// stat returns one of Envoy's counters or gauges.
func (e *envoy) stat(name string) int {
	e.t.Helper()
	_, page := get(e.t, "http://"+e.admin+"/stats?filter=^"+regexp.QuoteMeta(name)+"$")
	_, value, found := strings.Cut(strings.TrimSpace(page), ": ")
	if !found {
		return 0 // Envoy shows a counter only after its first count
	}
	n, err := strconv.Atoi(value)
	if err != nil {
		e.t.Fatalf("%s: %v", page, err)
	}
	return n
}

// logged returns the lines in the log of a listener, without its name.
func (e *envoy) logged(listener string) (lines []string) {
	e.t.Helper()
	for line := range strings.Lines(e.file("log")) {
		if text, ok := strings.CutPrefix(line, listener+" "); ok {
			lines = append(lines, strings.TrimSuffix(text, "\n"))
		}
	}
	return lines
}

// url returns the URL of a path at one of the listeners.
func (e *envoy) url(listener, path string) string {
	e.t.Helper()
	at, ok := e.listeners[listener]
	if !ok {
		e.t.Fatalf("there is no listener %s; there are %q", listener, slices.Sorted(maps.Keys(e.listeners)))
	}
	return "http://" + at + path
}

// answer is an answer through Envoy.
type answer struct {
	status int
	header http.Header
	body   string
}

// get asks through a listener. Headers are "name: value".
func (e *envoy) get(listener, path string, headers ...string) answer {
	e.t.Helper()
	return e.send(http.DefaultClient, http.MethodGet, e.url(listener, path), "", headers...)
}

func (e *envoy) send(c *http.Client, method, url, body string, headers ...string) answer {
	e.t.Helper()
	r, err := http.NewRequestWithContext(e.t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		e.t.Fatal(err)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Add(name, value)
	}
	response, err := c.Do(r)
	if err != nil {
		e.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		e.t.Fatal(err)
	}
	return answer{status: response.StatusCode, header: response.Header, body: string(text)}
}

// statuses asks n times and returns the statuses.
func (e *envoy) statuses(n int, listener, path string, headers ...string) (all []int) {
	e.t.Helper()
	for range n {
		all = append(all, e.get(listener, path, headers...).status)
	}
	return all
}
