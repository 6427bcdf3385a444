package server

import (
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/logthin"
	"github.com/ratelimitd/ratelimitd/internal/server/scrape"
)

const (
	// pagesAtATime bounds the pages of metrics that are made at the same time, over
	// both ports: each takes a core for about a second where callers filled all values
	// that are counted, and 8 MiB, or 40 MiB where they chose these so that two at a
	// time are one series by the names of envoyproxy/ratelimit. Several Prometheus
	// servers need not wait, nor does one while somebody reads slowly.
	pagesAtATime = 4
	// pageWait is as long as Prometheus waits by default.
	pageWait = 10 * time.Second
)

func (s *Server) metricsPage() http.Handler {
	log := &pageLog{logger: s.log, now: s.options.Now}
	page := &scrape.Page{Small: s.options.Metrics, Large: s.families, Failed: log.failed}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case s.pages <- struct{}{}:
			defer func() { <-s.pages }()
			page.ServeHTTP(w, r)
		case <-r.Context().Done():
		case <-time.After(pageWait):
			http.Error(w, "too many ask for the metrics", http.StatusServiceUnavailable)
		}
	})
}

// families returns the metrics that have a series for each rule in use, or more.
func (s *Server) families() []scrape.Family {
	all := s.limits.families()
	if s.envoyproxy != nil {
		all = append(all, s.envoyproxy.hits.families()...)
	}
	return all
}

// pageLog logs what was wrong with pages of metrics: a line a minute, since each
// scrape says the same, and its beginning, since all series may be in it.
type pageLog struct {
	logger *slog.Logger
	now    func() time.Time
	lines  logthin.Thinner
}

func (l *pageLog) failed(err error) {
	const most = 512
	if unlogged, due := l.lines.Due(l.now(), time.Minute); due {
		text := strings.TrimSpace(err.Error())
		l.logger.Error("metrics: the page lacks some", "error", text[:min(len(text), most)], "unlogged_before", unlogged)
	}
}
