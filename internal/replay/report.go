package replay

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/spelling"
)

// maxTop is how many subjects a report names.
const maxTop = 20

// Report is what a replay found.
type Report struct {
	Sources
	// Lacks says what the logs themselves say they may lack.
	Lacks Lacks `json:"lacks"`
	Totals
	First time.Time `json:"first,omitzero"`
	Last  time.Time `json:"last,omitzero"`
	// Unread counts lines that were skipped.
	Unread uint64 `json:"unread"`
	// Subjects are the counts for all rules.
	Subjects SubjectCounts `json:"subjects"`
	// Comparison is nil unless the limits of the log decided.
	Comparison *Comparison `json:"comparison,omitempty"`
	// Rules are the rules that were asked, sorted by domain and rule.
	Rules []RuleReport `json:"rules"`
	// Denied are the most denied subjects; NewlyDenied and NewlyAllowed those for which
	// most has changed.
	Denied       []Subject `json:"denied"`
	NewlyDenied  []Subject `json:"newly_denied"`
	NewlyAllowed []Subject `json:"newly_allowed"`
	// Uncounted counts what was asked for subjects beyond Options.MaxKeys, which are in no
	// count of subjects and in none of the lists above.
	Uncounted uint64 `json:"uncounted"`

	timeline *timeline
}

// Sources says what a report is about.
type Sources struct {
	// Version is the version of the program that did the replay.
	Version string `json:"version"`
	// Logs, Limits and Against are files and folders. Without Limits those in the log
	// decided, and without Against before is what was recorded, if anything was.
	Logs    []string `json:"logs"`
	Limits  []string `json:"limits"`
	Against []string `json:"against"`
}

// source is one of the things that a report is about, for people.
type source struct {
	What  string
	Words []string
}

// About lists what the report is about.
func (r *Report) About() []source {
	limits, before := wordsOf(r.Limits), wordsOf(r.Against)
	if len(limits) == 0 {
		limits = []string{"those of the log"}
	}
	if len(before) == 0 {
		before = []string{"as recorded"}
	}
	lines := []source{{"logs", wordsOf(r.Logs)}, {"limits", limits}}
	if b := r.Lacks.Bounds; b != nil && r.Lacks.Decisions == 0 {
		lines = slices.Insert(lines, 1, source{"bounds of the log", strings.Fields(b.String() + "; nothing is known to be left out")})
	}
	if r.Recorded {
		lines = append(lines, source{"before", before})
	}
	return append(lines, source{"by", []string{"ratelimitd " + r.Version}})
}

// wordsOf returns names in a form for pasting into a command line.
func wordsOf(names []string) []string {
	words := make([]string, len(names))
	for i, name := range names {
		words[i] = spelling.ShellWord(name)
	}
	return words
}

// Lacks says how many decisions have no line, and by which bounds.
type Lacks struct {
	Decisions uint64 `json:"decisions"`
	// Bounds are nil if the daemon recorded all that it decided.
	Bounds *LogBounds `json:"bounds,omitempty"`
}

// LogBounds are the daemon's settings decisions.per_subject, .bytes_per_second and
// .sample.
type LogBounds struct {
	PerSubject     int64   `json:"per_subject"`
	BytesPerSecond int64   `json:"bytes_per_second"`
	SampleAllowed  float64 `json:"sample_allowed"`
	SampleDenied   float64 `json:"sample_denied"`
}

// String lists the bounds in force as settings.
func (b *LogBounds) String() string {
	var texts []string
	if b.PerSubject > 0 {
		texts = append(texts, fmt.Sprint("decisions.per_subject: ", b.PerSubject))
	}
	if b.BytesPerSecond > 0 {
		texts = append(texts, fmt.Sprint("decisions.bytes_per_second: ", b.BytesPerSecond))
	}
	if b.SampleAllowed < 1 {
		texts = append(texts, fmt.Sprint("decisions.sample.allowed: ", b.SampleAllowed))
	}
	if b.SampleDenied < 1 {
		texts = append(texts, fmt.Sprint("decisions.sample.denied: ", b.SampleDenied))
	}
	return strings.Join(texts, ", ")
}

