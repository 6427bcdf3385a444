package integration

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

const authPage = "docs/forward-auth.md"

// documented returns the block of the page in a language that begins with a
// text.
func documented(t testing.TB, language, begin string) string {
	t.Helper()
	for _, text := range blocks(t, authPage, language) {
		if strings.HasPrefix(text, begin) {
			return text
		}
	}
	t.Fatalf("%s has no %s that begins with %q", authPage, language, begin)
	return ""
}

// with returns a text with the first of each pair replaced by the second. The
// first must occur.
func with(t testing.TB, text string, pairs ...string) string {
	t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		if !strings.Contains(text, pairs[i]) {
			t.Fatalf("there is no %q in\n%s", pairs[i], text)
		}
		text = strings.ReplaceAll(text, pairs[i], pairs[i+1])
	}
	return text
}

// startAuth starts a daemon for a proxy, with the files of the page.
func startAuth(t testing.TB, proxy string) *daemon {
	t.Helper()
	dir := t.TempDir()
	limits := write(t, dir, "limits.yaml", documented(t, "yaml", "domain:"))
	auth := write(t, dir, "auth.yaml", with(t, documented(t, "yaml", "trusted_proxies:"), "proxy: nginx ", "proxy: "+proxy))
	if out, stderr, code := command(t, "check", limits, "--auth", auth); code != 0 || stderr != "" || !strings.Contains(out, "/auth/shop") {
		t.Errorf("check exits with %d: %s%s", code, out, stderr)
	}
	return start(t, "--limits-path", limits, "--auth-path", auth, "--headers-style", "x-ratelimit")
}

// startProxy runs a proxy until the test ends, and waits until it listens.
func startProxy(t testing.TB, address string, cmd *exec.Cmd) {
	t.Helper()
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		<-ended
		if t.Failed() {
			t.Logf("the log of %s:\n%s", cmd.Path, log.String())
		}
	})
	asynctest.Eventually(t, cmd.Path+" listens", func() bool {
		select {
		case <-ended:
			t.Fatalf("%s has ended:\n%s", cmd.Path, log.String())
		default:
		}
		conn, err := net.Dial("tcp", address)
		if err != nil {
			return false
		}
		return conn.Close() == nil
	})
}

// needProxy finds the binary of a proxy. Without it a test is skipped; in CI
// it fails.
func needProxy(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if errors.Is(err, exec.ErrNotFound) {
		// Debian has nginx here, which is not on every PATH.
		path, err = exec.LookPath(filepath.Join("/usr/sbin", name))
	}
	switch {
	case err == nil:
		return path
	case redistest.InCI():
		t.Fatalf("no %s: %v; deploy/dev/need-tools.sh installs it", name, err)
	}
	t.Skipf("no %s: %v; deploy/dev/need-tools.sh installs it", name, err)
	return ""
}

// startNginx runs nginx with a configuration of the page, as an ordinary user.
func startNginx(t testing.TB, config, daemon, backend string) (address string) {
	t.Helper()
	binary, dir, address := needProxy(t, "nginx"), t.TempDir(), freeAddress(t)
	private := "access_log off;\n"
	for _, kind := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		private += fmt.Sprintf("%s_temp_path %s;\n", kind, filepath.Join(dir, kind))
	}
	config = with(t, config, "127.0.0.1:8080", daemon, "127.0.0.1:3000", backend, "listen 80;", "listen "+address+";", "http {\n", "http {\n"+private)
	path := write(t, dir, "nginx.conf", fmt.Sprintf("daemon off;\npid %s;\nerror_log stderr;\n%s", filepath.Join(dir, "pid"), config))
	startProxy(t, address, exec.Command(binary, "-e", "stderr", "-p", dir, "-c", path))
	return address
}

