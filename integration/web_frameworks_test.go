package integration

import (
	"io"
	"net/http"
	"net/url"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/redistest"
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

// A gin server with a limit of 1000 a minute serves 1000 of 1200 requests by
// 50 callers within a minute, however many servers and daemons there are.
func TestGinServesExactlyTheLimit(t *testing.T) {
	t.Parallel()
	path := buildExample(t, "gin")
	flags := []string{"--limits-path", "../examples/gin/limits.yaml"}
	for name, servers := range map[string]func(t *testing.T) []string{
		"one server": func(t *testing.T) []string {
			return []string{serveAt(t, path, start(t, flags...))}
		},
		"two servers, one daemon": func(t *testing.T) []string {
			d := start(t, flags...)
			return []string{serveAt(t, path, d), serveAt(t, path, d)}
		},
		"two servers, two daemons, one Redis": func(t *testing.T) []string {
			shared := append(redisFlags("single", redistest.Single(t)), flags...)
			return []string{serveAt(t, path, start(t, shared...)), serveAt(t, path, start(t, shared...))}
		},
	} {
		t.Run(name, func(t *testing.T) {
			served, denied := askNews(t, servers(t))
			if served != 1000 || denied != 200 {
				t.Errorf("1200 requests: %d served, %d denied", served, denied)
			}
		})
	}
}

// askNews asks the servers in turn with 50 callers, 1200 times in all.
func askNews(t *testing.T, servers []string) (served, denied int64) {
	t.Helper()
	const callers, each = 50, 24
	transport := &http.Transport{MaxIdleConnsPerHost: callers}
	defer transport.CloseIdleConnections()
	browser := &http.Client{Transport: transport}
	var ok, tooMany atomic.Int64
	var all sync.WaitGroup
	begin := time.Now()
	for i := range callers {
		all.Go(func() {
			for j := range each {
				r, err := browser.Get(servers[(i+j)%len(servers)] + "/news")
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, r.Body)
				_ = r.Body.Close()
				switch {
				case r.StatusCode == http.StatusOK:
					ok.Add(1)
				case r.StatusCode == http.StatusTooManyRequests && r.Header.Get("Retry-After") != "":
					tooMany.Add(1)
				default:
					t.Errorf("a response is %d %v", r.StatusCode, r.Header)
				}
			}
		})
	}
	all.Wait()
	if took := time.Since(begin); took >= time.Minute {
		t.Fatalf("asking took %v; what was asked first does not count any more", took)
	}
	return ok.Load(), tooMany.Load()
}
