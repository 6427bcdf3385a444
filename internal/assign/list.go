package assign

import (
	"encoding/base64"
	"errors"
	"iter"
	"maps"
	"slices"
	"strings"
)

// Query selects assignments.
type Query struct {
	// Domain may be empty: all domains.
	Domain string
	// Prefix is the beginning of the entries as formatted by Print.
	Prefix string
	// Plan, if not empty, is the assigned plan.
	Plan string
	// Blocked leaves out what does not block.
	Blocked bool
	// Now leaves out what has ended by then, in microseconds since the Unix epoch;
	// 0 leaves out nothing.
	Now int64
	// Max is the maximum number; it is positive.
	Max int
	// After is the token of the previous page, or empty.
	After string
}

// ErrPageToken says that the token of a query is not the token of a page.
var ErrPageToken = errors.New("page_token: found what is none; allowed: next_page_token of the page before, or empty")

// maxScanned bounds the assignments looked at for one page, some 20 ms.
const maxScanned = 50_000

// Each calls take with each assignment of a page, sorted by domain and then by their
// printed entries, and returns the token of the next page, empty on the last. The page
// ends before the first assignment for which take returns false. The cost depends on what
// is read, not on the size of the table: a tree keeps the order. If few of many are
// selected, a page may have fewer than allowed, even none, without being the last. The
// lock is held for some hundreds at a time, so concurrent changes may or may not be
// included.
func (t *Table) Each(q Query, take func(*Assignment) bool) (next string, _ error) {
	domain, name, err := decodeToken(q.After)
	if err != nil {
		return "", err
	}
	if len(q.Prefix) > maxName {
		return "", nil // no such subject
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
		if taken == q.Max || !take(r.assignment()) {
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

// All returns all assignments, in the order of Each. Concurrent changes may or may not be
// included.
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

// from returns the records of a query's domain and prefix, in order, after the one with a
// domain and name.
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
			// No name is the prefix with no entries, and all that begin with the prefix
			// come after that.
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

// pivot returns a record to compare with.
func pivot(domain, name string) *record {
	return &record{domain: &DomainTable{domain: domain}, text: string([]byte{byte(len(name) >> 8), byte(len(name))}) + name}
}

// chunks returns the records after one, in order. It holds the lock while it collects
// some hundreds.
func (t *Table) chunks(after *record) iter.Seq[*record] {
	const maxChunk = 256
	return func(yield func(*record) bool) {
		for {
			chunk := t.chunk(after, maxChunk)
			for _, r := range chunk {
				if !yield(r) {
					return
				}
			}
			if len(chunk) < maxChunk {
				return
			}
			after = chunk[maxChunk-1]
		}
	}
}

// chunk returns the first records after one.
func (t *Table) chunk(after *record, maxRecords int) []*record {
	chunk := make([]*record, 0, maxRecords)
	t.mu.RLock()
	defer t.mu.RUnlock()
	t.ordered.AscendGreaterOrEqual(after, func(r *record) bool {
		if before(after, r) {
			chunk = append(chunk, r)
		}
		return len(chunk) < maxRecords
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
	// Both may contain any characters, so it is read from its end, like names.
	size := nameSize(text)
	at := len(text) - size - 1
	if size == 0 || at < 0 || text[at] != 0 {
		return "", "", ErrPageToken
	}
	return string(text[:at]), string(text[at+1:]), nil
}
