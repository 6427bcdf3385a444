package sink_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/decisionlog"
	"github.com/ratelimitd/ratelimitd/internal/filetest"
)

// While the disk is full other limits come into force. What is decided by them stands
// behind their line once there is room again, or nobody could decide it again.
func TestLimitsThatFoundAFullDiskAreWrittenBeforeTheirLines(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Skip("a small disk takes the right to mount: ", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	ballast := filetest.Write(t, dir, "ballast", strings.Repeat("x", 56<<10))
	r := open(t, filepath.Join(dir, "d.jsonl"), nil)
	defer r.Close()
	r.Announce("first", nil)
	r.add("one")
	r.wantCounts(1, 0, 0)
	r.Announce("second", []decisionlog.File{{Name: "a.yaml", Text: strings.Repeat("#", 8<<10)}})
	r.add("two")
	r.wantCounts(1, 0, 1)
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	var got []string
	asynctest.Eventually(t, "lines", func() bool {
		r.add("three") // until it is tried again
		got = strings.Split(strings.TrimSpace(read(t, r.path)), "\n")
		return got[len(got)-1] == "three"
	})
	got = slices.Compact(slices.DeleteFunc(got, func(line string) bool { return said(line) != "" }))
	for i, line := range got {
		for _, name := range []string{"first", "second"} {
			if strings.Contains(line, `"limits":"`+name+`"`) {
				got[i] = name
			}
		}
	}
	if want := []string{"first", "one", "second", "three"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
