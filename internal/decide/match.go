package decide

import (
	"slices"

	"github.com/ratelimitd/ratelimitd/internal/assign"
	"github.com/ratelimitd/ratelimitd/internal/config/rules"
)

// Match finds the rule and the limits of each descriptor and makes the hits, once: a call
// that was matched stays so, with its error. A block takes precedence over numbers that the
// descriptor brings, these over an assignment, and that over the file. Its error says
// that limits or assignments are not loaded, or which own limit is invalid.
func (d *Decider) Match(c *Call) error {
	if !c.isMatched {
		c.isMatched = true
		c.matchError = d.match(c)
	}
	return c.matchError
}

func (d *Decider) match(c *Call) error {
	inForce, err := d.inForce()
	if err != nil {
		return err
	}
	c.Rules, c.rulesOfDomain = inForce, inForce.Domain(c.Domain)
	assigned := d.Assigned.Domain(c.Domain)
	for i := range c.Descriptors {
		c.Outcomes = append(c.Outcomes, Outcome{})
		if err := d.matchDescriptor(c, i, assigned); err != nil {
			return err
		}
	}
	if c.hasReplacing {
		c.replace()
	}
	if c.hasRoles || d.Modes.giveRoles() {
		c.giveRoles(d.Modes)
	}
	c.addHits()
	if c.hasQuotas && len(c.overrides) > 0 {
		c.settleQuotas()
	}
	return nil
}

// matchDescriptor finds the rule and the limits of descriptor i. assigned has what is
// assigned in the domain, and may be nil.
func (d *Decider) matchDescriptor(c *Call, i int, assigned *assign.DomainTable) error {
	o, asked := &c.Outcomes[i], &c.Descriptors[i]
	domain := c.rulesOfDomain
	o.Entries = asked.Entries
	switch {
	case domain == nil:
	case domain.HasNetworks():
		c.matchNetworks(o)
	default:
		o.Rule = domain.Match(asked.Entries)
	}
	c.nameSubject(o)
	if c.onlyReleases && asked.Refund && !o.hasHolder() && !c.Releases {
		return errRefund(i)
	}
	if domain == nil {
		return nil
	}
	found := asked.assigned(assigned, o, d.Now)
	isUnmatched := o.Rule == nil
	if !isUnmatched && o.Rule.Plans != nil {
		o.Rule, isUnmatched = d.planOf(domain, o.Rule.Plans, &found)
	}
	if o.Rule != nil {
		c.useLimitsOf(o, o.Rule)
	}
	if found.Own != nil {
		c.assign(o, found.Own, found.Now, o.hasHolder() && asked.cost < 0)
	}
	if c.Releases {
		c.holdersOnly(o)
	}
	if o.hasHolder() && len(o.Limits) > 0 {
		if err := c.checkHolder(i); err != nil {
			return err
		}
	}
	switch {
	case c.Releases:
		return nil // whatever the descriptor brings, and whether it is blocked
	case asked.Own.Set:
		if err := c.override(i); err != nil {
			return err
		}
	case isUnmatched && d.DeniesUnmatched(domain) && !c.IsSettlement:
		c.refuse(i, Unmatched, 0)
	}
	if found.Blocked != nil && !c.IsSettlement {
		c.refuse(i, Blocked, found.Blocked.BlockEnd(found.Now))
	}
	return nil
}

// matchNetworks finds the rule of an outcome, and names its addresses as they are counted.
func (c *Call) matchNetworks(o *Outcome) {
	start := len(c.networks)
	c.networks = slices.Grow(c.networks, len(o.Entries))[:start+len(o.Entries)]
	networks := c.networks[start:len(c.networks):len(c.networks)]
	o.Rule = c.rulesOfDomain.MatchNetworks(o.Entries, networks)
	if !slices.ContainsFunc(networks, func(text string) bool { return text != "" }) {
		return
	}
	o.networks = networks
	start = len(c.subjects)
	c.subjects = append(c.subjects, o.Entries...)
	o.Entries = c.subjects[start:len(c.subjects):len(c.subjects)]
	for i, text := range networks {
		if text != "" {
			o.Entries[i].Value = text
		}
	}
}

// useLimitsOf gives an outcome the limits of its rule.
func (c *Call) useLimitsOf(o *Outcome, r *rules.Rule) {
	o.Limits = r.Limits
	c.hasReplacing = c.hasReplacing || len(r.Replaces) > 0
	c.hasRoles = c.hasRoles || r.ShadowMode || r.QuotaMode
}

// override replaces the limits of the rule of descriptor i with the descriptor's own.
func (c *Call) override(i int) error {
	o, own := &c.Outcomes[i], &c.Descriptors[i].Own
	o.Own = own
	l, err := c.decider.overrides.get(own.limit(c.rulesOfDomain, o.Rule, o.Limits))
	if err != nil {
		return own.refused(i, err)
	}
	n := len(c.overrides)
	c.overrides = append(c.overrides, l)
	o.Limits = c.overrides[n : n+1 : n+1]
	return nil
}
