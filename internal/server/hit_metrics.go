package server

import (
	"strings"

	dto "github.com/prometheus/client_model/go"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/rules"
	"github.com/ratelimitd/ratelimitd/internal/config/rules/tally"
)

// hitCounters are the counters of hits that envoyproxy/ratelimit has for each rule, by the
// ends of their names.
var hitCounters = [...]struct {
	name, help string
	of         func(tally.Hits) uint64
}{
	{"total_hits", "Hits that descriptors with a limit asked for.", tally.Hits.Total},
	{"within_limit", "Hits of descriptors that were within their limits.", func(h tally.Hits) uint64 { return h.Within }},
	{"over_limit", "Hits beyond a limit.", func(h tally.Hits) uint64 { return h.Over }},
	{"near_limit", "Hits that took a count near its limit and not beyond it.", func(h tally.Hits) uint64 { return h.Near }},
	{"shadow_mode", "Hits of descriptors over their limit that shadow_mode let pass.", func(h tally.Hits) uint64 { return h.Shadowed }},
}

// hitLabels are the labels domain, key1 and key2.
type hitLabels [3]string

// hitSum is the sum of all counts with the same labels.
type hitSum struct {
	hits   tally.Hits
	counts int
}

// hitFamilies returns the counters of hits. Rules that are spelt alike are one series, as in
// envoyproxy/ratelimit, and so are the rules beyond maxRules.
func hitFamilies(domains []*rules.Domain, maxRules int, sums *risingSums) []*dto.MetricFamily {
	all := make(map[hitLabels]hitSum)
	eachHits(domains, maxRules, func(labels hitLabels, counts *tally.Counts) {
		s := all[labels]
		all[labels] = hitSum{s.hits.Plus(counts.Hits()), s.counts + 1}
	})
	families := make([]*dto.MetricFamily, len(hitCounters))
	for i, c := range hitCounters {
		families[i] = newCounterFamily("ratelimit_service_rate_limit_"+c.name, c.help)
	}
	for labels, sum := range all {
		domain, key1, key2 := label("domain", labels[0]), label("key1", labels[1]), label("key2", labels[2])
		joined := strings.Join(labels[:], "\xff")
		for i, c := range hitCounters {
			n := c.of(sum.hits)
			if name := c.name + "\xff" + joined; sum.counts > 1 || labels == otherHits || sums.rose(name) {
				n = sums.rise(name, n)
			}
			addCount(families[i], n, domain, key1, key2)
		}
	}
	return families
}

// otherHits are the labels of the rules without series of their own.
var otherHits = hitLabels{"", otherRules, ""}

// eachHits calls do for the counts of each rule and each individually counted value that
// counted hits.
func eachHits(domains []*rules.Domain, maxRules int, do func(hitLabels, *tally.Counts)) {
	var entries []bucket.Entry
	for _, domain := range domains {
		for _, rule := range domain.Rules() {
			labels := func() hitLabels {
				if !rule.Counts.HasOwnMetrics(maxRules) {
					return otherHits
				}
				key1, key2 := statKeys(entries)
				return hitLabels{statName(domain.Name), key1, key2}
			}
			if rule.Counts.HasHits() {
				entries = rule.AppendEntries(entries[:0])
				do(labels(), &rule.Counts.Counts)
			}
			for _, v := range rule.Counts.Values() {
				if v.HasHits() {
					entries = rule.AppendEntriesOf(entries[:0], v.Value)
					do(labels(), v.Counts)
				}
			}
		}
	}
}
