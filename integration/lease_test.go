package integration

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/client"
	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/bucket/soaktest"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

// leaseYAML returns a limits file in which each of the keys a, b and so on has a limit.
func leaseYAML(specs []bucket.Spec) (yaml string, keys []string) {
	var b strings.Builder
	b.WriteString("domain: all\ndescriptors:\n")
	for i, s := range specs {
		key := string(rune('a' + i))
		keys = append(keys, key)
		fmt.Fprintf(&b, "  - key: %s\n    rate_limit: {algorithm: %s, requests: %d, period: %s", key, s.Algorithm, s.Requests, s.Period)
		if s.Burst != 0 {
			fmt.Fprintf(&b, ", burst: %d", s.Burst)
		}
		if s.Lease != 0 {
			fmt.Fprintf(&b, ", lease: %s", s.Lease)
		}
		b.WriteString("}\n")
	}
	return b.String(), keys
}

// checkSeen checks that no span saw more than the limits.
func checkSeen(t *testing.T, all []seen, specs []bucket.Spec) {
	t.Helper()
	for i, s := range specs {
		if err := all[i].exceeds(s); err != nil {
			t.Errorf("%s: %v", s.Algorithm, err)
		}
	}
}

// waves is demand for a limit of 1,000 a second with bursts of 2,000: a part of it is asked
// for, so that leases are left over, then nothing until the limit has recovered, then all of
// it and more. Whoever used what was left over would exceed the limit. Each wave is within a
// window of two seconds, if the first begins with one.
func waves(processes int) []int {
	rates := make([]int, 80)
	for i := range rates {
		switch {
		case 14 <= i && i < 18:
			rates[i] = 3_000 / processes
		case 41 <= i && i < 53:
			rates[i] = 20_000 / processes
		}
	}
	return rates
}

// Clients are killed and stopped for longer than their leases, daemons restarted, leases
// dropped and put back: no span of time sees more than the limits.
func TestLeasesAcrossProcesses(t *testing.T) {
	t.Parallel()
	specs := []bucket.Spec{
		{Algorithm: bucket.TokenBucket, Requests: 400, Period: time.Second, Lease: 100 * time.Millisecond},
		{Algorithm: bucket.SlidingWindow, Requests: 1000, Period: time.Second, Lease: 50 * time.Millisecond},
		{Algorithm: bucket.FixedWindow, Requests: 1000, Period: time.Second, Lease: 100 * time.Millisecond},
		{Algorithm: bucket.TokenBucket, Requests: 2000, Period: 2 * time.Second, Lease: 200 * time.Millisecond},
		{Algorithm: bucket.SlidingWindow, Requests: 2000, Period: 2 * time.Second, Lease: 200 * time.Millisecond},
		{Algorithm: bucket.FixedWindow, Requests: 2000, Period: 2 * time.Second, Lease: 200 * time.Millisecond},
	}
	const processes = 8
	yaml, keys := leaseYAML(specs)
	var demands []demand
	for i, key := range keys {
		rates := []int{20_000 / processes}
		if specs[i].Period == 2*time.Second {
			rates = waves(processes)
		}
		demands = append(demands, demand{key, rates})
	}
	unleased := make([]bucket.Spec, len(specs))
	lower := make([]bucket.Spec, len(specs))
	for i, s := range specs {
		s.Lease = 0
		unleased[i] = s
		s.Requests, s.Burst = s.Requests*3/4, s.Burst*3/4
		lower[i] = s
	}
	without, _ := leaseYAML(unleased)
	dir := t.TempDir()
	write(t, dir, "all.yaml", yaml)
	flags := append(redisFlags("cluster", redistest.Cluster(t)...), "--limits-path", dir, "--drain-delay", "0s")
	daemons := startAll(t, 3, flags...)
	target := daemons[0].grpc + "," + daemons[1].grpc + "," + daemons[2].grpc
	var callers []*leaseCaller
	for range processes {
		callers = append(callers, startLeaseCaller(t, job{Target: target, Demands: demands}))
	}
	grown := func(what string) {
		t.Helper()
		before := read(t, callers, len(keys))
		asynctest.Eventually(t, "requests are allowed "+what, func() bool {
			for i, s := range read(t, callers, len(keys)) {
				if len(s.asked) < len(before[i].asked)+200 {
					return false
				}
			}
			return true
		})
	}
	signal := func(c *leaseCaller, s os.Signal) {
		if err := c.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
	}
	load := func(text string, leases bool) {
		t.Helper()
		write(t, dir, "all.yaml", text)
		for _, d := range daemons {
			asynctest.Eventually(t, "the file is loaded", func() bool {
				_, body := get(t, "http://"+d.admin+"/rlconfig")
				return strings.Contains(body, "in the caller") == leases
			})
		}
	}
	grown("at first")
	signal(callers[0], syscall.SIGKILL)
	signal(callers[1], syscall.SIGSTOP)
	stopped := time.Now()
	load(without, false)
	grown("without leases")
	load(yaml, true)
	grown("with leases again")
	time.Sleep(time.Until(stopped.Add(soaktest.Long(2*time.Second, time.Minute))))
	signal(callers[1], syscall.SIGCONT)
	daemons[2].stop(syscall.SIGTERM)
	grown("by two daemons")
	daemons[2] = start(t, append(flags, "--grpc-address", daemons[2].grpc)...)
	grown("by three again")
	asynctest.Eventually(t, "three quarters of the limits are exceeded", func() bool {
		all := read(t, callers, len(keys))
		for i, s := range lower {
			if all[i].exceeds(s) == nil {
				return false
			}
		}
		return true
	})
	leased := finish(t, callers)
	all := read(t, callers, len(keys))
	for i, s := range specs {
		t.Logf("%s: %d were allowed", s.Algorithm, len(all[i].asked))
	}
	t.Logf("%d of them by leases", leased)
	if leased == 0 {
		t.Error("nothing was leased")
	}
	checkSeen(t, all, specs)
}

