package config_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/config"
	"github.com/ratelimitd/ratelimitd/internal/filetest"
)

// watched starts a Live on the path and ends it with the test.
func watched(t *testing.T, path string) (*config.Live, *asynctest.Buffer) {
	t.Helper()
	log := new(asynctest.Buffer)
	l := config.NewLive(path, slog.New(slog.NewTextHandler(log, nil)))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- l.Watch(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Watch: %v", err)
		}
	})
	return l, log
}

// domains are the names of the domains in force.
func domains(l *config.Live) string {
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

func inForce(t *testing.T, l *config.Live, want string) {
	t.Helper()
	asynctest.Eventually(t, "domains "+want, func() bool { return domains(l) == want })
}

func TestReload(t *testing.T) {
	dir := t.TempDir()
	path := filetest.Write(t, dir, "a.yaml", "domain: a")
	log := new(asynctest.Buffer)
	l := config.NewLive(dir, slog.New(slog.NewTextHandler(log, nil)))
	if l.Rules() != nil || l.Status().Generation != 0 {
		t.Error("there are rules before the first load")
	}
	if err := l.Reload(); err != nil {
		t.Fatal(err)
	}
	first := l.Rules()
	if s := l.Status(); s.Generation != 1 || s.LoadedAt.IsZero() || s.LastError != nil {
		t.Errorf("status %+v", s)
	}

	// The same text is the same generation.
	filetest.Write(t, dir, "a.yaml", "domain: a")
	loaded := l.Status()
	if err := l.Reload(); err != nil || l.Rules() != first || l.Status().Generation != 1 {
		t.Errorf("unchanged files: error %v, status %+v", err, l.Status())
	}
	if s := l.Status(); s.Succeeded != 1 || !s.SucceededAt.After(loaded.SucceededAt) || s.LoadedAt != loaded.LoadedAt {
		t.Errorf("unchanged files: status %+v, before %+v", s, loaded)
	}

	// One bad file holds back the good one; it is told once.
	filetest.Write(t, dir, "a.yaml", "domain: b")
	filetest.Write(t, dir, "bad.yaml", "domain: c\nfoo: 1")
	for range 3 {
		if err := l.Reload(); err == nil || l.Rules() != first {
			t.Errorf("bad file: error %v, domains %s", err, domains(l))
		}
	}
	if s := l.Status(); s.Generation != 1 || s.Failed != 1 || s.Succeeded != 1 || s.LastError == nil || s.FailedAt.IsZero() {
		t.Errorf("status %+v", s)
	}
	if n := log.Count("level=ERROR"); n != 1 {
		t.Errorf("the failure was logged %d times", n)
	}

	// Another mistake is told again.
	filetest.Write(t, dir, "bad.yaml", "domain: c\nbar: 1")
	if err := l.Reload(); err == nil || l.Status().Failed != 2 || log.Count("level=ERROR") != 2 {
		t.Errorf("error %v, status %+v", err, l.Status())
	}

	// Back to what is in force.
	filetest.Write(t, dir, "a.yaml", "domain: a")
	os.Remove(filepath.Join(dir, "bad.yaml"))
	if err := l.Reload(); err != nil || l.Rules() != first || l.Status().LastError != nil || l.Status().Generation != 1 || l.Status().Succeeded != 2 {
		t.Errorf("error %v, status %+v", err, l.Status())
	}

	os.Remove(path)
	os.Remove(dir)
	if err := l.Reload(); err == nil || l.Rules() != first {
		t.Errorf("missing path: error %v, domains %s", err, domains(l))
	}
}

// TestPassedOverIsToldOnce: also where it makes no difference to the rules.
func TestPassedOverIsToldOnce(t *testing.T) {
	dir := t.TempDir()
	filetest.Write(t, dir, "a.yaml", "domain: a")
	filetest.Write(t, dir, "b.txt", "domain: b")
	log := new(asynctest.Buffer)
	l := config.NewLive(dir, slog.New(slog.NewTextHandler(log, nil)))
	wantTold := func(step string, b, c int) {
		t.Helper()
		for range 2 {
			if err := l.Reload(); err != nil {
				t.Fatal(err)
			}
		}
		if log.Count("b.txt: passed over") != b || log.Count("c.conf: passed over") != c {
			t.Errorf("%s: want %d and %d lines", step, b, c)
		}
	}
	wantTold("at first", 1, 0)
	filetest.Write(t, dir, "c.conf", "domain: c")
	wantTold("one more", 1, 1)
	if l.Status().Generation != 1 {
		t.Errorf("generation %d", l.Status().Generation)
	}
	os.Remove(filepath.Join(dir, "b.txt"))
	wantTold("one less", 1, 1)
	filetest.Write(t, dir, "b.txt", "domain: b")
	wantTold("there again", 2, 1)
}

func TestWatchFolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	filetest.Write(t, dir, "a.yaml", "domain: a")
	l, _ := watched(t, dir)
	inForce(t, l, "a")

	filetest.Write(t, dir, "a.yaml", "domain: a2") // edited
	inForce(t, l, "a2")
	replace(t, filepath.Join(dir, "a.yaml"), "domain: a3") // as most editors do
	inForce(t, l, "a3")
	replace(t, filepath.Join(dir, "a.yaml"), "domain: a4")
	inForce(t, l, "a4")
	filetest.Write(t, dir, "b.yml", "domain: b") // added
	inForce(t, l, "a4 b")
	filetest.Write(t, dir, "sub/deep/c.json", `{"domain": "c"}`)
	inForce(t, l, "a4 b c")
	filetest.Write(t, dir, "sub/deep/c.json", `{"domain": "c2"}`)
	inForce(t, l, "a4 b c2")
	filetest.Write(t, dir, "b.yml", "domain: b\nfoo: 1") // broken: the last good ones stay
	asynctest.Eventually(t, "an error", func() bool { return l.Status().LastError != nil })
	inForce(t, l, "a4 b c2")
	os.Remove(filepath.Join(dir, "b.yml")) // removed
	inForce(t, l, "a4 c2")
	os.RemoveAll(filepath.Join(dir, "sub"))
	inForce(t, l, "a4")
	filetest.Write(t, dir, "sub/deep/c.json", `{"domain": "c3"}`) // another folder of that name
	inForce(t, l, "a4 c3")
	filetest.Write(t, dir, "sub/deep/c.json", `{"domain": "c4"}`)
	inForce(t, l, "a4 c4")

	other := t.TempDir() // a whole tree at once
	filetest.Write(t, other, "new/x/y/d.yaml", "domain: d")
	rename(t, filepath.Join(other, "new"), filepath.Join(dir, "new"))
	inForce(t, l, "a4 c4 d")
	filetest.Write(t, dir, "new/x/y/d.yaml", "domain: d2")
	inForce(t, l, "a4 c4 d2")
	rename(t, filepath.Join(dir, "new"), filepath.Join(other, "new"))
	inForce(t, l, "a4 c4")
}

func TestWatchFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "limits.yaml")
	l, _ := watched(t, path)
	asynctest.Eventually(t, "an error", func() bool { return l.Status().LastError != nil })
	filetest.Write(t, dir, "limits.yaml", "domain: a") // it comes later
	inForce(t, l, "a")
	replace(t, path, "domain: b")
	inForce(t, l, "b")
	rename(t, path, path+".old")
	asynctest.Eventually(t, "an error", func() bool { return l.Status().LastError != nil })
	inForce(t, l, "b")
	filetest.Write(t, dir, "limits.yaml", "domain: c")
	inForce(t, l, "c")
}

func TestWatchPathThatComesLater(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l, _ := watched(t, filepath.Join(dir, "etc", "limits"))
	asynctest.Eventually(t, "an error", func() bool { return l.Status().LastError != nil })
	filetest.Write(t, dir, "etc/limits/a.yaml", "domain: a")
	inForce(t, l, "a")
	rename(t, filepath.Join(dir, "etc"), filepath.Join(dir, "old"))
	asynctest.Eventually(t, "an error", func() bool { return l.Status().LastError != nil })
	filetest.Write(t, dir, "new/limits/a.yaml", "domain: b")
	rename(t, filepath.Join(dir, "new"), filepath.Join(dir, "etc"))
	inForce(t, l, "b")
}

