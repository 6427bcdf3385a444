package integration

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

// Redis stands still under load and goes on. Callers get degraded answers
// meanwhile; then Redis decides again with a right count.
func TestRedisCountsRightAfterStandingStill(t *testing.T) {
	t.Parallel()
	f := startFaulty(t, "allow")
	l := f.startLoad("user=a")
	l.more(t, "Redis admits", 50, admitted)
	for range 3 {
		f.server.Pause()
		l.more(t, "answers are degraded", 500, degradedAnswers)
		if !f.breakerIsOpen() {
			t.Error("the breaker is closed while Redis stands still")
		}
		f.server.Resume()
		l.more(t, "Redis admits again", 50, admitted)
		if f.breakerIsOpen() {
			t.Error("the breaker is open while Redis admits")
		}
	}
	f.checkCharges("user=a", l.stop())
	f.checkLog()
	if n := f.storeNotAsked("allow"); n < 500 {
		t.Errorf("%v answers were given without asking Redis", n)
	}
}

// Redis is killed twice and comes back empty.
func TestKilledRedisComesBackEmpty(t *testing.T) {
	t.Parallel()
	f := startFaulty(t, "allow")
	l := f.startLoad("user=a")
	l.more(t, "Redis admits", 50, admitted)
	var before, unknown int
	for range 2 {
		f.server.Kill()
		l.more(t, "answers are degraded", 500, degradedAnswers)
		before, unknown = l.now().admitted, int(f.total("ratelimitd_redis_unknown_outcomes_total"))
		f.server.Restart()
		l.more(t, "Redis admits again", 50, admitted)
	}
	seen := l.stop()
	// Admissions before the end are forgotten.
	charged := f.charged("user=a")
	if maxCharged := seen.admitted - before + int(f.total("ratelimitd_redis_unknown_outcomes_total")) - unknown; charged < seen.admitted-before || charged > maxCharged {
		t.Errorf("Redis counts %d, of which callers were told %d", charged, seen.admitted-before)
	}
	if seen.failed+seen.denied > 0 {
		t.Errorf("callers were told: %v", seen)
	}
	f.checkLog()
}

// A server that refuses is not asked by every caller. When it decides again,
// callers see it.
func TestRedisThatRefusesIsNotAskedByEveryCaller(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name       string
		args       []string
		begin, end [][]any
		reason     string
		breaks     bool
	}{
		{
			name:   "maxmemory with noeviction",
			begin:  [][]any{{"config", "set", "maxmemory", "1"}},
			end:    [][]any{{"config", "set", "maxmemory", "0"}},
			reason: "refused",
		},
		{
			name: "a replica",
			// Of nobody: it goes on with what it has.
			begin:  [][]any{{"replicaof", "127.0.0.1", "1"}},
			end:    [][]any{{"replicaof", "no", "one"}},
			reason: "refused", breaks: true,
		},
		{
			name:   "a replica that serves no stale data",
			args:   []string{"--replica-serve-stale-data", "no"},
			begin:  [][]any{{"replicaof", "127.0.0.1", "1"}},
			end:    [][]any{{"replicaof", "no", "one"}},
			reason: "refused", breaks: true,
		},
		{
			name:   "a password that the daemon does not have",
			begin:  [][]any{{"config", "set", "requirepass", "secret"}, {"client", "kill", "type", "normal", "skipme", "yes"}},
			end:    [][]any{{"config", "set", "requirepass", ""}},
			reason: "breaker_open", breaks: true,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, tc.args...)
			f := newFaulty(t, "allow", server)
			f.daemon = start(t, f.flags...)
			operator := redis.NewClient(&redis.Options{Addr: server.Addr(), Protocol: 2, PoolSize: 1, DisableIdentity: true})
			defer operator.Close()
			do := func(commands [][]any) {
				t.Helper()
				for _, c := range commands {
					if err := operator.Do(context.Background(), c...).Err(); err != nil {
						t.Fatalf("%v: %v", c, err)
					}
				}
			}
			l := f.startLoad("user=a")
			l.more(t, "Redis admits", 50, admitted)
			do(tc.begin)
			l.more(t, "answers are degraded", 500, degradedAnswers)
			if f.breakerIsOpen() != tc.breaks {
				t.Errorf("the breaker is open: %t, want %t", !tc.breaks, tc.breaks)
			}
			if n := f.degraded(`reason="` + tc.reason + `"`); n == 0 {
				t.Errorf("no answer is counted under %s", tc.reason)
			}
			do(tc.end)
			l.more(t, "Redis admits again", 50, admitted)
			f.checkCharges("user=a", l.stop())
			f.checkLog()
		})
	}
}

