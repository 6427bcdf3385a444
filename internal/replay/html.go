package replay

import (
	"bytes"
	"cmp"
	_ "embed"
	"html/template"
	"io"
	"slices"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
	"github.com/ratelimitd/ratelimitd/internal/spelling"
	"github.com/ratelimitd/ratelimitd/internal/timespan"
)

//go:embed page.html
var pageText string

var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"rule":    ruleText,
	"word":    spelling.ShellWord,
	"percent": percent,
	"denials": func(t Tally) string { return denials(&t) },
	"share":   percentOf,
	"seconds": func(s float64) string { return timespan.Format(time.Duration(s * float64(time.Second))) },
	"period":  func(f Fit) string { return period(f.limit.Period) },
}).Parse(pageText))

// mostCharts bounds the rules with a chart: those with the most denials, before or
// after.
const mostCharts = 12

// pageData is what a page shows.
type pageData struct {
	*Report
	Charts  []chart
	Compare bool // with before
	Unruled string
	FitText string
}

// WriteHTML writes the report as a page of HTML that needs nothing else: charts are
// SVG, and there is no script.
func (r *Report) WriteHTML(out io.Writer) error {
	data := pageData{Report: r, Compare: r.Recorded, Unruled: yamlfile.Commas(r.Unruled())}
	if r.DeniedBefore > 0 || r.DeniedAfter > 0 {
		last := r.Last.UnixMicro()
		data.Charts = append(data.Charts, r.timeline.chartOf("all requests", &r.timeline.all, r.Recorded, last))
		for _, i := range r.charted() {
			rule := &r.Rules[i]
			data.Charts = append(data.Charts, r.timeline.chartOf(rule.Domain+": "+ruleText(rule.Rule), r.series[i], r.Recorded, last))
		}
	}
	var text bytes.Buffer
	if err := r.WriteFits(&text); err != nil {
		return err
	}
	data.FitText = text.String()
	return page.Execute(out, data)
}

// charted returns which rules have a chart.
func (r *Report) charted() (rules []int) {
	weight := func(i int) uint64 { return max(r.Rules[i].Before.Denied, r.Rules[i].After.Denied) }
	for i := range r.Rules {
		if r.series[i] != nil && weight(i) > 0 {
			rules = append(rules, i)
		}
	}
	slices.SortStableFunc(rules, func(a, b int) int { return cmp.Compare(weight(b), weight(a)) })
	return rules[:min(len(rules), mostCharts)]
}

// Clock is a moment of the log.
func (d pageData) Clock(t time.Time) string { return d.clock(t) }

// TimeOfDay is one with the date if there are several.
func (d pageData) TimeOfDay(t time.Time) string { return d.timeOfDay(t) }

// About says what the report is about.
func (d pageData) About() []told { return d.told() }

// SubjectsOf are the data of a table of subjects.
func (d pageData) SubjectsOf(subjects []Subject) subjectsData { return subjectsData{d, subjects} }

// subjectsData is what a table of subjects shows.
type subjectsData struct {
	Page     pageData
	Subjects []Subject
}
