package endpoint

import (
	"log/slog"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ratelimitd/ratelimitd/internal/logthin"
)

// panicLogEvery limits panics in the log: a stack is long, and a request that causes
// one may come again and again.
const panicLogEvery = time.Second

// PanicLog counts the panics of handlers, and logs some with their stacks.
type PanicLog struct {
	logger *slog.Logger
	now    func() time.Time
	count  prometheus.Counter
	lines  logthin.Thinner
}

// NewPanicLog returns a log that reads the time from now, and counts panics in count.
func NewPanicLog(logger *slog.Logger, now func() time.Time, count prometheus.Counter) *PanicLog {
	return &PanicLog{logger: logger, now: now, count: count}
}

// Add counts and logs the panic p. It must be called by the function that recovers
// p, to find its stack.
func (l *PanicLog) Add(p any, args ...any) {
	l.count.Inc()
	if unlogged, due := l.lines.Due(l.now(), panicLogEvery); due {
		l.logger.Error("panic", append(args, "panic", p, "stack", string(debug.Stack()), "unlogged_before", unlogged)...)
	}
}

// Recovering returns a handler that answers 500 if next panics.
func (l *PanicLog) Recovering(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			switch p := recover(); p {
			case nil:
			case http.ErrAbortHandler: // the handler wants the answer to end like this
				panic(p)
			default:
				l.Add(p, "path", r.URL.Path)
				WriteError(w, http.StatusInternalServerError, "internal error")
			}
		}()
		next.ServeHTTP(w, r)
	})
}
