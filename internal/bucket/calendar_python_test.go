//go:build !race

package bucket_test

import (
	"archive/zip"
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/soaktest"
	"github.com/ratelimitd/ratelimitd/internal/bucket/zone"
)

// pythonCalendars are CALENDARS of testdata/windows.py.
var pythonCalendars = []struct {
	unit   bucket.CalendarUnit
	starts string
}{
	{bucket.CalendarHour, ""}, {bucket.CalendarHour, ":30"},
	{bucket.CalendarDay, ""}, {bucket.CalendarDay, "02:30"},
	{bucket.CalendarWeek, ""}, {bucket.CalendarWeek, "sunday 02:00"},
	{bucket.CalendarMonth, ""}, {bucket.CalendarMonth, "31 02:30"},
	{bucket.CalendarQuarter, ""}, {bucket.CalendarQuarter, "04-30"},
	{bucket.CalendarYear, ""}, {bucket.CalendarYear, "02-29"},
}

// oddZones have changes of clocks that are rare: a day that is missing, half an hour, two
// hours, a change at midnight, and summer time that ends for Ramadan.
var oddZones = []string{
	"Pacific/Apia", "Australia/Lord_Howe", "Antarctica/Troll", "America/Sao_Paulo", "Africa/Casablanca", "Europe/Berlin", "America/New_York",
}

// The windows of zones from 1970 to 2100 are those that Python computes from the same data:
// all months, quarters and years, and the hours, days and weeks around changes of clocks:
// each change until 2038, after which data are rules, and then those of every fifth year;
// with CALENDAR=everything all changes, days and weeks. make soak compares all zones, other
// runs every tenth and oddZones.
func TestWindowsAreThoseOfPython(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Fatalf("this test needs Python 3.9 or later: %v", err)
	}
	dir := t.TempDir()
	names := slices.Clone(oddZones)
	step := soaktest.Long(10, 1)
	for i, name := range unpackZones(t, dir) {
		if i%step == 0 {
			names = append(names, name)
		}
	}
	const workers = 4
	var checked atomic.Int64
	t.Run("zones", func(t *testing.T) {
		for w := range workers {
			t.Run(fmt.Sprint("part ", w), func(t *testing.T) {
				t.Parallel()
				var own []string
				for i := w; i < len(names); i += workers {
					own = append(own, names[i])
				}
				cmd := exec.CommandContext(t.Context(), python, "testdata/windows.py", os.Getenv("CALENDAR"))
				cmd.Env = append(os.Environ(), "PYTHONTZPATH="+dir)
				cmd.Stdin, cmd.Stderr = strings.NewReader(strings.Join(own, "\n")), os.Stderr
				out, err := cmd.StdoutPipe()
				if err != nil {
					t.Fatal(err)
				}
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				checked.Add(compareWindows(t, bufio.NewReaderSize(out, 1<<20), own))
				if err := cmd.Wait(); err != nil {
					t.Fatal(err)
				}
			})
		}
	})
	if n := checked.Load(); n < int64(500_000/step) {
		t.Errorf("only %d windows were compared", n)
	}
}

// unpackZones writes the embedded data to a directory, and returns the names of zones with
// different data.
func unpackZones(t *testing.T, dir string) (names []string) {
	r, err := zip.OpenReader("zone/zoneinfo.zip")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	seen := map[string]bool{}
	for _, f := range r.File {
		if strings.HasSuffix(f.Name, "/") {
			continue
		}
		in, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, filepath.FromSlash(f.Name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := zone.Load(f.Name); err == nil && !seen[string(data)] {
			seen[string(data)] = true
			names = append(names, f.Name)
		}
	}
	if len(names) < 250 {
		t.Fatalf("only %d zones", len(names))
	}
	return names
}

// compareWindows holds what Python writes about zones against Calendar.Window, and returns
// how many windows it compared.
func compareWindows(t *testing.T, from io.Reader, names []string) (checked int64) {
	next := func() int64 {
		var b [8]byte
		if _, err := io.ReadFull(from, b[:]); err != nil {
			t.Fatal(err)
		}
		return int64(binary.LittleEndian.Uint64(b[:]))
	}
	for _, name := range names {
		for _, of := range pythonCalendars {
			c := mustCalendar(t, of.unit, of.starts, name)
			for n := next(); n != 0; n = next() {
				start := next()
				for range n - 1 {
					end := next()
					if end != start { // a window that has a moment
						isWindow(t, c, start*1e6, end*1e6)
						checked++
					}
					start = end
				}
				if t.Failed() {
					return checked
				}
			}
		}
	}
	return checked
}

// isWindow fails t unless all that is asked from start to end is in that window.
func isWindow(t *testing.T, c bucket.Calendar, start, end int64) {
	t.Helper()
	for _, at := range []int64{start, end - 1} {
		if from, to := c.Window(at); from != start || to != end {
			t.Errorf("%s: %d is in the window %d to %d, want %d to %d", c, at, from, to, start, end)
		}
	}
}
