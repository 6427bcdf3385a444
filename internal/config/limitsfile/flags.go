package limitsfile

import (
	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/rules"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
)

// ruleFlags are the keys of a descriptor that say how its limit is applied. All of them,
// and their meaning, are envoyproxy/ratelimit's.
var ruleFlags = [...]struct {
	name string
	of   func(*rules.Rule) *bool
}{
	{"shadow_mode", func(r *rules.Rule) *bool { return &r.ShadowMode }},
	{"quota_mode", func(r *rules.Rule) *bool { return &r.QuotaMode }},
	{"share_threshold", func(r *rules.Rule) *bool { return &r.ShareThreshold }},
	{"detailed_metric", func(r *rules.Rule) *bool { return &r.DetailedMetric }},
	{"value_to_metric", func(r *rules.Rule) *bool { return &r.ValueToMetric }},
}

// flags reads the flags of a descriptor and its metadata. A flag that is false counts as
// absent.
func (p *reader) flags(o *yamlfile.Object, n *rules.Node, r *rules.Rule) {
	limited := p.isLimited(o)
	for _, f := range ruleFlags {
		v, given := o.Field(f.name)
		if !given {
			continue
		}
		if set, ok := p.Boolean(v); !ok || !set {
			continue
		}
		if f.name == "share_threshold" && !p.shares(o, n, r) {
			continue
		}
		*f.of(r) = p.actsOn(o, f.name, limited)
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

// shares reports whether the descriptor has a pattern, whose values can share a counter,
// and reports an error if not.
func (p *reader) shares(o *yamlfile.Object, n *rules.Node, r *rules.Rule) bool {
	if o.Has("plans") {
		p.Bad(o.Key("share_threshold"), "share_threshold beside plans", "one of them: each value has a plan of its own, so they cannot share a counter")
		return false
	}
	if value := n.Entry().Value; rules.HasStar(value) {
		r.Pattern = value
		return true
	}
	p.Bad(o.Key("share_threshold"), "share_threshold without a pattern", "share_threshold beside a value with *, for only values of one pattern can share a counter")
	return false
}

// warnUnlimited warns of flags that mean nothing for what has no limit.
func (p *reader) warnUnlimited(o *yamlfile.Object, r *rules.Rule) {
	for _, name := range [...]string{"shadow_mode", "share_threshold"} {
		if !r.Unlimited || !o.Has(name) {
			continue
		}
		if set := r.ShadowMode && name == "shadow_mode" || r.ShareThreshold && name == "share_threshold"; set {
			p.Warn(o.Key(name), "has no effect beside unlimited")
		}
	}
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
