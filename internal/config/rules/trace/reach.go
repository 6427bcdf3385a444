package trace

import (
	"fmt"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/rules"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
	"github.com/ratelimitd/ratelimitd/internal/spelling"
)

// Reach says whether rules exist for a subject: for descriptors that are, or begin with,
// some entries.
type Reach struct {
	HasRule bool
	// Hints says why there is none, and what may have been meant; empty if there is one.
	Hints []string
}

// Reacher says whether rules exist for the subjects of a request. The result for one does
// not depend on the others, only on their number.
type Reacher struct {
	rules *rules.Set
	looks int // for each subject
}

// NewReacher returns a Reacher for these rules and a request with so many subjects.
func NewReacher(r *rules.Set, subjects int) *Reacher {
	return &Reacher{rules: r, looks: MaxLooks / max(subjects, 1)}
}

// Exactly says whether a rule exists for the descriptor with exactly these entries.
func (r *Reacher) Exactly(domain string, entries []bucket.Entry) Reach {
	return r.reach(domain, entries, func(s *Search) bool { return s.Rule != nil })
}

// Beginning says whether a rule exists for descriptors that are, or begin with, these
// entries.
func (r *Reacher) Beginning(domain string, entries []bucket.Entry) Reach {
	return r.reach(domain, entries, func(s *Search) bool { return s.Rule != nil || s.IsBeginning })
}

func (r *Reacher) reach(domain string, entries []bucket.Entry, isEnough func(*Search) bool) Reach {
	d := r.rules.Domain(domain)
	if d == nil {
		return Reach{Hints: []string{"domain: " + NoDomain(r.rules, domain)}}
	}
	if s := Of(d, entries, r.looks); !isEnough(s) {
		return Reach{Hints: []string{s.Why()}}
	}
	return Reach{HasRule: true}
}

// NearDomain returns the name of the domain that may have been meant by one that there is
// not, or "".
func NearDomain(r *rules.Set, name string) string {
	names := make([]string, len(r.Domains()))
	for i, d := range r.Domains() {
		names[i] = d.Name
	}
	return yamlfile.Nearest(name, names)
}

// NoDomain says that there is no domain of this name, and which one may have been meant.
func NoDomain(r *rules.Set, name string) string {
	if len(r.Domains()) == 0 {
		return fmt.Sprintf("found %s; the limits in force have no domain at all", yamlfile.Quote(name))
	}
	text := fmt.Sprintf("found %s; there is none of this name", yamlfile.Quote(name))
	if near := NearDomain(r, name); near != "" {
		text += " (" + spelling.ShellWord(near) + "?)"
	}
	return text
}
