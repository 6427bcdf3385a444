package rules

import (
	"strings"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/rules/tally"
)

// Count counts the result of a descriptor that matched the rule, and returns the counts
// it was added to. The descriptor has these entries, at least one.
func (r *Rule) Count(result tally.Result, entries []bucket.Entry) *tally.Counts {
	c := r.countsOf(entries)
	c.Add(result)
	return c
}

// countsOf returns the counts of a descriptor with these entries.
func (r *Rule) countsOf(entries []bucket.Entry) *tally.Counts {
	switch {
	case r.DetailedMetric:
		var room [tally.MaxValueBytes]byte
		return r.Counts.Value(appendEntries(room[:0], entries))
	case len(r.CountedEntries) > 1:
		var room [tally.MaxValueBytes]byte
		var counted [8]bucket.Entry
		return r.Counts.Value(appendEntries(room[:0], r.appendCounted(counted[:0], entries)))
	case len(r.CountedEntries) == 1 && entries[r.CountedEntries[0]].Value != "":
		var room [tally.MaxValueBytes]byte
		value := entries[r.CountedEntries[0]].Value
		return r.Counts.Value(append(room[:0], value[:min(len(value), tally.MaxValueBytes+1)]...))
	default:
		return &r.Counts.Counts
	}
}

// appendCounted appends those of the entries by whose values the rule counts.
func (r *Rule) appendCounted(dst, entries []bucket.Entry) []bucket.Entry {
	for _, i := range r.CountedEntries {
		dst = append(dst, entries[i])
	}
	return dst
}

// appendEntries appends "key=value/key=value". It stops soon after the length of the
// longest value that is counted individually.
func appendEntries(dst []byte, entries []bucket.Entry) []byte {
	for i := range entries {
		if i > 0 {
			dst = append(dst, '/')
		}
		for _, part := range [...]string{entries[i].Key, "=", entries[i].Value} {
			dst = append(dst, part[:min(len(part), tally.MaxValueBytes+1)]...)
		}
		if len(dst) > tally.MaxValueBytes {
			break
		}
	}
	return dst
}

// AppendEntriesOf appends to dst the entries of the descriptors that are counted under a
// value of the rule's Counts: the entries of the file, with the individually counted
// values, or RestOfValues, filled in.
func (r *Rule) AppendEntriesOf(dst []bucket.Entry, value string) []bucket.Entry {
	begin := len(dst)
	dst = r.AppendEntries(dst)
	entries := dst[begin:]
	counted := entries
	if !r.DetailedMetric {
		counted = r.appendCounted(nil, entries)
	}
	switch {
	case len(counted) == 0: // a reload ended the counts by value
		entries[len(entries)-1].Value = value
		return dst
	case value == tally.RestOfValues:
		for i := range counted {
			counted[i].Value = value
		}
	case (r.DetailedMetric || len(counted) > 1) && isOfEntry(value, counted[0].Key):
		splitEntries(counted, value)
	default: // also what was counted before a reload added entries
		counted[len(counted)-1].Value = value
	}
	if !r.DetailedMetric {
		for i, at := range r.CountedEntries {
			entries[at] = counted[i]
		}
	}
	return dst
}

// splitEntries is the reverse of appendEntries: it fills the values into entries whose
// keys are known. What can be read in two ways was counted as one.
func splitEntries(entries []bucket.Entry, text string) {
	for i := range entries {
		text = strings.TrimPrefix(strings.TrimPrefix(text, entries[i].Key), "=")
		value, rest := text, ""
		if i+1 < len(entries) {
			if at := indexOfEntry(text, entries[i+1].Key); at >= 0 {
				value, rest = text[:at], text[at+1:]
			}
		}
		entries[i].Value, text = value, rest
	}
}

// indexOfEntry returns the index of "/key=" in a text, or -1.
func indexOfEntry(text, key string) int {
	for at := 0; ; at++ {
		next := strings.IndexByte(text[at:], '/')
		if next < 0 {
			return -1
		}
		at += next
		if isOfEntry(text[at+1:], key) {
			return at
		}
	}
}

// isOfEntry reports whether a text begins with "key=".
func isOfEntry(text, key string) bool {
	rest, ok := strings.CutPrefix(text, key)
	return ok && strings.HasPrefix(rest, "=")
}