// startCaddy runs Caddy with the configuration of the page.
func startCaddy(t testing.TB, daemon, backend string) (address string) {
	t.Helper()
	binary, dir, address := needProxy(t, "caddy"), t.TempDir(), freeAddress(t)
	config := with(t, documented(t, "caddyfile", ":80 {"), "127.0.0.1:8080", daemon, "127.0.0.1:3000", backend, ":80 {", "http://:"+portOf(t, address)+" {\n\tbind 127.0.0.1")
	path := write(t, dir, "Caddyfile", "{\n\tadmin off\n}\n"+config)
	cmd := exec.Command(binary, "run", "--adapter", "caddyfile", "--config", path)
	cmd.Env = append(os.Environ(), "HOME="+dir, "XDG_CONFIG_HOME="+dir, "XDG_DATA_HOME="+dir)
	startProxy(t, address, cmd)
	return address
}

// caller asks a proxy from an address of its own.
type caller struct {
	t       testing.TB
	proxy   string
	address string
}

// send sends a request for a path exactly as written. Headers are "name:
// value".
func (c caller) send(method, path, body string, headers ...string) answer {
	c.t.Helper()
	r := &http.Request{
		Method: method, URL: &url.URL{Scheme: "http", Host: c.proxy, Opaque: path}, Host: "shop.example.com", Header: make(http.Header),
		Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)),
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Add(name, value)
	}
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(c.address)}}
	client := &http.Client{Transport: &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true}}
	response, err := client.Do(r)
	if err != nil {
		c.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return answer{status: response.StatusCode, header: response.Header, body: string(text)}
}

// want asks and fails the test on another status.
func (c caller) want(status int, method, path string, headers ...string) answer {
	c.t.Helper()
	a := c.send(method, path, "", headers...)
	if a.status != status {
		c.t.Errorf("%s %s from %s with %q: %d %s, want %d", method, path, c.address, headers, a.status, a.body, status)
	}
	return a
}

// limitsThrough checks the limits of the page through a proxy.
func limitsThrough(t *testing.T, proxy string, b *backend) {
	t.Helper()
	from := func(address string) caller { return caller{t: t, proxy: proxy, address: address} }
	ann, bob := from("127.0.0.2"), from("127.0.0.3")

	// Each address has five logins an hour, however the path is written and
	// whatever headers claim.
	for i := range 5 {
		if a := ann.send("POST", "/login", "user=ann"); a.status != 200 || a.body != "served /login\n" {
			t.Fatalf("login %d: %+v", i, a)
		}
	}
	denied := ann.want(429, "POST", "/login")
	if wait, err := strconv.Atoi(denied.header.Get("Retry-After")); err != nil || wait < 1 || wait > 720 {
		t.Errorf("a denied login has Retry-After %q", denied.header.Get("Retry-After"))
	}
	if denied.header.Get("X-RateLimit-Remaining") != "0" {
		t.Errorf("a denied login has the headers %v", denied.header)
	}
	for _, path := range []string{"/login?x", "/%6Cogin", "/x/..//login", "/./login", "/login/"} {
		ann.want(429, "GET", path)
	}
	for _, claim := range []string{
		"X-Forwarded-For: 203.0.113.9", "X-Real-IP: 203.0.113.9", "X-Forwarded-Uri: /", "X-Original-URI: /", "X-Forwarded-Method: PUT", "X-Original-Method: PUT",
	} {
		ann.want(429, "POST", "/login", claim)
	}
	if n := b.served("/login"); n != 5 {
		t.Errorf("%d logins reached the server, want 5", n)
	}
	ann.want(200, "GET", "/logins")
	bob.want(200, "POST", "/login")

	// Each key has twenty requests a day, from any address.
	for i := range 20 {
		from(fmt.Sprintf("127.0.0.%d", 10+i)).want(200, "GET", "/", "X-Api-Key: one")
	}
	bob.want(429, "GET", "/", "X-Api-Key: one")
	bob.want(200, "GET", "/", "X-Api-Key: two")
	bob.want(200, "GET", "/")
}

