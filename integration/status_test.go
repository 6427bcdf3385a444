package integration

import (
	"encoding/json"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

// status says what is well, what is wrong and what says more, and exits accordingly.
func TestStatusSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	limits := t.TempDir()
	write(t, limits, "limits.yaml", yearlyOf(3))
	d := start(t, append(redisFlags("single", server.Addr()), "--limits-path", limits)...)
	type found struct {
		Serving  bool
		Degraded float64 `json:"degraded_share"`
		Requests float64 `json:"requests_per_second"`
		Redis    struct {
			Nodes     []string
			RoundTrip string `json:"round_trip"`
		}
		Denials []struct{ Domain, Rule string }
		Wrong   []struct{ Text, More string }
	}
	status := func(load bool) (s found, code int) {
		done, ended := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(ended)
			for load {
				select {
				case <-done:
					return
				default:
					_, _ = d.tryAsk("api", 1, "user=alice")
				}
			}
		}()
		out, stderr, code := command(t, "status", "--admin-address", d.admin, "--window", "300ms", "--json")
		close(done)
		<-ended
		if err := json.Unmarshal([]byte(out), &s); err != nil {
			t.Fatalf("%v: %s%s", err, out, stderr)
		}
		return s, code
	}
	asynctest.Eventually(t, "a busy daemon is well", func() bool {
		s, code := status(true)
		return code == 0 && len(s.Wrong) == 0 && s.Serving && s.Requests > 0 && s.Degraded == 0 && len(s.Redis.Nodes) == 1 &&
			len(s.Denials) == 1 && s.Denials[0].Domain == "api" && s.Denials[0].Rule == "user"
	})
	names := func(text, more string) func() bool {
		return func() bool {
			s, code := status(true)
			return code == 1 && slices.ContainsFunc(s.Wrong, func(w struct{ Text, More string }) bool {
				return strings.Contains(w.Text, text) && w.More == more
			})
		}
	}
	write(t, limits, "limits.yaml", "domain: 5\ndescriptors: 5\n")
	asynctest.Eventually(t, "it says that the limits have errors", names("the limits files have errors", "ratelimitd check FOLDER"))
	server.Kill()
	asynctest.Eventually(t, "without requests it says that Redis is away", func() bool {
		s, code := status(false)
		return code == 1 && slices.ContainsFunc(s.Wrong, func(w struct{ Text, More string }) bool {
			return strings.HasPrefix(w.Text, "Redis does not answer, or")
		})
	})
	asynctest.Eventually(t, "it says that answers are degraded", names("of the answers are degraded", "ratelimitd explain"))
	if out, _, code := command(t, "status", "--admin-address", d.admin, "--window", "10ms"); code != 1 || !strings.Contains(out, " 1 rule, loaded ") || !strings.Contains(out, "WRONG ") || !strings.Contains(out, "see ratelimitd check FOLDER") {
		t.Errorf("it exits with %d: %s", code, out)
	}
	d.stop(syscall.SIGTERM)
	if _, stderr, code := command(t, "status", "--admin-address", d.admin); code != 2 || !strings.Contains(stderr, "cannot be reached") {
		t.Errorf("without a daemon it exits with %d: %s", code, stderr)
	}
}
