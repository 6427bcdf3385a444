package decide

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/assign"
	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/rules/words"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
	"github.com/ratelimitd/ratelimitd/internal/timespan"
)

// onFailure says what a failure of the store would do to a hit: nothing, if its
// state is in this daemon's memory.
func onFailure(h *bucket.Hit, at *bucket.Location) string {
	switch at.OnFailure {
	case bucket.FailLocal:
		if at.Daemons == 1 {
			return "this daemon would decide alone, by the whole limit, since it is the only one"
		}
		return fmt.Sprintf("this daemon would decide alone, as one of %d: %s", at.Daemons, words.Numbers(at.Share))
	case bucket.FailAllow:
		return "it would allow"
	case bucket.FailDeny:
		return "it would deny"
	case bucket.FailError:
		return "the request would fail"
	}
	return ""
}

// effect says what an assignment does to descriptor i, part by part, and what comes when
// a part ends. What several parts have in common it says once.
func (x *explaining) effect(i int, a *assign.Assignment) string {
	own := x.isOwn(i, a)
	var effects []string
	add := func(text string) {
		if !slices.Contains(effects, text) {
			effects = append(effects, text)
		}
	}
	if a.Blocked {
		add(x.effectOfBlock(i, a))
	}
	if a.Unlimited && own {
		add(x.effectOfUnlimited(i, a))
	}
	idle := ""
	if a.Plan != "" {
		if idle = x.idlePlan(i, a); idle == "" {
			add(x.effectOfPlan(i, a))
		}
	}
	switch others := ofOwnEntries(a); {
	case !own && others != "" && idle != "":
		add("nothing here: " + idle + ", and " + others)
	case !own && others != "":
		add("nothing here: " + others)
	case idle != "":
		add("nothing here, since " + idle)
	}
	if own {
		for n := range a.Numbers {
			add(x.effectOfNumbers(i, &a.Numbers[n], a.NumbersEnd(n)))
		}
		if a.Calendar != (assign.Calendar{}) {
			add(x.effectOfCalendar(i, a))
		}
	}
	return strings.Join(effects, "; ")
}

// ofOwnEntries says which parts of an assignment apply only to the descriptor with
// exactly its entries, or returns "".
func ofOwnEntries(a *assign.Assignment) string {
	const whose = " the descriptor of its very entries alone"
	switch {
	case a.Unlimited && len(a.Numbers) > 0:
		return "it frees, and has numbers for," + whose
	case a.Unlimited:
		return "it frees" + whose
	case len(a.Numbers) > 0:
		return "its numbers are for" + whose
	case a.Calendar != (assign.Calendar{}):
		return "its calendar is for" + whose
	}
	return ""
}

// isOwn reports whether an assignment has exactly the entries of descriptor i.
func (x *explaining) isOwn(i int, a *assign.Assignment) bool {
	own := len(x.Descriptors[i].Entries)
	if rule := x.traces[i].Rule; rule != nil && rule.HasHolders {
		own-- // what is assigned to all holders
	}
	return len(a.Entries) == own
}

func (x *explaining) effectOfUnlimited(i int, a *assign.Assignment) string {
	switch {
	case x.Outcomes[i].Refusal != NotRefused:
		return "nothing, since the descriptor is refused"
	case x.Descriptors[i].Own.Set:
		return "nothing, since the request brings its own numbers"
	}
	return "no limit" + x.untilThen(i, a.UnlimitedUntil)
}

// untilThen says when a part ends, and what holds for descriptor i from then on.
func (x *explaining) untilThen(i int, until int64) string {
	if until == 0 {
		return ""
	}
	return untilText(until) + ", then " + x.holdsAt(i, until)
}

// holdsAt says what holds for descriptor i at a future moment if nothing is changed.
func (x *explaining) holdsAt(i int, at int64) string {
	for _, a := range x.assignments[i] {
		left := a.InForce(at)
		switch {
		case left == nil:
		case left.Blocked:
			return "the block of " + words.Entries(a.Entries)
		case x.isOwn(i, a) && left.Unlimited:
			return "no limit"
		case x.isOwn(i, a) && len(left.Numbers) > 0:
			return x.planText(i, at) + " with numbers of its own"
		case x.isOwn(i, a) && left.Calendar != (assign.Calendar{}):
			return x.planText(i, at) + " with a calendar of its own"
		}
	}
	return x.planText(i, at)
}

