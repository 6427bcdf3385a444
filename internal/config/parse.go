package config

import (
	"fmt"

	"go.yaml.in/yaml/v3"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// What the mappings of a limits file may hold. A new key is added to its
// level here and read where the level is.
var (
	domainLevel = &level{is: "a domain", fields: []field{
		{"domain", true}, {"algorithm", false}, {"hash_tag", false}, {"descriptors", true},
	}}
	descriptorLevel = &level{is: "a descriptor", fields: []field{
		{"key", true}, {"value", true}, {"rate_limit", true}, {"rate_limits", false},
		{"on_store_failure", false}, {"shadow_mode", true}, {"quota_mode", true}, {"share_threshold", true},
		{"metadata", true}, {"detailed_metric", true}, {"value_to_metric", true}, {"descriptors", true},
	}}
	limitLevel = &level{is: "a rate_limit", fields: append([]field{
		{"unlimited", true},
	}, limitFields...)}
	limitItemLevel = &level{is: "an item of rate_limits", fields: limitFields}
	replacesLevel  = &level{is: "an item of replaces", fields: []field{{"name", true}}}

	limitFields = []field{
		{"name", true}, {"algorithm", false}, {"requests", false}, {"period", false},
		{"requests_per_unit", true}, {"unit", true}, {"burst", false}, {"sub_windows", false}, {"postpaid", false},
		{"replaces", true},
	}
)

// homeOf says where a key belongs that was found in a mapping without it.
func homeOf(key string) string {
	for _, l := range []*level{domainLevel, descriptorLevel, limitLevel} {
		if l.index(key) >= 0 {
			return l.is
		}
	}
	return ""
}

const (
	// maxNesting is how deep descriptors may nest.
	maxNesting = 256
	// maxName bounds domains and keys in bytes, maxLimitName the names of limits.
	maxName      = 255
	maxLimitName = 64
)

// loader gathers the domains of the files of one load.
type loader struct {
	rules    *Rules
	errs     Errors
	warnings []Warning
	// limits holds one Limit for all places with the same numbers.
	limits map[bucket.Spec]*bucket.Limit
	// strings holds one copy of each key.
	strings map[string]string
}

func newLoader() *loader {
	return &loader{
		rules:   &Rules{domains: make(map[string]*Domain)},
		limits:  make(map[bucket.Spec]*bucket.Limit),
		strings: make(map[string]string),
	}
}

// file reads the text of one file.
func (l *loader) file(name string, data []byte) {
	doc, err := parseYAML(data)
	if err != nil {
		err.File = name
		l.errs = append(l.errs, *err)
	}
	switch {
	case doc == nil && err != nil:
		return
	case doc == nil:
		l.errs = append(l.errs, Error{File: name, Line: 1, Column: 1, Found: "an empty file", Allowed: "a domain, with " + commas(domainLevel.names())})
		return
	}
	p := &fileParser{walker: newWalker(name, len(data)), loader: l}
	p.domain(doc)
	l.errs = append(l.errs, p.errs...)
	l.warnings = append(l.warnings, p.warnings...)
}

// fileParser turns the nodes of one file into a domain.
type fileParser struct {
	*walker
	loader *loader
	// algorithm is the domain's, or 0.
	algorithm bucket.Algorithm
	d         *Domain
	// tagged is set once a descriptor's key is the domain's hash_tag.
	tagged bool
	// replaced are all names in replaces.
	replaced []replacedName
}

func (p *fileParser) domain(n *yaml.Node) {
	o, ok := p.object(n, nil, domainLevel)
	if !ok {
		return
	}
	var top *path
	p.d = &Domain{File: p.file, root: new(node)}
	p.domainName(o, top)
	if v := o.get("algorithm"); v != nil {
		p.algorithm, _ = p.algorithmName(v, top.key("algorithm"))
		p.d.Algorithm = p.algorithm
	}
	if v := o.get("hash_tag"); v != nil {
		p.d.HashTag, _ = p.name(v, top.key("hash_tag"), "the key of an entry", maxName)
	}
	if v := o.get("descriptors"); v != nil {
		p.descriptors(v, top.key("descriptors"), p.d.root, 1)
	}
	if p.d.HashTag != "" && !p.tagged {
		p.warn(o.get("hash_tag"), top.key("hash_tag"), "no descriptor has the key %s, so it places nothing", quote(p.d.HashTag))
	}
	p.warnReplaces()
}

// domainName reads the domain's name and enters the domain into the rules.
func (p *fileParser) domainName(o *object, top *path) {
	at := top.key("domain")
	v := o.get("domain")
	if v == nil {
		p.bad(o.at, top, "no domain", "domain: NAME, in every file")
		return
	}
	name, ok := p.name(v, at, "a name", maxName)
	if !ok {
		return
	}
	p.d.Name, p.d.Line = name, v.Line
	domains := p.loader.rules.domains
	if first := domains[name]; first != nil {
		p.bad(v, at, fmt.Sprintf("the domain %s again, which is also in %s:%d", quote(name), first.File, first.Line), "each domain in one file")
		return
	}
	domains[name] = p.d
}

// name reads a name of at most longest bytes that can be shown as it is.
func (p *fileParser) name(n *yaml.Node, at *path, what string, longest int) (string, bool) {
	allowed := fmt.Sprintf("%s of 1 to %d bytes without control characters", what, longest)
	s, ok := p.text(n, at, allowed)
	switch {
	case !ok:
		return "", false
	case s == "":
		p.bad(n, at, "an empty text", allowed)
	case len(s) > longest:
		p.bad(n, at, fmt.Sprintf("%d bytes, %s", len(s), quote(s)), allowed)
	case hasControl(s):
		p.bad(n, at, "the text "+quote(s), allowed)
	default:
		return p.interned(s), true
	}
	return "", false
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
func (p *fileParser) descriptors(n *yaml.Node, at *path, up *node, depth int) {
	if depth > maxNesting {
		p.bad(n, at, fmt.Sprintf("descriptors within more than %d others", maxNesting-1), "fewer")
		return
	}
	items, _ := p.list(n, at, "descriptors")
	seen := make(map[bucket.Entry]*yaml.Node, len(items))
	var found siblings
	for i, item := range items {
		itemAt := at.item(i)
		o, ok := p.object(item, itemAt, descriptorLevel)
		if p.spent() {
			return
		}
		if !ok {
			continue
		}
		child := &node{up: up}
		if child.entry, ok = p.entry(o, itemAt); ok {
			if first := seen[child.entry]; first != nil {
				p.bad(item, itemAt, fmt.Sprintf("%s again, the first is on line %d", entryText(child.entry), first.Line), "each key with each value once in a list")
			} else {
				seen[child.entry] = item
				found.add(child, item, itemAt)
			}
		}
		p.rule(o, itemAt, child)
		if v := o.get("descriptors"); v != nil {
			p.descriptors(v, itemAt.key("descriptors"), child, depth+1)
		}
	}
	p.link(up, &found)
}

// entry reads the key and the value of a descriptor.
func (p *fileParser) entry(o *object, at *path) (e bucket.Entry, ok bool) {
	ok = true
	if v := o.get("key"); v == nil {
		p.bad(o.at, at, "no key", "key: NAME, in every descriptor")
		ok = false
	} else if e.Key, ok = p.key(v, at.key("key")); ok && e.Key == p.d.HashTag {
		p.tagged = true
	}
	if v := o.get("value"); v != nil {
		var good bool
		if e.Value, good = p.text(v, at.key("value"), "a text, a number or a boolean; nothing, to match any value"); !good {
			ok = false
		}
	}
	return e, ok
}

func (p *fileParser) key(n *yaml.Node, at *path) (string, bool) {
	const what = "a key"
	s, ok := p.name(n, at, what, maxName)
	if ok && isPattern(s) {
		p.bad(n, at, "the text "+quote(s), "a key without *, which stands for other characters in values only")
		return "", false
	}
	return s, ok
}

func entryText(e bucket.Entry) string {
	if e.Value == "" {
		return "the key " + quote(e.Key)
	}
	return quote(e.Key) + " with the value " + quote(e.Value)
}

// rule reads what a descriptor says about limits, if it does.
func (p *fileParser) rule(o *object, at *path, n *node) {
	r := &Rule{File: p.file, Line: o.at.Line, Tally: new(Tally), node: n}
	one, many := o.get("rate_limit"), o.get("rate_limits")
	if one != nil && many != nil {
		k := later(o.key("rate_limit"), o.key("rate_limits"))
		p.bad(k, at.key(k.Value), "rate_limit beside rate_limits", "one of them")
	}
	mode := p.storeFailure(o, at)
	p.flags(o, at, r)
	if one != nil {
		p.rateLimit(one, at.key("rate_limit"), r, mode)
	}
	if many != nil {
		p.rateLimits(many, at.key("rate_limits"), r, mode)
	}
	if one == nil && many == nil {
		p.noStoreFailure(o, at, "without a limit")
		return
	}
	if r.Unlimited {
		p.noStoreFailure(o, at, "beside unlimited")
		p.warnUnlimited(o, at, r)
	}
	n.rule = r
	p.d.rules = append(p.d.rules, r)
}

// siblings are the descriptors of one list that can be matched.
type siblings struct {
	nodes []*node
	items []*yaml.Node
	at    []*path
	exact int
}

func (s *siblings) add(n *node, item *yaml.Node, at *path) {
	s.nodes, s.items, s.at = append(s.nodes, n), append(s.items, item), append(s.at, at)
	if n.entry.Value != "" && !isPattern(n.entry.Value) {
		s.exact++
	}
}

// link makes the descriptors of a list reachable from the node above them.
func (p *fileParser) link(up *node, s *siblings) {
	if s.exact > 0 {
		up.exact = make(map[bucket.Entry]*node, s.exact)
	}
	for _, n := range s.nodes {
		value := n.entry.Value
		if value != "" && !isPattern(value) {
			up.exact[n.entry] = n
			continue
		}
		k := up.addKey(n.entry.Key)
		if value == "" {
			k.bare = n
		} else {
			k.patterns.list = append(k.patterns.list, newPattern(n))
		}
	}
	for i := range up.keys {
		up.keys[i].patterns.seal()
	}
	p.warnNeverMatch(up, s)
}
