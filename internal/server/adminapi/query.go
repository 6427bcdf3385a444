package adminapi

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
	"github.com/ratelimitd/ratelimitd/internal/server/endpoint"
	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

// query reads the parameters of a URL. It keeps the first error.
type query struct {
	values url.Values
	err    error
}

// repeated are the parameters that may come more than once.
var repeated = []string{"entry", "remove", "remove_limit"}

// readQuery reads a query that has no other parameters than these.
func readQuery(r *http.Request, names ...string) *query {
	q := new(query)
	if q.values, q.err = url.ParseQuery(r.URL.RawQuery); q.err != nil {
		q.err = endpoint.Invalid("the query cannot be read: %v", q.err)
		return q
	}
	allowed := yamlfile.Commas(names)
	if len(names) == 0 {
		allowed = "none"
	}
	for name, values := range q.values {
		switch {
		case !slices.Contains(names, name):
			q.err = endpoint.Invalid("the query: found the parameter %.100q%s; allowed: %s", name, nearest(name, names), allowed)
		case len(values) > 1 && !slices.Contains(repeated, name):
			q.err = endpoint.Invalid("%s: found it %d times; allowed: once", name, len(values))
		}
	}
	return q
}

func (q *query) text(name string) string { return q.values.Get(name) }

func (q *query) flag(name string) bool {
	text := q.values.Get(name)
	switch text {
	case "true":
		return true
	case "", "false":
	default:
		q.err = endpoint.Invalid("%s: found %.100q; allowed: true or false", name, text)
	}
	return false
}

// parts are the words for parts of an assignment.
var parts = map[string]adminv1.Part{
	"block": adminv1.Part_PART_BLOCK, "terms": adminv1.Part_PART_TERMS, "plan": adminv1.Part_PART_PLAN,
	"unlimited": adminv1.Part_PART_UNLIMITED, "numbers": adminv1.Part_PART_NUMBERS, "calendar": adminv1.Part_PART_CALENDAR,
	"temporary": adminv1.Part_PART_TEMPORARY,
}

// parts reads each part that a parameter names.
func (q *query) parts(name string) (all []adminv1.Part) {
	for _, text := range q.values[name] {
		all = append(all, meant(q, name, text, parts))
	}
	return all
}

func (q *query) number(name string) uint32 {
	text := q.values.Get(name)
	if text == "" {
		return 0
	}
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		q.err = endpoint.Invalid("%s: found %.100q; allowed: a number", name, text)
	}
	return uint32(n)
}

// entries reads each entry, KEY=VALUE, in order. A key with an = in it cannot be written
// this way; gRPC and bodies in JSON take it.
func (q *query) entries() []*ratelimitv1.Entry {
	var all []*ratelimitv1.Entry
	for _, text := range q.values["entry"] {
		key, value, hasValue := strings.Cut(text, "=")
		if !hasValue && q.err == nil {
			q.err = endpoint.Invalid("entry: found %.100q; allowed: KEY=VALUE, or KEY= for an empty value", text)
		}
		all = append(all, &ratelimitv1.Entry{Key: key, Value: value})
	}
	return all
}

// choice reads one of the words of a map, or none.
func choice[T any](q *query, name string, words map[string]T) (value T) {
	if text := q.values.Get(name); text != "" {
		value = meant(q, name, text, words)
	}
	return value
}

// meant returns what one of the words of a map means, as the value of a parameter.
func meant[T any](q *query, name, text string, words map[string]T) T {
	value, ok := words[text]
	if !ok {
		q.err = endpoint.Invalid("%s: found %.100q; allowed: %s", name, text, yamlfile.Commas(slices.Sorted(maps.Keys(words))))
	}
	return value
}

func readNothing[Q any](_ http.ResponseWriter, r *http.Request) (*Q, error) {
	return new(Q), readQuery(r).err
}

func readGetRule(_ http.ResponseWriter, r *http.Request) (*adminv1.GetRuleRequest, error) {
	q := readQuery(r, "domain", "path", "entry")
	return &adminv1.GetRuleRequest{Domain: q.text("domain"), Path: q.text("path"), Entries: q.entries()}, q.err
}

func readListAssignments(_ http.ResponseWriter, r *http.Request) (*adminv1.ListAssignmentsRequest, error) {
	q := readQuery(r, "domain", "prefix", "plan", "blocked", "page_size", "page_token")
	return &adminv1.ListAssignmentsRequest{
		Domain: q.text("domain"), Prefix: q.text("prefix"), Plan: q.text("plan"), Blocked: q.flag("blocked"),
		PageSize: q.number("page_size"), PageToken: q.text("page_token"),
	}, q.err
}

func readListAudit(_ http.ResponseWriter, r *http.Request) (*adminv1.ListAuditRequest, error) {
	q := readQuery(r, "domain", "entry", "page_size", "page_token")
	return &adminv1.ListAuditRequest{
		Domain: q.text("domain"), Entries: q.entries(), PageSize: q.number("page_size"), PageToken: q.text("page_token"),
	}, q.err
}
