package server

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/proto"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/rules"
	"github.com/ratelimitd/ratelimitd/internal/config/rules/tally"
)

// defaultMaxRules is Options.MaxRules if it is 0.
const defaultMaxRules = 5000

// otherRules is the rule, limit or domain of what has no series of its own.
const otherRules = "other"

// ruleMetrics gathers what rules count. Rules count for the admin API too, so a scrape reads
// their counts instead of having a counter of the client library beside each. It gathers
// families itself, since the client library's registry tells series apart by a hash for
// which callers can make two equal values.
//
// The number of series is bounded: a rule that was never used has none, only maxRules rules
// have their own, and the values that are counted individually are bounded.
type ruleMetrics struct {
	live *rules.Live
	// unknownDomains counts the descriptors of unknown domains.
	unknownDomains atomic.Uint64
	maxRules       int
	// showsHits is whether hits are shown with the names of envoyproxy/ratelimit.
	showsHits bool

	mu   sync.Mutex // guards sums, and makes scrapes gather one after the other
	sums risingSums
}

// A ruleFamily is one of the counters of rules.
type ruleFamily int

const (
	unmatchedFamily ruleFamily = iota
	decisionsFamily
	limitDecisionsFamily
	limitCostFamily
	returnedCostFamily
	settledCostFamily
	slotsFamily
	pausesFamily
)

// ruleFamilies has, for each family, its name, its help text and the label that tells apart
// the counts of one rule.
var ruleFamilies = [...]struct{ name, help, label string }{
	unmatchedFamily:      {"ratelimitd_unmatched_descriptors_total", "Descriptors without a rule, or without a plan, by what they got. Those of unknown domains have an empty domain.", "result"},
	decisionsFamily:      {"ratelimitd_decisions_total", "Descriptors that matched a rule, by their own result.", "result"},
	limitDecisionsFamily: {"ratelimitd_limit_decisions_total", "Results of each limit, whatever the others of its rule and request said.", "result"},
	limitCostFamily:      {"ratelimitd_limit_cost_total", "Cost that was asked of each limit: what was charged is allowed, near or over.", "result"},
	returnedCostFamily:   {"ratelimitd_limit_returned_cost_total", "Cost that came back to each limit, by negative costs (refunded) and by give-backs of takes (given_back).", "how"},
	settledCostFamily:    {"ratelimitd_limit_settled_cost_total", "Cost by which settlements changed what takes had charged to each limit.", "how"},
	slotsFamily:          {"ratelimitd_limit_slots_total", "Slots of limits of requests in flight that were renewed or released, besides takes of new ones.", "event"},
	pausesFamily:         {"ratelimitd_limit_pauses_total", "Pauses by block_for that each limit began (denied), or would have begun if it were in force (shadowed).", "result"},
}

// limitGauges has the name and the help text of each of the numbers of a limit.
var limitGauges = [...]struct{ name, help string }{
	{"ratelimitd_limit_requests", "Requests of each limit in a period, or at once, as the limits files have them."},
	{"ratelimitd_limit_period_seconds", "Period of each limit, as the limits files have it; that of a calendar varies and is not shown."},
}

// Gather implements prometheus.Gatherer.
func (m *ruleMetrics) Gather() ([]*dto.MetricFamily, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := rulePage{maxRules: m.maxRules, sums: &m.sums, others: make(map[otherCount]uint64)}
	for i, f := range ruleFamilies {
		p.families[i] = newCounterFamily(f.name, f.help)
	}
	for i, g := range limitGauges {
		p.gauges[i] = &dto.MetricFamily{Name: &g.name, Help: &g.help, Type: dto.MetricType_GAUGE.Enum()}
	}
	p.add(unmatchedFamily, tally.Allowed.String(), m.unknownDomains.Load(), label("domain", ""))
	var domains []*rules.Domain
	if set := m.live.Rules(); set != nil {
		domains = set.Domains()
	}
	for i, d := range domains {
		p.addDomain(d, i >= m.maxRules)
	}
	p.addOthers()
	all := append(p.families[:], p.gauges[:]...)
	if m.showsHits {
		all = append(all, hitFamilies(domains, m.maxRules, &m.sums)...)
	}
	m.sums.end()
	return slices.DeleteFunc(all, func(f *dto.MetricFamily) bool { return len(f.Metric) == 0 }), nil
}

