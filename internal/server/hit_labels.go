package server

import (
	"bytes"
	"strings"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/rules/tally"
)

// appendStatKeys appends the labels key1 and key2 of a rule with these entries.
// envoyproxy/ratelimit leaves out deeper ones, so that many limits are one series; here
// key2 has them all.
func appendStatKeys(key1, key2 []byte, entries []bucket.Entry) (_, _ []byte) {
	key1 = appendStatWord(key1, &entries[0])
	for i := range entries[1:] {
		if i > 0 {
			key2 = append(key2, '.')
		}
		key2 = appendStatWord(key2, &entries[1+i])
	}
	return key1, key2
}

func appendStatWord(dst []byte, e *bucket.Entry) []byte {
	dst = appendStatName(dst, e.Key)
	switch e.Value {
	case "":
		return dst
	case tally.RestOfValues:
		return append(dst, "|other"...) // no other word has a bar
	}
	dst = append(dst, '_')
	return appendStatName(dst, e.Value)
}

// appendStatName appends a text as envoyproxy/ratelimit writes it in names of statistics,
// which have no colons and bars, and where dots stand between words. Only the dots of
// IPv4 addresses are spelt differently there.
func appendStatName(dst []byte, text string) []byte {
	begin := len(dst)
	dst = append(dst, text...)
	name := dst[begin:]
	underscore(name, ':')
	underscore(name, '|')
	if strings.Count(text, ".") < 3 {
		return dst
	}
	for len(name) > 0 {
		rest := bytes.TrimLeftFunc(name, inAddress)
		if run := name[:len(name)-len(rest)]; isIPv4(run) {
			underscore(run, '.')
		}
		at := bytes.IndexFunc(rest, inAddress)
		if at < 0 {
			break
		}
		name = rest[at:]
	}
	return dst
}

// underscore writes underscores in place of a character.
func underscore(text []byte, char byte) {
	for {
		at := bytes.IndexByte(text, char)
		if at < 0 {
			return
		}
		text[at] = '_'
		text = text[at+1:]
	}
}

func inAddress(r rune) bool { return r == '.' || '0' <= r && r <= '9' }

// isIPv4 reports whether a text of digits and dots looks like an address.
func isIPv4(text []byte) bool {
	numbers := 0
	for n := range bytes.SplitSeq(text, []byte(".")) {
		if len(n) == 0 || len(n) > 3 {
			return false
		}
		numbers++
	}
	return numbers == 4
}
