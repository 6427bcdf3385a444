package reach

import (
	"fmt"
	"log/slog"

	"github.com/ratelimitd/ratelimitd/internal/config/settings"
	"github.com/ratelimitd/ratelimitd/internal/redisconn"
	"github.com/ratelimitd/ratelimitd/internal/redisstore/script"
	"github.com/ratelimitd/ratelimitd/internal/tlsfiles"
)

// Redis returns a connection to the Redis of the settings. It connects when it is first
// used.
func Redis(r settings.Redis, log *slog.Logger) (*redisconn.Conn, error) {
	tlsFor, err := tlsfiles.ClientConfig(r.TLS, log)
	if err != nil {
		return nil, fmt.Errorf("redis.tls: %w", err)
	}
	return redisconn.New(redisconn.Options{
		Mode:             redisconn.Mode(r.Mode),
		Addresses:        r.Addresses,
		Database:         r.Database,
		Username:         r.Username,
		Password:         r.CurrentPassword,
		SentinelMaster:   r.SentinelMaster,
		SentinelUsername: r.SentinelUsername,
		SentinelPassword: r.SentinelPassword.Reveal(),
		TLS:              tlsFor,
		Prefix:           r.Prefix,
		Timeout:          r.Timeout,
		Script:           script.Source,
		Log:              log,
	})
}
