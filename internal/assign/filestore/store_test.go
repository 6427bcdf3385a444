package filestore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/assign"
	"github.com/ratelimitd/ratelimitd/internal/assign/assigntest"
	"github.com/ratelimitd/ratelimitd/internal/assign/filestore"
	"github.com/ratelimitd/ratelimitd/internal/filetest"
)

// store does what the suite asks for.
type store struct{ *filestore.Store }

func (s store) StateKey(name string) string { return name }

func (s store) Sweep(context.Context) error { return s.Store.Sweep() }

func open(t testing.TB, o filestore.Options) store {
	t.Helper()
	s, err := filestore.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { s.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return store{s}
}

func TestStoreInAFile(t *testing.T) {
	t.Parallel()
	assigntest.Test(t, func(t *testing.T, o assigntest.Options) assigntest.Store {
		return open(t, filestore.Options{Path: filepath.Join(t.TempDir(), "assignments"), MaxRecords: o.MaxRecords,
			MaxAssignments: o.MaxAssignments, Hooks: o.Hooks, Clock: o.Clock})
	})
}

func TestStoreInMemory(t *testing.T) {
	t.Parallel()
	assigntest.Test(t, func(t *testing.T, o assigntest.Options) assigntest.Store {
		return open(t, filestore.Options{MaxRecords: o.MaxRecords, MaxAssignments: o.MaxAssignments, Hooks: o.Hooks, Clock: o.Clock})
	})
}

// all returns what a store has.
func all(t testing.TB, s assign.Store) ([]*assign.Assignment, []assign.Record) {
	t.Helper()
	records, _, err := s.Records(context.Background(), assign.RecordQuery{Max: 1_000_000})
	if err != nil {
		t.Fatal(err)
	}
	return slices.Collect(s.Table().All()), records
}

func TestRestartForgetsNothing(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "assignments")
	var wantHeld []*assign.Assignment
	var wantRecords []assign.Record
	for i := range 3 {
		s, err := filestore.Open(filestore.Options{Path: path, MaxRecords: 20})
		if err != nil {
			t.Fatal(err)
		}
		held, records := all(t, s)
		if !reflect.DeepEqual(held, wantHeld) || !reflect.DeepEqual(records, wantRecords) {
			t.Fatalf("after restart %d: %d and %d records, want %d and %d", i, len(held), len(records), len(wantHeld), len(wantRecords))
		}
		for j := range 15 {
			assigntest.Apply(t, s, assigntest.Plan(assigntest.Subject("api", fmt.Sprint(i, j%12)), fmt.Sprint("p", j)))
		}
		assigntest.Apply(t, s, assigntest.Delete(assigntest.Subject("api", fmt.Sprint(i, 3))))
		wantHeld, wantRecords = all(t, s)
		if i > 0 && len(wantRecords) != 20 {
			t.Fatalf("%d records, want 20", len(wantRecords))
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestNothingChangesBeforeTheFileIsLoaded(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "assignments")
	s, err := filestore.Open(filestore.Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	assigntest.Apply(t, s, assigntest.Plan(assigntest.Subject("api", "x"), "p"))
	want, wantRecords := all(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err = filestore.New(filestore.Options{Path: path}); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	_, err = s.Apply(t.Context(), []assign.Change{assigntest.Plan(assigntest.Subject("api", "y"), "p")})
	if _, resetErr := s.Reset(t.Context(), assign.Reset{}); s.Loaded() || !errors.Is(err, assign.ErrNothingChanged) || !errors.Is(resetErr, assign.ErrNothingChanged) {
		t.Errorf("it is loaded: %t; a change: %v; a reset: %v", s.Loaded(), err, resetErr)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if err := s.Load(ended); !errors.Is(err, context.Canceled) || s.Loaded() {
		t.Errorf("a load that is ended: %v", err)
	}
	if err := s.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	if held, records := all(t, s); !s.Loaded() || !reflect.DeepEqual(held, want) || !reflect.DeepEqual(records, wantRecords) {
		t.Errorf("it has %v, %v", held, records)
	}
}

func TestFileOfAnotherDaemonIsRefused(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "assignments")
	assigntest.Apply(t, open(t, filestore.Options{Path: path}), assigntest.Plan(assigntest.Subject("api", "x"), "p"))
	_, err := filestore.Open(filestore.Options{Path: path})
	if err == nil || err.Error() != "assignments file "+path+": another daemon has it" {
		t.Errorf("got %v", err)
	}
}

// A file that is not to be had is no error where it is optional: assignments are then in
// memory, and the log says so.
func TestOptionalFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	optional := func(path string) (store, string) {
		t.Helper()
		var log bytes.Buffer
		s := open(t, filestore.Options{Path: path, Optional: true, Log: slog.New(slog.NewTextHandler(&log, nil))})
		return s, log.String()
	}
	path := filepath.Join(dir, "assignments")
	first, log := optional(path)
	if !strings.Contains(log, "kept in a file") {
		t.Errorf("the first logs %s", log)
	}
	second, log := optional(path) // before the first has changed anything
	if !strings.Contains(log, "kept in memory") || !strings.Contains(log, "another daemon has it") {
		t.Errorf("the second logs %s", log)
	}
	missing := filepath.Join(dir, "none")
	third, log := optional(filepath.Join(missing, "assignments"))
	if !strings.Contains(log, "kept in memory") || !strings.Contains(log, "it cannot be opened: open ") || !strings.Contains(log, "no such file or directory") {
		t.Errorf("without the folder it logs %s", log)
	}
	for _, s := range []store{first, second, third} {
		assigntest.Apply(t, s, assigntest.Plan(assigntest.Subject("api", "x"), "p"))
	}
	if _, err := os.Stat(missing); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder is made: %v", err)
	}
	filetest.Write(t, dir, "damaged", "no assignments")
	if _, err := filestore.Open(filestore.Options{Path: filepath.Join(dir, "damaged"), Optional: true}); err == nil || !strings.Contains(err.Error(), "it is not one of assignments") {
		t.Errorf("a damaged file: %v", err)
	}
}

// TestDamagedFileIsRefused cuts a file, writes over each of its pages and has what is
// no such file.
func TestDamagedFileIsRefused(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "assignments")
	s, err := filestore.Open(filestore.Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	var changes []assign.Change
	for i := range 300 {
		changes = append(changes, assigntest.Plan(assigntest.Subject("api", fmt.Sprint(i)), "p"))
	}
	assigntest.Apply(t, s, changes...)
	want, _ := all(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	try := func(what string, text []byte) {
		damaged := filepath.Join(t.TempDir(), "damaged")
		if err := os.WriteFile(damaged, text, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := filestore.Open(filestore.Options{Path: damaged})
		if err == nil {
			defer s.Close()
			// The damage is in a free page, or in a record.
			if got := slices.Collect(s.Table().All()); !reflect.DeepEqual(got, want) {
				t.Errorf("%s: opened with %d of %d assignments", what, len(got), len(want))
			}
			_, _, _ = s.Records(t.Context(), assign.RecordQuery{Max: 1000})
			return
		}
		if !strings.HasPrefix(err.Error(), "assignments file "+damaged+": ") {
			t.Errorf("%s: got %v", what, err)
		}
	}
	page := os.Getpagesize()
	for at := page; at < len(whole); at += page {
		try(fmt.Sprint("cut at ", at), whole[:at])
	}
	for at := 2 * page; at+page <= len(whole) && at < 40*page; at += page {
		garbage := slices.Clone(whole)
		for i := at; i < at+page; i += 7 {
			garbage[i] ^= 0xa5
		}
		try(fmt.Sprint("garbage at ", at), garbage)
	}
	try("no such file", []byte(strings.Repeat("domain: api\n", 1000)))
}

// A daemon to which nothing is assigned needs no place to write, and reports it once it
// needs one.
func TestFileIsMadeByTheFirstChange(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "var", "lib", "assignments")
	change := assigntest.Plan(assigntest.Subject("api", "x"), "p")
	first, second := open(t, filestore.Options{Path: path}), open(t, filestore.Options{Path: path})
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Fatalf("opened, there is %v, error %v", entries, err)
	}
	if held, records := all(t, first); len(held) != 0 || len(records) != 0 {
		t.Errorf("there are %v and %v", held, records)
	}
	assigntest.Apply(t, first, change)
	if _, records := all(t, first); len(records) != 1 {
		t.Errorf("%d records", len(records))
	}
	results, err := second.Apply(context.Background(), []assign.Change{change})
	if !errors.Is(err, assign.ErrNothingChanged) || !strings.Contains(err.Error(), "another daemon has made it") || results[0].Outcome != assign.Unknown {
		t.Errorf("the second daemon: %+v, error %v", results, err)
	}
	if second.Table().Len() != 0 {
		t.Error("what was not kept is in force")
	}
	blocked := filepath.Join(path, "not-a-folder", "assignments")
	if _, err := filestore.Open(filestore.Options{Path: blocked}); err == nil {
		t.Error("a path below a file is opened")
	}
}

// A page of records reads some of many, and the next goes on from there.
func TestPagesOfFewRecordsAmongManyAreBounded(t *testing.T) {
	t.Parallel()
	const many, maxScanned = 12_000, 5_000
	s := open(t, filestore.Options{MaxRecords: many})
	put := func(value string, n int) {
		var changes []assign.Change
		for i := range n {
			changes = append(changes, assigntest.Plan(assigntest.Subject("d", value), strconv.Itoa(i)))
		}
		if _, err := s.Apply(t.Context(), changes); err != nil {
			t.Fatal(err)
		}
	}
	put("first", 2)
	put("others", many-2)
	q := assign.RecordQuery{Domain: "d", Entries: assigntest.Subject("d", "first").Entries, Max: 1}
	var sizes []int
	for {
		records, next, err := s.Records(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		sizes = append(sizes, len(records))
		if q.After = next; next == "" {
			break
		}
	}
	if want := []int{0, 0, 1, 1}; !slices.Equal(sizes, want) {
		t.Errorf("2 among %d: pages of %v, want %v, each of which reads %d at most", many, sizes, want, maxScanned)
	}
}
