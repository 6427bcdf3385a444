package filestore_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/assign"
	"github.com/ratelimitd/ratelimitd/internal/assign/assigntest"
	"github.com/ratelimitd/ratelimitd/internal/assign/filestore"
	"github.com/ratelimitd/ratelimitd/internal/filetest"
)

// A change that finds the disk full is refused, not unknown: nothing of it is in force,
// nor after a restart, and the next one is made once there is room.
func TestFullDiskChangesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=256k"); err != nil {
		t.Skip("a small disk takes the right to mount: ", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	path := filepath.Join(dir, "assignments")
	s := open(t, filestore.Options{Path: path})
	assigntest.Apply(t, s, assigntest.Plan(assigntest.Subject("api", "before"), "p"))
	ballast := filetest.Write(t, dir, "ballast", "")
	if err := fill(ballast); err != nil {
		t.Fatal(err)
	}
	change := assigntest.Plan(assigntest.Subject("api", "after"), "p")
	change.Reason = strings.Repeat("x", 200)
	var err error
	for range 1000 { // free pages of the file take the first ones
		if _, err = s.Apply(context.Background(), []assign.Change{change}); err != nil {
			break
		}
		change.Entries = assigntest.Subject("api", change.Entries[0].Value+"x").Entries
	}
	if !errors.Is(err, assign.ErrNothingChanged) || !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("error %v, want one that says that nothing was changed", err)
	}
	if s.Table().Get(change.Subject) != nil {
		t.Error("the refused change is in force")
	}
	held, records := all(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, filestore.Options{Path: path})
	if again, kept := all(t, s); len(again) != len(held) || len(kept) != len(records) {
		t.Errorf("after a restart there are %d assignments and %d records, want %d and %d", len(again), len(kept), len(held), len(records))
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	assigntest.Apply(t, s, change)
}

// fill appends to a file until the disk is full.
func fill(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	if errors.Is(err, syscall.ENOSPC) {
		return nil
	}
	return err
}
