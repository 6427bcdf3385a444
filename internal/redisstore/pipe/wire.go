package pipe

import (
	"context"
	"strconv"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimitd/ratelimitd/internal/redisconn"
	"github.com/ratelimitd/ratelimitd/internal/redisstore/script"
)

// wire is how commands get to Redis and back, and what all of them have in common.
type wire struct {
	Options
	conn      *redisconn.Conn
	isCluster bool   // then a command has keys of one tag
	skew      string // the script's argument
	metrics   *metrics
	doubts    chan struct{}  // has an element when the topology may have changed
	resends   sync.WaitGroup // of requests that are sent again
}

// clockArg is the script's clock in tests; empty means the clock of Redis.
func (w *wire) clockArg() string {
	if w.Clock == nil {
		return ""
	}
	return strconv.FormatInt(w.Clock(), 10)
}

// exchange sends commands and waits for their replies; each Cmd gets its reply, or an
// error. It uses cmds as memory, and returns it.
func (w *wire) exchange(ctx context.Context, commands []*script.Command, cmds []redis.Cmder) []redis.Cmder {
	if len(commands) == 1 {
		_ = w.conn.Process(ctx, redisconn.Once{Cmder: commands[0].Cmd}) // Cmd has the error too
		return cmds
	}
	cmds = cmds[:0]
	for _, c := range commands {
		cmds = append(cmds, redisconn.Once{Cmder: c.Cmd})
	}
	pipeline := w.conn.Pipeline()
	_ = pipeline.BatchProcess(ctx, cmds...)
	_, _ = pipeline.Exec(ctx)
	return cmds
}

// doubt makes the client look for a cluster's new masters if err may mean that there are
// some, and makes the topology follow what it finds.
func (w *wire) doubt(ctx context.Context, err error) {
	if !w.conn.ReloadAfter(ctx, err) {
		return
	}
	select {
	case w.doubts <- struct{}{}:
	default:
	}
}
