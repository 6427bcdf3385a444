package integration

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/bucket/buckettest"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

// everyAlgorithm is a limits file with a rule of 100 a year for each
// algorithm.
func everyAlgorithm() string {
	var b strings.Builder
	b.WriteString("domain: all\ndescriptors:\n")
	for _, a := range buckettest.Rates() {
		fmt.Fprintf(&b, "  - key: %s\n    rate_limit: {algorithm: %s, requests: 100, period: 365d}\n", a, a)
	}
	return b.String()
}

func redisFlags(mode string, addresses ...string) []string {
	return []string{
		"--store", "redis", "--redis-mode", mode, "--redis-addresses", strings.Join(addresses, ","),
		"--redis-prefix", fmt.Sprintf("it-%x", rand.Uint64()), "--redis-timeout", "10s",
	}
}

// onEachRedis runs a test on one Redis and on a cluster, with the flags of a daemon there.
func onEachRedis(t *testing.T, test func(t *testing.T, flags []string)) {
	t.Helper()
	for mode, addresses := range map[string][]string{"single": {redistest.Single(t)}, "cluster": redistest.Cluster(t)} {
		t.Run(mode, func(t *testing.T) { test(t, redisFlags(mode, addresses...)) })
	}
}

// admittedOf has callers make so many requests each, of daemons in turn, all at the same time,
// and returns how many were admitted.
func admittedOf(t *testing.T, daemons []*daemon, callers, requests int, ask func(d *daemon, n int) (*rlsv3.RateLimitResponse, error)) int64 {
	t.Helper()
	var admitted atomic.Int64
	var wait sync.WaitGroup
	for i := range callers {
		wait.Go(func() {
			for n := range requests {
				r, err := ask(daemons[i%len(daemons)], n)
				if err != nil {
					t.Error(err)
					return
				}
				if ok(r) {
					admitted.Add(1)
				}
			}
		})
	}
	wait.Wait()
	return admitted.Load()
}

// Callers of three daemons on one Redis get exactly the limit together.
func TestThreeDaemonsAdmitExactlyTheLimit(t *testing.T) {
	t.Parallel()
	onEachRedis(t, func(t *testing.T, flags []string) {
		dir := t.TempDir()
		write(t, dir, "all.yaml", everyAlgorithm())
		flags = append(flags, "--limits-path", dir)
		daemons := []*daemon{start(t, flags...), start(t, flags...), start(t, flags...)}
		for _, a := range buckettest.Rates() {
			n := admittedOf(t, daemons, 30, 10, func(d *daemon, _ int) (*rlsv3.RateLimitResponse, error) {
				return d.tryAsk("all", 1, a.String()+"=k")
			})
			if n != 100 {
				t.Errorf("%s: three daemons admitted %d of a limit of 100", a, n)
			}
		}
	})
}

// However hard three daemons are hammered, in two spellings of one network, a pause begins
// once, is not extended, and ends by a reset. The two descriptors are on different hash tags
// of a cluster.
func TestPausesOverThreeDaemons(t *testing.T) {
	t.Parallel()
	onEachRedis(t, func(t *testing.T, flags []string) {
		const limits = "domain: d\ndescriptors:\n- {key: user, rate_limit: {requests: 1000000, period: 365d}}\n" +
			"- {key: address, network: {ipv6: 64}, rate_limit: {requests: 20, period: 365d, algorithm: sliding_window, block_for: 1h}}\n"
		daemons := startAll(t, 3, steered(t, limits, flags...)...)
		spellings := []string{"2001:db8::7", "[2001:0DB8:0:0::8]:443"}
		for round := range 2 {
			n := admittedOf(t, daemons, 12, 20, func(d *daemon, n int) (*rlsv3.RateLimitResponse, error) {
				two := request("d", 1, "address="+spellings[n%2])
				two.Descriptors = append(two.Descriptors, request("d", 1, fmt.Sprint("user=", n)).Descriptors...)
				return d.client.ShouldRateLimit(t.Context(), two)
			})
			pauses := 0.0
			for _, d := range daemons {
				pauses += d.total("ratelimitd_limit_pauses_total", `result="denied"`)
			}
			if n != 20 || pauses != float64(round+1) {
				t.Errorf("after %d resets %d of 20 were admitted and %v pauses began", round, n, pauses)
			}
			if out, _, _ := daemons[0].steer("", "explain", "--domain", "d", "address="+spellings[round]); !strings.Contains(out, "paused until ") {
				t.Errorf("explain says\n%s", out)
			}
			if _, stderr, code := daemons[0].steer("", "reset", "--domain", "d", "address="+spellings[1-round], "--reason", "a ticket"); code != 0 {
				t.Fatal(stderr)
			}
		}
	})
}

