package terminal

import (
	"slices"
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
		if got := Wrapped(tc.text, tc.width); !slices.Equal(got, tc.want) {
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
		if got := Wrapped(text, 3); !slices.Equal(got, want) {
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
		if got := Fitted(tc.row, tc.width); !slices.Equal(got, tc.want) {
			t.Errorf("%q at %d is\n%q, not\n%q", tc.row, tc.width, got, tc.want)
		}
	}
}
