package ask

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/ratelimitd/ratelimitd/internal/cli/moment"
	"github.com/ratelimitd/ratelimitd/internal/cli/subjecttext"
	"github.com/ratelimitd/ratelimitd/internal/cli/terminal"
	"github.com/ratelimitd/ratelimitd/internal/config/rules/words"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
	"github.com/ratelimitd/ratelimitd/internal/spelling"
	"github.com/ratelimitd/ratelimitd/internal/timespan"
	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

// branch is a line of a printed tree, with the lines below it.
type branch struct {
	text string
	// isWhole keeps it on one line: it contains something to paste.
	isWhole bool
	below   []branch
}

// add adds a line below, and returns it.
func (b *branch) add(format string, args ...any) *branch {
	b.below = append(b.below, branch{text: fmt.Sprintf(format, args...)})
	return &b.below[len(b.below)-1]
}

// addWhole adds a line that is never wrapped, such as a key with blanks.
func (b *branch) addWhole(format string, args ...any) *branch {
	added := b.add(format, args...)
	added.isWhole = true
	return added
}

// write writes the lines below b, each after indent. Lines wider than width are wrapped,
// unless it is 0.
func (b *branch) write(w io.Writer, indent string, width int) error {
	for i := range b.below {
		fork, further := "├─ ", "│  "
		if i == len(b.below)-1 {
			fork, further = "└─ ", "   "
		}
		if err := b.below[i].writeText(w, indent+fork, indent+further, width); err != nil {
			return err
		}
		if err := b.below[i].write(w, indent+further, width); err != nil {
			return err
		}
	}
	return nil
}

// writeText writes a line, with what does not fit after further and, if lines are below
// it, the stem of their tree.
func (b *branch) writeText(w io.Writer, first, further string, width int) error {
	stem := "  "
	if len(b.below) > 0 {
		stem = "│ "
	}
	room := 0
	if width > 0 && !b.isWhole {
		room = max(terminal.MinColumns/2, width-utf8.RuneCountInString(further+stem))
	}
	for i, line := range terminal.Wrapped(spelling.Visible(b.text), room) {
		if i > 0 {
			first = further + stem
		}
		if _, err := fmt.Fprintln(w, first+line); err != nil {
			return err
		}
	}
	return nil
}

// writeExplainTree writes an explanation as a tree for people, wrapped at a width, or not
// at all if that is 0. id is the one that was asked about, or empty.
func writeExplainTree(w io.Writer, m *adminv1.ExplainResponse, id string, width int) error {
	head := withEndsIn(time.Local, m.GetSummary(), assignmentsOf(m.GetDescriptors())...)
	if m.GetDegraded() {
		head += " The store does not answer: this is what decides in its place."
	}
	for _, line := range terminal.Wrapped(spelling.Visible(head), width) {
		if _, err := fmt.Fprintln(w, line); err != nil {
			return err
		}
	}
	var root branch
	for i, d := range m.GetDescriptors() {
		decisive := -2 // no limit of this descriptor decides
		if m.DeniedByDescriptor != nil && m.GetDeniedByDescriptor() == uint32(i) {
			decisive = -1
			if m.DeniedByLimit != nil {
				decisive = int(m.GetDeniedByLimit())
			}
		}
		explainedBranch(&root, d, id, decisive)
	}
	return root.write(w, "", width)
}

// writeInspectTree writes the limits of a subject as a tree for people, like
// writeExplainTree.
func writeInspectTree(w io.Writer, m *adminv1.InspectResponse, id string, width int) error {
	var root branch
	explainedBranch(&root, m.GetDescriptor_(), id, -2)
	return root.write(w, "", width)
}

// verdictTexts are the verdicts as shown to people.
var verdictTexts = map[adminv1.Verdict]string{
	adminv1.Verdict_VERDICT_ALLOWED:           "allowed",
	adminv1.Verdict_VERDICT_DENIED:            "denied",
	adminv1.Verdict_VERDICT_SHADOWED:          "would be denied, but is in shadow mode",
	adminv1.Verdict_VERDICT_UNMATCHED_ALLOWED: "allowed, since no rule is for it",
	adminv1.Verdict_VERDICT_UNMATCHED_DENIED:  "denied, since no rule is for it",
	adminv1.Verdict_VERDICT_UNLIMITED:         "unlimited",
	adminv1.Verdict_VERDICT_BLOCKED:           "blocked",
}

