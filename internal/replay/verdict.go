package replay

import (
	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/rules/words"
	"github.com/ratelimitd/ratelimitd/internal/decide"
	"github.com/ratelimitd/ratelimitd/internal/decisionlog"
	"github.com/ratelimitd/ratelimitd/internal/server/record"
)

// verdict is what a descriptor got in one of the phases.
type verdict struct {
	row    *row
	result decisionlog.Result
	// subject is the entries of the subject, if the descriptor names a holder too.
	subject []bucket.Entry
}

// limitResult returns the result of limit j of an outcome.
func limitResult(c *decide.Call, o *decide.Outcome, j int) decisionlog.Result {
	switch {
	case o.Decisions[j].Allowed():
		return decisionlog.Allowed
	case c.IsShadow(o) || !o.Enforces(j):
		return decisionlog.Shadowed
	}
	return decisionlog.Denied
}

// decided counts the outcomes of a call in a phase, and returns their verdicts.
func (r *rows) decided(p phase, c *decide.Call, l *decisionlog.Line, to []verdict) []verdict {
	for i := range c.Outcomes {
		o, cost := &c.Outcomes[i], l.Descriptors[i].Cost
		row := r.of(l.Domain, o)
		v := verdict{row: row, result: record.ResultOf(c, o)}
		if o.Rule != nil && o.Rule.HasHolders {
			v.subject = o.Subject
		}
		row.tallies[p].add(v.result, cost)
		for j := range o.Decisions {
			limit := row.limit(o.LimitName(j), j)
			if limit.text == "" {
				limit.text = describe(o, j)
			}
			limit.tallies[p].add(limitResult(c, o, j), cost)
		}
		to = append(to, v)
	}
	return to
}

// describe describes limit j of an outcome in words. An assigned one has no description,
// since its numbers are those of one subject, and the file's are reported when another
// asks.
func describe(o *decide.Outcome, j int) string {
	isRefusal := o.Refusal != decide.NotRefused && j == 0
	switch {
	case o.Own != nil:
		return "brought by requests"
	case !isRefusal && o.Source(o.Limits[j]) != decide.FromFile:
		return ""
	}
	return words.Limit(o.Limits[j])
}

// addRecorded counts the descriptors as recorded in a line as the phase before, and
// returns their verdicts.
func (r *rows) addRecorded(l *decisionlog.Line, to []verdict) []verdict {
	for i := range l.Descriptors {
		d := &l.Descriptors[i]
		row := r.recorded(l.Domain, d)
		row.tallies[before].add(d.Result, d.Cost)
		for j := range d.Limits {
			row.limit(d.Limits[j].Name, j).tallies[before].add(wordResult(d.Limits[j].Result), d.Cost)
		}
		to = append(to, verdict{row: row, result: d.Result})
	}
	return to
}

// wordResult returns what a word of ratelimitd_limit_decisions_total means.
func wordResult(word string) decisionlog.Result {
	switch word {
	case "denied", "over":
		return decisionlog.Denied
	case "shadowed":
		return decisionlog.Shadowed
	}
	return decisionlog.Allowed
}