// The clients of two daemons ask for 3 and 2 of a limit of 4, and get 4.
func TestLeasesOfALimitOf4(t *testing.T) {
	t.Parallel()
	yaml, keys := leaseYAML([]bucket.Spec{
		{Algorithm: bucket.FixedWindow, Requests: 4, Period: 365 * 24 * time.Hour, Lease: time.Second},
		{Algorithm: bucket.SlidingWindow, Requests: 4, Period: time.Hour, Lease: time.Second},
	})
	dir := t.TempDir()
	write(t, dir, "all.yaml", yaml)
	daemons := startAll(t, 2, append(redisFlags("single", redistest.Single(t)), "--limits-path", dir)...)
	clients := []*client.Client{newClient(t, daemons[0].grpc), newClient(t, daemons[1].grpc)}
	for _, key := range keys {
		allowed := 0
		for i := range 5 {
			ok, err := clients[i%2].Allow(t.Context(), "all", client.E(key, "k"))
			if err != nil {
				t.Fatal(err)
			}
			if ok {
				allowed++
			}
		}
		if allowed != 4 {
			t.Errorf("%s: %d of 4 were allowed", key, allowed)
		}
	}
}

// Of 22,000 a second, 22,000 a second are asked, and from one moment to the next 367,000. No second
// sees more; a bucket's also its burst.
func TestLeasesWhenDemandJumps(t *testing.T) {
	t.Parallel()
	specs := []bucket.Spec{
		{Algorithm: bucket.SlidingWindow, Requests: 22_000, Period: time.Second, Lease: 100 * time.Millisecond},
		{Algorithm: bucket.TokenBucket, Requests: 22_000, Period: time.Second, Lease: 100 * time.Millisecond},
	}
	for _, s := range specs {
		yaml, keys := leaseYAML([]bucket.Spec{s})
		dir := t.TempDir()
		write(t, dir, "all.yaml", yaml)
		daemons := startAll(t, 2, append(redisFlags("single", redistest.Single(t)), "--limits-path", dir)...)
		processes := soaktest.Long(8, 64)
		start, tenths := time.Now(), soaktest.Long(15, 100)
		each := time.Duration(tenths) * 100 * time.Millisecond
		jump := start.Add(each).UnixMicro()
		rates := append(slices.Repeat([]int{22_000 / processes}, tenths), slices.Repeat([]int{367_000 / processes}, tenths)...)
		var callers []*leaseCaller
		for i := range processes {
			callers = append(callers, startLeaseCaller(t, job{
				Target: daemons[i%2].grpc, Demands: []demand{{keys[0], rates}}, Start: start.UnixMicro(),
			}))
		}
		time.Sleep(time.Until(start.Add(2 * each)))
		leased := finish(t, callers)
		all := read(t, callers, 1)
		after := 0
		for _, at := range all[0].asked {
			if at >= jump && at < jump+1_000_000 {
				after++
			}
		}
		t.Logf("%s: %d were allowed in the second after the jump; %d in all, %d by leases", s.Algorithm, after, len(all[0].asked), leased)
		checkSeen(t, all, []bucket.Spec{s})
	}
}

// A lease goes on while Redis or the daemon is away, then the failure choice decides, and
// no answer without Redis leases anything.
func TestLeasesDuringOutages(t *testing.T) {
	t.Parallel()
	yaml, keys := leaseYAML([]bucket.Spec{{Algorithm: bucket.FixedWindow, Requests: 1_000_000, Period: 365 * 24 * time.Hour, Lease: 200 * time.Millisecond}})
	dir := t.TempDir()
	write(t, dir, "all.yaml", yaml)
	server := redistest.Start(t)
	proxy := redistest.StartProxy(t, server.Addr())
	d := start(t, append(redisFlags("single", proxy.Addr()), "--limits-path", dir, "--redis-timeout", "500ms", "--failure-mode", "deny")...)
	c, err := client.New(d.grpc, client.Timeout(time.Second), client.OnFailure(client.FailDeny()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	ask := func() *client.Result {
		t.Helper()
		r, err := c.Take(t.Context(), client.Request{Domain: "all", Descriptors: []client.Descriptor{{Entries: []client.Entry{client.E(keys[0], "k")}}}})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	lease := func() {
		t.Helper()
		asynctest.Eventually(t, "a lease", func() bool {
			for range 100 {
				if r := ask(); r.Leased && r.Allowed {
					return true
				}
			}
			return false
		})
	}
	var goOn func()
	for _, fault := range []struct {
		name        string
		begin, heal func()
		denials     int // each of a daemon that is stopped lasts for the timeout
	}{
		{"Redis is cut off", proxy.Drop, func() { proxy.Heal(t) }, 10},
		{"Redis comes back empty", server.Kill, server.Restart, 10},
		{"the daemon is stopped", func() { goOn = d.hang() }, func() { goOn() }, 2},
	} {
		lease()
		fault.begin()
		asynctest.Eventually(t, "the failure choice decides while "+fault.name, func() bool {
			r := ask()
			if r.Allowed && r.Degraded {
				t.Errorf("%s: %+v", fault.name, r)
			}
			return !r.Allowed && (r.Degraded || r.Failure != nil)
		})
		leases := c.Stats().Leases
		for range fault.denials {
			if r := ask(); r.Allowed || r.Leased {
				t.Errorf("%s: after the lease: %+v", fault.name, r)
			}
		}
		if n := c.Stats().Leases - leases; n != 0 {
			t.Errorf("%s: %d leases were granted", fault.name, n)
		}
		fault.heal()
	}
	lease()
}
