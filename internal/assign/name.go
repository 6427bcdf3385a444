package assign

import (
	"encoding/binary"
	"strings"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// A subject's name is unique in its domain, and defines its sort order. It is the entries
// as people read them, then where each key and value ends in that, then the number of
// entries:
//
//	tenant=acme / region=eu, ends, number
//
// It is read from the end. Two subjects whose entries print alike, since a value contains
// " / " or "=", have different ends.

const (
	between = " / "
	// sizeOfEnds is how many bytes the ends of one entry take in a name.
	sizeOfEnds = 4
	// maxName bounds the printed entries of a valid subject.
	maxName = MaxSubject + MaxEntries*(len(between)+1)
)

// entryEnds is where a key and a value end in the printed entries.
type entryEnds struct{ key, value uint16 }

// appendEntry appends the i-th entry as printed. Beyond maxName bytes the ends mean
// nothing.
func appendEntry(text []byte, e bucket.Entry, i int) ([]byte, entryEnds) {
	if i > 0 {
		text = append(text, between...)
	}
	text = append(text, e.Key...)
	key := len(text)
	text = append(text, '=')
	text = append(text, e.Value...)
	return text, entryEnds{key: uint16(key), value: uint16(len(text))}
}

// appendEnds completes a name.
func appendEnds(text []byte, ends []entryEnds) []byte {
	for _, e := range ends {
		text = binary.BigEndian.AppendUint16(text, e.key)
		text = binary.BigEndian.AppendUint16(text, e.value)
	}
	return append(text, byte(len(ends)))
}

// appendName appends the name of a subject with these entries. Entries that no valid
// subject has may have the same name as others.
func appendName(dst []byte, entries []bucket.Entry) []byte {
	start := len(dst)
	var ends []entryEnds
	for i, e := range entries {
		var end entryEnds
		text := dst[start:]
		text, end = appendEntry(text, e, i)
		dst = append(dst[:start], text...)
		ends = append(ends, end)
	}
	return appendEnds(dst, ends)
}

// printedOf returns the entries of a name as people read them.
func printedOf(name string) string {
	n := int(name[len(name)-1])
	return name[:len(name)-1-n*sizeOfEnds]
}

// nameSize returns the length in bytes of the valid subject's name that a text ends with,
// or 0 if there is none.
func nameSize(text []byte) int {
	if len(text) < sizeOfEnds+1 {
		return 0
	}
	n := int(text[len(text)-1])
	printed := int(binary.BigEndian.Uint16(text[len(text)-3:]))
	if n == 0 || n > MaxEntries || printed > maxName {
		return 0
	}
	return printed + n*sizeOfEnds + 1
}

// entriesOf returns the entries of a name, which share its bytes.
func entriesOf(name string) []bucket.Entry {
	text := printedOf(name)
	ends := name[len(text) : len(name)-1]
	entries := make([]bucket.Entry, 0, len(ends)/sizeOfEnds)
	from := 0
	for ; ends != ""; ends = ends[sizeOfEnds:] {
		key := int(ends[0])<<8 | int(ends[1])
		value := int(ends[2])<<8 | int(ends[3])
		entries = append(entries, bucket.Entry{Key: text[from:key], Value: text[key+1 : value]})
		from = value + len(between)
	}
	return entries
}

// Print returns entries as people read them: "tenant=acme / region=eu".
func Print(entries []bucket.Entry) string {
	var text []byte
	for i, e := range entries {
		text, _ = appendEntry(text, e, i)
	}
	return string(text)
}

// before is the order of Each: by domain, then by the printed entries.
func before(a, b *record) bool {
	if a.domain != b.domain {
		if c := strings.Compare(a.domain.domain, b.domain.domain); c != 0 {
			return c < 0
		}
	}
	an, bn := a.name(), b.name()
	ap, bp := printedOf(an), printedOf(bn)
	if c := strings.Compare(ap, bp); c != 0 {
		return c < 0
	}
	return an[len(ap):] < bn[len(bp):]
}
