package daemon

import (
	"bytes"
	"io"
	"log/slog"

	"github.com/ratelimitd/ratelimitd/internal/config/settings"
	"github.com/ratelimitd/ratelimitd/internal/spelling"
)

// NewLogger returns a log in the format of the settings.
func NewLogger(w io.Writer, l settings.Log) *slog.Logger {
	options := &slog.HandlerOptions{Level: l.Level}
	if l.Format == settings.LogJSON {
		return slog.New(slog.NewJSONHandler(visibleLog{to: w, escape: spelling.AppendJSON}, options))
	}
	return slog.New(slog.NewTextHandler(visibleLog{to: w, escape: appendVisibleLine}, options))
}

// visibleLog writes lines of slog, and escapes what people would not see in them: slog
// itself escapes only some of it.
type visibleLog struct {
	to     io.Writer
	escape func(dst, line []byte) []byte
}

// Write implements io.Writer.
func (v visibleLog) Write(line []byte) (int, error) {
	if _, err := v.to.Write(v.escape(nil, line)); err != nil {
		return 0, err
	}
	return len(line), nil
}

func appendVisibleLine(dst, line []byte) []byte {
	return append(spelling.AppendVisible(dst, string(bytes.TrimSuffix(line, []byte("\n")))), '\n')
}
