package replay

import (
	"strings"

	"github.com/ratelimitd/ratelimitd/internal/config/rules"
	"github.com/ratelimitd/ratelimitd/internal/decide"
	"github.com/ratelimitd/ratelimitd/internal/decisionlog"
)

// Counts counts descriptors, or subjects with such a descriptor.
type Counts struct {
	// Asked counts all, with peeks and refunds.
	Asked uint64 `json:"asked"`
	// Denied are those that were over a limit in force, and Shadowed those over one that
	// is not.
	Denied   uint64 `json:"denied"`
	Shadowed uint64 `json:"shadowed"`
}

// Tally counts what was asked of a rule or of a limit.
type Tally struct {
	Counts
	// Cost is what was asked for, without refunds, and DeniedCost the part of it that was
	// denied.
	Cost       uint64 `json:"cost"`
	DeniedCost uint64 `json:"denied_cost"`
}

func (t *Tally) add(r decisionlog.Result, cost int64) {
	t.Asked++
	t.Cost += uint64(max(cost, 0))
	switch r {
	case decisionlog.Denied:
		t.Denied++
		t.DeniedCost += uint64(max(cost, 0))
	case decisionlog.Shadowed:
		t.Shadowed++
	}
}

// Phase is one of the two phases that are compared.
type phase int

const (
	before phase = iota
	after
)

// row is a rule, as it was before and as it is after.
type row struct {
	domain, rule string
	tallies      [2]Tally
	limits       []*limitRow
	// newlyDenied counts descriptors that were not denied before; newlyAllowed those that
	// no longer are.
	newlyDenied, newlyAllowed uint64
	subjects                  map[uint64]subject
}

type limitRow struct {
	name    string
	text    string // of the limit after, or before
	tallies [2]Tally
}

// limit returns the row of a limit; near is its usual position.
func (r *row) limit(name string, near int) *limitRow {
	if near < len(r.limits) && r.limits[near].name == name {
		return r.limits[near]
	}
	for _, l := range r.limits {
		if l.name == name {
			return l
		}
	}
	l := &limitRow{name: strings.Clone(name)}
	r.limits = append(r.limits, l)
	return l
}

// rows are all rules that were asked.
type rows struct {
	byName map[rowName]*row
	// byRule holds the rows of rules from sets of limits.
	byRule map[*rules.Rule]*row
	// unruled counts the rows of descriptors without a rule.
	unruled int
}

// maxUnruled bounds the domains whose descriptors without a rule are reported separately:
// callers choose domains. The others share a row, which has no domain.
const maxUnruled = 1000

type rowName struct{ domain, rule string }

func newRows() *rows {
	return &rows{byName: make(map[rowName]*row), byRule: make(map[*rules.Rule]*row)}
}

const (
	// withoutRule names the row of descriptors without a rule.
	withoutRule = ""
	// otherDomains is the domain of the shared row; requests cannot have it.
	otherDomains = ""
)

func (r *rows) get(name rowName) *row {
	if found := r.byName[name]; found != nil {
		return found
	}
	if name.rule == withoutRule {
		if r.unruled >= maxUnruled && name.domain != otherDomains {
			return r.get(rowName{domain: otherDomains, rule: withoutRule})
		}
		r.unruled++
	}
	name = rowName{domain: strings.Clone(name.domain), rule: strings.Clone(name.rule)}
	found := &row{domain: name.domain, rule: name.rule, subjects: make(map[uint64]subject)}
	r.byName[name] = found
	return found
}

// of returns the row of an outcome.
func (r *rows) of(domain string, o *decide.Outcome) *row {
	if o.Rule == nil {
		return r.get(rowName{domain: domain, rule: withoutRule})
	}
	found := r.byRule[o.Rule]
	if found == nil {
		found = r.get(rowName{domain: domain, rule: o.Rule.Path()})
		r.byRule[o.Rule] = found
	}
	return found
}

// recorded returns the row of a descriptor as recorded in a line.
func (r *rows) recorded(domain string, d *decisionlog.Descriptor) *row {
	path := d.Rule
	if note := " (plan " + d.Plan + ")"; d.Plan != "" && path != "" && !strings.HasSuffix(path, note) {
		path += note
	}
	return r.get(rowName{domain: domain, rule: path})
}
