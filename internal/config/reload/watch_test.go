package reload_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/config/reload"
	"github.com/ratelimitd/ratelimitd/internal/filetest"
)

// watched watches a path until the test ends.
func watched(t *testing.T, path string) *reload.Live[string] {
	t.Helper()
	l, _ := newLive(path)
	ctx, cancel := context.WithCancel(context.Background())
	var watch sync.WaitGroup
	watch.Go(func() { l.Watch(ctx) })
	t.Cleanup(func() {
		cancel()
		watch.Wait()
	})
	return l
}

// wantInForce waits until a value is in force.
func wantInForce(t *testing.T, l *reload.Live[string], want string) {
	t.Helper()
	asynctest.Eventually(t, "the value "+want, func() bool { return valueOf(l) == want })
}

// wantError waits until the files have an error.
func wantError(t *testing.T, l *reload.Live[string]) {
	t.Helper()
	asynctest.Eventually(t, "an error", func() bool { return l.Status().LastError != nil })
}

func TestWatchSeesEveryChangeOfAFolder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		filetest.Write(t, dir, "a.yaml", "a")
		l := watched(t, dir)
		wantInForce(t, l, "a")

		filetest.Write(t, dir, "a.yaml", "a2") // edited
		wantInForce(t, l, "a2")
		replace(t, filepath.Join(dir, "a.yaml"), "a3") // as most editors do
		wantInForce(t, l, "a3")
		replace(t, filepath.Join(dir, "a.yaml"), "a4")
		wantInForce(t, l, "a4")
		filetest.Write(t, dir, "b.yml", "b") // added
		wantInForce(t, l, "a4 b")
		filetest.Write(t, dir, "sub/deep/c.json", "c")
		wantInForce(t, l, "a4 b c")
		filetest.Write(t, dir, "sub/deep/c.json", "c2")
		wantInForce(t, l, "a4 b c2")
		filetest.Write(t, dir, "b.yml", "bad") // broken: the last good ones stay
		wantError(t, l)
		wantInForce(t, l, "a4 b c2")
		os.Remove(filepath.Join(dir, "b.yml")) // removed
		wantInForce(t, l, "a4 c2")
		os.RemoveAll(filepath.Join(dir, "sub"))
		wantInForce(t, l, "a4")
		filetest.Write(t, dir, "sub/deep/c.json", "c3") // another folder of that name
		wantInForce(t, l, "a4 c3")
		filetest.Write(t, dir, "sub/deep/c.json", "c4")
		wantInForce(t, l, "a4 c4")

		other := t.TempDir() // a whole tree at once
		filetest.Write(t, other, "new/x/y/d.yaml", "d")
		rename(t, filepath.Join(other, "new"), filepath.Join(dir, "new"))
		wantInForce(t, l, "a4 c4 d")
		filetest.Write(t, dir, "new/x/y/d.yaml", "d2")
		wantInForce(t, l, "a4 c4 d2")
		rename(t, filepath.Join(dir, "new"), filepath.Join(other, "new"))
		wantInForce(t, l, "a4 c4")
	})
}

func TestWatchSeesAPathThatComesLater(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		l := watched(t, filepath.Join(dir, "etc", "limits"))
		wantError(t, l)
		filetest.Write(t, dir, "etc/limits/a.yaml", "a")
		wantInForce(t, l, "a")
		rename(t, filepath.Join(dir, "etc"), filepath.Join(dir, "old"))
		wantError(t, l)
		filetest.Write(t, dir, "new/limits/a.yaml", "b")
		rename(t, filepath.Join(dir, "new"), filepath.Join(dir, "etc"))
		wantInForce(t, l, "b")
	})
}

// In a ConfigMap files are links through ..data, a link that the kubelet replaces by
// a rename.
func TestWatchFollowsAConfigMap(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, path string }{{"folder", ""}, {"file", "limits.yaml"}} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dir := t.TempDir()
				publish := func(version int) {
					real := fmt.Sprintf("..2026_01_%02d", version)
					filetest.Write(t, dir, real+"/limits.yaml", fmt.Sprintf("v%d", version))
					filetest.Link(t, real, filepath.Join(dir, "..data_tmp"))
					rename(t, filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data"))
					os.RemoveAll(filepath.Join(dir, fmt.Sprintf("..2026_01_%02d", version-1)))
				}
				publish(1)
				filetest.Link(t, "..data/limits.yaml", filepath.Join(dir, "limits.yaml"))
				l := watched(t, filepath.Join(dir, c.path))
				for version := 1; version <= 4; version++ {
					if version > 1 {
						publish(version)
					}
					wantInForce(t, l, fmt.Sprintf("v%d", version))
				}
				// The status is shown a moment after the value.
				asynctest.Eventually(t, "generation 4", func() bool { return l.Status().Generation == 4 })
				if s := l.Status(); s.Failed != 0 {
					t.Errorf("status %+v", s)
				}
			})
		})
	}
}

// Deployments swap a link above the folder.
func TestWatchFollowsALinkAboveTheFolder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		for i := 1; i <= 3; i++ {
			filetest.Write(t, dir, fmt.Sprintf("releases/%d/config/limits/a.yaml", i), fmt.Sprintf("r%d", i))
		}
		filetest.Link(t, "releases/1", filepath.Join(dir, "current"))
		l := watched(t, filepath.Join(dir, "current", "config", "limits"))
		wantInForce(t, l, "r1")
		for i := 2; i <= 3; i++ {
			filetest.Link(t, fmt.Sprintf("releases/%d", i), filepath.Join(dir, "next"))
			rename(t, filepath.Join(dir, "next"), filepath.Join(dir, "current"))
			wantInForce(t, l, fmt.Sprintf("r%d", i))
			filetest.Write(t, dir, fmt.Sprintf("releases/%d/config/limits/b.yaml", i), "more")
			wantInForce(t, l, fmt.Sprintf("more r%d", i))
		}
	})
}

// Files that change faster than they are loaded are loaded once in the end.
func TestABurstOfChangesIsLoadedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		filetest.Write(t, dir, "a.yaml", "a")
		l := watched(t, dir)
		wantInForce(t, l, "a")
		for i := range 200 {
			filetest.Write(t, dir, fmt.Sprintf("f%d.yaml", i%20), fmt.Sprintf("d%d_%d", i%20, i))
		}
		filetest.Write(t, dir, "a.yaml", "end")
		asynctest.Eventually(t, "the end of the burst", func() bool { return strings.HasSuffix(valueOf(l), " end") && strings.Count(valueOf(l), " ") == 20 })
		if s := l.Status(); s.Generation != 2 {
			t.Errorf("%d generations in a burst", s.Generation)
		}
	})
}

func TestFilesThatNeverRestAreLoaded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		filetest.Write(t, dir, "a.yaml", "a")
		l := watched(t, dir)
		wantInForce(t, l, "a")
		i := 0
		asynctest.Eventually(t, "a load while files keep changing", func() bool {
			i++
			replace(t, filepath.Join(dir, "a.yaml"), fmt.Sprintf("a%d", i))
			return l.Status().Generation > 1
		})
	})
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