// planText names the plan that descriptor i has at a future moment, or the file.
func (x *explaining) planText(i int, at int64) string {
	rule := x.traces[i].Rule
	if rule == nil || rule.Plans == nil {
		return "the file"
	}
	for _, a := range slices.Backward(x.assignments[i]) {
		if left := a.InForce(at); left != nil && left.Plan != "" {
			return "plan " + yamlfile.Printable(left.Plan)
		}
	}
	if rule.Plans.Default == nil {
		return "no plan"
	}
	return "the default " + yamlfile.Printable(rule.Plans.Default.Plan)
}

func (x *explaining) effectOfBlock(i int, a *assign.Assignment) string {
	for _, other := range x.assignments[i] {
		if other.Blocked {
			if other != a {
				return "nothing more, since " + words.Entries(other.Entries) + " is blocked already"
			}
			break
		}
	}
	return "denies all that begins with " + words.Entries(a.Entries) + x.untilThen(i, a.BlockedUntil)
}

// untilText says when an assignment ends.
func untilText(until int64) string {
	if until == 0 {
		return ""
	}
	return " until " + time.UnixMicro(until).UTC().Format(time.RFC3339)
}

// idlePlan says why an assigned plan does nothing for descriptor i, or returns "".
func (x *explaining) idlePlan(i int, a *assign.Assignment) string {
	for _, longer := range x.assignments[i] {
		if longer.Plan != "" && len(longer.Entries) > len(a.Entries) {
			return fmt.Sprintf("the plan of %s goes before", words.Entries(longer.Entries))
		}
	}
	switch rule := x.traces[i].Rule; {
	case rule == nil:
		return "no rule matches"
	case rule.Plans == nil:
		return "the rule has no plans"
	}
	return ""
}

// effectOfPlan says what a plan does to descriptor i, whose rule has plans.
func (x *explaining) effectOfPlan(i int, a *assign.Assignment) string {
	rule, name := x.traces[i].Rule, yamlfile.Printable(a.Plan)
	if rule.Plans.Plan(a.Plan) == nil {
		text := fmt.Sprintf("the rule has no plan %s", name)
		if near := yamlfile.Nearest(a.Plan, rule.Plans.Names()); near != "" {
			text += " (" + yamlfile.Printable(near) + "?)"
		}
		switch {
		case x.Outcomes[i].Refusal == Unmatched:
			return text + ", so the descriptor counts as one without a rule"
		case rule.Plans.Default == nil:
			return text + " and no default, so nothing limits the descriptor"
		}
		return text + ", so the default " + yamlfile.Printable(rule.Plans.Default.Plan) + " stays"
	}
	text := "plan " + name
	if x.Outcomes[i].freed {
		return text + ", which limits nothing here while it is unlimited"
	}
	switch first := rule.Plans.Default; {
	case first == nil:
	case first.Plan == a.Plan:
		text += ", which is the default too"
	default:
		text += " in place of " + yamlfile.Printable(first.Plan)
	}
	if a.PlanUntil != 0 {
		text += untilText(a.PlanUntil) + ", then " + x.planText(i, a.PlanUntil)
	}
	if x.Outcomes[i].Refusal != NotRefused {
		text += ", but the descriptor is refused"
	} else if x.Descriptors[i].Own.Set {
		text += ", but the request brings its own numbers"
	}
	return text
}

