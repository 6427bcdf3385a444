package decide

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/ratelimitd/ratelimitd/internal/assign"
	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/rules/trace"
	"github.com/ratelimitd/ratelimitd/internal/config/rules/words"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
)

const (
	// maxLookups bounds, for one request, the lookups of assignments that its entries
	// would have if they were written differently.
	maxLookups = 400
	// maxNotApplied bounds how many of them are shown for one request, and
	// maxNotAppliedEach for one descriptor.
	maxNotApplied, maxNotAppliedEach = 20, 5
	// maxShuffled is how many entries are looked up in all orders; there are 325.
	maxShuffled = 5
	// maxFirstKeys is how many keys are compared with the first of a descriptor.
	maxFirstKeys = 16
	// maxOtherDomains is the number of domains beyond which no other domain is looked
	// at.
	maxOtherDomains = 32
)

// nearMiss finds assignments that share entries with the descriptors of a request, or
// almost do, but do not apply. A table may have millions, so it looks up common
// mistakes and does not search.
type nearMiss struct {
	table  *assign.Table
	domain string
	now    int64
	// domains are those with assignments.
	domains []string
	// lookups and room are how many lookups and results are left.
	lookups, room int

	entries []bucket.Entry // of the descriptor
	found   []AppliedAssignment
}

// of returns the assignments that almost apply to a descriptor.
func (m *nearMiss) of(entries []bucket.Entry) []AppliedAssignment {
	m.entries, m.found = entries[:min(len(entries), assign.MaxEntries)], nil
	if len(entries) == 0 || len(m.domains) == 0 {
		return nil
	}
	m.shuffled()
	m.otherValues()
	m.otherFirstKeys()
	m.otherDomains()
	m.longer()
	return m.found
}

// isFull reports whether nothing more should be looked up.
func (m *nearMiss) isFull() bool {
	return m.lookups <= 0 || m.room <= 0 || len(m.found) >= maxNotAppliedEach
}

// look adds the assignment of a subject, if there is one in force.
func (m *nearMiss) look(domain string, entries []bucket.Entry, why func() string) {
	if m.isFull() || !m.table.HasSize(domain, len(entries)) {
		return
	}
	s := assign.Subject{Domain: domain, Entries: entries}
	m.lookups--
	if s.Check() == nil {
		m.add(m.table.Get(s), why)
	}
}

func (m *nearMiss) add(a *assign.Assignment, why func() string) {
	if a = a.InForce(m.now); a == nil || m.isFull() {
		return
	}
	m.room--
	m.found = append(m.found, AppliedAssignment{a, why()})
}

// shuffled finds assignments of some of the entries that are not their beginning.
func (m *nearMiss) shuffled() {
	n := min(len(m.entries), maxShuffled)
	chosen := make([]bucket.Entry, 0, n)
	places := make([]int, 0, n)
	var choose func(size int)
	choose = func(size int) {
		if len(chosen) == size {
			isBeginning := true
			for i, place := range places {
				isBeginning = isBeginning && i == place
			}
			if !isBeginning {
				m.look(m.domain, slices.Clone(chosen), func() string { return whyShuffled(places) })
			}
			return
		}
		for i := range n {
			if m.isFull() {
				return
			}
			if slices.Contains(places, i) {
				continue
			}
			chosen, places = append(chosen, m.entries[i]), append(places, i)
			choose(size)
			chosen, places = chosen[:len(chosen)-1], places[:len(places)-1]
		}
	}
	for size := 1; size <= n; size++ {
		if m.table.HasSize(m.domain, size) {
			choose(size)
		}
	}
}

// whyShuffled says why entries at these places of a descriptor do not begin it.
func whyShuffled(places []int) string {
	if slices.Max(places) < len(places) {
		return "nothing here: its entries stand in another order"
	}
	return "nothing here: its entries are in the descriptor, but do not begin it"
}

// otherValues finds assignments of a beginning with a value that people confuse with
// its own.
func (m *nearMiss) otherValues() {
	for size := 1; size <= len(m.entries); size++ {
		if !m.table.HasSize(m.domain, size) {
			continue
		}
		for i := range size {
			e := m.entries[i]
			for _, value := range lookAlikes(e.Value) {
				other := slices.Clone(m.entries[:size])
				other[i].Value = value
				m.look(m.domain, other, func() string {
					return fmt.Sprintf("nothing here: its value %s of %s differs %s from %s",
						yamlfile.Quote(value), yamlfile.Printable(e.Key), trace.Almost(e.Value, value), yamlfile.Quote(e.Value))
				})
			}
		}
	}
}

// lookAlikes returns other spellings of a value that trace.Almost has words for.
func lookAlikes(value string) []string {
	first, size := utf8.DecodeRuneInString(value)
	plain := strings.TrimSpace(value)
	all := []string{
		strings.ToLower(value), strings.ToUpper(value), string(unicode.ToUpper(first)) + strings.ToLower(value[size:]),
		plain, plain + " ", " " + plain, strings.TrimSuffix(value, "/"), value + "/", strings.Trim(value, `"'`), `"` + value + `"`,
	}
	var others []string
	for _, other := range all {
		if !slices.Contains(others, other) && trace.Almost(value, other) != "" {
			others = append(others, other)
		}
	}
	return others
}

// otherFirstKeys finds assignments of a beginning with a first key that is almost its own.
func (m *nearMiss) otherFirstKeys() {
	if m.isFull() {
		return
	}
	own := m.entries[0].Key
	for _, key := range m.table.FirstKeys(m.domain, maxFirstKeys) {
		how := trace.Almost(own, key)
		if how == "" {
			continue
		}
		for size := 1; size <= len(m.entries); size++ {
			other := slices.Clone(m.entries[:size])
			other[0].Key = key
			m.look(m.domain, other, func() string {
				return fmt.Sprintf("nothing here: its key %s differs %s from %s", yamlfile.Printable(key), how, yamlfile.Printable(own))
			})
		}
	}
}

// otherDomains finds assignments of a beginning in other domains.
func (m *nearMiss) otherDomains() {
	if len(m.domains) > maxOtherDomains {
		return
	}
	for _, name := range m.domains {
		for size := 1; name != m.domain && size <= len(m.entries); size++ {
			m.look(name, m.entries[:size], func() string {
				return fmt.Sprintf("nothing here: it is of the domain %s", yamlfile.Printable(name))
			})
		}
	}
}

// longer finds assignments whose entries begin with all of the descriptor.
func (m *nearMiss) longer() {
	const few = 2
	if m.isFull() {
		return
	}
	m.lookups--
	for _, a := range m.table.Longer(m.domain, m.entries, few) {
		m.add(a, func() string {
			return fmt.Sprintf("nothing here: it is for descriptors that go on with %s", words.Entries(a.Entries[len(m.entries):]))
		})
	}
}
