package sink

import (
	"log/slog"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/logthin"
)

// losses log that lines are lost, once in failureLogEvery. A goroutine of their own does
// it: the log may be a pipe that nobody reads, as standard output may, and who tells of a
// loss is a request. Its methods may be called concurrently.
type losses struct {
	log     *slog.Logger
	message string
	args    []any // that each line has
	lines   logthin.Thinner
	told    chan loss
	end     chan struct{} // closed by close
	ended   chan struct{} // closed when all is logged
}

// loss is a line of the log.
type loss struct {
	why      string
	unlogged int
}

func newLosses(log *slog.Logger, message string, args ...any) *losses {
	l := &losses{log: log, message: message, args: args, told: make(chan loss, 1), end: make(chan struct{}), ended: make(chan struct{})}
	go l.run()
	return l
}

// tell has a loss be logged, if that is due. It does not wait.
func (l *losses) tell(why string) {
	if unlogged, due := l.lines.Due(time.Now(), failureLogEvery); due {
		select {
		case l.told <- loss{why, unlogged}:
		default: // nobody reads the log
		}
	}
}

// close waits until what was told is logged, for as long as closeWithin.
func (l *losses) close() {
	close(l.end)
	select {
	case <-l.ended:
	case <-time.After(closeWithin):
	}
}

func (l *losses) run() {
	defer close(l.ended)
	for {
		select {
		case one := <-l.told:
			l.write(one)
		case <-l.end:
			select {
			case one := <-l.told:
				l.write(one)
			default:
			}
			return
		}
	}
}

func (l *losses) write(one loss) {
	l.log.Warn(l.message, append(l.args[:len(l.args):len(l.args)], "error", one.why, "unlogged_before", one.unlogged)...)
}
