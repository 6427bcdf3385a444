package endpoint

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// sparse thins a flood of events in the log to one line an interval. The first
// is logged at once, and each line counts those before it that were not.
type sparse struct {
	last     time.Time
	unlogged int
}

// due reports whether the event of this moment is to be logged, and how many
// since the last line were not.
func (s *sparse) due(now time.Time, every time.Duration) (unlogged int, due bool) {
	if now.Sub(s.last) < every {
		s.unlogged++
		return 0, false
	}
	unlogged = s.unlogged
	s.last, s.unlogged = now, 0
	return unlogged, true
}

// FailureLog logs failed calls, those of each code by itself.
type FailureLog struct {
	logger *slog.Logger
	now    func() time.Time

	mu   sync.Mutex
	seen map[codes.Code]*sparse
}

// NewFailureLog returns a log by a clock.
func NewFailureLog(logger *slog.Logger, now func() time.Time) *FailureLog {
	return &FailureLog{logger: logger, now: now, seen: make(map[codes.Code]*sparse)}
}

// failureLogEvery is how often failed calls of one code are logged.
func failureLogEvery(code codes.Code) time.Duration {
	if code == codes.Unavailable {
		// The store is away, which takes long, and all calls say the same.
		return time.Minute
	}
	return time.Second
}

func (f *FailureLog) log(err error) {
	code := status.Code(err)
	level := slog.LevelError
	switch code {
	case codes.Canceled, codes.InvalidArgument, codes.PermissionDenied:
		level = slog.LevelInfo // the caller's doing
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	seen := f.seen[code]
	if seen == nil {
		seen = new(sparse)
		f.seen[code] = seen
	}
	if unlogged, due := seen.due(f.now(), failureLogEvery(code)); due {
		f.logger.Log(context.Background(), level, "call failed",
			"code", code.String(), "error", status.Convert(err).Message(), "unlogged_before", unlogged)
	}
}
