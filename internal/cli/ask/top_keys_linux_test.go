package ask_test

import (
	"context"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/bucket/asynctest"
	"github.com/ratelimitd/ratelimitd/internal/cli"
	"github.com/ratelimitd/ratelimitd/internal/cli/clitest"
)

// q ends what is watched, and so does what ends any program; the terminal is then as it
// was.
func TestKeysEndWhatIsWatched(t *testing.T) {
	t.Setenv("COLUMNS", "")
	f := clitest.StartFakeAdmin(t)
	for name, press := range map[string]string{"q": "q", "Ctrl-C": "\x03", "Ctrl-D": "\x04", "others, then Q": "xyz\rQ", "a context": ""} {
		p := clitest.OpenTerminal(t)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan int)
		go func() {
			ended <- cli.Run(ctx, "", []string{"ratelimitd", "top", "--watch", "--admin-address", f.Address}, p.Program, p.Program, p.Program)
		}()
		asynctest.Eventually(t, "something is shown", func() bool { return strings.Contains(p.Shown.String(), "nobody else had more") })
		if p.IsAsBefore() {
			t.Errorf("%s: the terminal waits for whole lines", name)
		}
		if press == "" {
			cancel()
		} else if _, err := p.Keys.WriteString(press); err != nil {
			t.Fatal(err)
		}
		if code := <-ended; code != 0 || !p.IsAsBefore() {
			t.Errorf("%s: it exits with %d; the terminal is as before: %v", name, code, p.IsAsBefore())
		}
		if text := p.Shown.String(); strings.Contains(strings.ReplaceAll(text, "\r\n", ""), "\n") {
			t.Errorf("%s: lines do not go back to the first column: %q", name, text)
		}
		cancel()
	}
}
