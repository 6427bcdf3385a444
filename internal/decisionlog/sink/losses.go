package sink

import (
	"log/slog"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/logthin"
)

// losses logs that lines are lost, once in failureLogEvery. Each log line has a goroutine
// of its own, one at a time: the log, like standard output, may be a pipe that is not
// read, and losses are reported by requests. Its methods may be called concurrently.
type losses struct {
	log     *slog.Logger
	message string
	args    []any // that each line has
	lines   logthin.Thinner
	writes  chan struct{} // has an element while a line is written
}

func newLosses(log *slog.Logger, message string, args ...any) *losses {
	return &losses{log: log, message: message, args: args, writes: make(chan struct{}, 1)}
}

// report logs a loss, if that is due. It does not wait.
func (l *losses) report(why string) {
	unlogged, due := l.lines.Due(time.Now(), failureLogEvery)
	if !due {
		return
	}
	select {
	case l.writes <- struct{}{}:
		go func() {
			l.log.Warn(l.message, append(l.args[:len(l.args):len(l.args)], "error", why, "unlogged_before", unlogged)...)
			<-l.writes
		}()
	default: // the log is not read
	}
}

// close waits until what was reported is logged, for at most closeWithin.
func (l *losses) close() {
	select {
	case l.writes <- struct{}{}:
	case <-time.After(closeWithin):
	}
}
