package server

import (
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/logthin"
	"github.com/ratelimitd/ratelimitd/internal/server/scrape"
)

func (s *Server) metricsPage() http.Handler {
	log := &pageLog{logger: s.log, now: s.options.Now}
	return s.places.metrics.Bound(&scrape.Page{Small: s.options.Metrics, Large: s.families, Failed: log.failed})
}

// families returns the metrics that have a series for each rule in use, or more.
func (s *Server) families() []scrape.Family {
	all := s.limits.families()
	if s.envoyproxy != nil && !s.options.Statsd.Alone {
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
	const maxText = 512
	if unlogged, due := l.lines.Due(l.now(), time.Minute); due {
		text := strings.TrimSpace(err.Error())
		l.logger.Error("metrics: the page lacks some", "error", text[:min(len(text), maxText)], "unlogged_before", unlogged)
	}
}
