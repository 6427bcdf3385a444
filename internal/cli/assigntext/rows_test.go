package assigntext

import (
	"bytes"
	"encoding/csv"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/ratelimitd/ratelimitd/internal/assign"
	"github.com/ratelimitd/ratelimitd/internal/cli/rowstest"
	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
)

func setsParts(t *testing.T, a *adminv1.Assignment) bool {
	own, err := Read(a)
	if err != nil {
		t.Fatal(err)
	}
	c := assign.Change{Assignment: own}
	return c.Sets()
}

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
		rows, err := ReadRows(strings.NewReader(text), "")
		for n := 0; err == nil; n++ {
			var found Row
			var bad []RowError
			// What only removes is never exported.
			if found, bad, err = rows.Next(); err == nil && bad == nil && setsParts(t, found.Assignment) {
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
			again, err := ReadRows(bytes.NewReader(written.Bytes()), "")
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range good {
				found, bad, err := again.Next()
				if err != nil || bad != nil || !proto.Equal(withOwnEnds(found.Assignment), withOwnEnds(want)) {
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
	if n := len(csvFields(&adminv1.Assignment{})); n != len(columns) {
		t.Errorf("%d fields for %d columns", n, len(columns))
	}
	r := csv.NewReader(strings.NewReader(rowstest.Customers))
	if header, err := r.Read(); err != nil || !slices.Equal(header, columns) {
		t.Errorf("the header is %v: %v", header, err)
	}
}

// A line that does not end takes no more memory than a row may.
func TestReadEndsAtALongRow(t *testing.T) {
	if _, err := ReadRows(endless{}, "api"); !errors.Is(err, errLongRow) {
		t.Errorf("of a line without an end: %v", err)
	}
}

// endless is text without an end.
type endless struct{}

func (endless) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = 'x'
	}
	return len(b), nil
}
