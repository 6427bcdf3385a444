package integration

import (
	"fmt"
	"strings"
	"testing"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/fallback"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

// answered names the answer that a caller got.
func answered(r *rlsv3.RateLimitResponse, err error) string {
	text := "denied"
	switch {
	case err != nil:
		return status.Code(err).String()
	case ok(r):
		text = "allowed"
	}
	if degraded(r) {
		text += ", degraded"
	}
	return text
}

// without is the answers to 10 requests on a limit of 6 in each mode without
// Redis. One of two daemons grants 3.
func without(mode string) (answers []string) {
	for i := range 10 {
		switch {
		case mode == "error":
			answers = append(answers, codes.Unavailable.String())
		case mode == "allow" || mode == "local" && i < 3:
			answers = append(answers, "allowed, degraded")
		default:
			answers = append(answers, "denied, degraded")
		}
	}
	return answers
}

func (d *daemon) askTen(entry string) (answers []string) {
	for range 10 {
		answers = append(answers, answered(d.tryAsk("faults", 1, entry)))
	}
	return answers
}

// storeNotAsked counts the answers of a mode for which Redis was not asked, since the
// breaker is open.
func (d *daemon) storeNotAsked(mode string) float64 {
	return d.degraded(fmt.Sprintf("mode=%q", mode), fmt.Sprintf("reason=%q", fallback.BreakerOpen))
}

// Each mode answers as it should, set for the daemon or for a rule. It is
// counted under its name and leaves nothing in Redis.
func TestFailureModesAnswerAsTheyShould(t *testing.T) {
	t.Parallel()
	modes := []string{"local", "allow", "deny", "error"}
	for _, mode := range []string{"local", "error"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			f := startFaulty(t, mode, "--failure-replicas", "2")
			f.waitForRedis()
			f.server.Kill()
			f.waitForBreaker()
			before := f.degraded(fmt.Sprintf("mode=%q", mode))
			// First a rule without a mode, then rules with one.
			if got, want := f.askTen("few=a"), without(mode); strings.Join(got, "\n") != strings.Join(want, "\n") {
				t.Errorf("the daemon's mode %s gives %q, want %q", mode, got, want)
			}
			if n := f.degraded(fmt.Sprintf("mode=%q", mode)) - before; n != 10 {
				t.Errorf("%v answers are counted under %s, want 10", n, mode)
			}
			for _, own := range modes {
				before := f.storeNotAsked(own)
				if got, want := f.askTen(own+"=a"), without(own); strings.Join(got, "\n") != strings.Join(want, "\n") {
					t.Errorf("a rule's mode %s gives %q, want %q", own, got, want)
				}
				if n := f.storeNotAsked(own) - before; n != 10 {
					t.Errorf("%v answers are counted under a rule's %s, want 10", n, own)
				}
			}
			if out, _, code := command(t, "health", "--address", f.grpc); code != 0 {
				t.Errorf("health: %d, %q", code, out)
			}
			f.server.Restart()
			f.waitForRedis()
			for _, key := range append(modes, "few") {
				if r := f.ask("faults", 1, key+"=a"); !ok(r) || degraded(r) || r.GetStatuses()[0].GetLimitRemaining() != 5 {
					t.Errorf("with Redis back the first request on %s gives %v", key, r)
				}
			}
			f.checkLog()
		})
	}
}

// launchAway launches a daemon whose Redis is away.
func launchAway(t testing.TB, mode string, args ...string) (f *faulty, server *redistest.Server) {
	t.Helper()
	server = redistest.Start(t)
	return launchBefore(t, server, mode, args...), server
}

// launchBefore stops a Redis and launches a daemon for it.
func launchBefore(t testing.TB, server *redistest.Server, mode string, args ...string) *faulty {
	t.Helper()
	server.Kill()
	f := newFaulty(t, mode, server, args...)
	grpc, http, admin := freeAddress(t), freeAddress(t), freeAddress(t)
	f.daemon = launch(t, nil, append(f.flags, "--grpc-address", grpc, "--http-address", http, "--admin-address", admin)...)
	f.grpc, f.http, f.admin = grpc, http, admin
	f.dial(grpc)
	return f
}

