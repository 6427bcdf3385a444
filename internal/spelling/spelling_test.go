package spelling_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/spelling"
)

// subjects are entries, and how they are written for a shell.
var subjects = []struct {
	entries []bucket.Entry
	want    string
}{
	{[]bucket.Entry{{Key: "a", Value: "1"}, {Key: "b", Value: "2"}}, "a=1,b=2"},
	{[]bucket.Entry{{Key: "path", Value: "/x?a=b"}}, "'path=/x?a=b'"},
	{[]bucket.Entry{{Key: "path", Value: "/a=b"}}, "path=/a=b"},
	{[]bucket.Entry{{Key: "k=", Value: `a,b\`}}, `'k\==a\,b\\'`},
	{[]bucket.Entry{{Key: "user", Value: "it's"}}, `'user=it'\''s'`},
	{[]bucket.Entry{{Key: "user", Value: "$(id) `id`;id&"}}, "'user=$(id) `id`;id&'"},
	{[]bucket.Entry{{Key: "user", Value: ""}}, "user="},
	{[]bucket.Entry{{Key: "--help", Value: "-x"}}, `'\--help=-x'`},
	{[]bucket.Entry{{Key: "user", Value: "zoë"}}, "'user=zoë'"},
	{[]bucket.Entry{{Key: "user", Value: "\x1b[2J'\\1\n\u202e\xff,"}}, `'user=\u{1b}[2J'\''\\1\u{a}\u{202e}\x{ff}\,'`},
	{[]bucket.Entry{{Key: "k\t", Value: `\u{1b}\x{ff}`}}, `'k\u{9}=\\u{1b}\\x{ff}'`},
	{[]bucket.Entry{{Key: "user", Value: "\uFFFD"}}, "'user=\uFFFD'"},
}

func TestEntriesAreReadAsTheyWereWritten(t *testing.T) {
	t.Parallel()
	for _, s := range subjects {
		text := spelling.Entries(s.entries)
		if got := spelling.ShellWord(text); got != s.want {
			t.Errorf("%q is written %s, not %s", s.entries, got, s.want)
		}
		if got, err := spelling.ParseEntries(text); err != nil || !slices.Equal(got, s.entries) || strings.HasPrefix(text, "-") {
			t.Errorf("%q is written %q, and read as %q, %v", s.entries, text, got, err)
		}
	}
	for _, bad := range []string{"", "user", "user=a,", ",", "a,b=1", `a\=b`} {
		if got, err := spelling.ParseEntries(bad); err == nil {
			t.Errorf("%q is read as %q", bad, got)
		}
	}
}

// A shell reads a word as it was, and runs nothing of it.
func TestShellsReadWords(t *testing.T) {
	t.Parallel()
	shell, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("there is no bash")
	}
	for _, s := range subjects {
		text := spelling.Entries(s.entries)
		out, err := exec.CommandContext(t.Context(), shell, "-c", "printf %s. "+spelling.ShellWord(text)).Output()
		if err != nil || string(out) != text+"." {
			t.Errorf("bash reads %s as %q, %v; not %q", spelling.ShellWord(text), out, err, text)
		}
	}
	for _, word := range []string{"", "a\x1b'\\1\n\u202e\xff"} {
		out, err := exec.CommandContext(t.Context(), shell, "-c", "printf '<%s>' "+spelling.ShellWord(word)).Output()
		if err != nil || string(out) != "<"+word+">" {
			t.Errorf("bash reads %q as %q, %v", word, out, err)
		}
	}
}
