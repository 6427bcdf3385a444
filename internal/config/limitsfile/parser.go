package limitsfile

import (
	"fmt"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/rules"
	"github.com/ratelimitd/ratelimitd/internal/config/rules/tally"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
)

// parser turns the nodes of one file into a domain.
type parser struct {
	*reader
	d *rules.Domain
	// nameAt, tagAt and unmatchedAt are the positions of the domain's name, hash_tag and
	// unmatched.
	nameAt, tagAt, unmatchedAt yamlfile.Position
	// general are the outermost descriptors without an exact value.
	general []listedNode
}

// parser returns a parser for a file whose text has the given number of bytes.
func (s *shared) parser(file string, size int) *parser {
	r := yamlfile.NewReader(file, size, domainLevel, descriptorLevel, limitLevel)
	r.Lenient = s.lenient
	return &parser{reader: &reader{Reader: r, shared: s}}
}

// readMade reads a text that a program made: its lines mean nothing.
func (p *parser) readMade(text []byte) {
	p.Made = true
	p.read(text)
}

// read reads the text of the file. What is wrong is among the errors of p.
func (p *parser) read(text []byte) {
	_ = p.Parse(text, "a domain, with "+yamlfile.Commas(domainLevel.Names()), p.domain)
}

func (p *parser) domain(v yamlfile.Value) {
	if kind := p.kindOfManifest(v); kind != "" {
		p.Bad(v, "a "+kind+" of Kubernetes", "a file of limits: those of a ConfigMap are in its data")
		return
	}
	o, ok := p.Object(v, domainLevel)
	if !ok {
		return
	}
	p.d = rules.NewDomain(p.File)
	p.domainName(o)
	p.algorithm = p.rateAlgorithm(o)
	p.d.Algorithm = p.algorithm
	if v, ok := o.Field("hash_tag"); ok {
		p.d.HashTag, _ = p.name(v, "the key of an entry", yamlfile.MaxName)
		p.tagAt = v.Position()
	}
	if v, ok := o.Field("unmatched"); ok {
		p.d.Unmatched, _ = yamlfile.OneOf(p.Reader, v, unmatched...)
		p.unmatchedAt = v.Position()
	}
	if v, ok := o.Field("descriptors"); ok {
		p.descriptors(v, p.d.Root(), 1)
	}
}

// kindOfManifest returns the kind of a manifest of Kubernetes, "" if the value is none.
func (p *parser) kindOfManifest(v yamlfile.Value) (kind string) {
	isManifest := false
	fields := p.Follow(v).Content
	for i := 0; i+1 < len(fields); i += 2 {
		switch fields[i].Value {
		case "domain", "descriptors":
			return ""
		case "apiVersion":
			isManifest = true
		case "kind":
			kind = fields[i+1].Value
		}
	}
	if !isManifest {
		return ""
	}
	return yamlfile.Shorten(yamlfile.Printable(kind))
}

// domainName reads the domain's name.
func (p *parser) domainName(o *yamlfile.Object) {
	v, ok := p.Needed(o, "domain", "domain: NAME, in every file")
	if !ok {
		return
	}
	p.nameAt = v.Position()
	p.d.Name, _ = p.name(v, "a name", yamlfile.MaxName)
	p.d.Line = p.nameAt.Line
}

// descriptors reads a list of descriptors into the node above them.
func (p *parser) descriptors(v yamlfile.Value, up *rules.Node, depth int) {
	if depth > maxNesting {
		p.Bad(v, fmt.Sprintf("descriptors within more than %d others", maxNesting-1), "fewer")
		return
	}
	items, _ := p.List(v, "descriptors")
	list := descriptorList{List: rules.NewList(up)}
	for item := range items.All() {
		p.descriptor(item, up, &list, depth)
		if p.Spent() {
			return
		}
	}
	if depth == 1 {
		p.general = list.general // the domain may have more in other files
	} else {
		p.warnNeverMatch(up, list.general)
	}
	p.warnEscapes(up, list.all)
	p.refuseManyPatterns(up, list.general)
}

func (p *parser) descriptor(item yamlfile.Value, up *rules.Node, list *descriptorList, depth int) {
	o, ok := p.Object(item, descriptorLevel)
	if !ok {
		return
	}
	entry, ok := p.entry(o)
	networks := p.networks(o, &entry)
	child := rules.NewNode(up, entry, p.lineOfItem(item))
	child.SetNetworks(networks)
	if networks != nil {
		p.d.NoteNetworks()
	}
	ok = ok && (!o.Has("cidr") || child.HasCIDR())
	var twin *rules.Node // the descriptor with the same entry, if child becomes a part of it
	if ok && o.Has("cidr") {
		p.addCIDR(o, list, child)
		if depth == 1 && p.shared.merges {
			p.shared.outermost[child] = outermost{p.reader, item.Position()}
		}
	} else if ok {
		if first := list.add(child, item); first != nil {
			if p.unites(first, child, o, item) {
				twin = first
			}
		} else if depth == 1 && p.shared.merges {
			p.shared.outermost[child] = outermost{p.reader, item.Position()}
		}
	}
	p.rule(o, child)
	if v, ok := o.Field("descriptors"); ok {
		p.descriptors(v, child, depth+1)
	}
	if twin != nil {
		twin.Unite(child)
		child = twin
	}
	p.nestedFlags(o, child)
}

