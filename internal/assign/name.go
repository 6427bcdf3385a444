package assign

import (
	"cmp"
	"strings"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// A subject's name is unique in its domain, and defines its sort order. It is the entries
// as people read them, with a mark behind each separator, then the number of entries:
//
//	tenant=*acme / *region=*eu2
//
// No valid subject contains the mark, so none has the name of another. A descriptor that
// contains it has more marks than a subject of as many entries, so it has none's name.
const (
	mark    = "\xff" // in no UTF-8
	equals  = "=" + mark
	between = " / " + mark
	// maxName bounds the entries in the name of a valid subject.
	maxName = MaxSubject + MaxEntries*len(equals+between)
)

// appendEntry appends the next entry to a name that lacks its number of entries.
func appendEntry(name []byte, e bucket.Entry, isFirst bool) []byte {
	if !isFirst {
		name = append(name, between...)
	}
	name = append(name, e.Key...)
	name = append(name, equals...)
	return append(name, e.Value...)
}

// appendName appends the name of a subject with these entries.
func appendName(dst []byte, entries []bucket.Entry) []byte {
	for i, e := range entries {
		dst = appendEntry(dst, e, i == 0)
	}
	return append(dst, byte(len(entries)))
}

// entriesOf returns the entries of a name, which share its bytes.
func entriesOf(name string) []bucket.Entry {
	entries := make([]bucket.Entry, 0, name[len(name)-1])
	for entry := range strings.SplitSeq(name[:len(name)-1], between) {
		key, value, _ := strings.Cut(entry, equals)
		entries = append(entries, bucket.Entry{Key: key, Value: value})
	}
	return entries
}

// printed returns the entries of a name as people read them.
func printed(name string) string { return strings.ReplaceAll(name[:len(name)-1], mark, "") }

// Print returns entries as people read them: "tenant=acme / region=eu".
func Print(entries []bucket.Entry) string { return printed(string(appendName(nil, entries))) }

// compareNames compares names as printed, and those that print alike by their marks.
func compareNames(a, b string) int {
	i, j := 0, 0
	for {
		for i < len(a)-1 && a[i] == mark[0] {
			i++
		}
		for j < len(b)-1 && b[j] == mark[0] {
			j++
		}
		if i == len(a)-1 || j == len(b)-1 {
			return cmp.Or(cmp.Compare(len(a)-i, len(b)-j), strings.Compare(a, b))
		}
		if a[i] != b[j] {
			return cmp.Compare(a[i], b[j])
		}
		i++
		j++
	}
}
