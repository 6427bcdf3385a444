package config

import (
	"fmt"
	"iter"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/glob"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
)

// The levels of a limits file. A new key is added to its level here, and read
// where the level is read.
var (
	domainLevel = &yamlfile.Level{Is: "a domain", Fields: []yamlfile.Field{
		{Name: "domain", Theirs: true}, {Name: "algorithm"}, {Name: "hash_tag"}, {Name: "unmatched"}, {Name: "descriptors", Theirs: true},
	}, Theirs: true}
	descriptorLevel = &yamlfile.Level{Is: "a descriptor", Fields: []yamlfile.Field{
		{Name: "key", Theirs: true}, {Name: "value", Theirs: true}, {Name: "rate_limit", Theirs: true}, {Name: "rate_limits"}, {Name: "plans"}, {Name: "plan"},
		{Name: "on_store_failure"}, {Name: "shadow_mode", Theirs: true}, {Name: "quota_mode", Theirs: true}, {Name: "share_threshold", Theirs: true},
		{Name: "metadata", Theirs: true}, {Name: "detailed_metric", Theirs: true}, {Name: "value_to_metric", Theirs: true}, {Name: "descriptors", Theirs: true},
	}, Theirs: true}
	limitLevel = &yamlfile.Level{Is: "a rate_limit", Fields: append([]yamlfile.Field{
		{Name: "unlimited", Theirs: true},
	}, limitFields...), Theirs: true}
	limitItemLevel = &yamlfile.Level{Is: "an item of rate_limits", Fields: append(slices.Clone(limitFields), yamlfile.Field{Name: "shadow_mode"})}
	replacesLevel  = &yamlfile.Level{Is: "an item of replaces", Fields: []yamlfile.Field{{Name: "name", Theirs: true}}, Theirs: true}

	limitFields = []yamlfile.Field{
		{Name: "name", Theirs: true}, {Name: "algorithm"}, {Name: "requests"}, {Name: "period"},
		{Name: "requests_per_unit", Theirs: true}, {Name: "unit", Theirs: true}, {Name: "burst"}, {Name: "sub_windows"}, {Name: "postpaid"},
		{Name: "replaces", Theirs: true}, {Name: "enforce"},
	}
)

const (
	// maxNesting is how deep descriptors may nest.
	maxNesting = 256
	// maxLimitName bounds the names of limits in bytes.
	maxLimitName = 64
)

// fileParser turns the nodes of one file into a domain.
type fileParser struct {
	*yamlfile.Reader
	loader *loader
	// algorithm is the domain's, or 0.
	algorithm bucket.Algorithm
	d         *Domain
	// nameAt, tagAt and unmatchedAt are where the domain's name, hash_tag and
	// unmatched stand.
	nameAt, tagAt, unmatchedAt yamlfile.Position
	// general are the outermost descriptors without an exact value.
	general []generalNode
	// replaced are all names in replaces, and where each stands first.
	replaced map[string]yamlfile.Position

	// cutter is set for a file that is read in pieces. cutLists are the lists
	// that it cut out and that are not read yet. torn is set once a piece is not
	// what it was taken for.
	cutter   *cutter
	cutLists map[*yaml.Node]cutList
	torn     bool
	// items is that of Tree, or nil.
	items func(list *yaml.Node) iter.Seq[*yaml.Node]
}

// whole reads the file as a whole.
func (p *fileParser) whole(text []byte) {
	doc, err := p.ParseYAML(text)
	if err != nil {
		err.File = p.File
		p.Errs = append(p.Errs, *err)
	}
	switch {
	case doc != nil:
		p.domain(yamlfile.Root(doc))
	case err == nil:
		p.Errs = append(p.Errs, yamlfile.Error{File: p.File, Line: 1, Column: 1, Found: "an empty file", Allowed: "a domain, with " + yamlfile.Commas(domainLevel.Names())})
	}
}

func (p *fileParser) domain(v yamlfile.Value) {
	o, ok := p.Object(v, domainLevel)
	if !ok {
		return
	}
	p.d = &Domain{File: p.File, root: new(node), WithoutRule: new(Counts)}
	p.domainName(o)
	if v, ok := o.Field("algorithm"); ok {
		p.algorithm, _ = p.algorithmName(v)
		p.d.Algorithm = p.algorithm
	}
	if v, ok := o.Field("hash_tag"); ok {
		p.d.HashTag, _ = p.name(v, "the key of an entry", yamlfile.MaxName)
		p.tagAt = v.Position()
	}
	if v, ok := o.Field("unmatched"); ok {
		p.d.Unmatched = p.unmatched(v)
		p.unmatchedAt = v.Position()
	}
	if v, ok := o.Field("descriptors"); ok {
		p.descriptors(v, p.d.root, 1)
	}
}

// domainName reads the domain's name.
func (p *fileParser) domainName(o *yamlfile.Object) {
	v, ok := o.Field("domain")
	if !ok {
		p.Bad(o.Value, "no domain", "domain: NAME, in every file")
		return
	}
	p.nameAt = v.Position()
	p.d.Name, _ = p.name(v, "a name", yamlfile.MaxName)
	p.d.Line = p.nameAt.Line
}

