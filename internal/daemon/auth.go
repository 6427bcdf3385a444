package daemon

import (
	"fmt"
	"log/slog"

	"github.com/ratelimitd/ratelimitd/internal/config/forwardauth"
	"github.com/ratelimitd/ratelimitd/internal/config/settings"
)

// loadAuth loads the file for forward auth; nil without one.
func loadAuth(a settings.Auth, log *slog.Logger) (*forwardauth.Live, error) {
	if a.Path == "" {
		return nil, nil
	}
	live := forwardauth.NewLive(a.Path, log)
	if err := live.Reload(); err != nil {
		return nil, fmt.Errorf("nothing is in force for forward auth (auth.path is %s):\n%w", a.Path, err)
	}
	return live, nil
}
