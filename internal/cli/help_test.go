package cli

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

// No line of help is wider than 80 columns, and each setting has one line.
func TestHelpFits80Columns(t *testing.T) {
	t.Setenv("COLUMNS", "")
	var check func(words []string, cmd *cobra.Command)
	check = func(words []string, cmd *cobra.Command) {
		out, stderr, code := shown(t, append(words, "--help")...)
		if code != 0 || stderr != "" || !strings.Contains(out, "Usage:\n  ") {
			t.Errorf("%q exits with %d: %s\n%s", words, code, stderr, out)
		}
		for _, line := range strings.Split(out, "\n") {
			if n := utf8.RuneCountInString(strings.ReplaceAll(line, "\t", "        ")); n > 80 {
				t.Errorf("%q has a line of %d columns: %s", words, n, line)
			}
		}
		for _, c := range cmd.Commands() {
			check(append(slices.Clone(words), c.Name()), c)
		}
	}
	root := ownCommand("")
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	check([]string{"ratelimitd"}, root)
	check([]string{"ratelimit"}, envoyCommand("", nil))
	out, _, _ := shown(t, "ratelimitd", "serve", "--help")
	_, list, _ := strings.Cut(out, "\nLimits:\n")
	for _, line := range strings.Split(list, "\n") {
		if strings.HasPrefix(line, "   ") {
			t.Errorf("a setting has more than one line; shorten its text in the table of settings:\n%s", line)
		}
	}
	if !strings.Contains(list, "\n\nRedis:\n  --redis-addresses host:port,... ") || !strings.Contains(list, "\n  --redis-timeout duration        how long one operation may take [100ms]\n") {
		t.Errorf("the settings are shown as\n%s", list)
	}
}

// Wider where the terminal is.
func TestHelpIsAsWideAsColumnsSays(t *testing.T) {
	t.Setenv("COLUMNS", "60")
	narrow, _, _ := shown(t, "ratelimitd", "assign", "--help")
	t.Setenv("COLUMNS", "200")
	wide, _, _ := shown(t, "ratelimitd", "assign", "--help")
	if strings.Count(narrow, "\n") <= strings.Count(wide, "\n") {
		t.Errorf("at 60 columns\n%s\nat 200\n%s", narrow, wide)
	}
}

// shown runs a command that only shows something.
func shown(t *testing.T, words ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errOut bytes.Buffer
	code = Run(t.Context(), "", words, strings.NewReader(""), &out, &errOut)
	return out.String(), errOut.String(), code
}
