package redisstore

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// thinned spaces lines of one kind in the log.
type thinned struct {
	mu sync.Mutex
	at time.Time // of the last line
}

// due reports whether it is time for a line, which is the last one then.
func (t *thinned) due(now time.Time, every time.Duration) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now.Sub(t.at) < every {
		return false
	}
	t.at = now
	return true
}

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
