package filestore_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/ratelimitd/ratelimitd/internal/assign"
	"github.com/ratelimitd/ratelimitd/internal/assign/assigntest"
	"github.com/ratelimitd/ratelimitd/internal/assign/filestore"
	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
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

// A file with more assignments than there may be is not loaded, since it may be more
// than memory has.
func TestFileWithMoreThanThereIsRoomForIsRefused(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "assignments")
	s, err := filestore.Open(filestore.Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		assigntest.Apply(t, s, assigntest.Plan(assigntest.Subject("api", fmt.Sprint(i)), "p"))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := filestore.Open(filestore.Options{Path: path, MaxAssignments: 4}); err == nil || !strings.HasSuffix(err.Error(), "it has 5 assignments, and assignments.max is 4: raise that") {
		t.Errorf("got %v", err)
	}
	if n := open(t, filestore.Options{Path: path, MaxAssignments: 5}).Table().Len(); n != 5 {
		t.Errorf("with room for all there are %d", n)
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

// A daemon to which nobody assigns anything needs no place to write, and says so
// once it needs one.
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
	applied, err := second.Apply(context.Background(), []assign.Change{change})
	if !errors.Is(err, assign.ErrNothingChanged) || !strings.Contains(err.Error(), "another daemon has made it") || applied.Results[0].Outcome != assign.Unknown {
		t.Errorf("the second daemon: %+v, error %v", applied, err)
	}
	if second.Table().Len() != 0 {
		t.Error("what was not kept is in force")
	}
	blocked := filepath.Join(path, "not-a-folder", "assignments")
	if _, err := filestore.Open(filestore.Options{Path: blocked}); err == nil {
		t.Error("a path below a file is opened")
	}
}

// A daemon says at its start that the first change will fail, and starts.
func TestFileThatCannotBeMadeIsToldAtTheStart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	opened := func(path string) string {
		var log asynctest.Buffer
		open(t, filestore.Options{Path: path, Log: slog.New(slog.NewTextHandler(&log, nil))})
		return log.String()
	}
	for _, path := range []string{dir + "/assignments", dir + "/not/yet/there/assignments", "", "assignments-of-no-test"} {
		if log := opened(path); log != "" {
			t.Errorf("%q: the log has %s", path, log)
		}
	}
	if err := errors.Join(os.Chmod(filepath.Dir(dir), 0o755), os.Chmod(dir, 0o555)); err != nil {
		t.Fatal(err)
	}
	var log string
	asNobody(t, func() { log = opened(dir + "/not/yet/there/assignments") })
	if !strings.Contains(log, "level=WARN") || !strings.Contains(log, "set assignments.path") || !strings.Contains(log, dir+": permission denied") {
		t.Errorf("the log has %s", log)
	}
}

// asNobody runs do as a user who is not root, on a thread of its own, which ends with it.
func asNobody(t testing.TB, do func()) {
	t.Helper()
	done := make(chan syscall.Errno)
	go func() {
		var failed syscall.Errno
		defer func() { done <- failed }()
		runtime.LockOSThread()
		if os.Geteuid() == 0 {
			if _, _, failed = syscall.RawSyscall(syscall.SYS_SETRESUID, 65532, 65532, 65532); failed != 0 {
				return
			}
		}
		do()
	}()
	if failed := <-done; failed != 0 {
		t.Fatal(failed)
	}
}

// A page of records looks at some of many, and goes on from there.
func TestPagesOfFewRecordsAmongManyAreBounded(t *testing.T) {
	t.Parallel()
	const many, maxLooked = 12_000, 5_000
	s := open(t, filestore.Options{MaxRecords: many})
	put := func(value string, n int) {
		var changes []assign.Change
		for i := range n {
			changes = append(changes, assign.Change{Assignment: assign.Assignment{
				Subject: assign.Subject{Domain: "d", Entries: []bucket.Entry{{Key: "tenant", Value: value}}},
				Terms:   assign.Terms{Plan: "p"},
				Reason:  strconv.Itoa(i), // so that each is a change
			}})
		}
		if _, err := s.Apply(t.Context(), changes); err != nil {
			t.Fatal(err)
		}
	}
	put("first", 2)
	put("others", many-2)
	q := assign.RecordQuery{Domain: "d", Entries: []bucket.Entry{{Key: "tenant", Value: "first"}}, Max: 1}
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
		t.Errorf("2 among %d: pages of %v, want %v, each of which looked at %d at most", many, sizes, want, maxLooked)
	}
}

// A file of the version before parts is read on, and what is written into it that this
// version could say, it could read.
func TestFileFromBeforePartsIsReadOn(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/before_parts.db")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "assignments")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	open := func() *filestore.Store {
		s, err := filestore.Open(filestore.Options{Path: path})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := open()
	if wrong := assigntest.WrongWrittenBefore(s.Table()); wrong != "" {
		t.Error(wrong)
	}
	held, records := all(t, s)
	if len(records) != 8 || records[0].Before == nil || records[1].After == nil {
		t.Errorf("%d records: %+v", len(records), records)
	}
	for _, a := range held {
		c := assign.Change{Assignment: assign.Assignment{Subject: a.Subject, Terms: assign.Terms{Unlimited: true}, Ends: assign.Ends{UnlimitedUntil: assign.MaxMoment}}}
		if got := assigntest.Apply(t, s, c)[0]; got.Outcome != assign.Replaced || !reflect.DeepEqual(got.Before, a) {
			t.Errorf("%+v: got %+v", a, got)
		}
	}
	want, _ := all(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open()
	if got, _ := all(t, s); !reflect.DeepEqual(got, want) {
		t.Errorf("after a restart: got %+v, want %+v", got, want)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	checkForms(t, path)
}

// checkForms holds what a file has against what versions before parts read.
func checkForms(t *testing.T, path string) {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	forms := map[bool]int{}
	err = db.View(func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte("assignments")).ForEach(func(_, value []byte) error {
			forms[strings.Contains(string(value), `"parts":`)]++
			a, err := assign.Decode(value)
			if err != nil {
				return err
			}
			if wrong := assigntest.WrongForm(value, a); wrong != "" {
				return errors.New(wrong)
			}
			return nil
		})
	})
	if err != nil || forms[true] != 4 || forms[false] != 2 {
		t.Errorf("forms %v: %v", forms, err)
	}
}
