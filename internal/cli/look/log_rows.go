package look

import (
	"bufio"
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/cli/terminal"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
	"github.com/ratelimitd/ratelimitd/internal/decisionlog"
	"github.com/ratelimitd/ratelimitd/internal/decisionlog/find"
	"github.com/ratelimitd/ratelimitd/internal/spelling"
	"github.com/ratelimitd/ratelimitd/internal/timespan"
)

// logRows writes lines of the log of decisions for people.
type logRows struct {
	out   *bufio.Writer
	width int // at which rows are wrapped; 0: never
	zone  *time.Location
	json  []byte // the last line
}

// momentOfLine formats the time of a row, to the millisecond; --since accepts it.
const momentOfLine = "2006-01-02T15:04:05.000Z07:00"

// writeJSON writes a line as it is, except for what people would not see: lines from
// other versions may contain such characters.
func (r *logRows) writeJSON(f find.Found) error {
	r.json = spelling.AppendJSON(r.json[:0], f.Text)
	_, _ = r.out.Write(r.json)
	return r.out.WriteByte('\n')
}

// write writes a row for each descriptor that was searched for.
func (r *logRows) write(f find.Found) error {
	at := time.UnixMicro(f.At).In(r.zone).Format(momentOfLine)
	if len(f.Chosen) == 0 {
		return r.row(at, wordOf(f.Line, nil), yamlfile.Printable(f.Domain), "-", "-", "-", whyOf(f.Line, nil))
	}
	for _, i := range f.Chosen {
		d := &f.Descriptors[i]
		rule := cmp.Or(d.Rule, "no rule")
		if d.Plan != "" && !strings.HasSuffix(rule, "(plan "+d.Plan+")") {
			rule += " (plan " + d.Plan + ")"
		}
		if err := r.row(at, wordOf(f.Line, d), yamlfile.Printable(f.Domain), subjectOf(d), rule, fmt.Sprint("cost ", d.Cost), whyOf(f.Line, d)); err != nil {
			return err
		}
	}
	return nil
}

func (r *logRows) row(at, result string, more ...string) error {
	text := spelling.Visible(fmt.Sprintf("%s  %-8s  %s", at, result, strings.Join(more, "  ")))
	for _, line := range terminal.Fitted(text, r.width) {
		if _, err := r.out.WriteString(line + "\n"); err != nil {
			return err
		}
	}
	return nil
}

func subjectOf(d *decisionlog.Descriptor) string {
	if len(d.Entries) == 0 {
		return "no entries"
	}
	return spelling.ShellWord(spelling.Entries(d.Entries))
}

// wordOf returns the result of a request, or of its descriptor if that says more.
func wordOf(l *decisionlog.Line, d *decisionlog.Descriptor) string {
	switch {
	case l.Kind == decisionlog.GivenBack && l.Result == decisionlog.Allowed:
		return "returned"
	case l.Kind == decisionlog.Settled && l.Result == decisionlog.Allowed:
		return settledWord(l)
	case l.Result == decisionlog.Allowed && d != nil:
		return d.Result.String()
	}
	return l.Result.String()
}

// whyOf says why a request got its result; d is the descriptor of interest, or nil.
func whyOf(l *decisionlog.Line, d *decisionlog.Descriptor) string {
	var why string
	switch {
	case l.Result == decisionlog.Failed:
		why = "the request failed: " + cmp.Or(l.Code, "no code")
	case d == nil:
		why = "no descriptor"
	case l.Kind == decisionlog.GivenBack:
		why = "a take was given back"
	case l.Kind == decisionlog.Settled:
		why = settledSaid(d)
	case l.Result == decisionlog.Denied && d.Result != decisionlog.Denied:
		why = deniedElsewhere(l)
	default:
		why = saidOf(d)
		if d.Result == decisionlog.Denied && l.Result == decisionlog.Allowed {
			why += "; the request passed"
		}
	}
	if l.Degraded {
		why += "; not decided by the store alone"
	}
	return why
}