// rulePage is what one scrape shows of rules.
type rulePage struct {
	families [len(ruleFamilies)]*dto.MetricFamily
	gauges   [len(limitGauges)]*dto.MetricFamily
	maxRules int
	sums     *risingSums
	// others has the counts of rules without series of their own.
	others map[otherCount]uint64
}

// otherCount names a count by its family and the value of the family's label.
type otherCount struct {
	family ruleFamily
	value  string
}

func (p *rulePage) add(f ruleFamily, value string, n uint64, labels ...*dto.LabelPair) {
	addCount(p.families[f], n, append(labels, label(ruleFamilies[f].label, value))...)
}

func (p *rulePage) addDomain(d *rules.Domain, isOther bool) {
	domain := label("domain", d.Name)
	eachResult(d.WithoutRule, false, func(result string, n uint64) {
		if isOther {
			p.others[otherCount{unmatchedFamily, result}] += n
		} else {
			p.add(unmatchedFamily, result, n, domain)
		}
	})
	for _, rule := range d.Rules() {
		values := rule.Counts.Values()
		limits := rule.Counts.Limits()
		if rule.Counts.Total() == 0 && len(values) == 0 && len(limits) == 0 {
			continue
		}
		if rule.Counts.HasOwnMetrics(p.maxRules) {
			p.addRule(domain, rule, values, limits)
		} else {
			p.addOther(rule, values, limits)
		}
	}
}

func (p *rulePage) addRule(domain *dto.LabelPair, rule *rules.Rule, values []tally.ValueCounts, limits []*tally.LimitCounts) {
	path := label("rule", rule.Path())
	addCounts := func(counts *tally.Counts, labels ...*dto.LabelPair) {
		eachResult(counts, rule.ShadowMode, func(result string, n uint64) {
			p.add(decisionsFamily, result, n, slices.Concat([]*dto.LabelPair{domain, path}, labels)...)
		})
	}
	addCounts(&rule.Counts.Counts, label("value", ""))
	for _, v := range values {
		if v.Value == tally.RestOfValues {
			addCounts(v.Counts, label("others", "true"), label("value", "")) // no caller can make this label
		} else {
			addCounts(v.Counts, label("value", v.Value))
		}
	}
	p.addNumbers(domain, path, rule.Limits)
	for _, counts := range limits {
		name := label("limit", counts.Name)
		eachLimitCount(counts, func(f ruleFamily, value string, n uint64) { p.add(f, value, n, domain, path, name) })
	}
}

// addNumbers adds the numbers of a rule's limits.
func (p *rulePage) addNumbers(domain, path *dto.LabelPair, limits []*bucket.Limit) {
	add := func(f *dto.MetricFamily, value float64, l *bucket.Limit) {
		labels := []*dto.LabelPair{domain, label("limit", l.Name), path}
		f.Metric = append(f.Metric, &dto.Metric{Label: labels, Gauge: &dto.Gauge{Value: &value}})
	}
	for _, l := range limits {
		add(p.gauges[0], float64(l.Requests), l)
		if !l.Algorithm.HasHolders() && l.Calendar.Unit == bucket.NoCalendar {
			add(p.gauges[1], l.Period.Seconds(), l)
		}
	}
}

// addOther adds the counts of a rule to those of the other rules.
func (p *rulePage) addOther(rule *rules.Rule, values []tally.ValueCounts, limits []*tally.LimitCounts) {
	add := func(f ruleFamily, value string, n uint64) { p.others[otherCount{f, value}] += n }
	addResult := func(result string, n uint64) { add(decisionsFamily, result, n) }
	eachResult(&rule.Counts.Counts, rule.ShadowMode, addResult)
	for _, v := range values {
		eachResult(v.Counts, rule.ShadowMode, addResult)
	}
	for _, counts := range limits {
		eachLimitCount(counts, add)
	}
}

// addOthers adds the series of the other rules.
func (p *rulePage) addOthers() {
	for of, n := range p.others {
		n = p.sums.rise(ruleFamilies[of.family].name+" "+of.value, n)
		switch of.family {
		case unmatchedFamily:
			p.add(of.family, of.value, n, label("domain", otherRules))
		case decisionsFamily:
			p.add(of.family, of.value, n, label("domain", ""), label("rule", otherRules), label("value", ""))
		default:
			p.add(of.family, of.value, n, label("domain", ""), label("rule", otherRules), label("limit", otherRules))
		}
	}
}