func TestNginxLimitsByForwardAuth(t *testing.T) {
	t.Parallel()
	needProxy(t, "nginx")
	d, b := startAuth(t, "nginx"), startBackend(t)
	config := documented(t, "nginx", "events {}")
	address := startNginx(t, config, d.http, b.addr)
	limitsThrough(t, address, b)

	ann := caller{t: t, proxy: address, address: "127.0.0.2"}
	if a := ann.want(200, "GET", "/"); a.header.Get("X-RateLimit-Remaining") == "" {
		t.Errorf("what is allowed has the headers %v", a.header)
	}
	// The server sees the key that was counted.
	ann.want(200, "GET", "/twice", "X-Api-Key: three", "X-Api-Key: four")
	b.mu.Lock()
	last := b.seen[len(b.seen)-1]
	b.mu.Unlock()
	if keys := last.Header.Values("X-Api-Key"); last.URL.Path != "/twice" || len(keys) != 1 {
		t.Errorf("the server sees %s with the keys %q", last.URL.Path, keys)
	}

	// The page shows how to go on without the daemon.
	var open string
	for _, text := range blocks(t, authPage, "nginx") {
		if strings.Contains(text, "@unlimited") {
			open = text
		}
	}
	fallback := startNginx(t, with(t, config, "      internal;\n", open[:strings.Index(open, "    }")]+"      internal;\n",
		"    location = /_ratelimit {", "    "+strings.TrimSpace(open[strings.Index(open, "    location"):])+"\n    }\n    location = /_ratelimit {"), d.http, b.addr)
	caller{t: t, proxy: fallback, address: "127.0.0.2"}.want(429, "POST", "/login")
	goOn := d.hang() // a daemon that hangs holds nobody up
	ann.want(500, "GET", "/")
	caller{t: t, proxy: fallback, address: "127.0.0.2"}.want(200, "POST", "/login")
	goOn()
	d.stop(syscall.SIGINT)
	ann.want(500, "GET", "/")
	caller{t: t, proxy: fallback, address: "127.0.0.2"}.want(200, "POST", "/login")
}

func TestCaddyLimitsByForwardAuth(t *testing.T) {
	t.Parallel()
	needProxy(t, "caddy")
	d, b := startAuth(t, "caddy"), startBackend(t)
	address := startCaddy(t, d.http, b.addr)
	limitsThrough(t, address, b)

	ann := caller{t: t, proxy: address, address: "127.0.0.2"}
	if a := ann.want(429, "POST", "/login"); a.body != `{"error":"the request is over its limit"}`+"\n" {
		t.Errorf("a denied login: %s", a.body)
	}
	ann.want(429, "GET", "/", "X-Api-Key: three", "X-Api-Key: four")
	ann.want(200, "GET", "/", "Cookie: "+strings.Repeat("x", 30_000))
	goOn := d.hang() // a daemon that hangs holds nobody up
	ann.want(504, "GET", "/")
	goOn()
	d.stop(syscall.SIGINT)
	ann.want(502, "GET", "/")
}

func TestForwardAuthFileThatCannotBeLoadedEndsTheStart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	limits := write(t, dir, "limits.yaml", limitsOf3)
	bad := write(t, dir, "bad.yaml", "endpoints: [{name: n, proxy: nginx, domain: none, descriptors: []}]\n")
	good := write(t, dir, "good.yaml", "endpoints: [{name: n, proxy: nginx, domain: none, descriptors: [{entries: [{key: k, value: v}]}]}]\n")
	const wrong = ":1:64: endpoints[0].descriptors: found an empty list; allowed: at least one\n"
	if _, stderr, code := command(t, "serve", "--limits-path", limits, "--auth-path", bad); code != 1 || !strings.Contains(stderr, bad+wrong) {
		t.Errorf("serve exits with %d: %s", code, stderr)
	}
	if out, stderr, code := command(t, "check", limits, "--auth", bad); code != 1 || stderr != bad+wrong || out != "" {
		t.Errorf("check exits with %d: %s%s", code, out, stderr)
	}
	out, stderr, code := command(t, "check", limits, "--auth", good)
	if code != 0 || !strings.Contains(out, "/auth/n  for nginx  domain none  k  denied with 403") ||
		stderr != "warning: "+good+":1:45: endpoints[0].domain: no limits have the domain \"none\", so nothing is limited\n" {
		t.Errorf("check of a good file exits with %d: %s%s", code, out, stderr)
	}
	if _, stderr, code := command(t, "check", limits, "--auth", filepath.Join(dir, "none")); code != 1 || !strings.Contains(stderr, "forward auth: ") {
		t.Errorf("check of no file exits with %d: %s", code, stderr)
	}
}
