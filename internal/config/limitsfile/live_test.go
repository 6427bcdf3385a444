package limitsfile_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/config/limitsfile"
	"github.com/ratelimitd/ratelimitd/internal/config/rules"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
	"github.com/ratelimitd/ratelimitd/internal/filetest"
)

// domains returns the names of the domains in force.
func domains(l *rules.Live) string {
	r := l.Rules()
	if r == nil {
		return "no rules"
	}
	var names []string
	for _, d := range r.Domains() {
		names = append(names, d.Name)
	}
	return strings.Join(names, " ")
}

// What a reload does in general is tested in package reload.
func TestOneBadFileHoldsBackAllLimits(t *testing.T) {
	dir := t.TempDir()
	filetest.Write(t, dir, "a.yaml", "domain: a")
	l := limitsfile.NewLive(dir, nil)
	if got := domains(l); got != "no rules" {
		t.Errorf("before the first load: %s", got)
	}
	if err := l.Reload(); err != nil {
		t.Fatal(err)
	}
	first := l.Rules()
	filetest.Write(t, dir, "a.yaml", "domain: b")
	filetest.Write(t, dir, "bad.yaml", "domain: c\nfoo: 1")
	var errs yamlfile.Errors
	if err := l.Reload(); !errors.As(err, &errs) || len(errs) != 1 || l.Rules() != first {
		t.Errorf("error %v, domains %s", err, domains(l))
	}
	os.Remove(filepath.Join(dir, "bad.yaml"))
	if err := l.Reload(); err != nil || domains(l) != "b" {
		t.Errorf("error %v, domains %s", err, domains(l))
	}
}

func TestWatchLoadsLimitsThatChange(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		filetest.Write(t, dir, "a.yaml", "domain: a")
		l := limitsfile.NewLive(dir, nil)
		ctx, cancel := context.WithCancel(context.Background())
		var watch sync.WaitGroup
		watch.Go(func() { l.Watch(ctx) })
		defer watch.Wait()
		defer cancel()
		inForce := func(want string) {
			t.Helper()
			asynctest.Eventually(t, "domains "+want, func() bool { return domains(l) == want })
		}
		inForce("a")
		filetest.Write(t, dir, "b.yml", "domain: b")
		inForce("a b")
		filetest.Write(t, dir, "sub/deep/c.json", `{"domain": "c"}`)
		inForce("a b c")
		filetest.Write(t, dir, "b.yml", "domain: b\nfoo: 1")
		asynctest.Eventually(t, "an error", func() bool { return l.Status().LastError != nil })
		inForce("a b c")
		os.Remove(filepath.Join(dir, "b.yml"))
		inForce("a c")
	})
}

// A warning of a file that is passed over comes with it, though the rules stay the same.
func TestNewFilesThatArePassedOverAreReported(t *testing.T) {
	dir := t.TempDir()
	filetest.Write(t, dir, "a.yaml", "domain: a")
	log := new(asynctest.Buffer)
	l := limitsfile.NewLive(dir, slog.New(slog.NewTextHandler(log, nil)))
	for _, want := range []int{0, 1} {
		for range 2 {
			if err := l.Reload(); err != nil {
				t.Fatal(err)
			}
		}
		if n := log.Count("b.txt: passed over"); n != want {
			t.Errorf("%d lines, want %d", n, want)
		}
		filetest.Write(t, dir, "b.txt", "domain: b")
	}
}

// The rules before are garbage too, once others are in force.
func TestRulesAreReplacedSparingly(t *testing.T) {
	t.Parallel()
	var live *limitsfile.FedLive
	calls := 0
	live = limitsfile.Options{Sparing: func(replace func()) {
		before := live.Rules()
		replace()
		calls++
		if live.Rules() == before {
			t.Error("nothing was put in force")
		}
	}}.NewFedLive("a test", nil)
	for digest := range byte(2) {
		if err := live.Feed([32]byte{digest}, nil); err != nil {
			t.Fatal(err)
		}
	}
	if calls != 2 {
		t.Errorf("%d calls", calls)
	}
}
