package top

import (
	"cmp"
	"slices"
	"time"
)

// Question asks for the top subjects.
type Question struct {
	Kind   Kind   `json:"kind"`
	Window Window `json:"window"`
	// Domain, if not empty, is the only one asked about, and Rule, if not empty, the only
	// rule in it, by its path. The path of a rule with plans means all of its plans.
	Domain string `json:"domain,omitempty"`
	Rule   string `json:"rule,omitempty"`
}

// Bounds of an Answer.
const (
	MaxRules = 100
	MaxRows  = 500
)

// Answer answers a Question: for one daemon, or for several together.
type Answer struct {
	// Rules have at most MaxRows counts together, and are at most MaxRules: those with
	// the largest totals.
	Rules []RuleSummary `json:"rules"`
	// Rest is the most that anyone had at a rule that is not in Rules.
	Rest uint64 `json:"rest"`
	// Total is the sum over all rules asked about.
	Total uint64 `json:"total"`
	// Span is the length of the time covered.
	Span time.Duration `json:"span"`
}

// RuleSummary is the summary of a rule.
type RuleSummary struct {
	Domain  string  `json:"domain"`
	Rule    string  `json:"rule"`
	Summary Summary `json:"summary"`
}

// Row is a subject of a rule, with what is known of its count.
type Row struct {
	Domain, Rule string
	Count
}

// Plus returns the answer for both daemons together.
func (a Answer) Plus(b Answer) Answer {
	sum := Answer{Rest: plus(a.Rest, b.Rest), Total: plus(a.Total, b.Total), Span: max(a.Span, b.Span)}
	others := make(map[[2]string]Summary, len(b.Rules))
	for _, r := range b.Rules {
		others[r.name()] = r.Summary
	}
	for _, r := range a.Rules {
		other, both := others[r.name()]
		if !both {
			other = unknown(b.Rest)
		}
		delete(others, r.name())
		r.Summary = r.Summary.Plus(other)
		sum.Rules = append(sum.Rules, r)
	}
	for _, r := range b.Rules {
		if _, isNew := others[r.name()]; isNew {
			r.Summary = r.Summary.Plus(unknown(a.Rest))
			sum.Rules = append(sum.Rules, r)
		}
	}
	return sum
}

func (r *RuleSummary) name() [2]string { return [2]string{r.Domain, r.Rule} }

// unknown is the summary of subjects of which only this is known: none had more than
// the floor.
func unknown(floor uint64) Summary { return Summary{Floor: floor, Total: floor} }

// Rows returns the n largest counts of all rules, and the most that anyone else had.
func (a Answer) Rows(n int) (rows []Row, floor uint64) {
	floor = a.Rest
	for _, r := range a.Rules {
		floor = max(floor, r.Summary.Floor)
		for _, c := range r.Summary.Counts {
			rows = append(rows, Row{Domain: r.Domain, Rule: r.Rule, Count: c})
		}
	}
	slices.SortFunc(rows, func(x, y Row) int {
		return cmp.Or(cmp.Compare(y.Count.Count, x.Count.Count), cmp.Compare(x.Error, y.Error),
			cmp.Compare(x.Domain, y.Domain), cmp.Compare(x.Rule, y.Rule), cmp.Compare(x.Subject, y.Subject))
	})
	if n < len(rows) {
		floor = max(floor, rows[n].Count.Count)
		rows = rows[:n]
	}
	return rows, floor
}

// Bounded returns the answer with at most n counts, the largest, and without rules that
// have none of them.
func (a Answer) Bounded(n int) Answer {
	rows, _ := a.Rows(n)
	kept := make(map[[2]string]int)
	for _, r := range rows {
		kept[[2]string{r.Domain, r.Rule}]++
	}
	var rules []RuleSummary
	for _, r := range a.Rules {
		r.Summary = r.Summary.First(kept[r.name()])
		if len(r.Summary.Counts) == 0 {
			a.Rest = max(a.Rest, r.Summary.Floor)
			continue
		}
		rules = append(rules, r)
	}
	a.Rules = rules
	return a
}
