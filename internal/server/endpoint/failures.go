package endpoint

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ratelimitd/ratelimitd/internal/logthin"
)

// FailureLog logs failed calls, each code by itself.
type FailureLog struct {
	logger *slog.Logger
	now    func() time.Time

	mu    sync.Mutex
	lines map[codes.Code]*logthin.Thinner
}

// NewFailureLog returns a log that reads the time from now.
func NewFailureLog(logger *slog.Logger, now func() time.Time) *FailureLog {
	return &FailureLog{logger: logger, now: now, lines: make(map[codes.Code]*logthin.Thinner)}
}

// failureLogEvery returns how often failed calls with a code are logged.
func failureLogEvery(code codes.Code) time.Duration {
	if code == codes.Unavailable {
		// The store is away. That takes long, and all calls fail in the same way.
		return time.Minute
	}
	return time.Second
}

func (f *FailureLog) log(err error) {
	code := status.Code(err)
	level := slog.LevelError
	switch code {
	case codes.Canceled, codes.InvalidArgument, codes.PermissionDenied, codes.Unauthenticated:
		level = slog.LevelInfo // the caller's doing
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	lines := f.lines[code]
	if lines == nil {
		lines = new(logthin.Thinner)
		f.lines[code] = lines
	}
	if unlogged, due := lines.Due(f.now(), failureLogEvery(code)); due {
		f.logger.Log(context.Background(), level, "call failed",
			"code", code.String(), "error", status.Convert(err).Message(), "unlogged_before", unlogged)
	}
}
