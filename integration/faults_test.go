package integration

import (
	"context"
	"math"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

// faultLimits has a limit out of reach, a small one, and one for each failure
// mode.
const faultLimits = `
domain: faults
descriptors:
  - key: user
    rate_limit: {algorithm: sliding_window, requests: 1000000, period: 366d}
  - key: few
    rate_limit: {algorithm: sliding_window, requests: 6, period: 366d}
  - key: local
    on_store_failure: local
    rate_limit: {algorithm: sliding_window, requests: 6, period: 366d}
  - key: allow
    on_store_failure: allow
    rate_limit: {algorithm: sliding_window, requests: 6, period: 366d}
  - key: deny
    on_store_failure: deny
    rate_limit: {algorithm: sliding_window, requests: 6, period: 366d}
  - key: error
    on_store_failure: error
    rate_limit: {algorithm: sliding_window, requests: 6, period: 366d}
`

// maxOfUser is the limit of a user in faultLimits.
const maxOfUser = 1_000_000

// faulty is a daemon that reaches its own Redis through a proxy.
type faulty struct {
	*daemon
	server *redistest.Server
	proxy  *redistest.Proxy
	flags  []string
}

// startFaulty starts a faulty in a failure mode.
func startFaulty(t testing.TB, mode string, args ...string) *faulty {
	t.Helper()
	f := newFaulty(t, mode, redistest.Start(t), args...)
	f.daemon = start(t, f.flags...)
	return f
}

// newFaulty makes a faulty that does not run yet.
func newFaulty(t testing.TB, mode string, server *redistest.Server, args ...string) *faulty {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, "faults.yaml", faultLimits)
	f := &faulty{server: server, proxy: redistest.StartProxy(t, server.Addr())}
	f.flags = append(redisFlags("single", f.proxy.Addr()),
		"--redis-timeout", "500ms", "--limits-path", dir, "--failure-mode", mode, "--drain-delay", "0s")
	f.flags = append(f.flags, args...)
	return f
}

func (d *daemon) breakerIsOpen() bool { return d.total("ratelimitd_redis_breaker_open") == 1 }

// degraded returns how many answers the daemon counts as given without Redis.
func (d *daemon) degraded(labels ...string) float64 {
	return d.total("ratelimitd_degraded_answers_total", labels...)
}

// decided reports whether Redis decided.
func (d *daemon) decided(entry string) bool {
	r, err := d.tryAsk("faults", 1, entry)
	return err == nil && !degraded(r)
}

// waitForRedis waits until Redis decides.
func (d *daemon) waitForRedis() {
	d.t.Helper()
	asynctest.Eventually(d.t, "Redis decides", func() bool { return d.decided("user=back") })
}

// waitForBreaker asks until the breaker is open.
func (d *daemon) waitForBreaker() {
	d.t.Helper()
	asynctest.Eventually(d.t, "the breaker opens", func() bool {
		_, _ = d.tryAsk("faults", 1, "user=breaking")
		return d.breakerIsOpen()
	})
}

// charged returns how much of a user's limit Redis counts. It asks another
// daemon, which bypasses the proxy.
func (f *faulty) charged(entry string) int {
	f.t.Helper()
	past := slices.Clone(f.flags)
	past[slices.Index(past, f.proxy.Addr())] = f.server.Addr()
	witness := start(f.t, append(past, "--redis-timeout", "10s")...)
	return witness.taken("faults", entry, maxOfUser)
}

// load is callers that ask again and again, and their answers.
type load struct {
	ledger
	stopped context.CancelFunc
	callers sync.WaitGroup
}

// startLoad lets 8 callers ask for one of entry again and again.
func (d *daemon) startLoad(entry string) *load {
	ctx, cancel := context.WithCancel(context.Background())
	l := &load{stopped: cancel}
	for range 8 {
		l.callers.Go(func() {
			for ctx.Err() == nil {
				l.ask(d, patient, "faults", entry)
				time.Sleep(time.Millisecond) // other tests need the machine
			}
		})
	}
	d.t.Cleanup(func() { l.stop() })
	return l
}

// more waits until at least n more were counted by what.
func (l *load) more(t testing.TB, what string, n int, count func(tally) int) {
	t.Helper()
	before := count(l.now())
	asynctest.Eventually(t, what, func() bool { return count(l.now()) >= before+n })
}

func admitted(n tally) int        { return n.admitted }
func degradedAnswers(n tally) int { return n.degraded }

func (l *load) stop() tally {
	l.stopped()
	l.callers.Wait()
	return l.now()
}

// checkCharges checks that Redis counts all that it admitted, and beyond that
// at most the requests without an answer: nothing was charged twice.
func (f *faulty) checkCharges(entry string, seen tally) {
	f.t.Helper()
	charged, unknown := f.charged(entry), int(f.total("ratelimitd_redis_unknown_outcomes_total"))
	f.t.Logf("callers were told: %v; Redis counts %d; %d outcomes are unknown", seen, charged, unknown)
	if charged < seen.admitted || charged > seen.admitted+unknown || charged > seen.asked() {
		f.t.Errorf("Redis counts %d, callers were told by it of %d, and %d did not hear; they asked %d times", charged, seen.admitted, unknown, seen.asked())
	}
	if seen.denied > 0 || seen.failed > 0 {
		f.t.Errorf("%d were denied and %d failed, with room for all and failure mode allow", seen.denied, seen.failed)
	}
	if counted := int(f.degraded()); counted < seen.degraded {
		f.t.Errorf("%d answers were marked as degraded, %d are counted", seen.degraded, counted)
	}
}

var troubleLine = regexp.MustCompile(`(?m)^.* level=(WARN|ERROR) .*$`)

// checkLog checks that trouble was logged, but not for every request.
func (d *daemon) checkLog() {
	d.t.Helper()
	lines := troubleLine.FindAllString(d.logText(), math.MaxInt)
	if len(lines) == 0 || len(lines) > 6 {
		d.t.Errorf("%d lines of trouble were logged, want 1 to 6:\n%s", len(lines), strings.Join(lines, "\n"))
	}
	for _, text := range []string{"the node does not answer", "could not sign in"} {
		if n := strings.Count(d.logText(), text); n > 2 {
			d.t.Errorf("%q was logged %d times; once a minute is enough", text, n)
		}
	}
}
