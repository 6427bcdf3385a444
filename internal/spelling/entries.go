// Package spelling writes subjects as people paste them into a command line, and reads
// them there. In any text it escapes what people would not see. It imports bucket.
package spelling

import (
	"fmt"
	"strings"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// Entries returns entries as ParseEntries reads them. No two lists look alike, none looks
// like a flag, and people see all of it.
func Entries(entries []bucket.Entry) string { return string(AppendEntries(nil, entries)) }

// AppendEntries appends what Entries returns.
func AppendEntries(dst []byte, entries []bucket.Entry) []byte {
	for i, e := range entries {
		if i > 0 {
			dst = append(dst, ',')
		} else if strings.HasPrefix(e.Key, "-") {
			dst = append(dst, '\\')
		}
		dst = append(appendEscaped(dst, e.Key, true), '=')
		dst = appendEscaped(dst, e.Value, false)
	}
	return dst
}

// appendEscaped escapes what would end a key or a value, and what people would not see.
func appendEscaped(dst []byte, text string, isKey bool) []byte {
	for text != "" {
		r, size, isHidden := hiddenAt(text)
		switch {
		case isHidden:
			dst = appendEscape(dst, text[0], r, size)
		case r == '\\' || r == ',' || r == '=' && isKey:
			dst = append(dst, '\\', text[0])
		default:
			dst = append(dst, text[:size]...)
		}
		text = text[size:]
	}
	return dst
}

// ParseEntries reads KEY=VALUE[,KEY=VALUE]. A backslash makes the next character part
// of a key or value, except in \u{202e}, the character U+202E, and \x{ff}, a byte. Its
// error says what was found and what is allowed.
func ParseEntries(text string) ([]bucket.Entry, error) {
	var entries []bucket.Entry
	var key, part strings.Builder
	hasKey := false
	end := func() error {
		if !hasKey {
			at := ""
			if part.String() != text {
				at = fmt.Sprintf("%q: ", text)
			}
			return fmt.Errorf("%sfound %q; allowed: KEY=VALUE[,KEY=VALUE] and so on", at, part.String())
		}
		entries = append(entries, bucket.Entry{Key: key.String(), Value: part.String()})
		key.Reset()
		part.Reset()
		hasKey = false
		return nil
	}
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\\' && i+1 < len(text):
			means, size := readBackslash(text[i:])
			part.WriteString(means)
			i += size - 1
		case c == '=' && !hasKey:
			hasKey = true
			key.WriteString(part.String())
			part.Reset()
		case c == ',':
			if err := end(); err != nil {
				return nil, err
			}
		default:
			part.WriteByte(c)
		}
	}
	if err := end(); err != nil {
		return nil, err
	}
	return entries, nil
}

// ParsePart reads a text in which a backslash means what it means to ParseEntries.
func ParsePart(text string) string {
	var s strings.Builder
	for text != "" {
		means, size := text[:1], 1
		if text[0] == '\\' && len(text) > 1 {
			means, size = readBackslash(text)
		}
		s.WriteString(means)
		text = text[size:]
	}
	return s.String()
}

// readBackslash reads a backslash that is not the last character, and what it is for.
func readBackslash(text string) (means string, size int) {
	if means, size, isEscape := readEscape(text); isEscape {
		return means, size
	}
	return text[1:2], 2
}