// Warning says that the report is of only some decisions, and how to record all; it is
// empty if the logs lack none.
func (r *Report) Warning() string {
	if r.Lacks.Decisions == 0 {
		return ""
	}
	lost := fmt.Sprintf("the log lacks at least %s of %s, so what follows is wrong by as much",
		plural(r.Lacks.Decisions, "decision"), grouped(r.Lacks.Decisions+r.Lines))
	if r.Lacks.Bounds == nil {
		return lost + ". They did not fit into decisions.buffer, or could not be written."
	}
	return fmt.Sprintf("%s. Left out by %s. Record all with --decisions-per-subject 0 --decisions-bytes-per-second 0 and no sampling.", lost, r.Lacks.Bounds)
}

// IsDifferent reports whether a comparison with the log failed: something was decided
// otherwise, or the log lacks decisions.
func (r *Report) IsDifferent() bool {
	return r.Comparison != nil && (r.Comparison.Different > 0 || r.Lacks.Decisions > 0)
}

// RuleReport is what was asked of a rule. Rule is empty for descriptors without a rule,
// and Domain is then empty for all domains beyond the first 1,000.
type RuleReport struct {
	Domain string `json:"domain"`
	Rule   string `json:"rule"`
	Before Tally  `json:"before"`
	After  Tally  `json:"after"`
	// NewlyDenied counts descriptors that were not denied before, NewlyAllowed those that
	// no longer are.
	NewlyDenied  uint64        `json:"newly_denied"`
	NewlyAllowed uint64        `json:"newly_allowed"`
	Subjects     SubjectCounts `json:"subjects"`
	Limits       []LimitReport `json:"limits"`
}

// LimitReport is what was asked of a limit.
type LimitReport struct {
	Name string `json:"name"`
	// Text is the limit in words, empty for one that was only recorded.
	Text   string `json:"text"`
	Before Tally  `json:"before"`
	After  Tally  `json:"after"`
}

// Report returns what was found so far.
func (r *Replay) Report() *Report {
	found := &Report{
		Sources: r.o.Sources, Lacks: r.lacks, Totals: r.totals, Unread: r.compared.Unread, Rules: []RuleReport{},
		Uncounted: r.subjects.uncounted, timeline: &r.timeline,
	}
	for _, names := range []*[]string{&found.Logs, &found.Limits, &found.Against} {
		if *names == nil {
			*names = []string{}
		}
	}
	if r.totals.first != 0 {
		found.First, found.Last = moment(r.totals.first), moment(r.totals.last)
	}
	if r.o.Limits == nil {
		found.Comparison = &r.compared
		if found.Comparison.First == nil {
			found.Comparison.First = []Difference{}
		}
	}
	all := make([]*row, 0, len(r.rows.byName))
	for _, row := range r.rows.byName {
		all = append(all, row)
	}
	slices.SortFunc(all, func(a, b *row) int { return cmp.Or(cmp.Compare(a.domain, b.domain), cmp.Compare(a.rule, b.rule)) })
	var followed []*denials
	for _, row := range all {
		report := row.report()
		for _, s := range row.subjects {
			report.Subjects.add(s.fate)
			found.Subjects.add(s.fate)
			if s.denials != nil {
				followed = append(followed, s.denials)
			}
		}
		found.Rules = append(found.Rules, report)
	}
	found.Denied = top(followed, func(d *denials) uint64 { return d.denied })
	found.NewlyDenied = top(followed, func(d *denials) uint64 { return d.newlyDenied })
	found.NewlyAllowed = top(followed, func(d *denials) uint64 { return d.newlyAllowed })
	return found
}

func (r *row) report() RuleReport {
	report := RuleReport{
		Domain: r.domain, Rule: r.rule, Before: r.tallies[before], After: r.tallies[after],
		NewlyDenied: r.newlyDenied, NewlyAllowed: r.newlyAllowed, Limits: []LimitReport{},
	}
	for _, l := range r.limits {
		report.Limits = append(report.Limits, LimitReport{Name: l.name, Text: l.text, Before: l.tallies[before], After: l.tallies[after]})
	}
	return report
}
