package integration

import (
	"io"
	"net/http"
	"net/url"
	"os/exec"
	"strings"
	"testing"
)

// serveAt starts a built example that asks a daemon, and returns its URL. The
// timeout for the daemon exceeds any stall of this machine.
func serveAt(t *testing.T, path string, d *daemon) string {
	t.Helper()
	server := launchCommand(t, exec.Command(path, "-listen", "127.0.0.1:0", "-ratelimitd", d.grpc, "-timeout", "30s"))
	_, address, _ := strings.Cut(server.waitForLog("serving at "), "serving at ")
	return "http://" + address
}

func TestWebFrameworkExamplesLimit(t *testing.T) {
	t.Parallel()
	for _, framework := range []string{"gin", "fiber"} {
		t.Run(framework, func(t *testing.T) {
			t.Parallel()
			d := start(t, "--limits-path", "../examples/"+framework+"/limits.yaml")
			base := serveAt(t, buildExample(t, framework), d)
			for i := range 6 {
				r, body := getAs(t, base+"/items/7", "alice")
				want, text := 200, "item 7\n"
				if i == 5 {
					want, text = 429, `{"error":"slow down"}`
				}
				if r.StatusCode != want || body != text || (r.Header.Get("Retry-After") != "") != (want == 429) || r.Header.Get("X-Ratelimit-Limit") != "5" {
					t.Errorf("item %d: %d %q %v", i, r.StatusCode, body, r.Header)
				}
			}
			if r, _ := getAs(t, base+"/items/8", "bob"); r.StatusCode != 200 {
				t.Errorf("another user: %d", r.StatusCode)
			}
			for i, want := range []int{200, 200, 200, 200, 401, 401, 401, 429, 429} {
				password := "guess"
				if i < 4 {
					password = "open sesame"
				}
				r, err := http.PostForm(base+"/login", url.Values{"password": {password}})
				if err != nil {
					t.Fatal(err)
				}
				_ = r.Body.Close()
				if r.StatusCode != want {
					t.Errorf("login %d: %d, want %d", i, r.StatusCode, want)
				}
			}
		})
	}
}

func getAs(t *testing.T, url, user string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-User", user)
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response, string(body)
}