// explainedBranch adds a descriptor. decisive is the index of the limit that denies the
// request, -1 if the descriptor denies it without one, and less if it does not deny it.
func explainedBranch(root *branch, d *adminv1.ExplainedDescriptor, id string, decisive int) {
	head := entriesText(d.GetEntries()) + ": " + verdictTexts[d.GetVerdict()]
	if decisive >= -1 {
		head += " (this denies the request)"
	}
	b := root.add("%s", head)
	if len(d.GetLevels()) > 0 {
		search := b.add("search")
		for _, l := range d.GetLevels() {
			levelBranch(search, l)
		}
	}
	if d.GetRule() != nil {
		b.add("%s", ruleText(d.GetRule(), d.GetPlan()))
	} else {
		b.add("no rule")
	}
	for _, a := range slices.Concat(d.GetAssignments(), d.GetNotApplied()) {
		effect := withEndsIn(time.Local, a.GetEffect(), a.GetAssignment())
		b.add("assignment to %s: %s%s", entriesText(a.GetAssignment().GetEntries()), effect, madeText(a.GetAssignment(), effect))
	}
	for i, l := range d.GetLimits() {
		limit := limitBranch(b, l, i == decisive)
		if id != "" && l.GetLimit().GetAlgorithm() != ratelimitv1.Algorithm_ALGORITHM_CONCURRENCY {
			limit.add("%s", billText(id, l.GetBill()))
		}
	}
	for _, hint := range d.GetHints() {
		b.add("note: %s", hint)
	}
}

func levelBranch(b *branch, l *adminv1.Level) {
	level := b.addWhole("%s", subjecttext.Word([]*ratelimitv1.Entry{l.GetEntry()}))
	for _, c := range l.GetCandidates() {
		why := c.GetWhyNot()
		if c.GetMatched() {
			why = "matches"
		}
		level.add("%s (%s): %s", c.GetEntry(), placeText(c.GetPlace()), why)
	}
	if n := l.GetNotShown(); n > 0 {
		level.add("and %d more at this level", n)
	}
}

func ruleText(r *adminv1.Rule, plan string) string {
	text := fmt.Sprintf("rule %s (%s)", r.GetPath(), placeText(r.GetPlace()))
	if plan != "" {
		text += ", plan " + yamlfile.Printable(plan)
	}
	for _, flag := range []struct {
		name string
		set  bool
	}{{"shadow_mode", r.GetShadowMode()}, {"quota_mode", r.GetQuotaMode()}, {"share_threshold", r.GetShareThreshold()}} {
		if flag.set {
			text += ", " + flag.name
		}
	}
	return text
}

// madeText says who made an assignment, why, and when it ends, unless its effect already
// says so.
func madeText(a *adminv1.Assignment, effect string) string {
	var parts []string
	if a.GetMadeBy() != "" {
		parts = append(parts, "by "+yamlfile.Printable(a.GetMadeBy()))
	}
	if a.GetReason() != "" {
		parts = append(parts, strconv.Quote(a.GetReason()))
	}
	if a.GetUntil() != nil {
		if until := endText(a.GetUntil(), time.Local); !strings.Contains(effect, until) {
			parts = append(parts, until)
		}
	}
	if parts == nil {
		return ""
	}
	return " (" + yamlfile.Commas(parts) + ")"
}

// endText says when something ends, in a time zone.
func endText(at *timestamppb.Timestamp, zone *time.Location) string {
	return "until " + moment.End(at.AsTime().Truncate(time.Second), zone)
}

// withEndsIn returns what a daemon says of assignments, which has their ends in UTC, with
// the ends in another time zone.
func withEndsIn(zone *time.Location, text string, all ...*adminv1.Assignment) string {
	var ends []string
	for _, a := range all {
		moments := []*timestamppb.Timestamp{a.GetUntil(), a.GetPlanUntil(), a.GetUnlimitedUntil(), a.GetBlockedUntil(), a.GetCalendar().GetUntil()}
		for _, n := range a.GetNumbers() {
			moments = append(moments, n.GetUntil())
		}
		for _, at := range moments {
			if at != nil {
				ends = append(ends, "until "+at.AsTime().Format(time.RFC3339), endText(at, zone))
			}
		}
	}
	return strings.NewReplacer(ends...).Replace(text)
}

