package daemon

import (
	"log/slog"
	"time"

	"go.opentelemetry.io/otel"

	"github.com/ratelimitd/ratelimitd/internal/logthin"
	"github.com/ratelimitd/ratelimitd/internal/tracing"
)

// telemetryLogEvery spaces lines about what is sent to a collector.
const telemetryLogEvery = time.Minute

// logTelemetry logs what OpenTelemetry's library reports by itself, such as that a
// collector refused some of the spans or of the log of decisions. A process has one
// handler for that, which by default writes to the standard log.
func logTelemetry(log *slog.Logger) {
	var lines logthin.Thinner
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		if unlogged, due := lines.Due(time.Now(), telemetryLogEvery); due {
			// The collector's answer is in it, whatever that may be.
			log.Warn("OpenTelemetry: a collector did not accept everything; requests are still answered", "error", tracing.Cut(err.Error()), "unlogged_before", unlogged)
		}
	}))
}
