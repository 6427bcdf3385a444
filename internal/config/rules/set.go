package rules

import (
	"slices"
	"strings"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/rules/tally"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
)

// Set is a set of domains. It never changes, except for the counts of its
// rules. Its methods may be called concurrently.
type Set struct {
	domains     map[string]*Domain
	sorted      []*Domain
	warnings    []yamlfile.Warning
	fingerprint string
	// hasCalendars is whether a limit has a calendar.
	hasCalendars bool
	// maxLimits is the largest MaxLimits of the domains.
	maxLimits int
	// room is shared by the counts of all rules, including those of later loads.
	room *tally.Room
}

// New returns a set of domains by name, with the room that the counts of its rules share,
// and warnings about its files in any order.
func New(domains map[string]*Domain, room *tally.Room, warnings []yamlfile.Warning) *Set {
	r := &Set{domains: domains, room: room, warnings: warnings}
	for _, d := range domains {
		r.sorted = append(r.sorted, d)
		d.maxLimits = 1 // a request may bring one
		for _, rule := range d.rules {
			rule.findFlags()
			d.maxLimits = max(d.maxLimits, len(rule.Limits))
		}
		r.maxLimits = max(r.maxLimits, d.maxLimits)
	}
	slices.SortFunc(r.sorted, func(a, b *Domain) int { return strings.Compare(a.Name, b.Name) })
	r.fingerprint = fingerprintOf(r.sorted)
	r.hasCalendars = slices.ContainsFunc(r.sorted, (*Domain).hasCalendars)
	yamlfile.SortWarnings(r.warnings)
	return r
}

// Fingerprint returns 16 hexadecimal digits, equal for equal rules on any machine and
// different for others. Files, their formatting, and the order of descriptors that cannot
// match the same request do not count.
func (r *Set) Fingerprint() string { return r.fingerprint }

// HasCalendars reports whether a limit has a calendar, so that what the rules say depends
// on time zones.
func (r *Set) HasCalendars() bool { return r.hasCalendars }

// MaxLimits is how many limits a descriptor of any domain has at most.
func (r *Set) MaxLimits() int { return r.maxLimits }

func (d *Domain) hasCalendars() bool {
	return slices.ContainsFunc(d.rules, func(r *Rule) bool {
		return slices.ContainsFunc(r.Limits, func(l *bucket.Limit) bool { return l.Calendar.Unit != bucket.NoCalendar })
	})
}

// Domain returns the domain of that name, or nil.
func (r *Set) Domain(name string) *Domain { return r.domains[name] }

// HasDomain reports whether there is a domain of that name.
func (r *Set) HasDomain(name string) bool { return r.domains[name] != nil }

// Domains returns all domains, sorted by name.
func (r *Set) Domains() []*Domain { return r.sorted }

// Warnings returns the warnings about the files, by file and line.
func (r *Set) Warnings() []yamlfile.Warning { return r.warnings }

// Tick does, for all rules, the work due every tally.TickEvery, one call at a time.
func (r *Set) Tick(now time.Duration) {
	for _, d := range r.sorted {
		for _, rule := range d.rules {
			rule.Counts.Tick(now)
		}
	}
}

// HasHolders reports whether any rule counts requests in flight.
func (r *Set) HasHolders() bool {
	for _, d := range r.sorted {
		for _, rule := range d.rules {
			if rule.HasHolders {
				return true
			}
		}
	}
	return false
}

// Count returns the number of rules in all domains.
func (r *Set) Count() int {
	n := 0
	for _, d := range r.sorted {
		n += len(d.rules)
	}
	return n
}
