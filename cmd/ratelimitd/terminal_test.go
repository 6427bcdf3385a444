package main

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

func TestTextsAreWrapped(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		text  string
		width int
		want  []string
	}{
		{"one two three", 0, []string{"one two three"}},
		{"one two three", 7, []string{"one two", "three"}},
		{"one two three", 6, []string{"one", "two", "three"}},
		{"ünö twö three", 7, []string{"ünö twö", "three"}},
		{"longer-than-it is", 3, []string{"longer-than-it", "is"}},
		{"", 3, []string{""}},
	} {
		if got := wrapped(tc.text, tc.width); !slices.Equal(got, tc.want) {
			t.Errorf("%q at %d is %q, not %q", tc.text, tc.width, got, tc.want)
		}
	}
}

// What a person pastes is never broken, though it has blanks.
func TestQuotedWordsStayWhole(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"is 'user=a b' here":              {"is", "'user=a b'", "here"},
		`is 'user=it'\''s me' here`:       {"is", `'user=it'\''s me'`, "here"},
		`is $'user=it\'s me' here`:        {"is", `$'user=it\'s me'`, "here"},
		"it 'tis so":                      {"it", "'tis", "so"},
		"'":                               {"'"},
		"$'":                              {"$'"},
		"x $'\\":                          {"x", "$'\\"},
		"the others' own":                 {"the", "others'", "own"},
		"'user=a b'... has been cut here": {"'user=a b'...", "has", "been", "cut", "here"},
	} {
		if got := wrapped(text, 3); !slices.Equal(got, want) {
			t.Errorf("%q is %q, not %q", text, got, want)
		}
	}
}

// A row that is too wide loses nothing, and goes on below its last cell or on lines of
// its own.
func TestRowsAreFitted(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		row   string
		width int
		want  []string
	}{
		{"a  b  one two three", 0, []string{"a  b  one two three"}},
		{"a  b  one two three", 19, []string{"a  b  one two three"}},
		{"  user  -  10 requests in any minute, and not more than these", 40, []string{
			"  user  -  10 requests in any minute,", "           and not more than these"}},
		{"12807  70.0%  a-long-domain-name  a-long-rule  user=somebody", 40, []string{
			"12807  70.0%  a-long-domain-name", "    a-long-rule  user=somebody"}},
		{"key  'user=a b c d e f g h i j k l m n o p q r s t u v'", 40, []string{
			"key  'user=a b c d e f g h i j k l m n o p q r s t u v'"}},
	} {
		if got := fitted(tc.row, tc.width); !slices.Equal(got, tc.want) {
			t.Errorf("%q at %d is\n%q, not\n%q", tc.row, tc.width, got, tc.want)
		}
	}
}

// No line of help is wider than 80 columns, and each setting has one line.
func TestHelpFits80Columns(t *testing.T) {
	t.Setenv("COLUMNS", "")
	var check func(words []string, cmd *cobra.Command)
	check = func(words []string, cmd *cobra.Command) {
		out, stderr, code := runWords(t, "", append(words, "--help")...)
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
	root := ownCommand()
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	check([]string{"ratelimitd"}, root)
	check([]string{"ratelimit"}, envoyCommand(nil))
	out, _, _ := runWords(t, "", "ratelimitd", "serve", "--help")
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

// Wider where the terminal is; an example that is too long goes on as a shell reads it.
func TestHelpIsAsWideAsColumnsSays(t *testing.T) {
	t.Setenv("COLUMNS", "60")
	narrow, _, _ := runWords(t, "", "ratelimitd", "assign", "--help")
	want := "  ratelimitd assign --domain api tenant=acme --plan pro \\\n    --until 2026-12-31 --reason \"contract 4711\"\n"
	if !strings.Contains(narrow, want) {
		t.Errorf("got\n%s\nwant\n%s", narrow, want)
	}
	t.Setenv("COLUMNS", "200")
	if wide, _, _ := runWords(t, "", "ratelimitd", "assign", "--help"); !strings.Contains(wide, strings.Replace(want, "\\\n    ", "", 1)) {
		t.Errorf("got\n%s", wide)
	}
}
