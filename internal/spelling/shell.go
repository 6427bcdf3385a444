package spelling

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// plainInShell are characters that a shell reads as they are, wherever they stand.
const plainInShell = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_=,./:@%+-"

// ShellWord returns a word as a shell reads it, in quotes where it needs them. What a
// terminal would not show, or would obey, is in octal digits, which the $'...' of bash,
// ksh, zsh and POSIX of 2024 reads.
func ShellWord(word string) string {
	switch {
	case !isVisible(word):
		return octalWord(word)
	case word == "" || strings.Trim(word, plainInShell) != "":
		return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
	}
	return word
}

// isVisible reports whether a terminal shows all of a text. strings.IndexFunc would take
// bytes that are no UTF-8 for the character that stands for them.
func isVisible(text string) bool {
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		if isHidden(r, size) {
			return false
		}
		i += size
	}
	return true
}

func isHidden(r rune, size int) bool {
	return r == utf8.RuneError && size == 1 || !unicode.IsPrint(r)
}

func octalWord(word string) string {
	var s strings.Builder
	s.WriteString("$'")
	for i := 0; i < len(word); {
		r, size := utf8.DecodeRuneInString(word[i:])
		switch {
		case isHidden(r, size):
			for _, b := range []byte(word[i : i+size]) {
				fmt.Fprintf(&s, `\%03o`, b)
			}
		case r == '\'' || r == '\\':
			s.WriteByte('\\')
			fallthrough
		default:
			s.WriteString(word[i : i+size])
		}
		i += size
	}
	s.WriteByte('\'')
	return s.String()
}
