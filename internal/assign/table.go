package assign

import (
	"encoding/binary"
	"hash/maphash"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"unique"

	"github.com/google/btree"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// Found is what is assigned to a descriptor.
type Found struct {
	// Blocked belongs to the descriptor's shortest beginning that is blocked, or is nil.
	Blocked *Held
	// Own belongs to exactly the entries, or is nil. A part of it other than the block is
	// in force at the time Now, in microseconds since the Unix epoch; perhaps not all
	// are.
	Own *Held
	Now int64
	// Plan belongs to the longest beginning with a plan in force, including the entries
	// themselves, or is nil.
	Plan *Held
}

// Table holds assignments in memory, at most 190 bytes each for subjects of usual length
// whose parts end together, and 70 more with numbers for one limit. Its methods may be
// called concurrently.
type Table struct {
	// domains are those with assignments. The map never changes: a new domain makes a new
	// map.
	domains atomic.Pointer[map[string]*DomainTable]

	// generation counts changes.
	generation atomic.Uint64

	// mu guards the fields below, and is held by whoever changes a domain.
	mu sync.RWMutex
	// ordered has all assignments in the order of Each.
	ordered *btree.BTreeG[*record]
	name    []byte // for the name of a subject, or the text of a record
	puts    int    // calls of Put

	filling atomic.Pointer[func()]
}

// fillingEvery is how many calls of Put are many.
const fillingEvery = 1000

// OnFilling registers f to be called whenever many assignments were put into the table.
func (t *Table) OnFilling(f func()) { t.filling.Store(&f) }

// treeDegree is the degree of the tree of all assignments. Wide nodes cost few bytes per
// assignment.
const treeDegree = 64

// NewTable returns an empty table.
func NewTable() *Table {
	t := &Table{ordered: btree.NewG(treeDegree, before)}
	t.domains.Store(&map[string]*DomainTable{})
	return t
}

// Domain returns the assignments of a domain, or nil if it has none. It is cheap:
// most domains have none.
func (t *Table) Domain(name string) *DomainTable { return (*t.domains.Load())[name] }

// record is an assignment as the table holds it. It never changes.
type record struct {
	Held
	domain *DomainTable
	// text is the length of the subject's name in two bytes, that name (see appendName),
	// and the ETag.
	text string
	made unique.Handle[made]
	at   int64
}

// made is who made an assignment, and why.
type made struct{ by, reason string }

// lengthOfName returns the length in bytes of the name in a record's text.
func lengthOfName(text string) int { return int(text[0])<<8 | int(text[1]) }

// appendText appends the text of a record.
func appendText(dst []byte, entries []bucket.Entry, etag string) []byte {
	start := len(dst)
	dst = appendName(append(dst, 0, 0), entries)
	binary.BigEndian.PutUint16(dst[start:], uint16(len(dst)-start-2))
	return append(dst, etag...)
}

func (r *record) name() string { return r.text[2 : 2+lengthOfName(r.text)] }
func (r *record) etag() string { return r.text[2+lengthOfName(r.text):] }

// assignment returns what r says. It shares r's strings.
func (r *record) assignment() *Assignment {
	terms, made := r.terms(), r.made.Value()
	return &Assignment{
		Subject: Subject{Domain: r.domain.domain, Entries: entriesOf(r.name())},
		Terms:   terms,
		Ends:    r.endsOf(terms),
		Reason:  made.reason,
		By:      made.by,
		At:      r.at,
		ETag:    r.etag(),
	}
}

// shards is the number of maps over which the assignments of a domain are spread, so that
// readers seldom meet the writer.
const shards = 16

// DomainTable has the assignments of one domain.
type DomainTable struct {
	domain string
	seed   maphash.Seed
	// sizes has a bit for each number of entries: in the lower half for assignments that
	// also concern longer descriptors, in the upper half for all. So few beginnings of a
	// descriptor are looked up.
	sizes atomic.Uint32
	// count is the number of assignments; counts are those behind the bits of sizes. The
	// table's lock guards them.
	count  int
	counts [2 * MaxEntries]uint32
	shards [shards]shard
}

// shard has some of a domain's assignments, by name.
type shard struct {
	mu      sync.RWMutex
	records map[string]*record
	_       [32]byte // so that two locks do not share a cache line
}

// Find returns what is assigned to a descriptor with these entries and has not ended. now
// is called only if something found has an end. It does one lookup for each number of
// entries for which the domain has assignments.
func (d *DomainTable) Find(entries []bucket.Entry, now func() int64) Found {
	var f Found
	n := len(entries)
	sizes := d.sizes.Load()
	wanted := sizes & (1<<min(n, MaxEntries) - 1)
	if 0 < n && n <= MaxEntries {
		wanted |= sizes >> MaxEntries & (1 << (n - 1))
	}
	var room [256]byte
	var ends [MaxEntries]entryEnds
	text := room[:0]
	moment := int64(-1)
	for i := 0; wanted>>i != 0; i++ {
		text, ends[i] = appendEntry(text, entries[i], i)
		if len(text) > maxName {
			break
		}
		if wanted>>i&1 == 0 {
			continue
		}
		length := len(text)
		text = appendEnds(text, ends[:i+1])
		r := d.record(text)
		text = text[:length]
		if r == nil {
			continue
		}
		if moment < 0 && r.mayEnd() {
			moment = now()
		}
		if f.Blocked == nil && r.blocks(moment) {
			f.Blocked = &r.Held
		}
		if r.givesPlan(moment) {
			f.Plan = &r.Held
		}
		if i == n-1 && r.live(moment) {
			f.Own, f.Now = &r.Held, moment
		}
	}
	return f
}

func (d *DomainTable) record(name []byte) *record {
	s := &d.shards[maphash.Bytes(d.seed, name)%shards]
	s.mu.RLock()
	r := s.records[string(name)]
	s.mu.RUnlock()
	return r
}

// put adds a record, or removes the one with a name if r is nil, and returns the previous
// one.
func (d *DomainTable) put(name string, r *record) *record {
	s := &d.shards[maphash.String(d.seed, name)%shards]
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.records[name]
	switch {
	case r == nil:
		delete(s.records, name)
	case s.records == nil:
		s.records = map[string]*record{name: r}
	default:
		s.records[name] = r
	}
	return old
}

// tally counts a record by the number of its entries; by is 1 or -1.
func (d *DomainTable) tally(r *record, by int) {
	name := r.name()
	size := int(name[len(name)-1])
	all, reaching := MaxEntries+size-1, size-1
	d.count += by
	d.counts[all] += uint32(by)
	if said := r.said.Value(); said.blocked || said.plan != "" {
		d.counts[reaching] += uint32(by)
	}
	sizes := uint32(0)
	for i, n := range d.counts {
		if n > 0 {
			sizes |= 1 << i
		}
	}
	d.sizes.Store(sizes)
}

// Put adds a valid assignment (see Check), or replaces that of its subject.
func (t *Table) Put(a *Assignment) {
	if f := t.filling.Load(); t.put(a)%fillingEvery == 0 && f != nil {
		(*f)()
	}
}

// put returns the number of calls so far.
func (t *Table) put(a *Assignment) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.puts++
	defer t.generation.Add(1)
	d := t.Domain(a.Domain)
	if d == nil {
		d = &DomainTable{domain: strings.Clone(a.Domain), seed: maphash.MakeSeed()}
		t.changeDomains(func(domains map[string]*DomainTable) { domains[d.domain] = d })
	}
	t.name = appendText(t.name[:0], a.Entries, a.ETag)
	r := &record{
		Held:   Hold(a),
		domain: d,
		text:   string(t.name),
		made:   unique.Make(made{by: a.By, reason: a.Reason}),
		at:     a.At,
	}
	old := d.put(r.name(), r)
	t.ordered.ReplaceOrInsert(r)
	d.tally(r, 1)
	if old != nil {
		d.tally(old, -1)
	}
	return t.puts
}

