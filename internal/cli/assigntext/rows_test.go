package assigntext

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/ratelimitd/ratelimitd/internal/cli/rowstest"
	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
)

// Any text is read without a crash, and what was read is written and read again as it
// was.
func FuzzRows(f *testing.F) {
	f.Add(rowstest.Customers)
	var lines bytes.Buffer
	if err := WriteLines(&lines, rowstest.Hostile()); err != nil {
		f.Fatal(err)
	}
	f.Add(lines.String())
	var table bytes.Buffer
	if err := WriteCSV(&table, rowstest.Hostile(), true); err != nil {
		f.Fatal(err)
	}
	f.Add(table.String())
	f.Add("\ufeffdomain,entries,plan\r\napi,\"a=\r\n\",x\r\n")
	f.Fuzz(func(t *testing.T, text string) {
		var good []*adminv1.Assignment
		changes, err := ReadChanges(strings.NewReader(text), "", time.Time{})
		for n := 0; err == nil; n++ {
			var found Change
			var bad []RowError
			// What only removes is never exported.
			if found, bad, err = changes.Next(); err == nil && bad == nil && (len(partsOf(found.Assignment)) > 0 || len(found.Assignment.GetTemporary()) > 0) {
				good = append(good, found.Assignment)
			}
			for _, e := range bad {
				if e.Line < 1 || e.Column < 1 || e.Text == "" {
					t.Errorf("a mistake at %d:%d: %q", e.Line, e.Column, e.Text)
				}
			}
			if n > len(text)+1 {
				t.Fatal("it does not end")
			}
		}
		// Those of one subject would be read as one.
		seen := make(map[string]bool)
		good = slices.DeleteFunc(good, func(a *adminv1.Assignment) bool {
			key := fmt.Sprintf("%q %v", a.GetDomain(), a.GetEntries())
			again := seen[key]
			seen[key] = true
			return again
		})
		for _, write := range []func(io.Writer) error{
			func(w io.Writer) error { return WriteCSV(w, good, true) },
			func(w io.Writer) error { return WriteLines(w, good) },
		} {
			var written bytes.Buffer
			if err := write(&written); err != nil {
				t.Fatal(err)
			}
			if len(good) == 0 {
				return
			}
			again, err := ReadChanges(bytes.NewReader(written.Bytes()), "", time.Time{})
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range good {
				if len(partsOf(want)) == 0 {
					want = proto.CloneOf(want)
					want.Reason = "" // there is no base that has it
				}
				found, bad, err := again.Next()
				if len(partsOf(want)) == 0 && found.Assignment != nil {
					found.Assignment.Reason = ""
				}
				if err != nil || bad != nil || !proto.Equal(found.Assignment, want) {
					t.Fatalf("%v is written as\n%s\nand read as %v: %v %v", want, written.Bytes(), found.Assignment, bad, err)
				}
			}
			if _, _, err := again.Next(); err != io.EOF {
				t.Fatalf("there is more: %v", err)
			}
		}
	})
}

func TestColumnsAreThoseOfTheFields(t *testing.T) {
	if n := len(csvFields(new(adminv1.Assignment), new(adminv1.Assignment), "")); n != len(columns) {
		t.Errorf("%d fields for %d columns", n, len(columns))
	}
	r := csv.NewReader(strings.NewReader(rowstest.Customers))
	if header, err := r.Read(); err != nil || !slices.Equal(header, columns) {
		t.Errorf("the header is %v: %v", header, err)
	}
}
