package integration

import (
	"net/http"
	"net/url"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// buildExample builds one of examples/ and returns its binary. The example may
// be a module of its own.
func buildExample(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	build := exec.Command("go", "build", "-C", "../examples/"+name, "-trimpath", "-o", path, ".")
	build.Env = plainGo()
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return path
}

// runExample runs an example's server on the limits beside it, and returns its
// address.
func runExample(t *testing.T, name string) (path, address string) {
	t.Helper()
	path = buildExample(t, name)
	d := start(t, "--limits-path", "../examples/"+name+"/limits.yaml")
	server := launchCommand(t, exec.Command(path, "-listen", "127.0.0.1:0", "-ratelimitd", d.grpc))
	_, address, _ = strings.Cut(server.waitForLog("serving at "), "serving at ")
	return path, address
}

// The examples' client waits 50 ms for an answer, so nothing else runs beside these two.

func TestExampleNetHTTPLimits(t *testing.T) {
	_, address := runExample(t, "nethttp")
	get := func(path, user string) *http.Response {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+address+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-User", user)
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		return response
	}
	for i := range 6 {
		r := get("/items/7", "alice")
		if want := i < 5; (r.StatusCode == 200) != want || (r.Header.Get("Retry-After") == "") != want || r.Header.Get("X-Ratelimit-Limit") != "5" {
			t.Errorf("item %d: %d %v", i, r.StatusCode, r.Header)
		}
	}
	if r := get("/items/7", "bob"); r.StatusCode != 200 {
		t.Errorf("another user: %d", r.StatusCode)
	}
	login := func(password string) int {
		t.Helper()
		r, err := http.PostForm("http://"+address+"/login", url.Values{"password": {password}})
		if err != nil {
			t.Fatal(err)
		}
		_ = r.Body.Close()
		return r.StatusCode
	}
	for range 5 {
		if code := login("open sesame"); code != 200 {
			t.Fatalf("a good login: %d", code)
		}
	}
	for i := range 5 {
		want := 401
		if i >= 3 {
			want = 429
		}
		if code := login("guess"); code != want {
			t.Errorf("failed login %d: %d, want %d", i, code, want)
		}
	}
}

func TestExampleGRPCLimits(t *testing.T) {
	path, address := runExample(t, "grpc")
	out, err := exec.CommandContext(t.Context(), path, "-call", address).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	text := string(out)
	if strings.Count(text, "served;") != 4 || !strings.Contains(text, "served; [1] left") || !strings.Contains(text, "denied; waiting") {
		t.Errorf("it said:\n%s", text)
	}
}
