package server

import (
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"

	"github.com/ratelimitd/ratelimitd/internal/logthin"
)

const (
	// scrapesAtATime bounds the scrapes that are answered at a time, over both ports. One
	// holds some 350 bytes for each series.
	scrapesAtATime = 4
	// scrapeTime bounds how long one may take: Prometheus waits as long by default, and a
	// client that does not read keeps others out.
	scrapeTime = 10 * time.Second
)

// metricsPage returns the page for Prometheus. Exemplars are in OpenMetrics and protobuf,
// native histograms in protobuf.
func (s *Server) metricsPage() http.Handler {
	gather := prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		ofRules, _ := s.rules.Gather()
		all, err := s.options.Metrics.Gather()
		all = append(all, ofRules...)
		slices.SortFunc(all, func(a, b *dto.MetricFamily) int { return strings.Compare(a.GetName(), b.GetName()) })
		return all, err
	})
	page := promhttp.HandlerFor(gather, promhttp.HandlerOpts{
		ErrorLog:            &pageLog{logger: s.log, now: s.options.Now},
		ErrorHandling:       promhttp.ContinueOnError,
		MaxRequestsInFlight: scrapesAtATime,
		EnableOpenMetrics:   true,
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(scrapeTime))
		page.ServeHTTP(w, r)
	})
}

// pageLog logs what was wrong with pages of metrics: one line a minute, since each scrape
// says the same, and its beginning, since all series may be in it.
type pageLog struct {
	logger *slog.Logger
	now    func() time.Time
	lines  logthin.Thinner
}

// Println implements promhttp.Logger.
func (l *pageLog) Println(v ...any) {
	const maxText = 512
	if unlogged, due := l.lines.Due(l.now(), time.Minute); due {
		text := strings.TrimSpace(fmt.Sprintln(v...))
		l.logger.Error("metrics: a page is not complete", "error", text[:min(len(text), maxText)], "unlogged_before", unlogged)
	}
}
