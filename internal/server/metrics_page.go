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
	// servers need not wait.
	pagesAtATime = 4
	// pageWait is as long as Prometheus waits by default.
	pageWait = 10 * time.Second
	// pagePatience is how long a page waits for its reader while others wait for its
	// place: so 16 of those that do not read are cut a second.
	pagePatience = 250 * time.Millisecond
	// pagePace is after how many bytes a page may wait for as long again.
	pagePace = 8 << 20
)

func newPagePlaces() *scrape.Places {
	return &scrape.Places{Most: pagesAtATime, Wait: pageWait, Patience: pagePatience, Pace: pagePace}
}

func (s *Server) metricsPage() http.Handler {
	log := &pageLog{logger: s.log, now: s.options.Now}
	return s.pages.Bound(&scrape.Page{Small: s.options.Metrics, Large: s.families, Failed: log.failed})
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
