package filestore_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/assign"
	"github.com/ratelimitd/ratelimitd/internal/assign/assigntest"
	"github.com/ratelimitd/ratelimitd/internal/assign/filestore"
)

// residentBytesOf returns how many bytes of a mapped file are memory of this process.
func residentBytesOf(t *testing.T, path string) int {
	t.Helper()
	text, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	_, mapping, _ := strings.Cut(string(text), path+"\n")
	_, rss, isThere := strings.Cut(mapping, "\nRss:")
	if !isThere {
		t.Fatalf("%s is not mapped", path)
	}
	kilobytes, err := strconv.Atoi(strings.Fields(rss)[0])
	if err != nil {
		t.Fatal(err)
	}
	return kilobytes << 10
}

// The system maps what is around a page too, so all of a file would soon be memory of a
// daemon into which many assignments are imported once more.
func TestPagesOfTheFileAreLetGoOf(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "assignments")
	s := open(t, filestore.Options{Path: path})
	const batches, size = 20, 1000
	reason := strings.Repeat("x", 250)
	maxResident := 0
	for round := range 2 {
		for batch := range batches {
			changes := make([]assign.Change, size)
			for i := range changes {
				changes[i] = assigntest.Plan(assigntest.Subject("api", strconv.Itoa(batch*size+i+10000)), fmt.Sprint("p", round))
				changes[i].Assignment.Reason = reason
			}
			assigntest.Apply(t, s, changes...)
			if round == 1 {
				maxResident = max(maxResident, residentBytesOf(t, path))
			}
		}
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if maxResident > 8<<20 {
		t.Errorf("%d bytes of a file of %d stay in memory", maxResident, info.Size())
	}
}
