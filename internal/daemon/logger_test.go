package daemon

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/config/settings"
	"github.com/ratelimitd/ratelimitd/internal/spelling"
)

// Whoever reads the daemon's own log sees all that callers sent.
func TestLogHasNothingHidden(t *testing.T) {
	t.Parallel()
	const sent = "x\x1b\u009b\u202e\u3164\U000e0041"
	for _, format := range []settings.LogFormat{settings.LogText, settings.LogJSON} {
		var out bytes.Buffer
		NewLogger(&out, settings.Log{Format: format}).Info("denied", "value", sent)
		line, ended := strings.CutSuffix(out.String(), "\n")
		if !ended || strings.ContainsFunc(line, spelling.IsHidden) {
			t.Errorf("%s: %q", format, out.String())
		}
		var fields struct{ Value string }
		if err := json.Unmarshal(out.Bytes(), &fields); format == settings.LogJSON && (err != nil || fields.Value != sent) {
			t.Errorf("%s is read as %q, %v", line, fields.Value, err)
		}
	}
}
