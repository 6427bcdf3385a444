// Package find finds lines of the log of decisions, in files and behind their rotation. It
// imports decisionlog and its sink, and bucket.
package find

import (
	"slices"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/decisionlog"
)

// Query says which lines are looked for. Zero fields do not count.
type Query struct {
	// Subject is what the entries of a descriptor begin with.
	Subject []bucket.Entry
	// HashKey finds subjects whose values are hashed with it, besides those that are not.
	HashKey []byte
	Domain  string
	// Rule is the path of a rule, with its plan or without.
	Rule string
	// Result is one of Results.
	Result string
	// Since and Until bound the moment, in microseconds since the Unix epoch; Until
	// itself is excluded.
	Since, Until int64
}

// Results are what lines say of requests, descriptors and limits: the word of one, or of a
// descriptor that is looked for, is the result of a line.
func Results() []string {
	return []string{"allowed", "denied", "error", "shadowed", "blocked", "unmatched", "near", "over", "denied_by_other", "peeked", giveBack, settle, "settled", "unknown"}
}

const (
	giveBack = "give_back"
	settle   = "settle"
)

// matcher finds what a query asks for.
type matcher struct {
	Query
	hashed []bucket.Entry // the subject with hashed values; nil without a key
	chosen []int
}

func newMatcher(q Query) *matcher {
	m := &matcher{Query: q}
	if q.HashKey != nil {
		for _, e := range q.Subject {
			m.hashed = append(m.hashed, bucket.Entry{Key: e.Key, Value: decisionlog.HashOf(q.HashKey, e.Key, e.Value)})
		}
	}
	return m
}

// match reports whether a line is looked for, and by which of its descriptors. Those are
// valid until the next call.
func (m *matcher) match(l *decisionlog.Line, s *Stats) (chosen []int, ok bool) {
	chosen = m.chosen[:0]
	isAbout := len(m.Subject) == 0
	for i := range l.Descriptors {
		d := &l.Descriptors[i]
		if !m.isSubject(d, s) {
			continue
		}
		isAbout = true
		if m.Rule == "" || d.Rule == m.Rule || d.Plan != "" && d.Rule+" (plan "+d.Plan+")" == m.Rule {
			chosen = append(chosen, i)
		}
	}
	m.chosen = chosen
	if !isAbout {
		return nil, false
	}
	if len(m.Subject) > 0 {
		s.About++
	}
	isChosen := len(chosen) > 0 || len(m.Subject) == 0 && m.Rule == ""
	return chosen, isChosen && (m.Domain == "" || m.Domain == l.Domain) &&
		(m.Since == 0 || l.At >= m.Since) && (m.Until == 0 || l.At < m.Until) && m.hasResult(l, chosen)
}

// isSubject reports whether a descriptor begins with the subject. It counts what a person
// may have missed.
func (m *matcher) isSubject(d *decisionlog.Descriptor, s *Stats) bool {
	if len(m.Subject) == 0 {
		return true
	}
	n := len(m.Subject)
	if len(d.Entries) >= n && (slices.Equal(d.Entries[:n], m.Subject) || m.hashed != nil && slices.Equal(d.Entries[:n], m.hashed)) {
		return true
	}
	for i := range d.Entries {
		if decisionlog.IsHash(d.Entries[i].Value) {
			s.Hashed++
			return false
		}
	}
	if s.Elsewhere == nil && hasAll(d.Entries, m.Subject) {
		for _, e := range d.Entries {
			s.Elsewhere = append(s.Elsewhere, bucket.Entry{Key: string([]byte(e.Key)), Value: string([]byte(e.Value))})
		}
	}
	return false
}

func hasAll(entries, wanted []bucket.Entry) bool {
	for _, e := range wanted {
		if !slices.Contains(entries, e) {
			return false
		}
	}
	return true
}

// hasResult reports whether a line says the word that is looked for. That a part of it was
// allowed does not make a denied request allowed.
func (m *matcher) hasResult(l *decisionlog.Line, chosen []int) bool {
	switch {
	case m.Result == "":
		return true
	case m.Result == giveBack || l.Kind == decisionlog.GivenBack:
		return m.Result == giveBack && l.Kind == decisionlog.GivenBack
	case m.Result == settle || l.Kind == decisionlog.Settled:
		return l.Kind == decisionlog.Settled && (m.Result == settle || saysOfLimits(l, chosen, m.Result))
	case l.Result.String() == m.Result:
		return true
	case m.Result == decisionlog.Allowed.String():
		return false
	}
	return slices.ContainsFunc(chosen, func(i int) bool {
		d := &l.Descriptors[i]
		return d.Result.String() == m.Result || d.Refusal == m.Result || saysOfLimits(l, []int{i}, m.Result)
	})
}

// saysOfLimits reports whether a line says a word of a limit of one of these descriptors.
func saysOfLimits(l *decisionlog.Line, chosen []int, word string) bool {
	return slices.ContainsFunc(chosen, func(i int) bool {
		return slices.ContainsFunc(l.Descriptors[i].Limits, func(l decisionlog.Limit) bool { return l.Result == word })
	})
}