// name reads a name. Equal ones share a copy.
func (p *fileParser) name(v yamlfile.Value, what string, longest int) (string, bool) {
	s, ok := p.Reader.Name(v, what, longest)
	if !ok {
		return "", false
	}
	return p.interned(s), true
}

// interned returns a copy of s that all equal ones share.
func (p *fileParser) interned(s string) string {
	if known, ok := p.loader.strings[s]; ok {
		return known
	}
	p.loader.strings[s] = s
	return s
}

// descriptors reads a list of descriptors into the node above them.
func (p *fileParser) descriptors(v yamlfile.Value, up *node, depth int) {
	if depth > maxNesting {
		p.Bad(v, fmt.Sprintf("descriptors within more than %d others", maxNesting-1), "fewer")
		return
	}
	list := nodeList{up: up}
	for item := range p.itemsOf(v) {
		p.descriptor(item, &list, depth)
		if p.Spent() || p.torn {
			return
		}
	}
	if depth == 1 {
		p.general = list.general // the domain may have more in other files
		return
	}
	up.seal()
	p.warnPatterns(up, list.general)
}

func (p *fileParser) descriptor(item yamlfile.Value, list *nodeList, depth int) {
	o, ok := p.Object(item, descriptorLevel)
	if !ok {
		return
	}
	child := &node{up: list.up, line: p.lineOfItem(item)}
	var twin *node // one of the same entry, which child becomes a part of
	if child.entry, ok = p.entry(o); ok {
		if first := list.add(child, item); first != nil {
			if p.unites(first, child, o, item) {
				twin = first
			}
		} else if depth == 1 && p.loader.options.MergeDomains {
			p.loader.outermost[child] = outermost{p, item.Position()}
		}
	}
	p.rule(o, child)
	if v, ok := o.Field("descriptors"); ok {
		p.descriptors(v, child, depth+1)
	}
	if twin != nil {
		twin.unite(child)
	}
}

// entry reads the key and the value of a descriptor.
func (p *fileParser) entry(o *yamlfile.Object) (e bucket.Entry, ok bool) {
	if v, given := o.Field("key"); given {
		e.Key, ok = p.key(v)
	} else {
		p.Bad(o.Value, "no key", "key: NAME, in every descriptor")
	}
	if v, given := o.Field("value"); given {
		var good bool
		if e.Value, good = p.Text(v, "a text, a number or a boolean; nothing, to match any value"); !good {
			ok = false
		}
	}
	return e, ok
}

func (p *fileParser) key(v yamlfile.Value) (string, bool) {
	s, ok := p.name(v, "a key", yamlfile.MaxName)
	if ok && glob.HasStar(s) {
		ok = p.Lax(v, "the text "+yamlfile.Quote(s), "a key without *, which stands for other characters in values only", "its * stands for itself")
	}
	return s, ok
}

func entryText(e bucket.Entry) string {
	if e.Value == "" {
		return "the key " + yamlfile.Quote(e.Key)
	}
	return yamlfile.Quote(e.Key) + " with the value " + yamlfile.Quote(e.Value)
}

// rule reads the limits of a descriptor with what stands beside them, if it has
// any.
func (p *fileParser) rule(o *yamlfile.Object, n *node) {
	r := &Rule{File: p.File, Line: o.Node.Line, Counts: &RuleCounts{room: p.loader.rules.room}, node: n}
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
		p.Bad(o.Key("plan"), "plan without plans", "plan beside plans: the one of whoever has none assigned")
	}
	if !p.isLimited(o) {
		p.noStoreFailure(o, "without a limit")
		return
	}
	if r.Unlimited {
		p.noStoreFailure(o, "beside unlimited")
		p.warnUnlimited(o, r)
	}
	p.loader.share(r)
	n.rule = r
	r.each(func(rule *Rule) { p.d.rules = append(p.d.rules, rule) })
}

// kindsOfLimits are the keys of a descriptor that give it limits.
var kindsOfLimits = []string{"rate_limit", "rate_limits", "plans"}

// isLimited reports whether a descriptor has limits.
func (p *fileParser) isLimited(o *yamlfile.Object) bool { return o.First(kindsOfLimits...) != "" }

// oneKindOfLimits reports limits that are given in two ways.
func (p *fileParser) oneKindOfLimits(o *yamlfile.Object) {
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

// unmatched reads what a descriptor without a rule gets.
func (p *fileParser) unmatched(v yamlfile.Value) Unmatched {
	names := []string{AllowUnmatched.String(), DenyUnmatched.String()}
	s, ok := p.Text(v, yamlfile.Commas(names))
	switch {
	case !ok:
	case s == names[0]:
		return AllowUnmatched
	case s == names[1]:
		return DenyUnmatched
	default:
		p.BadName(v, s, names)
	}
	return UnmatchedDefault
}
