package replay

import (
	"cmp"
	_ "embed"
	"html/template"
	"io"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
	"github.com/ratelimitd/ratelimitd/internal/spelling"
	"github.com/ratelimitd/ratelimitd/internal/timespan"
)

//go:embed page.html
var pageText string

var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"rule":           ruleText,
	"word":           spelling.ShellWord,
	"visible":        spelling.Visible,
	"n":              grouped[uint64],
	"more":           func(a, b uint64) string { return grouped(max(a, b)) },
	"plural":         plural,
	"percent":        percent,
	"denials":        func(t Tally) string { return denials(&t) },
	"seconds":        func(s float64) string { return timespan.Format(time.Duration(s * float64(time.Second))) },
	"subjects":       func() string { return subjectsWord },
	"limitText":      func(text string) string { return longDigits.ReplaceAllStringFunc(text, groupedDigits) },
	"subjectNumber":  func(n SubjectCounts, count uint64) string { return n.number(count) },
	"subjectPlural":  func(n SubjectCounts, count uint64) string { return n.plural(count) },
	"subjectsAsked":  func(n SubjectCounts) string { return n.asked() },
	"subjectDenials": func(n SubjectCounts, t SubjectTally) string { return n.denials(&t) },
}).Parse(pageText))

// longDigits matches the numbers in a text that have thousands.
var longDigits = regexp.MustCompile(`[0-9]{4,18}`)

func groupedDigits(digits string) string {
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return digits
	}
	return grouped(n)
}

// maxCharts bounds the rules with a chart: those with the most denials, before or after.
const maxCharts = 12

// pageData is what a page shows.
type pageData struct {
	*Report
	Charts  []chart
	Compare bool // with before
	Unruled string
}

// WriteHTML writes the report as a self-contained HTML page: charts are SVG, and there is
// no script.
func (r *Report) WriteHTML(out io.Writer) error {
	data := pageData{Report: r, Compare: r.Recorded, Unruled: yamlfile.Commas(r.Unruled())}
	if r.DeniedBefore > 0 || r.DeniedAfter > 0 {
		last := r.Last.UnixMicro()
		if !r.isOfOneRule() {
			data.Charts = append(data.Charts, r.timeline.chartOf("all requests", &r.timeline.all, r.Recorded, last))
		}
		for _, i := range r.charted() {
			rule := &r.Rules[i]
			data.Charts = append(data.Charts, r.timeline.chartOf(spelling.Visible(rule.Domain)+": "+ruleText(rule.Rule), r.series[i], r.Recorded, last))
		}
	}
	return page.Execute(out, data)
}

// isOfOneRule reports whether only one rule denies anything, and no other was asked
// beside it: its chart is that of all requests.
func (r *Report) isOfOneRule() bool {
	rules := 0
	for i := range r.Rules {
		rule := &r.Rules[i]
		if rule.Rule != withoutRule || rule.Before.Denied > 0 || rule.After.Denied > 0 {
			rules++
		}
	}
	return rules == 1 && len(r.charted()) == 1
}

// charted returns the rules that have a chart.
func (r *Report) charted() (rules []int) {
	weight := func(i int) uint64 { return max(r.Rules[i].Before.Denied, r.Rules[i].After.Denied) }
	for i := range r.Rules {
		if r.series[i] != nil && weight(i) > 0 {
			rules = append(rules, i)
		}
	}
	slices.SortStableFunc(rules, func(a, b int) int { return cmp.Compare(weight(b), weight(a)) })
	return rules[:min(len(rules), maxCharts)]
}

// SubjectsOf returns the data of a table of subjects.
func (d pageData) SubjectsOf(subjects []Subject) subjectsData { return subjectsData{d, subjects} }

// subjectsData is what a table of subjects shows.
type subjectsData struct {
	Page     pageData
	Subjects []Subject
}
