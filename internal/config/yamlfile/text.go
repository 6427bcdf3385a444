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
func Shorten(s string) string {
	if len(s) <= longestQuote {
		return s
	}
	cut := longestQuote
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "..."
}

// Quote puts a text between quotes, and shortens it where it is long.
func Quote(s string) string { return spelling.Visible(strconv.Quote(Shorten(s))) }

// Plural returns "1 blank" or "2 blanks".
func Plural(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// Commas returns "a, b, c".
func Commas(names []string) string { return strings.Join(names, ", ") }

// Printable returns a part of a rule's path so that it cannot be taken for
// another, nor move a terminal's cursor.
func Printable(s string) string {
	plain := s != "" && strings.IndexFunc(s, func(r rune) bool {
		return r == ' ' || r == '=' || r == '"' || r == '\\' || r == utf8.RuneError || spelling.IsHidden(r)
	}) < 0
	if plain {
		return s
	}
	return spelling.Visible(strconv.Quote(s))
}

// HasControl reports whether a text has control characters.
func HasControl(s string) bool { return strings.IndexFunc(s, unicode.IsControl) >= 0 }

// AllowedHeaderName says what IsHeaderName takes.
const AllowedHeaderName = "1 to 64 letters, digits and !#$%&'*+-.^_`|~"

// IsHeaderName reports whether a text can name an HTTP header.
func IsHeaderName(s string) bool {
	const longest = 64
	return len(s) <= longest && httpguts.ValidHeaderFieldName(s)
}
