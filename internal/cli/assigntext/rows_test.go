package assigntext_test

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/ratelimitd/ratelimitd/internal/cli/assigntext"
	"github.com/ratelimitd/ratelimitd/internal/cli/clitest"
	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
)

// Any text is read without a crash, and what was read is written and read again as it
// was.
func FuzzRows(f *testing.F) {
	f.Add(clitest.Customers)
	var lines bytes.Buffer
	if err := assigntext.WriteLines(&lines, clitest.HostileAssignments()); err != nil {
		f.Fatal(err)
	}
	f.Add(lines.String())
	var table bytes.Buffer
	if err := assigntext.WriteCSV(&table, clitest.HostileAssignments(), true); err != nil {
		f.Fatal(err)
	}
	f.Add(table.String())
	f.Add("\ufeffdomain,entries,plan\r\napi,\"a=\r\n\",x\r\n")
	f.Fuzz(func(t *testing.T, text string) {
		var good []*adminv1.Assignment
		changes, err := assigntext.ReadChanges(strings.NewReader(text), "", time.Time{})
		for n := 0; err == nil; n++ {
			var found assigntext.Change
			var bad []assigntext.RowError
			// What only removes is never exported.
			if found, bad, err = changes.Next(); err == nil && bad == nil && assigntext.Describe(found.Assignment, time.Time{}) != "nothing assigned" {
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
			func(w io.Writer) error { return assigntext.WriteCSV(w, good, true) },
			func(w io.Writer) error { return assigntext.WriteLines(w, good) },
		} {
			var written bytes.Buffer
			if err := write(&written); err != nil {
				t.Fatal(err)
			}
			if len(good) == 0 {
				return
			}
			again, err := assigntext.ReadChanges(bytes.NewReader(written.Bytes()), "", time.Time{})
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range good {
				found, bad, err := again.Next()
				if base := proto.CloneOf(want); found.Assignment != nil {
					if base.Temporary = nil; assigntext.Describe(base, time.Time{}) == "nothing assigned" {
						found.Assignment.Reason = want.GetReason() // there is no base that has it
					}
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
