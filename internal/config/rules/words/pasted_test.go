package words_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/rules/words"
	"github.com/ratelimitd/ratelimitd/internal/spelling"
)

// throughShell returns the one word that a shell reads.
func throughShell(t *testing.T, word string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "sh", "-c", `printf '%s\0' `+word).Output()
	if err != nil {
		t.Fatalf("%s: %v", word, err)
	}
	words := strings.Split(string(out), "\x00") // no word has one, and each ends with one
	if len(words) != 2 {
		t.Fatalf("a shell reads %s as %d words", word, len(words)-1)
	}
	return words[0]
}

// Entries that are not cut are read back through a shell as the same entries.
func FuzzEntriesReadBack(f *testing.F) {
	f.Add("tenant", "acme", "region", "eu")
	f.Add("a b", "x,y", "path", "$HOME/x")
	f.Add("c,d", "it's", "k=", `\`)
	f.Add("tab\t", "\u202e\xff\n", "-", "`ls` | *")
	f.Add("", "", "~", "#!&;(){}[]<>?\"'")
	f.Fuzz(func(t *testing.T, k1, v1, k2, v2 string) {
		if len(k1)+len(v1)+len(k2)+len(v2) > 25 { // more may be cut
			return
		}
		want := []bucket.Entry{{Key: k1, Value: v1}, {Key: k2, Value: v2}}
		got, err := spelling.ParseEntries(throughShell(t, words.Entries(want)))
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%q is shown as %s, and read as %q: %v", want, words.Entries(want), got, err)
		}
	})
}
