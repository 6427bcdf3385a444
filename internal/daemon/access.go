package daemon

import (
	"fmt"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/ratelimitd/ratelimitd/internal/access"
	"github.com/ratelimitd/ratelimitd/internal/config/reload"
	"github.com/ratelimitd/ratelimitd/internal/config/settings"
)

// accessFiles are the files that say who may do what; each is nil if it is not set.
type accessFiles struct {
	members *access.LiveMembers
	callers *access.LiveCallers
}

// loadAccess loads the files. A file with errors ends the daemon: without it no caller
// would be known, or all would be admitted.
func loadAccess(s settings.Settings, metrics prometheus.Registerer, log *slog.Logger) (accessFiles, error) {
	var a accessFiles
	if path := s.Admin.TokensFile; path != "" && s.Admin.Address != "" {
		a.members = access.NewLiveMembers(path, log)
		if err := a.members.Reload(); err != nil {
			return a, fmt.Errorf("admin.tokens_file:\n%w", err)
		}
		showAccess(metrics, "tokens", a.members.Status)
	}
	if path := s.API.CallersFile; path != "" {
		a.callers = access.NewLiveCallers(path, log)
		if err := a.callers.Reload(); err != nil {
			return a, fmt.Errorf("api.callers_file:\n%w", err)
		}
		showAccess(metrics, "callers", a.callers.Status)
	}
	return a, nil
}

// files returns the files that are reloaded when they change.
func (a accessFiles) files() []reloader {
	var all []reloader
	if a.members != nil {
		all = append(all, a.members)
	}
	if a.callers != nil {
		all = append(all, a.callers)
	}
	return all
}

// showAccess registers the metric of a file.
func showAccess(metrics prometheus.Registerer, file string, status func() reload.Status) {
	promauto.With(metrics).NewGaugeFunc(prometheus.GaugeOpts{
		Name:        "ratelimitd_access_last_reload_successful",
		Help:        "1 if the file that says who may do what, as it is, is in force; 0 while it has errors and an older one stays in force.",
		ConstLabels: prometheus.Labels{"file": file},
	}, func() float64 { return oneIf(status().LastError == nil) })
}
