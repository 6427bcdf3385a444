package adminapi

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ratelimitd/ratelimitd/internal/assign"
	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/rules"
	"github.com/ratelimitd/ratelimitd/internal/config/rules/trace"
	"github.com/ratelimitd/ratelimitd/internal/config/rules/words"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
)

// namesShown bounds the names that an error lists.
const namesShown = 20

// judge finds out what is wrong with what a change sets, or why it would have no effect,
// under the rules in force.
func (a *API) judge(rules *rules.Set, reacher *trace.Reacher, q *askedChange) {
	if !q.change.Sets() {
		// An assignment may be removed though its rule is gone.
		if rules != nil && a.held(q.change.Subject) == nil {
			q.warnings = absent(reacher, &q.change.Subject)
		}
		return
	}
	c := &q.change
	domain := rules.Domain(c.Domain)
	if domain == nil {
		q.wrong = "domain: " + trace.NoDomain(rules, c.Domain)
		return
	}
	for i := range c.Set {
		if q.wrong, q.hints = a.wrongForRules(domain, reacher, c, &c.Set[i].Terms); q.wrong != "" {
			return
		}
	}
	reach := reacher.Beginning(c.Domain, c.Entries)
	switch rule := domain.Match(c.Entries); {
	case !reach.HasRule:
		q.idle, q.warnings = true, append(q.warnings, a.idleBlock(domain, c.Entries))
	case rule != nil && rule.Unlimited && onlyFrees(c):
		q.idle, q.warnings = true, append(q.warnings, fmt.Sprintf("the rule %s is unlimited already", rule.Path()))
	}
	q.warnings = append(q.warnings, reach.Hints...)
}

// onlyFrees reports whether all that a change sets has no effect on a rule that is
// unlimited.
func onlyFrees(c *assign.Change) bool {
	return !slices.ContainsFunc(c.Set, func(l assign.Layer) bool { return !l.Unlimited || l.Plan != "" || l.Blocked })
}

// absent warns that a subject without an assignment that could end has no rule either:
// its name may be misspelt. It returns nothing if there is one.
func absent(reacher *trace.Reacher, asked *assign.Subject) []string {
	reach := reacher.Beginning(asked.Domain, asked.Entries)
	if reach.HasRule {
		return nil
	}
	text := "this changes nothing: nothing is assigned to %s, and no rule is for descriptors that begin with it"
	return append([]string{fmt.Sprintf(text, words.Entries(asked.Entries))}, reach.Hints...)
}

// idleBlock says what a block does if no rule is for its subject.
func (a *API) idleBlock(domain *rules.Domain, entries []bucket.Entry) string {
	text := fmt.Sprintf("no rule is for descriptors that begin with %s: ", words.Entries(entries))
	if a.Decider.DeniesUnmatched(domain) {
		return text + "a request that sends one anyway is denied already, unless it brings its own numbers"
	}
	return text + "a block denies only requests that send one anyway"
}

// withHints adds hints to what is wrong.
func withHints(wrong string, hints []string) string {
	return strings.Join(append([]string{wrong}, hints...), "; ")
}

// wrongForRules says why terms that a change sets are not valid under the rules of its
// domain, and hints at what may have been meant, or returns "".
func (a *API) wrongForRules(domain *rules.Domain, reacher *trace.Reacher, c *assign.Change, terms *assign.Terms) (wrong string, hints []string) {
	if terms.Plan != "" {
		if wrong, hints := wrongPlan(domain, reacher, &c.Subject, terms.Plan); wrong != "" {
			return wrong, hints
		}
	}
	if !terms.Unlimited && len(terms.Numbers) == 0 && terms.Calendar == (assign.Calendar{}) {
		return "", nil
	}
	rule := domain.Match(c.Entries)
	if rule != nil && rule.HasHolders {
		last := len(c.Entries) - 1
		return fmt.Sprintf("entries: found %s, whose last entry names one holder in the rule %s; numbers and unlimited are for all holders of a limit: assign them to %s",
			words.Entries(c.Entries), rule.Path(), beforeHolder(c.Entries[:last])), nil
	}
	all := rulesForNumbers(domain, c.Entries)
	if len(all) == 0 {
		return fmt.Sprintf("entries: found %s, which match no rule; numbers, calendar and unlimited are for the descriptor of these very entries", words.Entries(c.Entries)),
			reacher.Exactly(c.Domain, c.Entries).Hints
	}
	for _, rule := range all {
		this := a.wrongForRule(rule, c, terms)
		if this == "" {
			return "", nil
		}
		if wrong == "" || hasLimits(rule, terms.Numbers) {
			wrong = this
		}
	}
	return wrong, nil
}

