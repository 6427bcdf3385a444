package redisconn

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/redis/go-redis/v9"
)

// LogClient sends what the Redis client has to say to log, for the whole
// process: it would go to standard error otherwise, whatever the log's format.
// It repeats, a line a connection, what failed calls tell, so it is for
// debugging.
func LogClient(log *slog.Logger) { redis.SetLogger(clientLog{log}) }

type clientLog struct{ log *slog.Logger }

// Printf implements the client's logger.
func (c clientLog) Printf(ctx context.Context, format string, v ...any) {
	if c.log.Enabled(ctx, slog.LevelDebug) {
		c.log.DebugContext(ctx, "redis client: "+fmt.Sprintf(format, v...))
	}
}
