package decide

import (
	"cmp"
	"iter"
	"math/bits"
	"slices"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/rules"
	"github.com/ratelimitd/ratelimitd/internal/top"
)

// Tops says for which kinds rules keep the subjects that had the most. The zero value
// keeps none.
type Tops struct {
	Denied, Used bool
	// Budget is where their memory comes from.
	Budget *top.Budget
}

// Keeps reports whether rules keep them for a kind.
func (t *Tops) Keeps(kind top.Kind) bool {
	if kind == top.Used {
		return t.Used
	}
	return t.Denied
}

// add counts a descriptor with a rule: denied or not, with the cost that was charged. now
// is a reading of Decider.Clock.
func (t *Tops) add(rule *rules.Rule, entries []bucket.Entry, now time.Duration, denied bool, used int64) {
	isDenied, isUse := denied && t.Denied, used > 0 && t.Used
	if !isDenied && !isUse {
		return
	}
	var room [top.MaxSubject]byte
	subject := top.AppendSubject(room[:0], entries)
	if isDenied {
		rule.Counts.AddTop(top.Denied, t.Budget, now, subject, 1)
	}
	if isUse {
		rule.Counts.AddTop(top.Used, t.Budget, now, subject, uint64(used))
	}
}

// Top returns who had the most, by what this daemon counted.
func (d *Decider) Top(q top.Question) top.Answer {
	now := d.Clock()
	a := top.Answer{Span: q.Window.Span(now)}
	type candidate struct {
		domain string
		rule   *rules.Rule
		total  uint64
	}
	var found []candidate
	for domain, rule := range rulesOf(d.Live.Rules(), q.Domain, q.Rule) {
		counted := rule.Counts.Top(q.Kind)
		if counted == nil {
			continue
		}
		if total := counted.Total(now, q.Window); total > 0 {
			found = append(found, candidate{domain: domain.Name, rule: rule, total: total})
			sum, over := bits.Add64(a.Total, total, 0)
			a.Total = sum | -over // at most the largest number
		}
	}
	// No subject of a rule that is left out had more than all of them together.
	slices.SortFunc(found, func(a, b candidate) int { return cmp.Compare(b.total, a.total) })
	if len(found) > top.MaxRules {
		a.Rest = found[top.MaxRules].total
		found = found[:top.MaxRules]
	}
	// One at a time, since each may keep half a megabyte.
	for _, c := range found {
		s := c.rule.Counts.Top(q.Kind).Summary(now, q.Window).First(top.MaxRows)
		s.Counts = slices.Clone(s.Counts) // without the rest of their array
		a.Rules = append(a.Rules, top.RuleSummary{Domain: c.domain, Rule: c.rule.Path(), Summary: s})
		a = a.Bounded(top.MaxRows)
	}
	return a
}

// rulesOf iterates over the rules of a domain, or of all if it is empty, that have a
// path, or over all if that is empty. The path of a rule with plans stands for its
// plans.
func rulesOf(set *rules.Set, domain, path string) iter.Seq2[*rules.Domain, *rules.Rule] {
	return func(yield func(*rules.Domain, *rules.Rule) bool) {
		if set == nil {
			return
		}
		domains := set.Domains()
		if domain != "" {
			domains = slices.DeleteFunc([]*rules.Domain{set.Domain(domain)}, func(d *rules.Domain) bool { return d == nil })
		}
		for _, d := range domains {
			for _, rule := range d.Rules() {
				if (path == "" || rule.IsAt(path)) && !yield(d, rule) {
					return
				}
			}
		}
	}
}

// HasRule reports whether rules are in force for a domain, or for a path of it if that
// is not empty.
func (d *Decider) HasRule(domain, path string) bool {
	for range rulesOf(d.Live.Rules(), domain, path) {
		return true
	}
	return false
}