// eachResult calls add with the counts of a rule, of one of its values, or of what has no
// rule, unless all are 0: allowed and denied always, so that each first event is an
// increase, and for a rule in shadow mode shadowed too.
func eachResult(counts *tally.Counts, inShadow bool, add func(result string, n uint64)) {
	if counts.Total() == 0 {
		return
	}
	for _, r := range [...]tally.Result{tally.Allowed, tally.Denied, tally.Shadowed, tally.Peeked} {
		n := counts.Of(r)
		if n > 0 || r == tally.Allowed || r == tally.Denied || r == tally.Shadowed && inShadow {
			add(r.String(), n)
		}
	}
}

// eachLimitCount calls add with the counts of a limit. Its results allowed and denied are
// there from its first decision on, so that each first event is an increase; most limits
// never have the other counts, which are there from their own first event on.
func eachLimitCount(counts *tally.LimitCounts, add func(f ruleFamily, value string, n uint64)) {
	for r := range tally.LimitResult(tally.LimitResults) {
		n := counts.Decisions(r)
		if n == 0 && r != tally.LimitAllowed && r != tally.LimitDenied {
			continue
		}
		add(limitDecisionsFamily, r.String(), n)
		if r != tally.LimitPeeked {
			add(limitCostFamily, r.String(), counts.Cost(r))
		}
	}
	for _, c := range [...]struct {
		family ruleFamily
		how    string
		cost   *tally.Cost
	}{
		{returnedCostFamily, "refunded", &counts.Refunded}, {returnedCostFamily, "given_back", &counts.GivenBack},
		{settledCostFamily, "returned", &counts.Returned}, {settledCostFamily, "added", &counts.Added},
	} {
		if n := c.cost.Load(); n > 0 {
			add(c.family, c.how, n)
		}
	}
	if n := counts.Pauses.Load(); n > 0 {
		add(pausesFamily, tally.LimitDenied.String(), n)
	}
	if n := counts.ShadowedPauses.Load(); n > 0 {
		add(pausesFamily, tally.LimitShadowed.String(), n)
	}
	if !counts.HasHolders() {
		return
	}
	holders := counts.Holders()
	add(slotsFamily, "renewed", holders.Renewed.Load())
	add(slotsFamily, "renewed_soon", holders.RenewedSoon.Load())
	add(slotsFamily, "released", holders.Released[bucket.ReleasedSlot].Load())
	add(slotsFamily, "released_too_late", holders.Released[bucket.ReleasedTooLate].Load())
	add(slotsFamily, "released_nothing", holders.Released[bucket.ReleasedNothing].Load())
}

// risingSums keeps sums of several counts from falling when a reload drops one of the
// counts: Prometheus would take that for a restart, and count all that is left as new.
type risingSums struct{ before, now map[string]risingSum }

type risingSum struct {
	last uint64
	// lost is by how much the sum fell so far.
	lost uint64
}

// rise returns a sum that does not fall, for one that may. It is called once in a scrape
// for each name.
func (s *risingSums) rise(name string, sum uint64) uint64 {
	r := s.before[name]
	if sum < r.last {
		r.lost += r.last - sum
	}
	r.last = sum
	if s.now == nil {
		s.now = make(map[string]risingSum)
	}
	s.now[name] = r
	return sum + r.lost
}

// rose reports whether rise was called for a name in the scrape before.
func (s *risingSums) rose(name string) bool {
	_, ok := s.before[name]
	return ok
}

// end ends a scrape. Sums that it did not have start again at 0 when they return.
func (s *risingSums) end() { s.before, s.now = s.now, nil }

func newCounterFamily(name, help string) *dto.MetricFamily {
	return &dto.MetricFamily{Name: &name, Help: &help, Type: dto.MetricType_COUNTER.Enum()}
}

func label(name, value string) *dto.LabelPair { return &dto.LabelPair{Name: &name, Value: &value} }

// addCount adds a series to a family. No two have the same labels.
func addCount(f *dto.MetricFamily, n uint64, labels ...*dto.LabelPair) {
	slices.SortFunc(labels, func(a, b *dto.LabelPair) int { return strings.Compare(a.GetName(), b.GetName()) })
	f.Metric = append(f.Metric, &dto.Metric{Label: labels, Counter: &dto.Counter{Value: proto.Float64(float64(n))}})
}
