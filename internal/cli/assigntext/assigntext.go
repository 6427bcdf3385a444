// Package assigntext reads and writes subjects, moments and assignments the way people do:
// in words, in flags, and as rows of a file. It checks assignments before any daemon is
// asked. It imports assignmsg, cmdline, spelling and the limits files' periods.
package assigntext

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/ratelimitd/ratelimitd/internal/assign"
	"github.com/ratelimitd/ratelimitd/internal/config/limitsfile/period"
	"github.com/ratelimitd/ratelimitd/internal/config/rules/words"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
	"github.com/ratelimitd/ratelimitd/internal/server/assignmsg"
	"github.com/ratelimitd/ratelimitd/internal/spelling"
	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
)

// Check returns what is wrong with a change of an assignment, before any daemon is asked,
// one line per mistake, or nil. The daemon's clock says which ends are over.
func Check(p *adminv1.AssignmentPatch) error {
	_, err := assignmsg.Patch(p, time.Time{})
	return err
}

// layer is what was said at one time: the base, which has no end, or a temporary layer.
type layer interface {
	GetPlan() string
	GetNumbers() []*adminv1.AssignedNumbers
	GetUnlimited() bool
	GetBlocked() bool
	GetCalendar() *adminv1.AssignedCalendar
	GetReason() string
}

// Describe describes an assignment in words: the base, then each layer with its end, as
// "5,000,000 a month, contract; until tomorrow 12:00 6,000,000 a month, relief". Times are
// in the zone of now. nil is nothing.
func Describe(a *adminv1.Assignment, now time.Time) string {
	var all []string
	if parts := partsOf(a); len(parts) > 0 {
		all = append(all, layerText(a))
	}
	for _, t := range a.GetTemporary() {
		all = append(all, untilText(t.GetUntil(), now)+" "+layerText(t))
	}
	if len(all) == 0 {
		return "nothing assigned"
	}
	return strings.Join(all, "; ")
}

func untilText(at *timestamppb.Timestamp, now time.Time) string {
	return "until " + ShortMoment(at.AsTime(), now)
}

// layerText describes the parts of a layer, and why it was made.
func layerText(l layer) string {
	var texts []string
	for _, p := range partsOf(l) {
		texts = append(texts, p.text)
	}
	if l.GetReason() != "" {
		texts = append(texts, ReasonText(l.GetReason()))
	}
	return strings.Join(texts, ", ")
}

var plainReason = regexp.MustCompile(`^[\pL\pN][\pL\pN #./:_-]*$`)

// ReasonText returns a reason as it stands in a list: as it is, or in quotes if it could
// be taken for more of the list.
func ReasonText(reason string) string {
	if plainReason.MatchString(reason) {
		return reason
	}
	return fmt.Sprintf("%q", reason)
}

// part is a part of a layer: its name, which for numbers is that of their limit after
// "limit ", and what is said of it in words.
type part struct{ name, text string }

func partsOf(l layer) (parts []part) {
	if l.GetBlocked() {
		parts = append(parts, part{"block", "blocked"})
	}
	if l.GetUnlimited() {
		parts = append(parts, part{"unlimited", "unlimited"})
	}
	if l.GetPlan() != "" {
		parts = append(parts, part{"plan", "plan " + yamlfile.Printable(l.GetPlan())})
	}
	for _, n := range l.GetNumbers() {
		parts = append(parts, part{"limit " + n.GetLimit(), numbersText(n)})
	}
	if c := l.GetCalendar(); c != nil {
		parts = append(parts, part{"calendar", calendarText(c)})
	}
	return parts
}

// spans are the names of limits that say how long their period is.
var spans = map[string]string{
	"second": "a second", "minute": "a minute", "hour": "an hour", "day": "a day", "week": "a week", "month": "a month", "year": "a year",
}

// numbersText says numbers: "5,000,000 a month", or "limit burst 100 in 1s with burst 200".
func numbersText(n *adminv1.AssignedNumbers) string {
	text := words.Thousands(int64(n.GetRequests()))
	span, isSpan := spans[n.GetLimit()]
	switch {
	case isSpan && n.Period == nil:
		text += " " + span
	case n.GetLimit() != "":
		text = "limit " + spelling.Visible(nameEscapes.Replace(n.GetLimit())) + " " + text
	default:
		text = "limit " + text
	}
	if n.Period != nil {
		text += " in " + period.Format(n.GetPeriod().AsDuration())
	}
	if n.GetBurst() > 0 {
		text += " with burst " + words.Thousands(int64(n.GetBurst()))
	}
	if n.BlockFor != nil {
		text += " with block_for " + period.Format(n.GetBlockFor().AsDuration())
	}
	return text
}

// calendarText says a calendar in words. Texts of a daemon may be of any kind.
func calendarText(c *adminv1.AssignedCalendar) string {
	var said assign.Calendar
	if c.GetStarts() != "" {
		said.Starts = yamlfile.Printable(c.GetStarts())
	}
	if c.GetTimeZone() != "" {
		said.TimeZone = yamlfile.Printable(c.GetTimeZone())
	}
	return said.String()
}

// Beside says what else an assignment says of the parts that a change has set, without an
// end or until a moment: layers above the base that hide them, and layers below a layer
// that outlast it. It returns nothing if there is none.
func Beside(set, after *adminv1.Assignment, now time.Time) (notes []string) {
	var names []string
	for _, p := range partsOf(set) {
		names = append(names, p.name)
	}
	for _, t := range after.GetTemporary() {
		var said []string
		for _, p := range partsOf(t) {
			hides := p.name == "block" || p.name == "unlimited" && slices.ContainsFunc(names, isOfLimits)
			if slices.Contains(names, p.name) || set.Until == nil && hides {
				said = append(said, p.text)
			}
		}
		switch text := strings.Join(said, ", "); {
		case said == nil:
		case set.Until == nil:
			notes = append(notes, fmt.Sprintf("not in force yet: %s %s is on top of it", untilText(t.GetUntil(), now), text))
		case t.GetUntil().AsTime().After(set.GetUntil().AsTime()):
			notes = append(notes, fmt.Sprintf("afterwards, %s, %s is in force again; unassign --temporary ends it", untilText(t.GetUntil(), now), text))
		}
	}
	return notes
}

// isOfLimits reports whether a part says what limits there are.
func isOfLimits(name string) bool { return name == "plan" || strings.HasPrefix(name, "limit ") }

// Parts returns the parts that an assignment has, in its base or in a layer, and the
// limits that have numbers. PART_TEMPORARY says that a layer has more than a block.
func Parts(a *adminv1.Assignment) (parts []adminv1.Part, limits []string) {
	layers := []layer{a}
	for _, t := range a.GetTemporary() {
		if layers = append(layers, t); saysMore(t) {
			parts = append(parts, adminv1.Part_PART_TEMPORARY)
		}
	}
	for _, l := range layers {
		for _, p := range partsOf(l) {
			if limit, isLimit := strings.CutPrefix(p.name, "limit "); isLimit {
				parts, limits = append(parts, adminv1.Part_PART_NUMBERS), append(limits, limit)
				continue
			}
			parts = append(parts, partNames[p.name])
		}
	}
	slices.Sort(limits)
	return parts, slices.Compact(limits)
}

var partNames = map[string]adminv1.Part{
	"block": adminv1.Part_PART_BLOCK, "unlimited": adminv1.Part_PART_UNLIMITED, "plan": adminv1.Part_PART_PLAN, "calendar": adminv1.Part_PART_CALENDAR,
}