// descriptorList is a list of descriptors of a file.
type descriptorList struct {
	*rules.List
	all []listedNode // in order
	// general are those without an exact value.
	general []listedNode
}

// add adds a descriptor, or returns the one that has the same entry already.
func (l *descriptorList) add(n *rules.Node, item yamlfile.Value) (first *rules.Node) {
	first = l.Add(n)
	if first == nil {
		l.all = append(l.all, listedNode{n, item.Position()})
		if !n.IsExact() {
			l.general = append(l.general, listedNode{n, item.Position()})
		}
	}
	return first
}

// entry reads the key and the value of a descriptor.
func (p *parser) entry(o *yamlfile.Object) (e bucket.Entry, ok bool) {
	if v, given := p.Needed(o, "key", "key: NAME, in every descriptor"); given {
		e.Key, ok = p.key(v)
	}
	if v, given := o.Field("value"); given {
		var good bool
		if e.Value, good = p.Text(v, "a text, a number or a boolean; nothing, to match any value"); !good {
			ok = false
		}
	}
	return e, ok
}

func (p *parser) key(v yamlfile.Value) (string, bool) {
	s, ok := p.name(v, "a key", yamlfile.MaxName)
	if ok && rules.HasStar(s) {
		ok = p.Lax(v, "the text "+yamlfile.Quote(s), "a key without *, which stands for other characters in values only", "its * stands for itself")
	}
	return s, ok
}

// rule reads the limits of a descriptor and their flags, if it has any.
func (p *parser) rule(o *yamlfile.Object, n *rules.Node) {
	r := &rules.Rule{File: p.File, Line: o.Node.Line, Counts: tally.NewRuleCounts(p.shared.room)}
	p.oneKindOfLimits(o)
	mode := p.storeFailure(o)
	p.flags(o, r)
	if o.Has("rate_limit") {
		p.rateLimit(o, r, mode)
	}
	if v, ok := o.Field("rate_limits"); ok {
		p.rateLimits(v, r, mode)
	}
	if o.Has("plans") {
		p.plans(o, r, mode)
	} else if o.Has("plan") {
		p.Bad(o.Key("plan"), "plan without plans", "plan beside plans: the one for subjects without an assigned plan")
	}
	if !p.isLimited(o) {
		p.noStoreFailure(o, "without a limit")
		return
	}
	p.holders(o, n, r)
	if r.Unlimited {
		p.noStoreFailure(o, "beside unlimited")
		if r.ShadowMode {
			p.Warn(o.Key("shadow_mode"), "has no effect beside unlimited")
		}
	}
	p.shared.copies.Share(r)
	p.d.AddRule(n, r)
}

// oneKindOfLimits reports limits that are given in two ways.
func (p *parser) oneKindOfLimits(o *yamlfile.Object) {
	first := ""
	for _, kind := range kindsOfLimits {
		switch {
		case !o.Has(kind):
		case first == "":
			first = kind
		default:
			p.Bad(yamlfile.Later(o.Key(first), o.Key(kind)), first+" beside "+kind, "one of them")
		}
	}
}

// finish gives the warnings that need the whole domain.
func (p *parser) finish(domains map[string]*rules.Domain) {
	if len(p.Errs) == 0 && p.d != nil && domains[p.d.Name] != nil {
		p.warnDomain(domains[p.d.Name])
	}
}

// warnDomain gives the warnings that need the whole domain.
func (p *parser) warnDomain(d *rules.Domain) {
	if p.d.HashTag != "" && !hasKey(d.Root(), p.d.HashTag) {
		p.WarnAt(p.tagAt, "no descriptor has the key %s, so it places nothing", yamlfile.Quote(p.d.HashTag))
	}
	p.warnNeverMatch(d.Root(), p.general)
	p.warnReplaces(d)
}

// hasKey reports whether a descriptor below the node has the key.
func hasKey(n *rules.Node, key string) bool {
	if n.Entry().Key == key {
		return true
	}
	for below := range n.Below {
		if hasKey(below, key) {
			return true
		}
	}
	return false
}
