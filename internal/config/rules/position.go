package rules

import (
	"slices"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
)

// position is where a descriptor is in the limits.
type position struct {
	// up is that of the descriptor above, nil at the root of a domain.
	up *position
	// entry is as in the file: the value may be a pattern, the CIDRText of prefixes, or
	// empty for a bare key.
	entry bucket.Entry
	// line is where it begins or, if a program made the list, the index of the item, from
	// 0.
	line int32
	// file, for an outermost descriptor, is 0 if it is in the first file of its domain,
	// else a number from 1 on in Domain.files.
	file int32
	// networks is nil unless the descriptor matches addresses, or counts networks.
	networks *Networks
	// SharesValues means that all values of the entry, which is a pattern, share the
	// counters of the limits here and below.
	SharesValues bool
	// CountsValues asks for counts by the values of the entry, for the rules here and
	// below.
	CountsValues bool
}

// appendEntries appends the entries that lead to the descriptor.
func (p *position) appendEntries(dst []bucket.Entry) []bucket.Entry {
	begin := len(dst)
	for ; p != nil && p.up != nil; p = p.up {
		dst = append(dst, p.entry)
	}
	slices.Reverse(dst[begin:])
	return dst
}

// findFlags sets what the rule has from the descriptors that lead to it.
func (r *Rule) findFlags() {
	levels := 0
	for p := r.position; p.up != nil; p = p.up {
		levels++
	}
	r.Shared, r.CountedEntries = nil, nil
	at := levels
	for p := r.position; p.up != nil; p = p.up {
		at--
		if p.SharesValues {
			if r.Shared == nil {
				r.Shared = make([]string, levels)
			}
			r.Shared[at] = p.entry.Value
		}
		if p.CountsValues {
			r.CountedEntries = append(r.CountedEntries, at)
		}
	}
	slices.Reverse(r.CountedEntries)
}

// PathText formats entries as Rule.Path does.
func PathText(entries []bucket.Entry) string { return string(appendPathText(nil, entries)) }

// appendPathText appends it to dst.
func appendPathText(dst []byte, entries []bucket.Entry) []byte {
	for i := range entries {
		if i > 0 {
			dst = append(dst, " / "...)
		}
		dst = append(dst, yamlfile.Printable(entries[i].Key)...)
		if entries[i].Value != "" {
			dst = append(dst, '=')
			dst = append(dst, yamlfile.Printable(entries[i].Value)...)
		}
	}
	return dst
}