// rulesForNumbers returns the rules for which numbers of these very entries are: theirs, and those
// of the requests in flight right below them.
func rulesForNumbers(domain *rules.Domain, entries []bucket.Entry) []*rules.Rule {
	all := domain.WithHolders(entries)
	if rule := domain.Match(entries); rule != nil {
		all = append([]*rules.Rule{rule}, all...)
	}
	return all
}

// hasLimits reports whether a rule, or one of its plans, has the limits that numbers name.
func hasLimits(rule *rules.Rule, numbers []assign.Numbers) (has bool) {
	rule.Each(func(each *rules.Rule) {
		lacks := func(n assign.Numbers) bool {
			return !slices.ContainsFunc(each.Limits, func(l *bucket.Limit) bool { return l.Name == n.Limit })
		}
		has = has || !slices.ContainsFunc(numbers, lacks)
	})
	return has
}

// beforeHolder names the entries before one that names a holder.
func beforeHolder(entries []bucket.Entry) string {
	if len(entries) == 0 {
		return "none, since no entry is before it: change the limits file"
	}
	return words.Entries(entries)
}

// wrongForRule says why terms that a change sets are not valid for a rule, or returns "".
func (a *API) wrongForRule(rule *rules.Rule, c *assign.Change, terms *assign.Terms) string {
	if terms.Calendar != (assign.Calendar{}) {
		if wrong := wrongCalendar(rule, terms.Calendar); wrong != "" {
			return wrong
		}
	}
	if len(terms.Numbers) == 0 {
		return ""
	}
	choices := []*rules.Rule{rule}
	if rule.Plans != nil {
		if choices = a.plansAfter(rule, c); len(choices) == 0 {
			return fmt.Sprintf("numbers: found them without a plan; the rule %s has no plan for a subject without one, so name one of %s beside them", rule.Path(), few(rule.Plans.Names()))
		}
	}
	for i := range terms.Numbers {
		if wrong := wrongNumbers(choices, &terms.Numbers[i]); wrong != "" {
			return wrong
		}
	}
	return ""
}

// plansAfter returns the plans of a rule that its subject has after a change, one time or
// another: that of the base, or else the default, and those of layers.
func (a *API) plansAfter(rule *rules.Rule, c *assign.Change) (plans []*rules.Rule) {
	made := *c
	made.IfMatch = "" // a conflict is reported later
	after := a.expected(&made).After
	if after == nil {
		after = new(assign.Assignment)
	}
	if plan := cmp.Or(rule.Plans.Plan(after.Base.Plan), rule.Plans.Default); plan != nil {
		plans = append(plans, plan)
	}
	for i := range after.Layers {
		if plan := rule.Plans.Plan(after.Layers[i].Plan); plan != nil {
			plans = append(plans, plan)
		}
	}
	return plans
}

// wrongPlan says why a plan is not valid, and hints at what may have been meant, or returns
// "".
func wrongPlan(domain *rules.Domain, reacher *trace.Reacher, of *assign.Subject, plan string) (wrong string, hints []string) {
	has, plans := domain.HasPlan(of.Entries, plan)
	switch {
	case has:
		return "", nil
	case len(plans) == 0:
		return fmt.Sprintf("plan: found %s; no rule that %s matches, or that is below it, has plans", yamlfile.Quote(plan), words.Entries(of.Entries)),
			reacher.Beginning(of.Domain, of.Entries).Hints
	}
	return fmt.Sprintf("plan: found %s%s; allowed: %s", yamlfile.Quote(plan), nearest(plan, plans), few(plans)), nil
}