func (x *explaining) effectOfNumbers(i int, n *assign.Numbers, until int64) string {
	o := &x.Outcomes[i]
	if o.Rule == nil {
		return fmt.Sprintf("nothing for %s, since no rule gives it an algorithm", limitText(n.Limit))
	}
	at := slices.IndexFunc(o.Rule.Limits, func(l *bucket.Limit) bool { return l.Name == n.Limit })
	switch {
	case at < 0:
		return fmt.Sprintf("nothing for %s, which the rule does not have", limitText(n.Limit))
	case o.Refusal != NotRefused:
		return "nothing, since the descriptor is refused"
	case x.Descriptors[i].Own.Set:
		return "nothing, since the request brings its own numbers"
	case o.freed:
		return fmt.Sprintf("nothing for %s while it is unlimited", limitText(n.Limit))
	}
	filed := o.Rule.Limits[at]
	assigned := x.decider.withNumbers(filed, *n)
	if assigned == filed {
		return fmt.Sprintf("nothing for %s: a %s cannot count its numbers", limitText(n.Limit), filed.Algorithm)
	}
	text := fmt.Sprintf("%s: %s in place of %s", limitText(n.Limit), words.Numbers(assigned), words.Numbers(filed))
	if until != 0 {
		text += untilText(until) + ", then those of " + x.planText(i, until)
	}
	return text
}

// effectOfCalendar says what the calendar of an assignment does to descriptor i.
func (x *explaining) effectOfCalendar(i int, a *assign.Assignment) string {
	o := &x.Outcomes[i]
	switch {
	case o.Refusal != NotRefused:
		return "nothing, since the descriptor is refused"
	case x.Descriptors[i].Own.Set:
		return "nothing, since the request brings its own numbers"
	case o.freed:
		return "nothing for limits by calendar while it is unlimited"
	case o.Rule == nil:
		return "no calendar, since no rule matches"
	}
	held := assign.Hold(a)
	var texts []string
	for _, l := range o.Rule.Limits {
		switch c := held.CalendarOf(l.Calendar, x.decider.Now()); {
		case l.Calendar.Unit == bucket.NoCalendar:
		case c == l.Calendar:
			texts = append(texts, fmt.Sprintf("nothing more for %s, a %s", limitText(l.Name), words.Calendar(c)))
		default:
			texts = append(texts, fmt.Sprintf("%s: a %s in place of a %s", limitText(l.Name), words.Calendar(c), words.Calendar(l.Calendar)))
		}
	}
	if texts == nil {
		return "no calendar, since the rule has no limit by calendar"
	}
	text := strings.Join(texts, ", ")
	if a.CalendarUntil != 0 {
		text += untilText(a.CalendarUntil) + ", then that of " + x.planText(i, a.CalendarUntil)
	}
	return text
}

// limitText names a limit within a sentence.
func limitText(name string) string {
	if name == "" {
		return "the limit without a name"
	}
	return "the limit " + yamlfile.Printable(name)
}

// notes say what people overlook about the limits of descriptor i.
func (x *explaining) notes(i int) (notes []string) {
	o, modes := &x.Outcomes[i], x.decider.Modes
	add := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	if modes.Shadow && len(o.Limits) > 0 {
		add("the daemon denies nothing (limits.shadow_mode)")
	}
	switch {
	case !o.isQuota(modes) || len(o.Limits) == 0:
	case modes.Quota:
		add("the daemon denies a request only if all its descriptors are over their limits (limits.quota_mode)")
	default:
		add("the rule has quota_mode: a request is denied only if all its quotas are exhausted")
	}
	if rule := x.traces[i].Rule; rule != nil && rule.Plans != nil && o.Rule == nil {
		add("the rule has its limits by plan, %s, and none is in force for this descriptor", yamlfile.Shorten(yamlfile.Commas(rule.Plans.Names())))
	}
	if !o.IsRuled() || o.Refusal != NotRefused {
		return notes
	}
	if o.Rule.ShareThreshold && len(o.Limits) > 0 {
		add("all values that match %s have one counter (share_threshold)", yamlfile.Quote(o.Rule.Pattern))
	}
	for _, l := range o.Limits {
		if d := &x.Descriptors[i]; d.cost > 0 && d.of(l).ChargedAnyway(d.cost) {
			add("%s is charged for what was used, whatever it decides (postpaid)", limitText(l.Name))
		}
	}
	if o.hasHolder() && len(o.Limits) > 0 {
		add("its last entry names the holder of a slot; all holders of %s share the limit", words.Entries(o.Subject))
	}
	if name, renewed, of := sharesHolder(o.Rule); of > 0 {
		add("%s of %s takes from %s were by a holder that had just taken: as if requests shared a holder, which have one slot and are not limited; the value of the last entry must tell each request in flight from the others",
			words.Thousands(int64(renewed)), words.Thousands(int64(of)), limitText(name))
	}
	for _, l := range o.Rule.Limits {
		if by := x.replacerOf(l); by >= 0 && !o.freed {
			add("%s is replaced in this request by the rule of descriptor %d", limitText(l.Name), by)
		}
	}
	return notes
}

