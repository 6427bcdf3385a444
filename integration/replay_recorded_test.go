package integration

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/bucket/soaktest"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

const recordedLimits = `
domain: d
descriptors:
  - {key: bucket, rate_limit: {requests: 5, period: 300ms}}
  - {key: window, rate_limit: {algorithm: sliding_window, requests: 5, period: 300ms}}
`

// By default a daemon does not log all of a busy subject: the log says so, and a replay
// says it first and is not equal.
func TestReplayOfALogThatLacksDecisions(t *testing.T) {
	t.Parallel()
	d, path := logging(t)
	asked := 0
	for asked < 180 || d.total("ratelimitd_decision_log_lines_total", `result="thinned"`) == 0 {
		d.ask("api", 1, "user=alice")
		asked++
	}
	if code := d.stop(syscall.SIGTERM); code != 0 {
		t.Fatalf("the daemon exits with %d", code)
	}
	out, stderr, code := command(t, "replay", "--json", path)
	var report struct {
		Lines int
		Lacks struct {
			Decisions int
			Bounds    struct {
				PerSubject int `json:"per_subject"`
			}
		}
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatalf("%v: %s", err, stderr)
	}
	if code != 2 || report.Lacks.Decisions == 0 || report.Lacks.Decisions+report.Lines != asked || report.Lacks.Bounds.PerSubject != 10 {
		t.Errorf("it exits with %d: %+v", code, report)
	}
	if out, _, code = command(t, "replay", path); code != 2 || !strings.HasPrefix(out, "WARNING: the log lacks at least ") {
		t.Errorf("it exits with %d: %s", code, out)
	}
}

// What a daemon decided under load, while its limits changed, is decided again from its log.
func TestRecordedRunIsReplayed(t *testing.T) {
	t.Parallel()
	for store, flags := range map[string]func() []string{
		"memory": func() []string { return nil },
		"redis":  func() []string { return redisFlags("single", redistest.Single(t)) },
		// The limits of one descriptor are on one node. Parts of a request on several
		// nodes are decided each at a moment of its own, and a replay decides them at once.
		"cluster": func() []string { return redisFlags("cluster", redistest.Cluster(t)...) },
	} {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			limits, path := t.TempDir(), filepath.Join(t.TempDir(), "decisions.jsonl")
			write(t, limits, "limits.yaml", recordedLimits)
			d := start(t, append(flags(), "--limits-path", limits, "--redis-timeout", "10s", "--decisions-path", path,
				"--decisions-per-subject", "0", "--decisions-bytes-per-second", "0", "--decisions-buffer", "268435456")...)
			subjects := append(numbered("bucket", 4), numbered("window", 4)...)
			load := gather(t, []*daemon{d}, "d", 2, 5*time.Millisecond, subjects...)
			load.waitDecided(soaktest.Long(50, 5000), subjects)
			write(t, limits, "limits.yaml", with(t, recordedLimits, "requests: 5, period: 300ms", "requests: 9, period: 300ms"))
			asynctest.Eventually(t, "the changed limits are loaded", func() bool {
				return d.total("ratelimitd_limits_reloads_total", `result="success"`) == 2
			})
			load.waitDecided(soaktest.Long(50, 5000), subjects)
			load.goHome()
			if code := d.stop(syscall.SIGTERM); code != 0 {
				t.Fatalf("the daemon exits with %d", code)
			}
			seen := load.sum(subjects)
			out, stderr, code := command(t, "replay", "--json", path)
			var report struct {
				Degraded   int
				Comparison struct{ Equal, Different, Remembered int }
			}
			if err := json.Unmarshal([]byte(out), &report); err != nil {
				t.Fatalf("%v: %s", err, stderr)
			}
			// On a busy machine Redis may not answer in time; then the run is not whole.
			c := report.Comparison
			if report.Degraded == 0 && (code != 0 || c.Different != 0 || c.Equal+c.Remembered != seen.asked()) || seen.denied == 0 || seen.admitted == 0 {
				t.Errorf("of %v the replay reports %+v, and exits with %d", seen, report, code)
			}
		})
	}
}
