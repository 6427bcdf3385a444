package main

import (
	"slices"
	"strings"
	"testing"
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

// In a pipe a flag and what it does are one line, which grep finds; what stands before
// the flags is short enough for any terminal.
func TestHelpInAPipe(t *testing.T) {
	t.Parallel()
	for _, cmd := range ownCommand().Commands() {
		if len(cmd.Long) > 0 && slices.ContainsFunc(strings.Split(cmd.Long, "\n"), func(line string) bool { return len(line) > 80 }) {
			t.Errorf("%s --help is wider than 80 columns:\n%s", cmd.Name(), cmd.Long)
		}
	}
	out, _, code := runWords(t, "", "ratelimitd", "query", "--help")
	if want := "host:port of the daemon's gRPC port, or unix:path of its socket (default: where a daemon with this environment listens)\n"; code != 0 || !strings.Contains(out, want) {
		t.Errorf("it exits with %d:\n%s", code, out)
	}
}
