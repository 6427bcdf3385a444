package cli

import (
	"bytes"
	"strings"
	"testing"
)

// Settings are shown by section, each with its default.
func TestHelpShowsSettingsBySection(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"ratelimitd", "ratelimit"} {
		if out, stderr, code := shown(t, program, "--help"); code != 0 || stderr != "" || !strings.Contains(out, "Usage:\n  "+program) {
			t.Errorf("%s exits with %d: %s\n%s", program, code, stderr, out)
		}
	}
	out, _, _ := shown(t, "ratelimitd", "serve", "--help")
	_, redis, _ := strings.Cut(out, "\n\nRedis:\n")
	if first, _, _ := strings.Cut(redis, "\n"); !strings.HasPrefix(first, "      --redis-addresses host:port,... ") || !strings.Contains(redis, "how long one operation may take [100ms]") {
		t.Errorf("the settings are shown as\n%s", out)
	}
}

// shown runs a command that only shows something.
func shown(t *testing.T, words ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errOut bytes.Buffer
	code = Run(t.Context(), "", words, strings.NewReader(""), &out, &errOut)
	return out.String(), errOut.String(), code
}
