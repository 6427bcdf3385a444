package spelling_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/spelling"
)

func TestHiddenCharacters(t *testing.T) {
	t.Parallel()
	for _, r := range "\x00\t\n\x1b\x7f\u0080\u0085\u009b\u00a0\u00ad\u034f\u061c\u115f\u1160\u1680\u17b4\u180b\u180e\u2000\u200b\u200d\u200f" +
		"\u2028\u2029\u202a\u202e\u202f\u2060\u2066\u2069\u206a\u2800\u3000\u3164\ufe00\ufe0f\ufeff\uffa0\ufff9\uffff\U0001d159\U000e0001\U000e0041\U000e0100\U0010ffff" {
		if !spelling.IsHidden(r) {
			t.Errorf("%U is not hidden", r)
		}
	}
	for _, r := range "aä\\~ €語😀🇦\u0301\ufffd\ufffc\u2588" {
		if spelling.IsHidden(r) {
			t.Errorf("%U is hidden", r)
		}
	}
}

// What Unescape would take for an escape is escaped itself, and nothing else is.
func TestEscapedTexts(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`C:\temp`:         `C:\temp`,
		`C:\users\{x}`:    `C:\users\{x}`,
		"a\x1b\u202e\xff": `a\u{1b}\u{202e}\x{ff}`,
		`\u{41}`:          `\u{5c}u{41}`,
		`\x{41}`:          `\u{5c}x{41}`,
		`\u{110000}`:      `\u{110000}`,
		`\u{d800}`:        `\u{d800}`,
		`\x{041}`:         `\x{041}`,
		"\\u{\x01}":       `\u{\u{1}}`,
		"\\\n":            `\\u{a}`,
		"\U0001f600":      "\U0001f600",
		"":                "",
	} {
		if got := spelling.Escape(text); got != want {
			t.Errorf("%q is written %s, not %s", text, got, want)
		}
		if got := spelling.Unescape(want); got != text {
			t.Errorf("%s is read as %q, not %q", want, got, text)
		}
	}
	if got := spelling.VisibleLines("a\x1b\n\u202e\\u{1}"); got != "a\\u{1b}\n\\u{202e}\\u{1}" {
		t.Errorf("%q", got)
	}
}

// FuzzSpellings has everything read as it was written, and nothing hidden in it.
func FuzzSpellings(f *testing.F) {
	f.Add("tenant", "acme", "path", `C:\temp\u{41}\x{ff}`)
	f.Add("-k\x00=", "\x1b[2J\u202e\u009b\n\r\t,=/\\\"'", "\xff\\", "\\u{\u200b}\ufffd\U000e0041")
	f.Fuzz(func(t *testing.T, key, value, key2, value2 string) {
		entries := []bucket.Entry{{Key: key, Value: value}, {Key: key2, Value: value2}}
		text := spelling.Entries(entries)
		if got, err := spelling.ParseEntries(text); err != nil || !slices.Equal(got, entries) {
			t.Errorf("%q is written %q, and read as %q, %v", entries, text, got, err)
		}
		escaped := spelling.Escape(value)
		if got := spelling.Unescape(escaped); got != value {
			t.Errorf("%q is written %q, and read as %q", value, escaped, got)
		}
		visible := spelling.Visible(value)
		if again := spelling.Visible(visible); again != visible {
			t.Errorf("%q is shown as %q, and that as %q", value, visible, again)
		}
		raw, err := json.Marshal([]string{value, value2})
		if err != nil {
			t.Fatal(err)
		}
		var plain, got []string
		shown := spelling.AppendJSON(nil, raw)
		if err := json.Unmarshal(raw, &plain); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(shown, &got); err != nil || !slices.Equal(got, plain) {
			t.Errorf("%s is shown as %s, and read as %q, %v", raw, shown, got, err)
		}
		for _, s := range []string{text, escaped, visible, spelling.ShellWord(text), spelling.ShellWord(value), string(shown)} {
			if !utf8.ValidString(s) || strings.IndexFunc(s, func(r rune) bool { return spelling.IsHidden(r) || unicode.IsControl(r) }) >= 0 {
				t.Errorf("%q has what people do not see", s)
			}
		}
	})
}
