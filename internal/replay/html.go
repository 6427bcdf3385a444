package replay

import (
	_ "embed"
	"html/template"
	"io"
	"regexp"
	"strconv"

	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
	"github.com/ratelimitd/ratelimitd/internal/spelling"
)

//go:embed page.html
var pageText string

var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"rule":      ruleText,
	"word":      spelling.ShellWord,
	"visible":   spelling.Visible,
	"n":         grouped[uint64],
	"more":      func(a, b uint64) string { return grouped(max(a, b)) },
	"plural":    plural,
	"percent":   percent,
	"denials":   func(c Counts) string { return denialsText(&c) },
	"subjects":  func() string { return subjectsWord },
	"limitText": func(text string) string { return longDigits.ReplaceAllStringFunc(text, groupedDigits) },
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

// pageData is what a page shows.
type pageData struct {
	*Report
	Chart   *chart // nil if nothing was denied
	Compare bool   // with before
	Unruled string
}

// WriteHTML writes the report as a self-contained HTML page: the chart is SVG, and there
// is no script.
func (r *Report) WriteHTML(out io.Writer) error {
	data := pageData{Report: r, Compare: r.Recorded, Unruled: yamlfile.Commas(r.Unruled())}
	if r.DeniedBefore > 0 || r.DeniedAfter > 0 {
		data.Chart = r.timeline.chart(r.Recorded, r.Last.UnixMicro())
	}
	return page.Execute(out, data)
}

// SubjectsOf returns the data of a table of subjects.
func (d pageData) SubjectsOf(subjects []Subject) subjectsData { return subjectsData{d, subjects} }

// subjectsData is what a table of subjects shows.
type subjectsData struct {
	Page     pageData
	Subjects []Subject
}
