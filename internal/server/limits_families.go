package server

import (
	"sync/atomic"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/rules"
	"github.com/ratelimitd/ratelimitd/internal/config/rules/tally"
	"github.com/ratelimitd/ratelimitd/internal/server/scrape"
)

// families returns what the rules in force count, for one page. The number of series
// is bounded: a rule that never matched has none, rules that are counted by value
// have a bounded number of them, and the series of a rule go with it at a reload.
func (c *limitsCollector) families() []scrape.Family {
	var domains []*rules.Domain
	if rules := c.live.Rules(); rules != nil {
		domains = rules.Domains()
	}
	w := ruleWalk{domains: domains}
	limitLabels := []string{"domain", "limit", "result", "rule"}
	return []scrape.Family{
		{
			Name:   "ratelimitd_unmatched_descriptors_total",
			Help:   "Descriptors without a rule, or without a plan, by what they got. Those of unknown domains have an empty domain. Domains that never had one have no series.",
			Labels: []string{"domain", "result"},
			Each:   func(s *scrape.Series) { writeUnmatched(s, domains, c.unknownDomains.Load()) },
		},
		{
			Name:     "ratelimitd_decisions_total",
			Help:     "Descriptors that matched a rule, by what they got themselves, whatever the others of their request did. Rules that never matched have no series.",
			Labels:   []string{"domain", "others", "result", "rule", "value"},
			Optional: "others",
			Each:     w.writeDecisions,
		},
		{
			Name:   "ratelimitd_limit_decisions_total",
			Help:   "What each limit said, whatever the others of its rule and request said. Limits that were never asked have no series.",
			Labels: limitLabels,
			Each:   func(s *scrape.Series) { w.eachLimit(s, writeLimitDecisions) },
		},
		{
			Name:   "ratelimitd_limit_cost_total",
			Help:   "Cost of what was asked of each limit: what was charged is allowed, near or over. Limits that were never asked have no series.",
			Labels: limitLabels,
			Each:   func(s *scrape.Series) { w.eachLimit(s, writeLimitCost) },
		},
		{
			Name:   "ratelimitd_limit_returned_cost_total",
			Help:   "Cost that was asked back from each limit, by negative costs (refunded) and by give-backs of takes (given_back).",
			Labels: []string{"domain", "how", "limit", "rule"},
			Each:   func(s *scrape.Series) { w.eachLimit(s, writeReturnedCost) },
		},
		{
			Name:   "ratelimitd_limit_settled_cost_total",
			Help:   "Cost by which settlements changed what takes had charged to each limit: it went back (returned), or was charged in full, whatever remained (added).",
			Labels: []string{"domain", "how", "limit", "rule"},
			Each:   func(s *scrape.Series) { w.eachLimit(s, writeSettledCost) },
		},
		{
			Name:   "ratelimitd_limit_slots_total",
			Help:   "What became of the slots of limits of requests in flight, besides takes of new ones: renewed, renewed_soon after the holder was last heard of, released, and of releases that found none released_too_late, after it had lapsed, or released_nothing.",
			Labels: []string{"domain", "event", "limit", "rule"},
			Each:   func(s *scrape.Series) { w.eachLimit(s, writeSlots) },
		},
	}
}

func writeUnmatched(s *scrape.Series, domains []*rules.Domain, unknown uint64) {
	const result = 1
	s.Set(0, "")
	s.Set(result, tally.Allowed.String())
	if !s.Write(unknown) {
		return
	}
	for _, d := range domains {
		if d.WithoutRule.IsZero() {
			continue
		}
		s.Set(0, d.Name)
		if !writeResults(s, result, d.WithoutRule, false) {
			return
		}
	}
}

// ruleWalk goes through the rules in force. Its memory is for a family at a time.
type ruleWalk struct {
	domains []*rules.Domain
	path    []byte
	values  []tally.ValueCounts
}

// writeDecisions writes the decisions on descriptors that matched rules.
func (w *ruleWalk) writeDecisions(s *scrape.Series) {
	for _, d := range w.domains {
		s.Set(0, d.Name)
		for _, rule := range d.Rules() {
			w.values = append(w.values[:0], tally.ValueCounts{Counts: &rule.Counts.Counts})
			w.values = rule.Counts.AppendValues(w.values)
			isNamed := false
			for _, v := range w.values {
				if v.IsZero() {
					continue
				}
				if !isNamed {
					isNamed, w.path = true, rule.AppendPath(w.path[:0])
					s.SetBytes(3, w.path)
				}
				setValue(s, v.Value)
				if !writeResults(s, 2, v.Counts, rule.ShadowMode) {
					return
				}
			}
		}
	}
}

