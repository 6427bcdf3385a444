package integration

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

// Redis persists nothing and is restarted: a block holds all the while, and the log reports
// it. With a snapshot it also outlives a restart of all daemons.
func TestBlockOutlivesRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	dir := t.TempDir()
	flags := steered(t, tenantPlans, append(redisFlags("single", server.Addr()), "--redis-timeout", "500ms")...)
	startOne := func(name string) *daemon {
		return start(t, append(flags, "--assignments-cache-path", filepath.Join(dir, name))...)
	}
	daemons := []*daemon{startOne("one"), startOne("two")}
	if _, stderr, code := daemons[0].steer("", "block", "--domain", "api", "tenant=mallory", "--reason", "abuse"); code != 0 {
		t.Fatal(stderr)
	}
	isBlocked := func(when string) {
		t.Helper()
		for i, d := range daemons {
			if r, err := d.tryAsk("api", 1, "tenant=mallory"); err != nil || ok(r) {
				t.Errorf("%s daemon %d says %v, %v", when, i, r, err)
			}
		}
	}
	asynctest.Eventually(t, "the other daemon has followed", func() bool { return !ok(daemons[1].ask("api", 1, "tenant=mallory")) })
	isBlocked("at first")
	server.Kill()
	isBlocked("while Redis is away")
	server.Restart()
	isBlocked("once Redis is back")
	putBack := func() float64 {
		sum := 0.0
		for _, d := range daemons {
			sum += d.total("ratelimitd_assignments_restored_total")
		}
		return sum
	}
	asynctest.Eventually(t, "the block is put back", func() bool { return putBack() == 1 })
	isBlocked("once it is put back")
	reports := 0
	for _, d := range daemons {
		reports += strings.Count(d.logText(), "level=ERROR msg=\"redis: assignments that Redis had lost were put back")
	}
	if reports != 1 {
		t.Errorf("the logs report it %d times", reports)
	}
	if out, _, _ := daemons[1].steer("", "audit"); !strings.Contains(out, "restored 1 of the assignments that Redis had lost") {
		t.Errorf("audit says %q", out)
	}

	for _, d := range daemons {
		d.stop(syscall.SIGTERM)
	}
	snapshot := filepath.Join(dir, "one")
	out, stderr, code := command(t, "assignments", "--export", "csv", "--snapshot", snapshot)
	if want := "api,tenant=mallory,,,,,,true,,abuse"; code != 0 || !strings.HasSuffix(strings.TrimSpace(out), want) || !strings.Contains(stderr, "1 assignments of single "+server.Addr()) {
		t.Errorf("the snapshot is exported with %d as %q, want %q; %s", code, out, want, stderr)
	}
	whole, err := os.ReadFile(snapshot)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"cut": string(whole[:len(whole)-4]), "foreign": "hello\n"} {
		path := write(t, t.TempDir(), name, text)
		want := map[string]string{"cut": "unexpected EOF", "foreign": "it is no snapshot of assignments"}[name]
		if out, stderr, code := command(t, "assignments", "--snapshot", path); code != 1 || out != "" || !strings.Contains(stderr, path+": "+want) {
			t.Errorf("a file that is %s: %d, %q, %q", name, code, out, stderr)
		}
	}
	if _, stderr, code := command(t, "assignments", "--snapshot", snapshot+".no"); code != 1 || !strings.Contains(stderr, "--snapshot: "+snapshot+".no: no such file") {
		t.Errorf("no file: %d, %q", code, stderr)
	}
	server.Kill()
	server.Restart()
	daemons = []*daemon{startOne("one"), startOne("two")}
	isBlocked("after a restart of all")
	asynctest.Eventually(t, "the block is put back from a snapshot", func() bool { return putBack() == 1 })
	isBlocked("once it is put back again")
	if out, stderr, code := daemons[0].steer("", "unblock", "--domain", "api", "tenant=mallory"); code != 0 {
		t.Errorf("unblock: %s %s", out, stderr)
	}
	asynctest.Eventually(t, "it is lifted everywhere", func() bool { return ok(daemons[1].ask("api", 1, "tenant=mallory")) })
}