// settledWord returns "settled" if a settlement found something, or else "unknown".
func settledWord(l *decisionlog.Line) string {
	for i := range l.Descriptors {
		for j := range l.Descriptors[i].Limits {
			if l.Descriptors[i].Limits[j].Takes > 0 {
				return "settled"
			}
		}
	}
	return "unknown"
}

// settledSaid says what a settlement did to a descriptor.
func settledSaid(d *decisionlog.Descriptor) string {
	if d.Kept {
		return "a settlement of other descriptors"
	}
	said := []string{fmt.Sprintf("%d used", d.Cost)}
	for i := range d.Limits {
		switch l := &d.Limits[i]; {
		case l.Takes == 0:
			said = append(said, l.Name+": nothing taken is known")
		case l.Added > 0:
			said = append(said, fmt.Sprintf("%s: %d added, %d remaining", l.Name, l.Added, l.Remaining))
		default:
			said = append(said, fmt.Sprintf("%s: %d returned, %d remaining", l.Name, l.Returned, l.Remaining))
		}
	}
	return strings.Join(said, ", ")
}

// deniedElsewhere says which other descriptor denied a request.
func deniedElsewhere(l *decisionlog.Line) string {
	for i := range l.Descriptors {
		if d := &l.Descriptors[i]; d.Result == decisionlog.Denied {
			return "another descriptor of the request: " + subjectOf(d) + ", " + saidOf(d)
		}
	}
	return "another descriptor of the request"
}

// saidOf says what happened to a descriptor.
func saidOf(d *decisionlog.Descriptor) string {
	switch {
	case d.Refusal == "blocked":
		return "blocked by an assignment" + blockEnd(d)
	case d.Refusal == "unmatched":
		return "no rule is for it"
	case d.Unlimited:
		return "unlimited by an assignment"
	case len(d.Limits) == 0 && d.Rule == "":
		return "no rule is for it"
	case len(d.Limits) == 0:
		return "the rule has no limit"
	}
	var said []string
	for i := range d.Limits {
		l := &d.Limits[i]
		// Next to what denied, the others do not explain anything.
		if d.Result == decisionlog.Allowed || d.Result.String() == l.Result {
			said = append(said, limitSaid(l))
		}
	}
	if said == nil {
		for i := range d.Limits {
			said = append(said, limitSaid(&d.Limits[i]))
		}
	}
	return strings.Join(said, "; ")
}

func blockEnd(d *decisionlog.Descriptor) string {
	if len(d.Limits) > 0 && d.Limits[0].RetryAfter != bucket.Never {
		return ", for " + timespan.Format(d.Limits[0].RetryAfter) + " more"
	}
	return ""
}

// limitSaid says what a limit decided.
func limitSaid(l *decisionlog.Limit) string {
	text := fmt.Sprintf("limit %s: %d left", yamlfile.Printable(l.Name), l.Remaining)
	switch l.Result {
	case "denied", "shadowed":
		switch {
		case l.RetryAfter == bucket.Never:
			text += ", can never pass"
		case l.RetryAfter == bucket.Unknown:
			text += ", would pass once somebody releases"
		case l.RetryAfter > 0: // otherwise an older daemon did not say
			text += ", would pass in " + timespan.Format(l.RetryAfter)
		}
		if l.Result == "shadowed" {
			text += ", not in force"
		}
	case "over":
		text += ", over"
	}
	switch l.Released {
	case bucket.ReleasedSlot.String():
		text += ", a slot was released"
	case bucket.ReleasedTooLate.String():
		text += ", released after its slot had lapsed"
	case bucket.ReleasedNothing.String():
		text += ", there was nothing to release"
	}
	if l.Renewed {
		text += ", a slot was renewed"
	}
	if l.Remembered {
		text += ", repeated from memory"
	}
	if l.Degraded {
		text += ", without the store"
	}
	if l.Numbers != nil && l.Numbers.Assigned {
		text += ", numbers of an assignment"
	}
	return text
}
