package assigntext

import (
	"encoding/csv"
	"io"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/ratelimitd/ratelimitd/internal/cli/jsonline"
	"github.com/ratelimitd/ratelimitd/internal/cli/moment"
	"github.com/ratelimitd/ratelimitd/internal/cli/subjecttext"
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
		if err := w.Write(csvFields(a)); err != nil {
			return err
		}
	}
	w.Flush()
	return w.Error()
}

// csvFields returns an assignment as the fields of columns.
func csvFields(a *adminv1.Assignment) []string {
	flag := map[bool]string{true: "true"}
	a = withOwnEnds(a)
	return []string{
		spelling.Escape(a.GetDomain()), subjecttext.Format(a.GetEntries()), spelling.Escape(a.GetPlan()), formatEnd(a.PlanUntil),
		formatNumbers(a.GetNumbers()), formatLimitsUntil(a.GetNumbers()),
		spelling.Escape(a.GetCalendar().GetStarts()), spelling.Escape(a.GetCalendar().GetTimeZone()), formatEnd(a.GetCalendar().GetUntil()),
		flag[a.GetUnlimited()], formatEnd(a.UnlimitedUntil), flag[a.GetBlocked()], formatEnd(a.GetBlockedUntil()), spelling.Escape(a.GetReason()),
	}
}

// formatLimitsUntil formats the ends of numbers as setLimitsUntil reads them.
func formatLimitsUntil(numbers []*adminv1.AssignedNumbers) string {
	ends := make([]string, len(numbers))
	for i, n := range numbers {
		ends[i] = formatEnd(n.Until)
	}
	if len(slices.Compact(slices.Clone(ends))) <= 1 {
		return strings.Join(ends[:min(1, len(ends))], "")
	}
	return strings.Join(ends, ";")
}

func formatEnd(m *timestamppb.Timestamp) string {
	if m == nil {
		return ""
	}
	return m.AsTime().Format(moment.Layout)
}

// WriteLines writes a page of assignments as lines of JSON, without the fields set by the
// daemon.
func WriteLines(out io.Writer, page []*adminv1.Assignment) error {
	for _, a := range page {
		if err := jsonline.Message(out, settable(a)); err != nil {
			return err
		}
	}
	return nil
}

// settable returns an assignment without the fields set by the daemon.
func settable(a *adminv1.Assignment) *adminv1.Assignment {
	a = proto.CloneOf(a)
	a.MadeBy, a.MadeAt, a.Etag = "", nil, ""
	return a
}
