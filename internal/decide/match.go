package decide

import (
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
	rules, err := d.inForce()
	if err != nil {
		return err
	}
	domain, assigned := rules.Domain(c.Domain), d.Assigned.Domain(c.Domain)
	c.Rules, c.found = rules, domain
	for i := range c.Descriptors {
		c.Outcomes = append(c.Outcomes, Outcome{})
		o, asked := &c.Outcomes[i], &c.Descriptors[i]
		if domain != nil {
			o.Rule = domain.Match(asked.Entries)
		}
		c.nameSubject(i)
		if c.onlyReleases && asked.Refund && !o.hasHolder() && !c.Releases {
			return errRefund(i)
		}
		if domain == nil {
			continue
		}
		found := asked.assigned(assigned, o.hasHolder(), d.Now)
		missing := o.Rule == nil
		if !missing && o.Rule.Plans != nil {
			o.Rule, missing = d.planOf(domain, o.Rule.Plans, found.Plan)
		}
		if r := o.Rule; r != nil {
			o.Limits = r.Limits
			c.hasReplacing = c.hasReplacing || len(r.Replaces) > 0
			c.hasRoles = c.hasRoles || r.ShadowMode || r.QuotaMode
		}
		if found.Own != nil {
			c.assign(o, found.Own, found.Now)
		}
		if c.Releases {
			c.holdersOnly(o)
		}
		if o.hasHolder() && len(o.Limits) > 0 {
			if err := c.checkHolder(i); err != nil {
				return err
			}
		}
		if c.Releases {
			continue // whatever is said of the descriptor
		}
		if asked.Own.Set {
			if err := c.override(domain, o, i); err != nil {
				return err
			}
		} else if missing && d.DeniesUnmatched(domain) && !c.IsSettlement {
			c.refuse(i, Unmatched, 0)
		}
		if found.Blocked != nil && !c.IsSettlement {
			c.refuse(i, Blocked, found.Blocked.BlockEnd())
		}
	}
	if c.hasReplacing {
		c.replace()
	}
	if c.hasRoles || d.Modes.giveRoles() {
		c.giveRoles(d.Modes)
	}
	c.addHits(domain)
	c.settleQuotas()
	return nil
}

// override replaces the limits of the rule of descriptor i with the descriptor's own.
func (c *Call) override(domain *rules.Domain, o *Outcome, i int) error {
	o.Own = &c.Descriptors[i].Own
	l, err := c.decider.overrides.get(o.Own.limit(domain, o.Rule))
	if err != nil {
		return o.Own.refused(i, err)
	}
	n := len(c.overrides)
	c.overrides = append(c.overrides, l)
	o.Limits = c.overrides[n : n+1 : n+1]
	return nil
}
