package server

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// failureLogEvery is how often failed calls of one code are logged. A flood of
// them must not become a flood of lines.
const failureLogEvery = time.Second

// failureLog logs failed calls, the first of each code at once and then one
// line an interval that counts the others.
type failureLog struct {
	logger *slog.Logger

	mu   sync.Mutex
	seen map[codes.Code]*failureCount
}

type failureCount struct {
	last     time.Time
	unlogged int
}

func newFailureLog(logger *slog.Logger) *failureLog {
	return &failureLog{logger: logger, seen: make(map[codes.Code]*failureCount)}
}

func (f *failureLog) log(err error) {
	code := status.Code(err)
	level := slog.LevelError
	switch code {
	case codes.Canceled, codes.InvalidArgument, codes.Unimplemented:
		level = slog.LevelInfo // the caller's doing
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	count := f.seen[code]
	if count == nil {
		count = &failureCount{}
		f.seen[code] = count
	}
	now := time.Now()
	if now.Sub(count.last) < failureLogEvery {
		count.unlogged++
		return
	}
	f.logger.Log(context.Background(), level, "call failed",
		"code", code.String(), "error", status.Convert(err).Message(), "unlogged_before", count.unlogged)
	count.last, count.unlogged = now, 0
}
