package yamlfile

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/net/http/httpguts"

	"github.com/ratelimitd/ratelimitd/internal/spelling"
)

// longestQuote bounds how much of a file's text an error shows.
const longestQuote = 80

// Shorten cuts a long text between two characters.
func Shorten(s string) string { return ShortenTo(s, longestQuote) }

// ShortenTo cuts a text of more than the given number of bytes between two characters.
func ShortenTo(s string, longest int) string {
	if len(s) <= longest {
		return s
	}
	cut := longest
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "..."
}

// Quote puts a text in quotes and shortens it if it is long.
func Quote(s string) string { return spelling.Visible(strconv.Quote(Shorten(s))) }

// Plural returns "1 blank" or "2 blanks".
func Plural(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// NamesOf returns the names of values.
func NamesOf[T fmt.Stringer](all []T) []string {
	names := make([]string, len(all))
	for i := range all {
		names[i] = all[i].String()
	}
	return names
}

// Commas returns "a, b, c".
func Commas(names []string) string { return strings.Join(names, ", ") }

// Printable returns a part of a rule's path so that it can neither be taken for another
// nor move a terminal's cursor.
func Printable(s string) string {
	plain := s != "" && strings.IndexFunc(s, func(r rune) bool {
		return r == ' ' || r == '=' || r == '"' || r == '\\' || r == utf8.RuneError || spelling.IsHidden(r)
	}) < 0
	if plain {
		return s
	}
	return spelling.Visible(strconv.Quote(s))
}

// Printables returns the Printable texts of names.
func Printables(names []string) []string {
	shown := make([]string, len(names))
	for i := range names {
		shown[i] = Printable(names[i])
	}
	return shown
}

// FileLine returns file:line, or just the name if it has no lines.
func FileLine(file string, line int) string {
	if line == 0 {
		return file
	}
	return fmt.Sprintf("%s:%d", file, line)
}

// HasControl reports whether a text has control characters.
func HasControl(s string) bool { return strings.IndexFunc(s, unicode.IsControl) >= 0 }

// AllowedHeaderName says what IsHeaderName accepts.
const AllowedHeaderName = "1 to 64 letters, digits and !#$%&'*+-.^_`|~"

// IsHeaderName reports whether a text can name an HTTP header.
func IsHeaderName(s string) bool {
	const longest = 64
	return len(s) <= longest && httpguts.ValidHeaderFieldName(s)
}