// TestWatchConfigMap does what a kubelet does: files are links through ..data,
// a link that is replaced by rename.
func TestWatchConfigMap(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, path string }{{"folder", ""}, {"file", "limits.yaml"}} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			publish := func(version int) {
				real := fmt.Sprintf("..2026_01_%02d", version)
				filetest.Write(t, dir, real+"/limits.yaml", fmt.Sprintf("domain: v%d", version))
				link(t, real, filepath.Join(dir, "..data_tmp"))
				rename(t, filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data"))
				os.RemoveAll(filepath.Join(dir, fmt.Sprintf("..2026_01_%02d", version-1)))
			}
			publish(1)
			link(t, "..data/limits.yaml", filepath.Join(dir, "limits.yaml"))
			l, _ := watched(t, filepath.Join(dir, c.path))
			for version := 1; version <= 4; version++ {
				if version > 1 {
					publish(version)
				}
				inForce(t, l, fmt.Sprintf("v%d", version))
			}
			if s := l.Status(); s.Generation != 4 || s.Failed != 0 {
				t.Errorf("status %+v", s)
			}
		})
	}
}

// TestWatchReleases swaps a link above the folder, as deployments do.
func TestWatchReleases(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for i := 1; i <= 3; i++ {
		filetest.Write(t, dir, fmt.Sprintf("releases/%d/config/limits/a.yaml", i), fmt.Sprintf("domain: r%d", i))
	}
	link(t, "releases/1", filepath.Join(dir, "current"))
	l, _ := watched(t, filepath.Join(dir, "current", "config", "limits"))
	inForce(t, l, "r1")
	for i := 2; i <= 3; i++ {
		link(t, fmt.Sprintf("releases/%d", i), filepath.Join(dir, "next"))
		rename(t, filepath.Join(dir, "next"), filepath.Join(dir, "current"))
		inForce(t, l, fmt.Sprintf("r%d", i))
		filetest.Write(t, dir, fmt.Sprintf("releases/%d/config/limits/b.yaml", i), "domain: more")
		inForce(t, l, fmt.Sprintf("more r%d", i))
	}
}

// TestWatchBurst changes files faster than they may be loaded: that is one
// load in the end, or few when it goes on for long.
func TestWatchBurst(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	filetest.Write(t, dir, "a.yaml", "domain: a")
	l, _ := watched(t, dir)
	inForce(t, l, "a")
	began := time.Now()
	for i := range 200 {
		filetest.Write(t, dir, fmt.Sprintf("f%d.yaml", i%20), fmt.Sprintf("domain: d%d_%d", i%20, i))
	}
	filetest.Write(t, dir, "a.yaml", "domain: end")
	lasted := time.Since(began)
	asynctest.Eventually(t, "the end of the burst", func() bool { return strings.HasSuffix(domains(l), " end") && len(l.Rules().Domains()) == 21 })
	// One, unless this machine was so slow that it paused within the burst.
	if s := l.Status(); s.Generation > 2+int(lasted/(200*time.Millisecond)) {
		t.Errorf("%d generations in a burst of %v", s.Generation, lasted)
	}
}

func TestWatchWithoutRest(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	filetest.Write(t, dir, "a.yaml", "domain: a")
	l, _ := watched(t, dir)
	inForce(t, l, "a")
	i := 0
	asynctest.Eventually(t, "a load while files keep changing", func() bool {
		i++
		replace(t, filepath.Join(dir, "a.yaml"), fmt.Sprintf("domain: a%d", i))
		return l.Status().Generation > 1
	})
}

func TestRulesWhileReloading(t *testing.T) {
	dir := t.TempDir()
	filetest.Write(t, dir, "a.yaml", "domain: a")
	l := config.NewLive(dir, nil)
	if err := l.Reload(); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for range 4 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					_ = l.Status()
					if l.Rules().Domain("a") == nil {
						t.Error("rules without the domain")
						return
					}
				}
			}
		})
	}
	for i := range 100 {
		filetest.Write(t, dir, "b.yaml", fmt.Sprintf("domain: b%d", i))
		if err := l.Reload(); err != nil {
			t.Error(err)
		}
	}
	close(stop)
	wg.Wait()
	if g := l.Status().Generation; g != 101 {
		t.Errorf("generation %d", g)
	}
}

// replace writes a new file and renames it over the old.
func replace(t *testing.T, path, text string) {
	t.Helper()
	tmp := filepath.Join(filepath.Dir(path), ".tmp")
	if err := os.WriteFile(tmp, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	rename(t, tmp, path)
}

func rename(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}
