package assigntext

import (
	"encoding/csv"
	"io"

	"google.golang.org/protobuf/proto"

	"github.com/ratelimitd/ratelimitd/internal/cli/cmdline"
	"github.com/ratelimitd/ratelimitd/internal/spelling"
	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
)

// WriteCSV writes a page of assignments as CSV, the first page with a header.
func WriteCSV(out io.Writer, page []*adminv1.Assignment, first bool) error {
	w := csv.NewWriter(out)
	if first {
		if err := w.Write(columns); err != nil {
			return err
		}
	}
	for _, a := range page {
		if len(partsOf(a)) > 0 {
			if err := w.Write(csvFields(a, a, "")); err != nil {
				return err
			}
		}
		for _, t := range a.GetTemporary() {
			if err := w.Write(csvFields(a, t, t.GetUntil().AsTime().Format(MomentLayout))); err != nil {
				return err
			}
		}
	}
	w.Flush()
	return w.Error()
}

// csvFields returns a layer of an assignment as the fields of columns.
func csvFields(a *adminv1.Assignment, l layer, until string) []string {
	flag := map[bool]string{true: "true"}
	return []string{
		spelling.Escape(a.GetDomain()), FormatEntries(a.GetEntries()), spelling.Escape(l.GetPlan()), formatNumbers(l.GetNumbers()),
		spelling.Escape(l.GetCalendar().GetStarts()), spelling.Escape(l.GetCalendar().GetTimeZone()),
		flag[l.GetUnlimited()], flag[l.GetBlocked()], until, spelling.Escape(l.GetReason()),
	}
}

// WriteLines writes a page of assignments as lines of JSON, without the fields that the
// daemon sets.
func WriteLines(out io.Writer, page []*adminv1.Assignment) error {
	for _, a := range page {
		a = proto.CloneOf(a)
		forget(a)
		if err := cmdline.WriteMessage(out, a); err != nil {
			return err
		}
	}
	return nil
}
