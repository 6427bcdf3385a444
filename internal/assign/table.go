package assign

import (
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
	// Own belongs to exactly the entries, or is nil. Some part of it other than the block
	// is in force.
	Own *Held
	// Plan belongs to the longest beginning with a plan in force, including the entries
	// themselves, or is nil.
	Plan *Held
	// Now is the time of all this, in microseconds since the Unix epoch; 0 if nothing
	// found has an end.
	Now int64
}

// Table holds assignments in memory, at most 190 bytes each for subjects of usual length
// without temporary layers, and 70 more with numbers for one limit. Its methods may be
// called concurrently.
type Table struct {
	// domains are those with assignments. The map never changes: a new domain makes a new
	// map.
	domains atomic.Pointer[map[string]*DomainTable]

	// mu guards the fields below, and is held while a domain changes.
	mu sync.RWMutex
	// ordered has all assignments in the order of Each.
	ordered *btree.BTreeG[*record]

	puts    atomic.Uint64 // calls of Put
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
	// text is the ETag, a mark and the subject's name (see appendName).
	text string
	// made and at are of the base.
	made unique.Handle[made]
	at   int64
}

// made is who changed a base last, and why.
type made struct{ by, reason string }

func (r *record) etag() string { return r.text[:strings.Index(r.text, mark)] }
func (r *record) name() string { return r.text[strings.Index(r.text, mark)+len(mark):] }

// assignment returns what r says. It shares r's strings and layers.
func (r *record) assignment() *Assignment {
	made := r.made.Value()
	return &Assignment{
		Subject: Subject{Domain: r.domain.domain, Entries: entriesOf(r.name())},
		Base:    Layer{Terms: r.baseTerms(), Reason: made.reason, By: made.by, At: r.at},
		Layers:  r.layers(),
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

func newDomainTable(domain string) *DomainTable {
	d := &DomainTable{domain: strings.Clone(domain), seed: maphash.MakeSeed()}
	for i := range d.shards {
		d.shards[i].records = make(map[string]*record)
	}
	return d
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
	name := room[:0]
	for i := 0; wanted>>i != 0; i++ {
		name = appendEntry(name, entries[i], i == 0)
		if len(name) > maxName {
			break
		}
		if wanted>>i&1 == 0 {
			continue
		}
		r := d.record(append(name, byte(i+1)))
		if r == nil {
			continue
		}
		if f.Now == 0 && len(r.layers()) > 0 {
			f.Now = now()
		}
		if f.Blocked == nil && r.blocks(f.Now) {
			f.Blocked = &r.Held
		}
		if r.Plan(f.Now) != "" {
			f.Plan = &r.Held
		}
		if i == n-1 && r.gives(f.Now) {
			f.Own = &r.Held
		}
	}
	return f
}

func (d *DomainTable) shard(name []byte) *shard {
	return &d.shards[maphash.Bytes(d.seed, name)%shards]
}

func (d *DomainTable) record(name []byte) *record {
	s := d.shard(name)
	s.mu.RLock()
	r := s.records[string(name)]
	s.mu.RUnlock()
	return r
}

// tally counts a record by the number of its entries; by is 1 or -1.
func (d *DomainTable) tally(r *record, by int) {
	name := r.name()
	size := int(name[len(name)-1])
	all, reaching := MaxEntries+size-1, size-1
	d.count += by
	d.counts[all] += uint32(by)
	if r.reachesLonger() {
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
	if f := t.filling.Load(); t.puts.Add(1)%fillingEvery == 0 && f != nil {
		(*f)()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	d := t.Domain(a.Domain)
	if d == nil {
		d = newDomainTable(a.Domain)
		t.changeDomains(func(domains map[string]*DomainTable) { domains[d.domain] = d })
	}
	r := &record{
		Held:   Hold(a),
		domain: d,
		text:   string(appendName([]byte(a.ETag+mark), a.Entries)),
		made:   unique.Make(made{by: a.Base.By, reason: a.Base.Reason}),
		at:     a.Base.At,
	}
	shard := d.shard([]byte(r.name()))
	shard.mu.Lock()
	old := shard.records[r.name()]
	shard.records[r.name()] = r
	shard.mu.Unlock()
	t.ordered.ReplaceOrInsert(r)
	d.tally(r, 1)
	if old != nil {
		d.tally(old, -1)
	}
}

// Delete removes the assignment of a subject if its ETag is etag, or if etag is empty. It
// reports whether there was one to remove.
func (t *Table) Delete(s Subject, etag string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.record(s)
	if r == nil || etag != "" && r.etag() != etag {
		return false
	}
	shard := r.domain.shard([]byte(r.name()))
	shard.mu.Lock()
	delete(shard.records, r.name())
	shard.mu.Unlock()
	t.ordered.Delete(r)
	r.domain.tally(r, -1)
	if r.domain.count == 0 {
		t.changeDomains(func(domains map[string]*DomainTable) { delete(domains, s.Domain) })
	}
	return true
}

// changeDomains replaces the domains by a changed copy.
func (t *Table) changeDomains(change func(map[string]*DomainTable)) {
	domains := maps.Clone(*t.domains.Load())
	change(domains)
	t.domains.Store(&domains)
}

// record returns the record of a subject, or nil.
func (t *Table) record(s Subject) *record {
	d := t.Domain(s.Domain)
	if d == nil {
		return nil
	}
	return d.record(appendName(nil, s.Entries))
}

// Get returns the assignment of a subject, or nil. It may have ended: see
// Assignment.InForce.
func (t *Table) Get(s Subject) *Assignment {
	r := t.record(s)
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
