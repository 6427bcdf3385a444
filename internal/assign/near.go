package assign

import (
	"maps"
	"slices"
	"strings"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// HasSize reports whether some assignment of a domain has so many entries.
func (t *Table) HasSize(domain string, entries int) bool {
	d := t.Domain(domain)
	return d != nil && 0 < entries && entries <= MaxEntries && d.sizes.Load()>>(MaxEntries+entries-1)&1 != 0
}

// FirstKeys returns, in order, at most the given number of keys with which assignments of
// a domain begin. It looks up each, and skips everything else.
func (t *Table) FirstKeys(domain string, maxKeys int) (keys []string) {
	after := pivot(domain, "\x00")
	for len(keys) < maxKeys {
		found := t.chunk(after, 1)
		if len(found) == 0 || found[0].domain.domain != domain {
			break
		}
		key := entriesOf(found[0].name())[0].Key
		keys = append(keys, key)
		after = pivot(domain, key+"=\xff\x00") // after all values, which are UTF-8
	}
	return keys
}

// Longer returns assignments of a domain whose entries begin with the given ones and
// continue: at most the given number, the first in the order of Each.
func (t *Table) Longer(domain string, entries []bucket.Entry, maxFound int) (found []*Assignment) {
	prefix := Print(entries) + between
	for _, r := range t.chunk(pivot(domain, prefix+"\x00"), maxFound) {
		if r.domain.domain != domain || !strings.HasPrefix(printedOf(r.name()), prefix) {
			break
		}
		a := r.assignment()
		if len(a.Entries) > len(entries) && a.Entries[len(entries)-1] == entries[len(entries)-1] {
			found = append(found, a)
		}
	}
	return found
}

// DomainNames returns the names of the domains with assignments, in order.
func (t *Table) DomainNames() []string { return slices.Sorted(maps.Keys(*t.domains.Load())) }
