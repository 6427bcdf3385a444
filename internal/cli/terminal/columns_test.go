package terminal_test

import (
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/cli/terminal"
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
		if got := terminal.Wrapped(tc.text, tc.width); !slices.Equal(got, tc.want) {
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
		if got := terminal.Wrapped(text, 3); !slices.Equal(got, want) {
			t.Errorf("%q is %q, not %q", text, got, want)
		}
	}
}

// A row that is too wide loses nothing.
func TestRowsAreWrapped(t *testing.T) {
	t.Parallel()
	for row, want := range map[string]string{
		"a  b  one two three": "a  b  one two three\n",
		"  user  -  10 requests in any minute, and not more than these": "  user  -  10 requests in any\n    minute, and not more than these\n",
		"12807  70.0%  a-long-domain-name  a-long-rule  user=somebody":  "12807  70.0%  a-long-domain-name\n    a-long-rule  user=somebody\n",
		"key  'user=a b c d e f g h i j k l m n o p q r s t u v'":       "key\n    'user=a b c d e f g h i j k l m n o p q r s t u v'\n",
	} {
		var got strings.Builder
		w := terminal.TableAt(&got, 40)
		if _, err := io.WriteString(w, row[:3]); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, row[3:]+"\n"); err != nil {
			t.Fatal(err)
		}
		if got.String() != want {
			t.Errorf("%q is\n%q, not\n%q", row, got.String(), want)
		}
	}
}
