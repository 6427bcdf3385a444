package filestore_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/assign"
	"github.com/ratelimitd/ratelimitd/internal/assign/assigntest"
	"github.com/ratelimitd/ratelimitd/internal/assign/filestore"
)

// envVictim names the file that a process of this test changes until it is killed.
const envVictim = "FILESTORE_TEST_VICTIM"

func TestMain(m *testing.M) {
	if path := os.Getenv(envVictim); path != "" {
		fmt.Fprintln(os.Stderr, changeForever(path))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

const together = 50

// changeForever gives the same subjects one plan after the other, and writes each plan
// once they have it.
func changeForever(path string) error {
	s, err := filestore.Open(filestore.Options{Path: path, MaxRecords: 10 * together})
	if err != nil {
		return err
	}
	plan, _ := strconv.Atoi(s.Table().Get(subjectOf(0)).Base.Plan)
	for {
		plan++
		var changes []assign.Change
		for i := range together {
			changes = append(changes, assigntest.Plan(subjectOf(i), strconv.Itoa(plan)))
		}
		if _, err := s.Apply(context.Background(), changes); err != nil {
			return err
		}
		fmt.Println(plan)
	}
}

func subjectOf(i int) assign.Subject { return assigntest.Subject("api", strconv.Itoa(i)) }

// TestKilledDaemonLeavesNothingHalf kills a process in the middle of changes.
func TestKilledDaemonLeavesNothingHalf(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "assignments")
	s, err := filestore.Open(filestore.Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	for i := range together {
		assigntest.Apply(t, s, assigntest.Plan(subjectOf(i), "0"))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for round := range 8 {
		done := killAfter(t, path, 3+2*round)
		s, err := filestore.Open(filestore.Options{Path: path})
		if err != nil {
			t.Fatal(err)
		}
		plan := s.Table().Get(subjectOf(0)).Base.Plan
		if n, _ := strconv.Atoi(plan); n < done {
			t.Errorf("plan %d was in force, and is %d now", done, n)
		}
		for i := range together {
			if got := s.Table().Get(subjectOf(i)).Base.Plan; got != plan {
				t.Errorf("subject %d has plan %s, subject 0 has %s", i, got, plan)
			}
		}
		_, records := all(t, s)
		for i, r := range records[:together] {
			if r.After.Base.Plan != plan {
				t.Errorf("record %d of the newest is of plan %s, want %s", i, r.After.Base.Plan, plan)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// killAfter runs a process that changes a file, kills it after some changes, and
// returns the last plan that it wrote.
func killAfter(t *testing.T, path string, changes int) (done int) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), envVictim+"="+path)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for n := 0; lines.Scan(); n++ {
		done, _ = strconv.Atoi(lines.Text())
		if n == changes {
			_ = cmd.Process.Kill()
		}
	}
	_ = cmd.Wait()
	if done == 0 {
		t.Fatal("the process changed nothing")
	}
	return done
}