// A changed password in its file is used from the next connection on.
func TestChangedPasswordIsUsed(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--requirepass", "old")
	file := write(t, t.TempDir(), "password", "old\n")
	f := newFaulty(t, "deny", server, "--redis-password-file", file)
	f.daemon = start(t, f.flags...)
	f.waitForRedis()
	operator := redis.NewClient(&redis.Options{Addr: server.Addr(), Password: "old", Protocol: 2, PoolSize: 1, DisableIdentity: true})
	defer operator.Close()
	for _, c := range [][]any{{"config", "set", "requirepass", "new"}, {"client", "kill", "type", "normal", "skipme", "yes"}} {
		if err := operator.Do(context.Background(), c...).Err(); err != nil {
			t.Fatalf("%v: %v", c, err)
		}
	}
	asynctest.Eventually(t, "the old password is refused", func() bool {
		r := f.ask("faults", 1, "user=a")
		return !ok(r) && degraded(r) && f.breakerIsOpen()
	})
	before := f.ask("faults", 1, "user=a")
	if ok(before) || !degraded(before) {
		t.Errorf("with a wrong password and mode deny: %v", before)
	}
	write(t, filepath.Dir(file), "password", "new\n")
	f.waitForRedis()
	if n := f.charged("user=a"); n != 0 {
		t.Errorf("Redis counts %d of what it refused", n)
	}
	f.checkLog()
}

// The script's cache is flushed many times under load, and nobody notices.
func TestFlushedScriptIsUnnoticed(t *testing.T) {
	t.Parallel()
	f := startFaulty(t, "allow", "--redis-timeout", "10s")
	l := f.startLoad("user=a")
	for range 50 {
		flushScripts(t, []*redistest.Server{f.server})
		l.more(t, "Redis admits", 10, admitted)
	}
	seen := l.stop()
	if n := f.charged("user=a"); n != seen.admitted || seen.admitted != seen.asked() {
		t.Errorf("Redis counts %d, callers were told: %v", n, seen)
	}
}

// A Redis that is back is used within a second.
func TestRedisThatIsBackIsSoonUsed(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]struct{ begin, end func(*faulty) }{
		"stands still": {func(f *faulty) { f.server.Pause() }, func(f *faulty) { f.server.Resume() }},
		"lost packets": {func(f *faulty) { f.proxy.Drop() }, func(f *faulty) { f.proxy.Heal(f.t) }},
		"refused":      {func(f *faulty) { f.proxy.Refuse() }, func(f *faulty) { f.proxy.Heal(f.t) }},
		"killed":       {func(f *faulty) { f.server.Kill() }, func(f *faulty) { f.server.Restart() }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := startFaulty(t, "allow")
			best := time.Hour
			// A busy machine may be slow now and then.
			for tries := 0; best > time.Second && tries < 10; tries++ {
				f.waitForRedis()
				fault.begin(f)
				f.waitForBreaker()
				fault.end(f)
				back := time.Now()
				for !f.decided("user=a") && time.Since(back) < time.Minute {
					time.Sleep(10 * time.Millisecond) // wait until it is back
				}
				best = min(best, time.Since(back))
			}
			if best > time.Second {
				t.Errorf("at the best of ten times Redis was used again after %s", best)
			}
		})
	}
}
