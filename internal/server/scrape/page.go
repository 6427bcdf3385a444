package scrape

import (
	"cmp"
	"compress/gzip"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	"github.com/ratelimitd/ratelimitd/internal/server/pages"
)

// Page is the page of metrics, for Prometheus.
type Page struct {
	// Small has the metrics that are gathered first, all at once.
	Small prometheus.Gatherer
	// Large returns the families that are written series by series, for one page.
	// Small has none of their names.
	Large func() []Family
	// Failed is told what the page lacks, and why a page was not written whole.
	Failed func(error)
}

// formats are those that are offered, the first of equals first. Exemplars are in
// OpenMetrics and in protobuf, native histograms in protobuf only.
var formats = [...]expfmt.Format{expfmt.FmtOpenMetrics_1_0_0, expfmt.FmtOpenMetrics_0_0_1, expfmt.FmtProtoDelim, expfmt.FmtText}

// ServeHTTP writes the page in a format that the request accepts, compressed if it
// accepts gzip. With name[] in the query it has the families of these names alone.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	small, err := p.Small.Gather()
	if err != nil {
		p.Failed(err)
		if len(small) == 0 {
			http.Error(w, "the metrics cannot be gathered: "+err.Error(), http.StatusInternalServerError)
			return
		}
	}
	large := p.Large()
	if only := r.URL.Query()["name[]"]; len(only) > 0 {
		small = slices.DeleteFunc(small, func(f *dto.MetricFamily) bool { return !slices.Contains(only, f.GetName()) })
		large = slices.DeleteFunc(large, func(f Family) bool { return !slices.Contains(only, f.Name) })
	}
	slices.SortFunc(large, func(a, b Family) int { return cmp.Compare(a.Name, b.Name) })
	format := expfmt.NegotiateAccept(r.Header, formats[:]...)
	header := w.Header()
	header.Set("Content-Type", string(format))
	header.Add("Vary", "Accept, Accept-Encoding")
	var to io.Writer = w
	if acceptsGzip(r.Header.Values("Accept-Encoding")) {
		header.Set("Content-Encoding", "gzip")
		// The fastest: lines of metrics repeat each other so much that more effort
		// saves little.
		z, _ := gzip.NewWriterLevel(w, gzip.BestSpeed)
		defer z.Close()
		to = z
	}
	if err := writePage(to, format, small, large); err != nil && r.Context().Err() == nil {
		p.Failed(err)
	}
}

// writePage writes both kinds of families, which are sorted, in the order of their
// names.
func writePage(to io.Writer, format expfmt.Format, small []*dto.MetricFamily, large []Family) error {
	out := pages.NewWriter(to)
	encoder := expfmt.NewEncoder(out, format)
	var series encoding
	switch format.FormatType() {
	case expfmt.TypeProtoDelim:
		series = new(protobuf)
	case expfmt.TypeOpenMetrics:
		series = text{openMetrics: true}
	default:
		series = text{}
	}
	for len(small) > 0 || len(large) > 0 {
		if len(large) == 0 || len(small) > 0 && small[0].GetName() < large[0].Name {
			if err := encoder.Encode(small[0]); err != nil {
				return err
			}
			small = small[1:]
		} else {
			writeFamily(out, series, &large[0])
			large = large[1:]
		}
		if out.Err() != nil {
			return out.Err()
		}
	}
	if closer, ok := encoder.(expfmt.Closer); ok { // for the last line of OpenMetrics
		if err := closer.Close(); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Err()
}

// acceptsGzip reports whether a header says so.
func acceptsGzip(accepted []string) bool {
	for _, list := range accepted {
		for each := range strings.SplitSeq(list, ",") {
			coding, parameters, _ := strings.Cut(strings.TrimSpace(each), ";")
			if coding = strings.TrimSpace(coding); coding != "gzip" && coding != "*" {
				continue
			}
			q, isQ := strings.CutPrefix(strings.TrimSpace(parameters), "q=")
			return !isQ || strings.Trim(q, "0.") != ""
		}
	}
	return false
}
