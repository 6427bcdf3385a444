package ask

import (
	"fmt"
	"io"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/cli/assigntext"
	"github.com/ratelimitd/ratelimitd/internal/config/rules/trace"
	"github.com/ratelimitd/ratelimitd/internal/config/rules/words"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
	"github.com/ratelimitd/ratelimitd/internal/spelling"
	"github.com/ratelimitd/ratelimitd/internal/timespan"
	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

// explained is how explanations are written: for a request of such a cost, with the id that
// was asked about or "", at the moment now.
type explained struct {
	cost int64
	id   string
	now  time.Time
	// degraded is set if another store decides in place of the limits' own.
	degraded bool
}

// writeRequest writes the explanation of a request as a sentence and a tree.
func (x *explained) writeRequest(w io.Writer, m *adminv1.ExplainResponse) error {
	head := summaryText(m, x.cost)
	if m.GetLoadFailed() {
		head += " The last load of limits failed: older ones are in force."
	}
	if x.degraded = m.GetDegraded(); x.degraded {
		head += " " + degradedText
	}
	if _, err := fmt.Fprintln(w, spelling.Visible(head)); err != nil {
		return err
	}
	var root branch
	for i, d := range m.GetDescriptors() {
		x.add(&root, d, m.DeniedByDescriptor != nil && m.GetDeniedByDescriptor() == uint32(i), m.DeniedByLimit)
	}
	return root.write(w, "")
}

// degradedText goes before what was not read from the store.
const degradedText = "The store does not answer: this is what decides in its place."

// writeSubject writes the limits of a subject as such a tree.
func (x *explained) writeSubject(w io.Writer, m *adminv1.InspectResponse) error {
	if x.degraded = m.GetDegraded(); x.degraded {
		if _, err := fmt.Fprintln(w, degradedText); err != nil {
			return err
		}
	}
	var root branch
	x.add(&root, m.GetDescriptor_(), false, nil)
	return root.write(w, "")
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

// add adds a descriptor; denies says that it denies the request, by a limit or without one.
func (x *explained) add(root *branch, d *adminv1.ExplainedDescriptor, denies bool, limit *uint32) {
	head := entriesText(d.GetEntries()) + ": " + verdictTexts[d.GetVerdict()]
	if denies {
		head += " (this denies the request)"
	}
	b := root.add("%s", head)
	if d.GetRule() != nil {
		b.add("%s", ruleText(d))
	} else {
		b.add("%s", strings.TrimSuffix("no rule: "+searchOf(d).Why(), ": "))
	}
	for _, n := range d.GetNetworks() {
		text := fmt.Sprintf("%s is counted as %s", yamlfile.Printable(n.GetKey()), n.GetCounted())
		if n.GetCidr() != "" {
			text += ", and matches " + n.GetCidr()
		}
		b.add("%s", text)
	}
	for _, a := range d.GetAssignments() {
		text := fmt.Sprintf("assignment to %s: %s", entriesText(a.GetAssignment().GetEntries()), assigntext.Describe(a.GetAssignment(), x.now))
		if !a.GetApplies() {
			text += "; it changes nothing here"
		}
		b.add("%s", text)
	}
	for i, l := range d.GetLimits() {
		x.addLimit(b, l, denies && limit != nil && *limit == uint32(i))
	}
}

// searchOf is what a message says of the search for a rule.
func searchOf(d *adminv1.ExplainedDescriptor) *trace.Search {
	s := &trace.Search{Miss: trace.Miss(d.GetMiss()), Depth: int(d.GetDepth()), Reached: placeOf(d.GetReached()), Near: placeOf(d.GetNear())}
	for _, e := range d.GetEntries() {
		s.Entries = append(s.Entries, bucket.Entry{Key: e.GetKey(), Value: e.GetValue()})
	}
	return s
}

func placeOf(e *adminv1.FileEntry) *trace.Place {
	if e == nil {
		return nil
	}
	return &trace.Place{Path: e.GetPath(), File: e.GetPlace().GetFile(), Line: int(e.GetPlace().GetLine())}
}

func ruleText(d *adminv1.ExplainedDescriptor) string {
	r := d.GetRule()
	text := fmt.Sprintf("rule %s (%s)", r.GetPath(), placeText(r.GetPlace()))
	if d.GetPlan() != "" {
		text += ", plan " + yamlfile.Printable(d.GetPlan())
	} else if v := d.GetVerdict(); v == adminv1.Verdict_VERDICT_UNMATCHED_ALLOWED || v == adminv1.Verdict_VERDICT_UNMATCHED_DENIED {
		text += ", none of its plans"
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

func (x *explained) addLimit(b *branch, l *adminv1.ExplainedLimit, isDecisive bool) {
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
	if until := l.GetPausedUntil(); until != nil {
		limit.add("paused until %s, after going over %s %s", assigntext.ShortMoment(until.AsTime(), x.now),
			words.Thousands(int64(l.GetLimit().GetRequests())), words.PerPeriod(l.GetLimit().GetPeriod().AsDuration()))
	}
	if !x.degraded && x.isOfOtherNumbers(l) {
		limit.add("counted under other numbers, and forgotten in %s", timeText(l.GetResetAfter()))
	}
	addHolders(limit, l)
	key := "key " + l.GetKey()
	if l.GetHashTag() != "" {
		key += ", hash tag " + l.GetHashTag()
	}
	if l.GetNode() != "" {
		key += ", on " + l.GetNode()
	}
	limit.add("%s", key)
	if mode := l.GetOnStoreFailure(); mode != "" {
		if l.GetShare() != nil {
			mode += fmt.Sprintf(", as one of %d: %s", l.GetDaemons(), l.GetShare().GetText())
		}
		limit.add("if the store fails: %s", mode)
	}
	if x.id != "" && l.GetLimit().GetAlgorithm() != ratelimitv1.Algorithm_ALGORITHM_CONCURRENCY {
		limit.add("%s", billText(x.id, l.GetBill()))
	}
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
	case l.GetRetryUnknown():
		text += ", would allow this once a slot is released" + lapseText(l)
	case !l.GetAllowed():
		text += ", can never allow this"
	}
	if reset := l.GetResetAfter(); reset.AsDuration() > 0 {
		text += ", full again in " + timeText(reset)
	}
	return text
}

// isOfOtherNumbers reports whether the debt of a bucket was left by other numbers, from
// before a reload or an assignment, and denies until it expires by those. A debt of its own
// drains to the rest of the burst before it is gone. A pause also denies until the reset.
func (x *explained) isOfOtherNumbers(l *adminv1.ExplainedLimit) bool {
	switch l.GetLimit().GetAlgorithm() {
	case ratelimitv1.Algorithm_ALGORITHM_TOKEN_BUCKET, ratelimitv1.Algorithm_ALGORITHM_GCRA, ratelimitv1.Algorithm_ALGORITHM_LEAKY_BUCKET:
		retry := l.GetRetryAfter().AsDuration()
		return l.GetPausedUntil() == nil && retry > 0 && retry == l.GetResetAfter().AsDuration() && max(1, x.cost) < int64(l.GetLimit().GetCapacity())
	}
	return false
}

// lapseText says when a slot of a limit of requests in flight is free at the latest.
func lapseText(l *adminv1.ExplainedLimit) string {
	if l.GetFreeAtLatest() == nil {
		return ""
	}
	return ", or in " + timeText(l.GetFreeAtLatest()) + " if none is renewed"
}

// addHolders lists who holds slots.
func addHolders(b *branch, l *adminv1.ExplainedLimit) {
	if len(l.GetHolders()) == 0 {
		return
	}
	held := b.add("held by")
	for _, h := range l.GetHolders() {
		held.add("%s, for %s unless it is renewed", yamlfile.Printable(h.GetHolder()), timeText(h.GetLeft()))
	}
	if more := int64(l.GetHoldersTotal()) - int64(len(l.GetHolders())); more > 0 && len(l.GetHolders()) > 1 {
		held.add("and %s more, for longer", words.Thousands(more))
	}
}

func placeText(p *adminv1.Place) string { return yamlfile.FileLine(p.GetFile(), int(p.GetLine())) }

func entriesText(entries []*ratelimitv1.Entry) string {
	if len(entries) == 0 {
		return "no entries"
	}
	return assigntext.EntriesWord(entries)
}

// timeText formats a span of time for people.
func timeText(d *durationpb.Duration) string { return timespan.Format(d.AsDuration()) }