// waitForHealth waits for this answer of the health check.
func (d *daemon) waitForHealth(want string) {
	d.t.Helper()
	asynctest.Eventually(d.t, "the daemon is "+want, func() bool {
		out, _, code := command(d.t, "health", "--address", d.grpc)
		return out == want+"\n" && (code == 0) == (want == "SERVING")
	})
}

// A daemon starts without Redis. It serves if its mode answers in place of
// Redis; with mode error it waits for Redis.
func TestDaemonStartsWithoutRedis(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"local"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			f, server := launchAway(t, mode, "--failure-replicas", "2")
			f.waitForHealth("SERVING")
			if got, want := f.askTen("few=a"), without(mode); strings.Join(got, "\n") != strings.Join(want, "\n") {
				t.Errorf("without Redis it gives %q, want %q", got, want)
			}
			server.Restart()
			f.waitForRedis()
			f.checkLog()
		})
	}
	for _, health := range []string{"serving", "not_serving"} {
		t.Run("error, health "+health, func(t *testing.T) {
			t.Parallel()
			f, server := launchAway(t, "error", "--failure-health", health)
			f.waitForLog("the store does not answer")
			f.waitForHealth("NOT_SERVING")
			if code, body := get(t, "http://"+f.http+"/healthcheck"); code != 500 || !strings.Contains(body, "the store does not answer") {
				t.Errorf("/healthcheck: %d %q", code, body)
			}
			if got := answered(f.tryAsk("faults", 1, "few=a")); got != "Unavailable" {
				t.Errorf("without Redis a request is %s", got)
			}
			if got := answered(f.tryAsk("faults", 1, "allow=a")); got != "allowed, degraded" {
				t.Errorf("without Redis a request on a rule of mode allow is %s", got)
			}
			server.Restart()
			f.waitForLog("msg=serving")
			f.waitForHealth("SERVING")
			f.waitForRedis()
			f.checkLog()
			if n := strings.Count(f.logText(), "the store does not answer"); n != 1 {
				t.Errorf("it was logged %d times that the store does not answer", n)
			}
		})
	}
}

// With failure.health first_answer a daemon is healthy once Redis has
// answered, whatever its mode answers before. It stays so.
func TestHealthWaitsForTheFirstAnswer(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"local", "error"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			f, server := launchAway(t, mode, "--failure-replicas", "2", "--failure-health", "first_answer")
			f.waitForLog("the store does not answer")
			f.waitForHealth("NOT_SERVING")
			if got, want := f.askTen("few=a"), without(mode); strings.Join(got, "\n") != strings.Join(want, "\n") {
				t.Errorf("without Redis it gives %q, want %q", got, want)
			}
			server.Restart()
			f.waitForLog("msg=serving")
			f.waitForHealth("SERVING")
			f.waitForRedis()
			server.Kill()
			f.waitForBreaker()
			if out, _, code := command(t, "health", "--address", f.grpc); code != 0 {
				t.Errorf("without Redis, later, health exits with %d: %q", code, out)
			}
		})
	}
}

// With failure.health not_serving the health check follows Redis; otherwise it
// does not.
func TestHealthFollowsRedis(t *testing.T) {
	t.Parallel()
	f := startFaulty(t, "error", "--failure-health", "not_serving")
	for range 2 {
		f.waitForHealth("SERVING")
		f.server.Pause()
		f.waitForHealth("NOT_SERVING")
		if got := answered(f.tryAsk("faults", 1, "few=a")); got != "Unavailable" {
			t.Errorf("without Redis a request is %s", got)
		}
		f.server.Resume()
	}
	f.waitForHealth("SERVING")
	f.checkLog()
}