// replacerOf returns the descriptor whose rule replaces a limit, or -1.
func (x *explaining) replacerOf(l *bucket.Limit) int {
	if l.Name == "" {
		return -1
	}
	for i := range x.Outcomes {
		o := &x.Outcomes[i]
		if !o.IsRuled() || o.Refusal != NotRefused || x.Descriptors[i].IsDoubtful {
			continue
		}
		for _, names := range o.Rule.Replaces {
			if slices.Contains(names, l.Name) {
				return i
			}
		}
	}
	return -1
}

// summary says in one sentence what the request would get.
func (x *explaining) summary(e *Explanation) string {
	if !e.Allowed {
		return "It would be denied: " + x.because(e) + "."
	}
	if e.Domain == nil {
		return "It would pass: no limits have its domain."
	}
	for i := range e.Descriptors {
		if d := &e.Descriptors[i]; d.Verdict == VerdictShadowed {
			return fmt.Sprintf("It would pass, though %s is over a limit: that is in shadow mode.", words.Entries(d.Entries))
		}
	}
	nearest, of := (*ExplainedLimit)(nil), 0
	unmatched, unlimited := 0, 0
	for i := range e.Descriptors {
		d := &e.Descriptors[i]
		switch d.Verdict {
		case VerdictUnmatchedAllowed:
			unmatched++
		case VerdictUnlimited:
			unlimited++
		}
		for j := range d.Limits {
			l := &d.Limits[j]
			if !l.Shadow && (nearest == nil || l.Remaining < nearest.Remaining) {
				nearest, of = l, i
			}
		}
	}
	switch {
	case nearest != nil:
		return fmt.Sprintf("It would pass: of its limits the nearest is %s, with %s left.", x.limitOf(nearest, of), words.Thousands(nearest.Remaining))
	case unmatched == len(e.Descriptors):
		return "It would pass: no rule is for it."
	case unlimited > 0:
		return "It would pass: it is unlimited."
	}
	return "It would pass: no limit is in force for it."
}

// limitOf names a limit of descriptor i.
func (x *explaining) limitOf(l *ExplainedLimit, i int) string {
	numbers := words.Numbers(l.Limit) + words.NextReset(l.Limit, time.UnixMicro(x.decider.Now()))
	return fmt.Sprintf("%s of %s (%s)", limitText(l.Name), words.Entries(x.Descriptors[i].Entries), numbers)
}

// because says why a request is denied.
func (x *explaining) because(e *Explanation) string {
	i := e.DeniedBy
	entries := words.Entries(x.Descriptors[i].Entries)
	switch x.Outcomes[i].Refusal {
	case Blocked:
		for _, a := range x.assignments[i] {
			if a.Blocked {
				return words.Entries(a.Entries) + " is blocked" + untilText(a.BlockedUntil)
			}
		}
		return entries + " is blocked"
	case Unmatched:
		return "no rule is for " + entries + ", and its domain denies what has none"
	}
	l := &e.Descriptors[i].Limits[e.DeniedByLimit]
	text := x.limitOf(l, i)
	cost := x.Descriptors[i].cost
	switch {
	case e.RetryAfter == bucket.Unknown && l.FreeAtLatest() > 0:
		return fmt.Sprintf("%s has none left, and would allow it once somebody releases, or in %s if nobody renews", text, timespan.Format(l.FreeAtLatest()))
	case e.RetryAfter == bucket.Unknown:
		return text + " has none left, and would allow it once somebody releases"
	case e.RetryAfter != bucket.Never:
		return fmt.Sprintf("%s has %s left, and would allow it in %s", text, words.Thousands(l.Remaining), timespan.Format(e.RetryAfter))
	case l.Requests == 0:
		return text + " never allows anything"
	}
	return fmt.Sprintf("%s never allows a cost of %s, more than its capacity of %s", text, words.Thousands(cost), words.Thousands(l.Capacity))
}
