package decide

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/rules"
	"github.com/ratelimitd/ratelimitd/internal/config/rules/trace"
	"github.com/ratelimitd/ratelimitd/internal/config/rules/words"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
)

// Resettable are states that Reset forgets.
type Resettable struct {
	// Limits are the names of the limits, and Keys the names of their states as the
	// store has them. Limits of several plans may share both.
	Limits, Keys []string
	// Idle says why there are none, "" if there are some.
	Idle string
	// Hints name the subjects that people may have meant instead, a sentence each.
	Hints []string
	// HasHolder says that the last entry names a holder: then its slots are freed, by
	// Decider.Free, and not the states of the subject.
	HasHolder bool

	release []bucket.Hit
}

// Resettable returns the states of a subject: of all limits of its rule, whatever plan
// is in force, or of the one that limit names. They do not include the states of limits
// that requests bring and that count apart from the rule's, since their periods are not
// known. Its error is Invalid if there is no such domain or limit.
func (d *Decider) Resettable(domain string, entries []bucket.Entry, limit *string) (Resettable, error) {
	inForce := d.Live.Rules()
	if inForce == nil {
		return Resettable{}, errNoLimits
	}
	found := inForce.Domain(domain)
	if found == nil {
		return Resettable{}, errorOf(Invalid, "domain: %s", trace.NoDomain(inForce, domain))
	}
	rule := found.Match(entries)
	hints := trace.NewReacher(inForce, 1).Exactly(domain, entries).Hints
	if rule == nil {
		return Resettable{Idle: fmt.Sprintf("no rule is for the descriptor %s, so it has no limit to reset", words.Entries(entries)), Hints: hints}, nil
	}
	c := d.callOf(found, rule, entries)
	r := Resettable{Hints: hints, HasHolder: rule.HasHolders && entries[len(entries)-1].Value != ""}
	for i := range c.Hits {
		if h := &c.Hits[i]; limit == nil || h.Limit.Name == *limit {
			r.add(h, d.Store.Locate(h).Key)
		}
	}
	switch {
	case len(r.Keys) > 0:
		return r, nil
	case len(c.Hits) == 0:
		r.Idle = fmt.Sprintf("the rule %s is unlimited, so it has no limit to reset", rule.Path())
		return r, nil
	}
	return r, errorOf(Invalid, "limit: found %s, which the rule %s does not have; allowed: %s",
		yamlfile.Quote(*limit), rule.Path(), yamlfile.Shorten(yamlfile.Commas(c.limitNames())))
}

// callOf returns a call with the hits on all limits that a rule has for a descriptor, in any
// plan.
func (d *Decider) callOf(domain *rules.Domain, rule *rules.Rule, entries []bucket.Entry) *Call {
	plans := []*rules.Rule{rule}
	if rule.Plans != nil {
		plans = rule.Plans.All()
	}
	c := d.NewCall()
	c.Domain, c.rulesOfDomain = domain.Name, domain
	for _, plan := range plans {
		c.Descriptors = append(c.Descriptors, Descriptor{Entries: entries})
		o := Outcome{Entries: entries}
		c.matchNetworks(&o)
		o.Rule, o.Limits = plan, plan.Limits
		c.nameSubject(&o)
		c.Outcomes = append(c.Outcomes, o)
	}
	c.addHits()
	return c
}

// add adds the state of a hit, which has a key in the store.
func (r *Resettable) add(h *bucket.Hit, key string) {
	if !slices.Contains(r.Keys, key) {
		r.Keys = append(r.Keys, key)
		release := *h
		release.Cost = -1
		r.release = append(r.release, release)
	}
	if !slices.Contains(r.Limits, h.Limit.Name) {
		r.Limits = append(r.Limits, h.Limit.Name)
	}
}

// limitNames returns the names of the limits of the call's hits, quoted.
func (c *Call) limitNames() (names []string) {
	for i := range c.Hits {
		if name := strconv.Quote(c.Hits[i].Limit.Name); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// Free frees the slots of the holder of r, and returns how many it had.
func (d *Decider) Free(ctx context.Context, r *Resettable) (freed int, _ error) {
	decisions := make([]bucket.Decision, len(r.release))
	if err := d.Store.Take(ctx, r.release, decisions); err != nil {
		return 0, err
	}
	for i := range decisions {
		if decisions[i].Released == bucket.ReleasedSlot {
			freed++
		}
	}
	return freed, nil
}
