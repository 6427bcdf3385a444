package adminapi

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ratelimitd/ratelimitd/internal/access"
	"github.com/ratelimitd/ratelimitd/internal/assign"
	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/rules"
	"github.com/ratelimitd/ratelimitd/internal/config/rules/words"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
	"github.com/ratelimitd/ratelimitd/internal/timespan"
)

// Relief bounds what the role support may put on top of assignments.
type Relief struct {
	// Times is how many times the number in force without temporary layers it may give;
	// 0: none.
	Times int64
	// For is how long it may last.
	For time.Duration
}

// clocksApart is how far the caller's clock may be ahead when it says the end of a span.
const clocksApart = time.Minute

// mayRelieve returns why a change, which is valid, is more than relief within bounds, as a
// status, or nil.
func (a *API) mayRelieve(member *access.Member, domain *rules.Domain, c *assign.Change) error {
	if a.Relief.Times == 0 {
		return lacksRole(member, "PatchAssignments")
	}
	found := ""
	if !c.Remove.IsNone() {
		found = "parts to remove"
	}
	for i := range c.Set {
		if found == "" {
			found = a.beyondRelief(domain, c, &c.Set[i])
		}
	}
	if found == "" {
		return nil
	}
	return status.Errorf(codes.PermissionDenied,
		"found %s; allowed for %q, who has the role %s: other numbers of limits, for at most %s, up to %d times those in force without temporary layers (assignments.relief_for, assignments.relief_times)",
		found, member.Name, member.Role, timespan.Format(a.Relief.For), a.Relief.Times)
}

// beyondRelief says what in a layer is not relief within bounds, or returns "".
func (a *API) beyondRelief(domain *rules.Domain, c *assign.Change, l *assign.Layer) string {
	switch now := a.Now(); {
	case l.Blocked:
		return "a block"
	case l.Plan != "":
		return "the plan " + yamlfile.Quote(l.Plan)
	case l.Unlimited:
		return "unlimited"
	case l.Calendar != (assign.Calendar{}):
		return "a calendar"
	case l.Until == 0:
		return "numbers without an end"
	case l.Until > now.Add(a.Relief.For+clocksApart).UnixMicro():
		return "an end in " + timespan.Format(time.UnixMicro(l.Until).Sub(now))
	}
	for i := range l.Numbers {
		if found := a.numbersBeyondRelief(domain, c.Subject, &l.Numbers[i]); found != "" {
			return found
		}
	}
	return ""
}

// numbersBeyondRelief says why numbers are less or too much more than those in force
// without temporary layers, or returns "".
func (a *API) numbersBeyondRelief(domain *rules.Domain, s assign.Subject, n *assign.Numbers) string {
	name := "the limit " + yamlfile.Quote(n.Limit)
	if n.Limit == "" {
		name = "the limit without a name"
	}
	isInForce := false
	for _, rule := range rulesForNumbers(domain, s.Entries) {
		limit := a.limitOfBase(rule, s, n.Limit)
		if limit == nil {
			continue
		}
		isInForce = true
		own, asked := limit.Spec, n.In(limit.Spec)
		if held := a.held(s); held != nil {
			if base := numbersOf(held.Base.Terms, n.Limit); base != nil {
				own = base.In(limit.Spec)
			}
			if now := numbersOf(held.Now(), n.Limit); now != nil && now.Requests < own.Requests {
				return fmt.Sprintf("relief for %s, which a temporary layer restricts to %s requests", name, words.Thousands(now.Requests))
			}
		}
		beyond := func(asked, own int64) bool { return asked < own || asked > a.Relief.Times*own }
		switch {
		case asked.Period != own.Period:
			return fmt.Sprintf("a period of %s for %s, which has %s", timespan.Format(asked.Period), name, timespan.Format(own.Period))
		case asked.BlockFor != own.BlockFor:
			return fmt.Sprintf("a block_for of %s for %s, which has another or none", timespan.Format(asked.BlockFor), name)
		case beyond(asked.Requests, own.Requests):
			return fmt.Sprintf("%s requests for %s, which has %s", words.Thousands(asked.Requests), name, words.Thousands(own.Requests))
		case beyond(burstOf(&asked), burstOf(&own)):
			return fmt.Sprintf("a burst of %s for %s, which has %s", words.Thousands(burstOf(&asked)), name, words.Thousands(burstOf(&own)))
		}
	}
	if !isInForce {
		return "numbers of " + name + ", which is not in force without temporary layers"
	}
	return ""
}

// burstOf returns how many requests may come at once.
func burstOf(spec *bucket.Spec) int64 {
	if spec.Burst == 0 {
		return spec.Requests
	}
	return spec.Burst
}

// limitOfBase returns the limit of a rule that a subject has without temporary layers, as
// the file has it, or nil.
func (a *API) limitOfBase(rule *rules.Rule, s assign.Subject, name string) *bucket.Limit {
	if held := a.held(s); held != nil && held.Base.Unlimited {
		return nil
	}
	if rule.Plans != nil {
		rule = cmp.Or(rule.Plans.Plan(a.planOfBase(s)), rule.Plans.Default)
	}
	if rule == nil {
		return nil
	}
	i := slices.IndexFunc(rule.Limits, func(l *bucket.Limit) bool { return l.Name == name })
	if i < 0 {
		return nil
	}
	return rule.Limits[i]
}

// planOfBase returns the plan that a subject has without temporary layers, or "": that of
// its longest beginning with one.
func (a *API) planOfBase(s assign.Subject) string {
	for n := len(s.Entries); n > 0; n-- {
		if held := a.held(assign.Subject{Domain: s.Domain, Entries: s.Entries[:n]}); held != nil && held.Base.Plan != "" {
			return held.Base.Plan
		}
	}
	return ""
}

// numbersOf returns the numbers of a limit among those of terms, or nil.
func numbersOf(terms assign.Terms, limit string) *assign.Numbers {
	if i := slices.IndexFunc(terms.Numbers, func(n assign.Numbers) bool { return n.Limit == limit }); i >= 0 {
		return &terms.Numbers[i]
	}
	return nil
}