func TestLimitHoldsBehindSentinel(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, "all.yaml", everyAlgorithm())
	sentinels, master, _ := redistest.StartSentinel(t, "limits")
	d := start(t, append(redisFlags("sentinel", sentinels...), "--redis-sentinel-master", "limits", "--limits-path", dir)...)
	d.ask("all", 1, "gcra=k")
	master.Kill()
	asynctest.Eventually(t, "requests are degraded", func() bool { return degraded(d.ask("all", 1, "gcra=k")) })
	asynctest.Eventually(t, "the promoted replica decides", func() bool { return !degraded(d.ask("all", 1, "gcra=k")) })
}

// No output shows a secret, whatever happens.
func TestSecretsAreNotShown(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, "all.yaml", everyAlgorithm())
	server := redistest.Start(t, "--requirepass", "hunter2")
	_, log, code := commandEnv(t, []string{"RATELIMITD_REDIS_PASSWORD=wrong-hunter3"},
		append(append([]string{"serve"}, redisFlags("single", server.Addr())...), "--limits-path", dir, "--log-level", "debug")...)
	if code != 1 || strings.Contains(log, "hunter3") || !strings.Contains(log, "WRONGPASS") {
		t.Errorf("a wrong password gives the exit code %d and the log\n%s", code, log)
	}

	server.Kill()
	file := write(t, dir, "password", "hunter3\n")
	d := launch(t, nil, append(redisFlags("single", server.Addr()), "--limits-path", dir, "--log-level", "debug", "--redis-password-file", file)...)
	d.waitForLog("the store does not answer")
	server.Restart()
	if line := d.waitForLog("the store refuses the daemon"); !strings.Contains(line, "WRONGPASS") {
		t.Errorf("a wrong password gives the line %s", line)
	}
	write(t, dir, "password", "hunter2\n")
	d.waitForLog("the store answers") // the file was read again
	if log := d.logText(); strings.Contains(log, "hunter") {
		t.Errorf("the log shows the password:\n%s", log)
	}
}

func freeAddress(t testing.TB) string { return fmt.Sprintf("127.0.0.1:%d", redistest.FreePort(t)) }

// One daemon refunds, and another gives that out although it remembers a
// denial.
func TestRefundIsGivenOutByAnotherDaemon(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, "all.yaml", everyAlgorithm())
	flags := append(redisFlags("single", redistest.Single(t)), "--limits-path", dir)
	one, other := start(t, flags...), start(t, flags...)
	for _, a := range buckettest.Rates() {
		entry := a.String() + "=k"
		one.ask("all", 100, entry)
		if ok(one.ask("all", 1, entry)) || ok(other.ask("all", 1, entry)) {
			t.Fatalf("%s: more than the limit was admitted", a)
		}
		refund := request("all", 2, entry)
		refund.Descriptors[0].IsNegativeHits = true
		if r, err := other.client.ShouldRateLimit(t.Context(), refund); err != nil || !ok(r) {
			t.Fatalf("%s: a refund: %v %v", a, r, err)
		}
		if !ok(other.ask("all", 1, entry)) {
			t.Errorf("%s: the refund is not felt where it came", a)
		}
		asynctest.Eventually(t, "the refund of "+a.String()+" is felt elsewhere", func() bool { return ok(one.ask("all", 1, entry)) })
		if ok(other.ask("all", 1, entry)) {
			t.Errorf("%s: more than the refund was given out", a)
		}
	}
}
