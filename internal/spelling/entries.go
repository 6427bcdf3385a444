// Package spelling writes subjects as a person pastes them into a command line, and
// reads them there.
package spelling

import (
	"fmt"
	"strings"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// AppendEntries appends entries as ParseEntries reads them. No two lists look alike, and
// none looks like a flag.
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

// appendEscaped escapes what would end a key or a value.
func appendEscaped(dst []byte, text string, isKey bool) []byte {
	for i := range len(text) {
		if c := text[i]; c == '\\' || c == ',' || c == '=' && isKey {
			dst = append(dst, '\\')
		}
		dst = append(dst, text[i])
	}
	return dst
}

// ParseEntries reads KEY=VALUE[,KEY=VALUE]. A backslash makes the next character part
// of a key or value. Its error says what was found and what is allowed.
func ParseEntries(text string) ([]bucket.Entry, error) {
	var entries []bucket.Entry
	var key, part strings.Builder
	hasKey := false
	end := func() error {
		if !hasKey {
			return fmt.Errorf("%q: found %q; allowed: KEY=VALUE[,KEY=VALUE] and so on", text, part.String())
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
			i++
			part.WriteByte(text[i])
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
