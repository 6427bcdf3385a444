package adminapi

import (
	"context"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/rules"
	"github.com/ratelimitd/ratelimitd/internal/config/rules/tally"
	"github.com/ratelimitd/ratelimitd/internal/config/rules/trace"
	"github.com/ratelimitd/ratelimitd/internal/config/rules/words"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
	"github.com/ratelimitd/ratelimitd/internal/server/assignmsg"
	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

// maxRulesShown bounds the rules in an answer, which has some 300 bytes for each.
const maxRulesShown = 10_000

// rules returns the rules in force.
func (a *API) rules() (*rules.Set, error) {
	if rules := a.Live.Rules(); rules != nil {
		return rules, nil
	}
	return nil, status.Error(codes.Unavailable, "no limits are loaded yet")
}

// nearest returns " (NAME?)" for the nearest of some names, or "".
func nearest(word string, names []string) string {
	if near := yamlfile.Nearest(word, names); near != "" {
		return " (" + near + "?)"
	}
	return ""
}

// ListDomains implements adminv1.AdminServiceServer.
func (a *API) ListDomains(context.Context, *adminv1.ListDomainsRequest) (*adminv1.ListDomainsResponse, error) {
	rules, err := a.rules()
	if err != nil {
		return nil, err
	}
	response, size := &adminv1.ListDomainsResponse{Fingerprint: rules.Fingerprint()}, pageSum{}
	for _, d := range rules.Domains() {
		shown := &adminv1.Domain{
			Name: d.Name, Place: &adminv1.Place{File: d.File, Line: uint32(d.Line)}, Rules: uint32(len(d.RulesWithPlans())),
			HashTag: d.HashTag, Unmatched: adminv1.Unmatched_UNMATCHED_ALLOW, Keys: outermostKeys(d),
		}
		if a.Assignments != nil {
			shown.Assignments = uint64(a.Assignments.Table().Count(d.Name))
		}
		shown.UnmatchedCount = d.WithoutRule.Of(tally.Allowed) + d.WithoutRule.Of(tally.Denied) + d.WithoutRule.Of(tally.Shadowed)
		if a.Decider.DeniesUnmatched(d) {
			shown.Unmatched = adminv1.Unmatched_UNMATCHED_DENY
		}
		if !size.fits(shown) {
			return nil, errLongAnswer
		}
		response.Domains = append(response.Domains, shown)
	}
	return response, nil
}

// outermostKeys returns the keys with which descriptors of a domain begin, in the
// order of the file.
func outermostKeys(d *rules.Domain) []string {
	var keys []string
	var entries []bucket.Entry // one after the other, since there may be 100,000
	known := make(map[string]bool)
	for _, rule := range d.Rules() {
		entries = rule.AppendEntries(entries[:0])
		if key := entries[0].Key; !known[key] {
			known[key] = true
			keys = append(keys, key)
		}
	}
	return keys
}

// GetRule implements adminv1.AdminServiceServer.
func (a *API) GetRule(_ context.Context, r *adminv1.GetRuleRequest) (*adminv1.GetRuleResponse, error) {
	rules, err := a.rules()
	if err != nil {
		return nil, err
	}
	domain := rules.Domain(r.GetDomain())
	if domain == nil {
		return nil, status.Error(codes.NotFound, "domain: "+trace.NoDomain(rules, r.GetDomain()))
	}
	all, err := rulesOf(domain, r)
	if err != nil {
		return nil, err
	}
	response, size := new(adminv1.GetRuleResponse), pageSum{}
	for _, rule := range all {
		shown := showRule(domain, rule, a.Now())
		if !size.fits(shown) {
			return nil, errLongAnswer
		}
		response.Rules = append(response.Rules, shown)
	}
	return response, nil
}

// rulesOf returns the rules of a domain that are asked for. Its error is a status.
func rulesOf(domain *rules.Domain, r *adminv1.GetRuleRequest) ([]*rules.Rule, error) {
	if len(r.GetEntries()) > 0 {
		entries := assignmsg.Entries(r.GetEntries())
		if rule := domain.Match(entries); rule != nil {
			return []*rules.Rule{rule}, nil
		}
		return nil, status.Errorf(codes.NotFound, "entries: found %s, which match no rule", words.Entries(entries))
	}
	all := domain.RulesWithPlans()
	if r.GetPath() == "" {
		if n := len(all); n > maxRulesShown {
			return nil, status.Errorf(codes.ResourceExhausted, "the domain has %d rules, and an answer has at most %d: name a path", n, maxRulesShown)
		}
		return all, nil
	}
	for _, rule := range all {
		if rule.Path() == r.GetPath() || isPlanAt(rule, r.GetPath()) {
			return []*rules.Rule{rule}, nil
		}
	}
	var paths []string
	for _, rule := range all[:min(len(all), maxRulesShown)] {
		paths = append(paths, rule.Path())
	}
	return nil, status.Errorf(codes.NotFound, "path: found %s; the domain has no rule there%s", yamlfile.Quote(r.GetPath()), nearest(r.GetPath(), paths))
}

// isPlanAt reports whether a path is that of one of a rule's plans, as in metrics.
func isPlanAt(rule *rules.Rule, path string) bool {
	return rule.Plans != nil && slices.ContainsFunc(rule.Plans.All(), func(plan *rules.Rule) bool { return plan.Path() == path })
}

func showRule(domain *rules.Domain, rule *rules.Rule, now time.Time) *adminv1.Rule {
	m := &adminv1.Rule{
		Domain: domain.Name, Path: rule.Path(), Place: &adminv1.Place{File: rule.File, Line: uint32(rule.Line)},
		Unlimited: rule.Unlimited, ShadowMode: rule.ShadowMode, QuotaMode: rule.QuotaMode, ShareThreshold: rule.SharesCounters(),
	}
	for _, l := range rule.Limits {
		m.Limits = append(m.Limits, showLimit(l, now))
	}
	plans := []*rules.Rule{rule}
	if rule.Plans != nil {
		plans = rule.Plans.All()
		if rule.Plans.Default != nil {
			m.DefaultPlan = rule.Plans.Default.Plan
		}
	}
	for _, plan := range plans {
		if rule.Plans != nil {
			shown := &adminv1.Plan{Name: plan.Plan, Unlimited: plan.Unlimited}
			for _, l := range plan.Limits {
				shown.Limits = append(shown.Limits, showLimit(l, now))
			}
			m.Plans = append(m.Plans, shown)
		}
		countsOf(m, plan)
	}
	return m
}

// countsOf adds the results of descriptors that matched a rule or plan.
func countsOf(m *adminv1.Rule, rule *rules.Rule) {
	counts := []*tally.Counts{&rule.Counts.Counts}
	for _, n := range rule.Counts.Values() {
		counts = append(counts, n.Counts)
	}
	for _, c := range counts {
		m.Allowed += c.Of(tally.Allowed)
		m.Denied += c.Of(tally.Denied)
		m.Shadowed += c.Of(tally.Shadowed)
	}
}

func showLimit(l *bucket.Limit, now time.Time) *adminv1.RuleLimit {
	m := &adminv1.RuleLimit{
		Name: l.Name, Algorithm: ratelimitv1.Algorithm(1 + slices.Index(bucket.Algorithms(), l.Algorithm)),
		Requests: uint64(l.Requests), Period: durationpb.New(l.Period), Capacity: uint64(l.Capacity), Text: words.Numbers(l) + words.NextReset(l, now) + words.Enforcement(l),
	}
	if l.Lease != 0 {
		m.Text += "; " + words.Lease(l)
	}
	if l.OnStoreFailure != bucket.FailureDefault {
		m.OnStoreFailure = l.OnStoreFailure.String()
	}
	if b, ok := l.Borders(now.UnixMicro()); ok {
		m.NextReset = moment(b[1])
		m.Calendar = &ratelimitv1.Calendar{Unit: ratelimitv1.CalendarUnit(l.Calendar.Unit), TimeZone: l.Calendar.Zone.String(), Starts: l.Calendar.Starts.String()}
	}
	return m
}