// Delete removes the assignment of a subject if its ETag is etag, or if etag is empty. It
// reports whether there was one to remove.
func (t *Table) Delete(s Subject, etag string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	defer t.generation.Add(1)
	d := t.Domain(s.Domain)
	if d == nil {
		return false
	}
	t.name = appendName(t.name[:0], s.Entries)
	r := d.record(t.name)
	if r == nil || etag != "" && r.etag() != etag {
		return false
	}
	d.put(r.name(), nil)
	t.ordered.Delete(r)
	d.tally(r, -1)
	if d.count == 0 {
		t.changeDomains(func(domains map[string]*DomainTable) { delete(domains, s.Domain) })
	}
	return true
}

// Generation changes after each change of what Find returns. A reader that saw the same
// value before and after has read nothing that was changed in between.
func (t *Table) Generation() uint64 { return t.generation.Load() }

// changeDomains replaces the domains by a changed copy.
func (t *Table) changeDomains(change func(map[string]*DomainTable)) {
	domains := maps.Clone(*t.domains.Load())
	change(domains)
	t.domains.Store(&domains)
}

// Get returns the assignment of a subject, or nil. It may have ended: see
// Assignment.Ended.
func (t *Table) Get(s Subject) *Assignment {
	d := t.Domain(s.Domain)
	if d == nil {
		return nil
	}
	r := d.record(appendName(nil, s.Entries))
	if r == nil {
		return nil
	}
	return r.assignment()
}

// Len returns the number of assignments, including those that have ended but were not
// removed yet.
func (t *Table) Len() int {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.ordered.Len()
}

// Count is Len for one domain.
func (t *Table) Count(domain string) int {
	d := t.Domain(domain)
	if d == nil {
		return 0
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	return d.count
}