// setValue sets the labels of a value: the rest has none, and a label that no caller can
// make.
func setValue(s *scrape.Series, value string) {
	others := ""
	if value == tally.RestOfValues {
		value, others = "", "true"
	}
	s.Set(1, others)
	s.Set(4, value)
}

// writeResults writes the counts of a rule, of one of its values, or of what has no
// rule: allowed and denied from the first of any on, so that each first event is an
// increase, and for a rule in shadow mode shadowed too. label is the place of the label
// result.
func writeResults(s *scrape.Series, label int, counts *tally.Counts, inShadow bool) bool {
	for _, r := range [...]tally.Result{tally.Allowed, tally.Denied, tally.Shadowed, tally.Peeked} {
		n := counts.Of(r)
		if n == 0 && (r == tally.Peeked || r == tally.Shadowed && !inShadow) {
			continue
		}
		s.Set(label, r.String())
		if !s.Write(n) {
			return false
		}
	}
	return true
}

// eachLimit sets the labels domain and rule, the first and the last, and calls write
// for each limit that was asked.
func (w *ruleWalk) eachLimit(s *scrape.Series, write func(*scrape.Series, *tally.LimitCounts) bool) {
	for _, d := range w.domains {
		s.Set(0, d.Name)
		for _, rule := range d.Rules() {
			limits := rule.Counts.Limits()
			if len(limits) > 0 {
				w.path = rule.AppendPath(w.path[:0])
				s.SetBytes(3, w.path)
			}
			for _, counts := range limits {
				if !write(s, counts) {
					return
				}
			}
		}
	}
}

// isShown reports whether a result of a limit has a series: allowed and denied from the
// limit's first decision on, so that each first event is an increase, and the others,
// which most limits never have, from their own first on.
func isShown(r tally.LimitResult, counts *tally.LimitCounts) bool {
	return r == tally.LimitAllowed || r == tally.LimitDenied || counts.Decisions(r) > 0
}

func writeLimitDecisions(s *scrape.Series, counts *tally.LimitCounts) bool {
	s.Set(1, counts.Name)
	for r := range tally.LimitResult(tally.LimitResults) {
		if isShown(r, counts) {
			s.Set(2, r.String())
			if !s.Write(counts.Decisions(r)) {
				return false
			}
		}
	}
	return true
}

func writeLimitCost(s *scrape.Series, counts *tally.LimitCounts) bool {
	s.Set(1, counts.Name)
	for r := range tally.LimitResult(tally.LimitResults) {
		if r != tally.LimitPeeked && isShown(r, counts) {
			s.Set(2, r.String())
			if !s.Write(counts.Cost(r)) {
				return false
			}
		}
	}
	return true
}

func writeReturnedCost(s *scrape.Series, counts *tally.LimitCounts) bool {
	return writeCosts(s, counts, costOf{"refunded", counts.Refunded.Load()}, costOf{"given_back", counts.GivenBack.Load()})
}

func writeSettledCost(s *scrape.Series, counts *tally.LimitCounts) bool {
	return writeCosts(s, counts, costOf{"returned", counts.Returned.Load()}, costOf{"added", counts.Added.Load()})
}

// costOf is a cost with its label how.
type costOf struct {
	how  string
	cost uint64
}

// writeCosts writes those costs of a limit that are not 0.
func writeCosts(s *scrape.Series, counts *tally.LimitCounts, costs ...costOf) bool {
	s.Set(2, counts.Name)
	for _, c := range costs {
		if c.cost == 0 {
			continue
		}
		s.Set(1, c.how)
		if !s.Write(c.cost) {
			return false
		}
	}
	return true
}

func writeSlots(s *scrape.Series, counts *tally.LimitCounts) bool {
	if !counts.HasHolders() {
		return true
	}
	s.Set(2, counts.Name)
	of := counts.Holders()
	for _, event := range [...]struct {
		name  string
		count *atomic.Uint64
	}{
		{"renewed", &of.Renewed},
		{"renewed_soon", &of.RenewedSoon},
		{"released", &of.Released[bucket.ReleasedSlot]},
		{"released_too_late", &of.Released[bucket.ReleasedTooLate]},
		{"released_nothing", &of.Released[bucket.ReleasedNothing]},
	} {
		s.Set(1, event.name)
		if !s.Write(event.count.Load()) {
			return false
		}
	}
	return true
}
