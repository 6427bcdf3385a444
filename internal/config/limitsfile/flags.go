package limitsfile

import (
	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/rules"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
)

// ruleFlags are the keys of a descriptor that say how its own limits are applied. All of
// them, and their meaning, are envoyproxy/ratelimit's, like those of nestedFlags.
var ruleFlags = [...]struct {
	name string
	of   func(*rules.Rule) *bool
}{
	{"shadow_mode", func(r *rules.Rule) *bool { return &r.ShadowMode }},
	{"quota_mode", func(r *rules.Rule) *bool { return &r.QuotaMode }},
	{"detailed_metric", func(r *rules.Rule) *bool { return &r.DetailedMetric }},
}

// flags reads the flags of a descriptor and its metadata. A flag that is false counts as
// absent.
func (p *reader) flags(o *yamlfile.Object, r *rules.Rule) {
	limited := p.isLimited(o)
	for _, f := range ruleFlags {
		*f.of(r) = p.isSet(o, f.name) && p.actsOn(o, f.name, limited)
	}
	if v, ok := o.Field("metadata"); ok {
		if m, ok := p.metadata(v); ok && p.actsOn(o, "metadata", limited) {
			r.Metadata = m
		}
	}
	if r.ShadowMode && r.QuotaMode {
		r.QuotaMode = false
		p.Lax(yamlfile.Later(o.Key("shadow_mode"), o.Key("quota_mode")), "shadow_mode beside quota_mode", "one of them: a shadow limit never denies, so it has no quota to report", "quota_mode is ignored")
	}
}

// actsOn reports whether a flag has a limit to act on, and reports an error if not.
func (p *reader) actsOn(o *yamlfile.Object, name string, limited bool) bool {
	// Envoy Gateway sends the modes with each descriptor of a chain.
	modeOfChain := p.Made && (name == "shadow_mode" || name == "quota_mode")
	if !limited && !modeOfChain {
		p.Lax(o.Key(name), name+" without a limit", name+" beside the rate_limit, rate_limits or plans that it is for; those nested in a descriptor are not meant", "it is ignored")
	}
	return limited
}

// nestedFlags reads the flags of a descriptor that are also for the limits nested in it,
// which have been read.
func (p *reader) nestedFlags(o *yamlfile.Object, n *rules.Node) {
	n.SharesValues = n.SharesValues || p.isSet(o, "share_threshold") && p.shares(o, n) && !n.HasCIDR()
	n.CountsValues = n.CountsValues || p.isSet(o, "value_to_metric") && p.hasLimits(o, n, "value_to_metric")
}

// isSet reads a flag.
func (p *reader) isSet(o *yamlfile.Object, name string) bool {
	v, given := o.Field(name)
	if !given {
		return false
	}
	set, ok := p.Boolean(v)
	return ok && set
}

// hasLimits reports whether a flag has a limit to act on, at the descriptor or below it,
// and reports an error if not.
func (p *reader) hasLimits(o *yamlfile.Object, n *rules.Node, name string) bool {
	if p.isLimited(o) || anyRule(n, func(*rules.Rule) bool { return true }) {
		return true
	}
	p.Lax(o.Key(name), name+" without a limit", name+" where the descriptor, or one nested in it, has rate_limit, rate_limits or plans", "it is ignored")
	return false
}

// shares reports whether the values of the descriptor can share the counters of the limits
// at it and below, and reports an error if not.
func (p *reader) shares(o *yamlfile.Object, n *rules.Node) bool {
	const flag = "share_threshold"
	switch {
	case !n.HasCIDR() && !rules.HasStar(n.Entry().Value):
		p.Bad(o.Key(flag), "share_threshold without a pattern", "share_threshold beside a value with * or a cidr, for only values of one pattern or network can share a counter")
		return false
	case o.Has("plans"):
		p.Bad(o.Key(flag), "share_threshold beside plans", "one of them: each value has a plan of its own, so they cannot share a counter")
		return false
	case anyRule(n, func(r *rules.Rule) bool { return r.Plans != nil }):
		p.Bad(o.Key(flag), "share_threshold above plans", "one of them: each value has a plan of its own, so they cannot share a counter")
		return false
	case n.Rule() != nil && n.Rule().HasHolders:
		p.Bad(o.Key(flag), "share_threshold on a concurrency", "it on rates: the value of the last entry names the holder, and holders share the limit as they are")
		return false
	case !p.hasLimits(o, n, flag):
		return false
	}
	if n.HasCIDR() {
		n.Networks().IsShared = true
	}
	if n.Rule() != nil && !anyRule(n, func(r *rules.Rule) bool { return !r.Unlimited }) {
		p.Warn(o.Key(flag), "has no effect beside unlimited")
	}
	return true
}

// anyRule reports whether the rule of the descriptor, or of one below it, is as asked.
func anyRule(n *rules.Node, is func(*rules.Rule) bool) bool {
	if r := n.Rule(); r != nil && is(r) {
		return true
	}
	for below := range n.Below {
		if anyRule(below, is) {
			return true
		}
	}
	return false
}

// replaces reads the names of the limits that the limit with a name replaces.
func (p *reader) replaces(o *yamlfile.Object, name string) []string {
	v, ok := o.Field("replaces")
	if !ok {
		return nil
	}
	items, _ := p.List(v, "names of limits: {name: NAME}")
	var names []string
	for item := range items.All() {
		entry, ok := p.Object(item, replacesLevel)
		if !ok {
			continue
		}
		v, ok := p.Needed(entry, "name", "name: NAME, of the limit to replace")
		if !ok {
			continue
		}
		replaced, ok := p.name(v, "the name of a limit", maxLimitName)
		switch {
		case !ok:
		case replaced == name:
			p.Bad(v, "the limit's own name", "the name of another limit")
		default:
			names = append(names, replaced)
			p.noteReplaced(replaced, v.Position())
		}
	}
	return names
}

// noteReplaced keeps the first position of a name in a replaces.
func (p *reader) noteReplaced(name string, at yamlfile.Position) {
	if _, ok := p.replaced[name]; ok {
		return
	}
	if p.replaced == nil {
		p.replaced = make(map[string]yamlfile.Position)
	}
	p.replaced[name] = at
}

// warnReplaces warns of names in replaces that no limit of the domain has.
func (p *reader) warnReplaces(d *rules.Domain) {
	if len(p.replaced) == 0 {
		return
	}
	limits, unlimited := make(map[string]bool), make(map[string]bool)
	for _, r := range d.Rules() {
		unlimited[r.Name] = r.Unlimited
		for _, l := range r.Limits {
			limits[l.Name] = true
		}
	}
	for name, at := range p.replaced {
		switch {
		case limits[name]:
		case unlimited[name]:
			p.WarnAt(at, "replaces nothing: %s is unlimited, and only limits are replaced", yamlfile.Quote(name))
		default:
			p.WarnAt(at, "replaces nothing: no limit of this domain has the name %s", yamlfile.Quote(name))
		}
	}
}

// addLimit adds a limit to the rule, with the names of those that it replaces.
func addLimit(r *rules.Rule, l *bucket.Limit, names []string) {
	r.Limits = append(r.Limits, l)
	if names == nil && r.Replaces == nil {
		return
	}
	for len(r.Replaces) < len(r.Limits)-1 {
		r.Replaces = append(r.Replaces, nil)
	}
	r.Replaces = append(r.Replaces, names)
}
