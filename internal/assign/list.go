package assign

import (
	"encoding/base64"
	"errors"
	"iter"
	"strings"
)

// Query selects assignments.
type Query struct {
	// Domain may be empty: all domains.
	Domain string
	// Prefix is the beginning of the entries as formatted by Print.
	Prefix string
	// Plan, if not empty, is the plan in force.
	Plan string
	// Blocked leaves out what does not block.
	Blocked bool
	// Now is when that is, in microseconds since the Unix epoch. What has ended by then
	// is left out; 0 leaves out nothing.
	Now int64
	// Max is the maximum number; it is positive.
	Max int
	// After is the token of the previous page, or empty.
	After string
}

// selects reports whether a query selects a record.
func (q *Query) selects(r *record) bool {
	return strings.HasPrefix(printed(r.name()), q.Prefix) && (q.Plan == "" || r.Plan(q.Now) == q.Plan) &&
		(!q.Blocked || r.blocks(q.Now)) && (q.Now == 0 || !r.isOver(q.Now))
}

// ErrPageToken says that the token of a query is not the token of a page.
var ErrPageToken = errors.New("page_token: found no token of a page; allowed: next_page_token of the page before, or empty")

// maxScanned bounds the assignments read for one page, some 20 ms.
const maxScanned = 50_000

// Each calls take with each assignment of a page, sorted by domain and then by their
// printed entries, and returns the token of the next page, empty on the last. The page
// ends before the first assignment for which take returns false. The cost depends on what
// is read, not on the size of the table. If few of many are selected, a page may have
// fewer than allowed, even none, without being the last.
func (t *Table) Each(q Query, take func(*Assignment) bool) (next string, _ error) {
	after := pivot(q.Domain, q.Prefix+"\x00") // no entries, and all that begin with the prefix are behind that
	if q.After != "" {
		last, err := decodeToken(q.After)
		if err != nil {
			return "", err
		}
		if before(after, last) {
			after = last
		}
	}
	last := after
	scanned, taken := 0, 0
	for r := range t.after(after) {
		if q.Domain != "" && (r.domain.domain != q.Domain || !strings.HasPrefix(printed(r.name()), q.Prefix)) {
			break
		}
		isSelected := q.selects(r)
		if scanned == maxScanned || isSelected && (taken == q.Max || !take(r.assignment())) {
			if last == after {
				return q.After, nil
			}
			return encodeToken(last), nil
		}
		if scanned++; isSelected {
			taken++
		}
		last = r
	}
	return "", nil
}

// All returns all assignments, in the order of Each, without changes that are made
// meanwhile.
func (t *Table) All() iter.Seq[*Assignment] { return t.where(func(*record) bool { return true }) }

// Ended returns the assignments of which nothing is left at a time, in microseconds since
// the Unix epoch, as All does. It makes no garbage of the others, which may be many.
func (t *Table) Ended(now int64) iter.Seq[*Assignment] {
	return t.where(func(r *record) bool { return r.isOver(now) })
}

func (t *Table) where(isWanted func(*record) bool) iter.Seq[*Assignment] {
	return func(yield func(*Assignment) bool) {
		for r := range t.after(pivot("", "\x00")) {
			if isWanted(r) && !yield(r.assignment()) {
				return
			}
		}
	}
}

// after returns the records after one, in order, as they are now.
func (t *Table) after(first *record) iter.Seq[*record] {
	t.mu.Lock()
	now := t.ordered.Clone()
	t.mu.Unlock()
	return func(yield func(*record) bool) {
		now.AscendGreaterOrEqual(first, func(r *record) bool { return !before(first, r) || yield(r) })
	}
}

// pivot returns a record to compare with.
func pivot(domain, name string) *record {
	return &record{domain: &DomainTable{domain: domain}, text: mark + name}
}

// before is the order of Each.
func before(a, b *record) bool {
	if a.domain != b.domain {
		if c := strings.Compare(a.domain.domain, b.domain.domain); c != 0 {
			return c < 0
		}
	}
	return compareNames(a.name(), b.name()) < 0
}

// A token is the domain, a mark and the name of the last assignment of a page.

func encodeToken(r *record) string {
	return base64.RawURLEncoding.EncodeToString([]byte(r.domain.domain + mark + r.name()))
}

func decodeToken(token string) (*record, error) {
	text, err := base64.RawURLEncoding.DecodeString(token)
	domain, name, _ := strings.Cut(string(text), mark)
	if err != nil || name == "" {
		return nil, ErrPageToken
	}
	return pivot(domain, name), nil
}
