package dial_test

import (
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/cli/clitest"
)

func TestWordsAreCompleted(t *testing.T) {
	for _, c := range []struct{ words, want string }{
		{"top --by", "denied\nused\n:4\n"},
		{"top --window", "1m\n15m\n1h\n:4\n"},
	} {
		words := append([]string{"ratelimitd", "__complete"}, append(strings.Fields(c.words), "")...)
		if out, stderr, code := clitest.Run(t, "", words...); code != 0 || out != c.want {
			t.Errorf("%s completes to %q, want %q (%d, %s)", c.words, out, c.want, code, stderr)
		}
	}
}

func TestCompletionAsksTheDaemon(t *testing.T) {
	f := clitest.StartFakeAdmin(t)
	for _, c := range []struct {
		words []string
		want  string
	}{
		{[]string{"take", "--domain", ""}, "api\nlogin\n:4\n"},
		{[]string{"take", "--domain", "l"}, "login\n:4\n"},
		{[]string{"take", "--domain", "api", ""}, "tenant=\nuser=\n:6\n"},
		{[]string{"assign", "--domain", "api", "te"}, "tenant=\n:6\n"},
		{[]string{"block", "--domain", "api", "tenant=a", "--until", ""}, ":4\n"},
		{[]string{"block", "--domain", "api", "tenant=a", "--reason", ""}, ":4\n"},
		{[]string{"take", "--domain", "api", "user=a"}, ":4\n"},
	} {
		t.Setenv("RATELIMITD_ADMIN_ADDRESS", f.Address)
		words := append([]string{"ratelimitd", "__complete"}, c.words...)
		if out, stderr, code := clitest.Run(t, "", words...); code != 0 || out != c.want {
			t.Errorf("%q completes to %q, want %q (%d, %s)", c.words, out, c.want, code, stderr)
		}
		t.Setenv("RATELIMITD_ADMIN_ADDRESS", "127.0.0.1:1")
		if out, _, code := clitest.Run(t, "", words...); code != 0 || strings.Count(out, "\n") != 1 {
			t.Errorf("without a daemon %q completes to %q (%d)", c.words, out, code)
		}
	}
}
