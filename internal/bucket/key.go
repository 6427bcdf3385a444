package bucket

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// MaxKey is the length in bytes of the longest key.
const MaxKey = 200

// Entry is one (key, value) pair of a descriptor, as a caller sent it.
type Entry struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// AppendSubject appends the text that names a descriptor of a domain:
//
//	domain|key=value|key=value
//
// The parts are escaped, so that no two subjects share a text and none holds
// a brace, a '#' or a control character.
func AppendSubject(dst []byte, domain string, entries []Entry) []byte {
	dst = appendEscaped(dst, domain)
	for _, e := range entries {
		dst = append(dst, '|')
		dst = appendEscaped(dst, e.Key)
		dst = append(dst, '=')
		dst = appendEscaped(dst, e.Value)
	}
	return dst
}

// AppendSharedSubject is like AppendSubject for descriptors that share their limits. shared
// has an item for each entry: a pattern or a network, which stands for all values that match
// it, or "" for the entry's own value. There is "==" before it, which no subject of one
// descriptor has.
func AppendSharedSubject(dst []byte, domain string, entries []Entry, shared []string) []byte {
	dst = appendEscaped(dst, domain)
	for i, e := range entries {
		dst = append(dst, '|')
		dst = appendEscaped(dst, e.Key)
		if shared[i] != "" {
			dst = appendEscaped(append(dst, "=="...), shared[i])
		} else {
			dst = appendEscaped(append(dst, '='), e.Value)
		}
	}
	return dst
}

// AppendKey appends the key of the limit for a subject:
//
//	subject#algorithm:name
//	subject#algorithm:name#milliseconds
//
// The second is the key of a NewPeriodLimit, with its period. New numbers on the
// same limit keep the key, another algorithm does not. The key has at most MaxKey
// bytes: the middle of a longer key is replaced by 128 bits of the SHA-256 of the
// whole, between tildes, which are escaped in all other keys.
func (l *Limit) AppendKey(dst, subject []byte) []byte {
	start := len(dst)
	dst = append(append(dst, subject...), l.suffix...)
	key := dst[start:]
	if len(key) <= MaxKey {
		return dst
	}
	const (
		sum  = 2 * 16
		head = (MaxKey - sum - 2) / 2
		tail = MaxKey - sum - 2 - head
	)
	digest := sha256.Sum256(key)
	copy(key[MaxKey-tail:], key[len(key)-tail:])
	key[head], key[head+1+sum] = '~', '~'
	hex.Encode(key[head+1:], digest[:sum/2])
	return dst[:start+MaxKey]
}

const upperHex = "0123456789ABCDEF"

// isEscaped marks the bytes that mean something in a key, and those that a terminal would
// not show.
var isEscaped = func() (is [256]bool) {
	for c := range is {
		is[c] = c < ' ' || c == 0x7f || strings.IndexByte("%{}|=#~", byte(c)) >= 0
	}
	return is
}()

// appendEscaped appends s with these bytes as %XX.
func appendEscaped(dst []byte, s string) []byte {
	start := 0
	for i := 0; i < len(s); i++ {
		if c := s[i]; isEscaped[c] {
			dst = append(append(dst, s[start:i]...), '%', upperHex[c>>4], upperHex[c&15])
			start = i + 1
		}
	}
	return append(dst, s[start:]...)
}
