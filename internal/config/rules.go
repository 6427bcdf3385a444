package config

import (
	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
)

// Rules is a set of domains. It never changes, except for the counts of its
// rules. Its methods may be called concurrently.
type Rules struct {
	domains     map[string]*Domain
	sorted      []*Domain
	warnings    []yamlfile.Warning
	fingerprint string
	// room is shared by the counts of all rules, also of later loads.
	room *valueRoom
}

// Domain returns the domain of that name, or nil.
func (r *Rules) Domain(name string) *Domain { return r.domains[name] }

// HasDomain reports whether there is a domain of that name.
func (r *Rules) HasDomain(name string) bool { return r.domains[name] != nil }

// Domains returns all domains, sorted by name.
func (r *Rules) Domains() []*Domain { return r.sorted }

// Warnings returns the warnings about the files, by file and line.
func (r *Rules) Warnings() []yamlfile.Warning { return r.warnings }

// Count returns the number of rules in all domains.
func (r *Rules) Count() int {
	n := 0
	for _, d := range r.sorted {
		n += len(d.rules)
	}
	return n
}

// Domain is a namespace of limits.
type Domain struct {
	Name string
	// HashTag is the key of the entry whose value places the keys of a
	// descriptor in a sharded store; it may be empty.
	HashTag string
	// Unmatched is what descriptors without a rule get.
	Unmatched Unmatched
	// WithoutRule counts the descriptors without a rule. A later load keeps the
	// counts of a domain that is still there.
	WithoutRule *Counts
	// Algorithm is what the file gives to limits that name none; 0 if it does
	// not say.
	Algorithm bucket.Algorithm
	// Since is when HashTag, Unmatched or Algorithm last changed, as in Rule.Since.
	Since int64
	// File and Line are where the domain is named. What did not come from a file
	// has the line 0.
	File string
	Line int

	root  *node
	rules []*Rule
	// files are those after the first that have a part of the domain.
	files []string
}

// Unmatched says what a descriptor of a known domain gets that has no rule.
type Unmatched uint8

const (
	// UnmatchedDefault is the daemon's setting, limits.unmatched.
	UnmatchedDefault Unmatched = iota
	// AllowUnmatched lets it pass.
	AllowUnmatched
	// DenyUnmatched denies it, so that a misspelt key fails closed.
	DenyUnmatched
)

// String returns the one spelling, as in a limits file.
func (u Unmatched) String() string { return [...]string{"default", "allow", "deny"}[u] }

// MaxUnenforced is how many limits of a rule, the first, may have shadow_mode or enforce:
// which of them are in force for a descriptor is said in the bits of 64.
const MaxUnenforced = 64

// Rule is a place in a limits file that descriptors match, with the limits that
// they then have.
type Rule struct {
	// Plans has the limits of a rule that has them by plan, or is nil. With plans
	// the rule has no limits of its own and is not unlimited.
	Plans *Plans
	// Plan is the name of the plan that the rule is, or empty.
	Plan string
	// Limits must all allow. There is none if Unlimited.
	Limits []*bucket.Limit
	// Unlimited rules allow always.
	Unlimited bool
	// Name is that of an unlimited rule; limits have their own.
	Name string
	// Replaces holds, for each limit of Limits in order, or for the unlimited
	// rule, the names of the limits that it replaces in a request that matches
	// both. It is nil if none replaces any.
	Replaces [][]string
	// ShadowMode limits never deny.
	ShadowMode bool
	// QuotaMode limits tell that they are exhausted; a request is over its
	// limit once all its quotas are. Never with ShadowMode.
	QuotaMode bool
	// ShareThreshold means that all values of Pattern, that of the rule's own
	// descriptor, have one counter. Pattern is empty without it.
	ShareThreshold bool
	Pattern        string
	// DetailedMetric and ValueToMetric ask for counts by value.
	DetailedMetric, ValueToMetric bool
	// Metadata goes with the answer to descriptors that the rule lets pass, or
	// is nil. Values are nil, bool, int64, float64, string, []any and
	// map[string]any; they must not be changed.
	Metadata map[string]any
	// File and Line are where the descriptor of the rule begins.
	File string
	Line int
	// Counts has the results of descriptors that matched the rule.
	Counts *RuleCounts
	// Since is when the limits of the rule, or which rule is in force for some of
	// its descriptors, last changed in a Live, in microseconds since the Unix
	// epoch on its clock; 0 if that was before its first load.
	Since int64

	node *node
}

// Rules returns the domain's rules that say something about limits, in file
// order.
func (d *Domain) Rules() []*Rule { return d.rules }

// Path returns the entries that lead to the rule, as they are in the file and
// as a person reads them: "user=alice / plan", or "user (plan free)" of a plan. No
// two rules of a domain have the same.
func (r *Rule) Path() string {
	if known := r.Counts.path.Load(); known != nil {
		return *known
	}
	path := string(r.AppendPath(nil))
	r.Counts.path.Store(&path)
	return path
}

// AppendPath appends it to dst.
func (r *Rule) AppendPath(dst []byte) []byte {
	var room [8]bucket.Entry
	dst = appendPathText(dst, r.node.appendPath(room[:0]))
	return append(dst, r.planNote()...)
}

// IsAt reports whether a path is that of the rule, or of the rule whose plan it is.
func (r *Rule) IsAt(path string) bool {
	place := pathText(r.Entries())
	return place+r.planNote() == path || place == path
}

// Match returns the rule for a descriptor with these entries, or nil if there
// is none and so no limit.
//
// At each level an exact (key, value) goes before the first pattern of that
// key in file order, and that before the bare key. What a level chose is not
// reconsidered, and the rule must stand at the descriptor's own depth.
func (d *Domain) Match(entries []bucket.Entry) *Rule {
	n := d.root
	for i := range entries {
		if n = n.next(&entries[i]); n == nil {
			return nil
		}
	}
	return n.rule
}

// Place returns the value of the first entry with the domain's hash_tag, if
// the domain has one and the entries hold it.
func (d *Domain) Place(entries []bucket.Entry) (value string, ok bool) {
	if d.HashTag == "" {
		return "", false
	}
	for i := range entries {
		if entries[i].Key == d.HashTag {
			return entries[i].Value, true
		}
	}
	return "", false
}