// few lists some names, and counts the others.
func few(names []string) string {
	if len(names) <= namesShown {
		return yamlfile.Commas(names)
	}
	return fmt.Sprintf("%s and %d more", yamlfile.Commas(names[:namesShown]), len(names)-namesShown)
}

// wrongCalendar says why no limit of a rule can have a calendar, whichever plan is in force,
// or returns "".
func wrongCalendar(rule *rules.Rule, c assign.Calendar) string {
	limits := rule.Limits
	if rule.Plans != nil {
		for _, plan := range rule.Plans.All() {
			limits = append(limits[:len(limits):len(limits)], plan.Limits...)
		}
	}
	_, units := bucket.ParseStarts(c.Starts)
	var found []string
	for _, l := range limits {
		unit := l.Calendar.Unit
		if unit == bucket.NoCalendar {
			continue
		}
		if c.Starts == "" || slices.Contains(units, unit) {
			return ""
		}
		if allowed := bucket.AllowedStarts(unit); !slices.Contains(found, allowed) {
			found = append(found, allowed)
		}
	}
	if found == nil {
		return fmt.Sprintf("calendar: found one, and the rule %s has no limit by calendar", rule.Path())
	}
	return fmt.Sprintf("calendar.starts: found %s; allowed for the limits by calendar of the rule %s: %s", yamlfile.Quote(c.Starts), rule.Path(), strings.Join(found, ", or "))
}

// wrongNumbers says why no limit of these rules, of which there is one or more, can have
// these numbers, or returns "".
func wrongNumbers(choices []*rules.Rule, n *assign.Numbers) (wrong string) {
	for _, rule := range choices {
		if wrong = wrongForLimit(rule, n); wrong == "" {
			return ""
		}
	}
	return wrong
}

// wrongForLimit says why a rule's limit cannot have these numbers, or returns "".
func wrongForLimit(rule *rules.Rule, n *assign.Numbers) string {
	i := slices.IndexFunc(rule.Limits, func(l *bucket.Limit) bool { return l.Name == n.Limit })
	if i < 0 {
		var names []string
		for _, l := range rule.Limits {
			names = append(names, fmt.Sprintf("%q", l.Name))
		}
		if len(names) == 0 {
			return fmt.Sprintf("numbers: found %q; the rule %s is unlimited, so it has no limit that could have others", n.Limit, rule.Path())
		}
		if n.Limit == "" {
			return fmt.Sprintf("numbers: found none with the name of a limit, and those of the rule %s have names; allowed: %s", rule.Path(), few(names))
		}
		return fmt.Sprintf("numbers: found the limit %s, which the rule %s does not have%s; allowed: %s",
			yamlfile.Quote(n.Limit), rule.Path(), nearest(fmt.Sprintf("%q", n.Limit), names), few(names))
	}
	if n.Period != 0 && rule.Limits[i].Algorithm.HasHolders() {
		return fmt.Sprintf("numbers of %q, period: found %s; allowed: none for requests in flight, whose hold stays that of the rule %s", n.Limit, n.Period, rule.Path())
	}
	spec := n.In(rule.Limits[i].Spec)
	spec.Lease = 0 // they may be such that it goes
	_, err := bucket.NewLimit(spec)
	if err == nil {
		return ""
	}
	var wrong *bucket.SpecError
	if !errors.As(err, &wrong) {
		return fmt.Sprintf("numbers of %q: %v", n.Limit, err)
	}
	return fmt.Sprintf("numbers of %q, %s: found %s; allowed: %s", n.Limit, wrong.Field, wrong.Found, strings.TrimSpace(wrong.Allowed))
}
