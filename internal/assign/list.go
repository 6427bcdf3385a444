package assign

import (
	"encoding/base64"
	"errors"
	"iter"
	"maps"
	"slices"
	"strings"
)

// Query chooses assignments.
type Query struct {
	// Domain may be empty: all domains.
	Domain string
	// Prefix begins the entries as Print has them.
	Prefix string
	// Plan, if it is not empty, is the plan that is assigned.
	Plan string
	// Blocked leaves out what does not block.
	Blocked bool
	// Now leaves out what has ended by then, in microseconds since the Unix epoch;
	// 0 leaves out nothing.
	Now int64
	// Most is how many at most; it is positive.
	Most int
	// After is the token of the page before, or empty.
	After string
}

// ErrPageToken says that the token of a query is none of a page before.
var ErrPageToken = errors.New("page_token: found what is none; allowed: next_page_token of the page before, or empty")

// maxScanned bounds the assignments that are looked at for one page, some 20 ms.
const maxScanned = 50_000

// List returns a page of assignments, sorted by domain and then by their printed
// entries, and the token of the next page, empty on the last. A page costs what is
// read for it, not what the table holds: a tree keeps the order. Where few of many are
// chosen, a page may have fewer than it may have, even none, though it is not the
// last. The lock is held for some hundreds at a time, so what changes meanwhile is
// there or not.
func (t *Table) List(q Query) (page []*Assignment, next string, _ error) {
	next, err := t.Each(q, func(a *Assignment) bool {
		page = append(page, a)
		return true
	})
	return page, next, err
}

// Each is List for a page that is not kept: it calls take with each assignment. The page
// ends before the first that take reports not to have taken.
func (t *Table) Each(q Query, take func(*Assignment) bool) (next string, _ error) {
	domain, name, err := decodeToken(q.After)
	if err != nil {
		return "", err
	}
	if len(q.Prefix) > maxName {
		return "", nil // of no subject
	}
	var last *record
	scanned, taken := 0, 0
	for r := range t.from(q, domain, name) {
		if scanned == maxScanned {
			return encodeToken(last), nil
		}
		scanned++
		if q.Plan != "" && (r.Plan() != q.Plan || !r.givesPlan(q.Now)) || q.Blocked && !r.blocks(q.Now) || q.Now != 0 && r.isOver(q.Now) {
			last = r
			continue
		}
		if taken == q.Most || !take(r.assignment()) {
			if last == nil {
				return q.After, nil
			}
			return encodeToken(last), nil
		}
		taken++
		last = r
	}
	return "", nil
}

// All returns all assignments, in the order of List. What changes meanwhile is there
// or not.
func (t *Table) All() iter.Seq[*Assignment] {
	return func(yield func(*Assignment) bool) {
		for r := range t.from(Query{}, "", "") {
			if !yield(r.assignment()) {
				return
			}
		}
	}
}

// Ended returns the assignments that have ended by now, in microseconds since the Unix
// epoch, as All does. It makes no garbage of the others, which may be many.
func (t *Table) Ended(now int64) iter.Seq[*Assignment] {
	return func(yield func(*Assignment) bool) {
		for r := range t.from(Query{}, "", "") {
			if r.isOver(now) && !yield(r.assignment()) {
				return
			}
		}
	}
}

// from returns the records of a query's domain and prefix, in order, after those of
// a domain and name.
func (t *Table) from(q Query, domain, name string) iter.Seq[*record] {
	domains := []string{q.Domain}
	if q.Domain == "" {
		domains = slices.Sorted(maps.Keys(*t.domains.Load()))
	}
	return func(yield func(*record) bool) {
		for _, d := range domains {
			if d < domain {
				continue
			}
			// No name is the prefix with no entries, and all that begin with it are
			// behind that.
			after := pivot(d, q.Prefix+"\x00")
			if d == domain && name != "" {
				if p := pivot(d, name); before(after, p) {
					after = p
				}
			}
			for r := range t.chunks(after) {
				if r.domain.domain != d || !strings.HasPrefix(printedOf(r.name()), q.Prefix) {
					break
				}
				if !yield(r) {
					return
				}
			}
		}
	}
}

// pivot is a record to compare with.
func pivot(domain, name string) *record {
	return &record{domain: &DomainTable{domain: domain}, text: string([]byte{byte(len(name) >> 8), byte(len(name))}) + name}
}

// chunks returns the records after one, in order. It holds the lock while it gathers
// some hundreds.
func (t *Table) chunks(after *record) iter.Seq[*record] {
	const most = 256
	return func(yield func(*record) bool) {
		for {
			chunk := t.chunk(after, most)
			for _, r := range chunk {
				if !yield(r) {
					return
				}
			}
			if len(chunk) < most {
				return
			}
			after = chunk[most-1]
		}
	}
}

// chunk returns the first records after one.
func (t *Table) chunk(after *record, most int) []*record {
	chunk := make([]*record, 0, most)
	t.mu.RLock()
	defer t.mu.RUnlock()
	t.ordered.AscendGreaterOrEqual(after, func(r *record) bool {
		if before(after, r) {
			chunk = append(chunk, r)
		}
		return len(chunk) < most
	})
	return chunk
}

// A token is the domain and the name of the last assignment of a page.

func encodeToken(r *record) string {
	return base64.RawURLEncoding.EncodeToString([]byte(r.domain.domain + "\x00" + r.name()))
}

func decodeToken(token string) (domain, name string, _ error) {
	if token == "" {
		return "", "", nil
	}
	text, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil {
		return "", "", ErrPageToken
	}
	// Both may have any characters, so it is read from its end, as names are.
	size := nameSize(text)
	at := len(text) - size - 1
	if size == 0 || at < 0 || text[at] != 0 {
		return "", "", ErrPageToken
	}
	return string(text[:at]), string(text[at+1:]), nil
}