// assignmentsOf returns the assignments that hold for descriptors.
func assignmentsOf(descriptors []*adminv1.ExplainedDescriptor) (all []*adminv1.Assignment) {
	for _, d := range descriptors {
		for _, a := range d.GetAssignments() {
			all = append(all, a.GetAssignment())
		}
	}
	return all
}

func limitBranch(b *branch, l *adminv1.ExplainedLimit, isDecisive bool) *branch {
	head := "limit"
	if name := l.GetLimit().GetName(); name != "" {
		head += " " + yamlfile.Printable(name)
	}
	head += ": " + l.GetLimit().GetText()
	switch l.GetSource() {
	case adminv1.Source_SOURCE_ASSIGNMENT:
		head += ", numbers of an assignment"
	case adminv1.Source_SOURCE_REQUEST:
		head += ", numbers of the request"
	}
	limit := b.add("%s", head)
	limit.add("%s", stateText(l, isDecisive))
	addHolders(limit, l)
	key := "key " + l.GetKey()
	if l.GetHashTag() != "" {
		key += ", hash tag " + l.GetHashTag()
	}
	if l.GetNode() != "" {
		key += ", on " + l.GetNode()
	}
	limit.addWhole("%s", key)
	if l.GetOnStoreFailure() != "" {
		limit.add("if the store fails: %s", l.GetOnStoreFailure())
	}
	return limit
}

// billText says what takes with an ID have charged to a limit.
func billText(id string, b *adminv1.Bill) string {
	id = "the id " + yamlfile.Printable(id)
	if b == nil {
		return "nothing is known of " + id + ": nothing was taken with it, or it was denied or given back, or it was too long ago"
	}
	return fmt.Sprintf("%s has charged %s, by %s; it can be settled for %s",
		id, words.Thousands(int64(b.GetCost())), takesText(b.GetTakes()), timeText(b.GetLeft()))
}

// stateText says what a limit decides, and when that changes.
func stateText(l *adminv1.ExplainedLimit, isDecisive bool) string {
	text := "denies"
	switch {
	case l.GetAllowed() && l.GetShadow():
		text = "would allow, and is not in force for this subject"
	case l.GetAllowed():
		text = "allows"
	case l.GetShadow():
		text = "would deny, but is not in force for this subject"
	case isDecisive:
		text = "denies the request"
	}
	text += fmt.Sprintf(": %s of %s left", words.Thousands(int64(l.GetRemaining())), words.Thousands(int64(l.GetLimit().GetCapacity())))
	switch {
	case l.GetRetryAfter() != nil:
		text += ", would allow this in " + timeText(l.GetRetryAfter())
	case l.GetRetryUnknown() && l.GetFreeAtLatest() != nil:
		text += ", would allow this once somebody releases, or in " + timeText(l.GetFreeAtLatest()) + " if nobody renews"
	case l.GetRetryUnknown():
		text += ", would allow this once somebody releases"
	case !l.GetAllowed():
		text += ", can never allow this"
	}
	if reset := l.GetResetAfter(); reset.AsDuration() > 0 {
		text += ", full again in " + timeText(reset)
	}
	return text
}

// addHolders lists who holds slots.
func addHolders(b *branch, l *adminv1.ExplainedLimit) {
	if len(l.GetHolders()) == 0 {
		return
	}
	held := b.add("held by")
	for _, h := range l.GetHolders() {
		held.add("%s, for %s if it is not heard of", yamlfile.Printable(h.GetHolder()), timeText(h.GetLeft()))
	}
	if more := int64(l.GetHoldersTotal()) - int64(len(l.GetHolders())); more > 0 && len(l.GetHolders()) > 1 {
		held.add("and %s more, for longer", words.Thousands(more))
	}
}

func placeText(p *adminv1.Place) string {
	if p.GetLine() == 0 {
		return p.GetFile()
	}
	return fmt.Sprintf("%s:%d", p.GetFile(), p.GetLine())
}

func entriesText(entries []*ratelimitv1.Entry) string {
	if len(entries) == 0 {
		return "no entries"
	}
	return subjecttext.Word(entries)
}

// timeText formats a span of time for people.
func timeText(d *durationpb.Duration) string { return timespan.Format(d.AsDuration()) }
