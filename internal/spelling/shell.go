package spelling

import (
	"fmt"
	"strings"
)

// plainInShell are characters that a shell reads as they are, in any place.
const plainInShell = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_=,./:@%+-"

// ShellWord returns a word as a shell reads it, in quotes where it needs them. Hidden
// characters, of which Entries leaves none, are in octal digits, which the $'...' of
// bash, ksh, zsh and POSIX of 2024 reads.
func ShellWord(word string) string {
	switch {
	case indexHidden(word) >= 0:
		return octalWord(word)
	case word == "" || strings.Trim(word, plainInShell) != "":
		return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
	}
	return word
}

func octalWord(word string) string {
	var s strings.Builder
	s.WriteString("$'")
	for i := 0; i < len(word); {
		r, size, isHidden := hiddenAt(word[i:])
		switch {
		case isHidden:
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
