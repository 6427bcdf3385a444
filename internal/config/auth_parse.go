package config

import (
	"cmp"
	"fmt"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

// What the mappings of a file for forward auth may hold.
var (
	authLevel     = &level{is: "a file for forward auth", fields: []field{{name: "trusted_proxies"}, {name: "endpoints"}}}
	endpointLevel = &level{is: "an endpoint", fields: []field{
		{name: "name"}, {name: "proxy"}, {name: "domain"}, {name: "denied_status"}, {name: "on_missing"}, {name: "descriptors"},
	}}
	authDescriptorLevel = &level{is: "a descriptor", fields: []field{{name: "entries"}, {name: "cost"}}}
	authEntryLevel      = &level{is: "an entry", fields: []field{
		{name: "key"}, {name: "value"}, {name: "from"}, {name: "name"}, {name: "prefixes"},
		{name: "ipv4_prefix"}, {name: "ipv6_prefix"}, {name: "on_missing"},
	}}
)

// LoadAuth reads a file for forward auth. Its error is of type Errors and holds
// all that is wrong in the file; or it wraps that of the operating system.
func LoadAuth(file string) (*Auth, error) {
	data, err := readAuth(file)
	if err != nil {
		return nil, err
	}
	return parseAuth(file, data)
}

func readAuth(file string) ([]byte, error) {
	info, err := os.Stat(file)
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no file", file)
	}
	var data []byte
	if err == nil {
		data, err = readFile(file)
	}
	if err != nil {
		return nil, fmt.Errorf("forward auth: %w", err)
	}
	return data, nil
}

// authParser turns the nodes of a file into an Auth.
type authParser struct {
	*walker
	auth *Auth
	// trusts is whether the file says anything of trusted proxies.
	trusts bool
	// onMissing is that of the endpoint at hand, for entries that have none.
	onMissing OnMissing
}

func parseAuth(file string, data []byte) (*Auth, error) {
	p := &authParser{
		walker: newWalker(file, len(data), authLevel, endpointLevel, authDescriptorLevel, authEntryLevel),
		auth:   &Auth{byName: make(map[string]*AuthEndpoint)},
	}
	if err := p.file(data); err != nil {
		err.File = file
		p.errs = append(p.errs, *err)
	}
	if len(p.errs) > 0 {
		p.errs.sort()
		return nil, p.errs
	}
	return p.auth, nil
}

func (p *authParser) file(data []byte) *Error {
	text, err := p.utf8(data)
	if err != nil {
		return err
	}
	doc, err := p.parseYAML(text)
	switch {
	case doc != nil:
		p.top(doc)
	case err == nil:
		return &Error{Line: 1, Column: 1, Found: "an empty file", Allowed: authLevel.is + ", with " + commas(authLevel.names())}
	}
	return err
}

func (p *authParser) top(n *yaml.Node) {
	o, ok := p.object(n, nil, authLevel)
	if !ok {
		return
	}
	var top *path
	if v := o.get("trusted_proxies"); v != nil {
		p.trusts = true
		p.trustedProxies(v, top.key("trusted_proxies"))
	}
	for i, item := range p.required(o, top, "endpoints", "endpoints") {
		p.endpoint(item, top.key("endpoints").item(i))
	}
}

// required returns the items of a list that must be there and have one.
func (p *authParser) required(o *object, at *path, name, of string) []*yaml.Node {
	v := o.get(name)
	if v == nil {
		p.bad(o.at, at, "no "+name, name+": a list with at least one")
		return nil
	}
	items, ok := p.list(v, at.key(name), of)
	if ok && len(items) == 0 {
		p.bad(v, at.key(name), "an empty list", "at least one")
	}
	return items
}

func (p *authParser) trustedProxies(n *yaml.Node, at *path) {
	const allowed = "an IP address, or a network such as 10.0.0.0/8 or fd00::/8"
	items, _ := p.list(n, at, "IP addresses and networks")
	for i, item := range items {
		s, ok := p.text(item, at.item(i), allowed)
		if !ok {
			continue
		}
		prefix, complaint := parseNetwork(s)
		if complaint != "" {
			p.bad(item, at.item(i), complaint, allowed)
			continue
		}
		p.auth.TrustedProxies = append(p.auth.TrustedProxies, prefix)
	}
}

// parseNetwork reads an address or a network, or says what was found.
func parseNetwork(s string) (_ netip.Prefix, complaint string) {
	found := "the text " + quote(s)
	prefix, err := netip.ParsePrefix(s)
	if err != nil {
		address, err := netip.ParseAddr(s)
		if err != nil || address.Zone() != "" {
			return prefix, found
		}
		prefix = netip.PrefixFrom(address, address.BitLen())
	}
	switch {
	case prefix.Addr().Is4In6():
		return prefix, found + ", which is an IPv4 address in the form of IPv6"
	case prefix.Bits() == 0:
		return prefix, found + ", which is everybody: any client could say who it is"
	case prefix != prefix.Masked():
		return prefix, fmt.Sprintf("%s, which has bits beyond its length (%s?)", found, prefix.Masked())
	}
	return prefix, ""
}

func (p *authParser) endpoint(item *yaml.Node, at *path) {
	o, ok := p.object(item, at, endpointLevel)
	if !ok {
		return
	}
	defer p.release(o)
	e := &AuthEndpoint{File: p.walker.file, Line: item.Line}
	p.endpointName(o, at, e)
	p.proxy(o, at, e)
	if v := o.get("domain"); v == nil {
		p.bad(o.at, at, "no domain", "domain: NAME, that of the limits")
	} else {
		e.Domain, _ = p.name(v, at.key("domain"), "a name", maxName)
		e.domainAt = nodeAt(v, at.key("domain"))
	}
	p.onMissing = p.missing(o, at, MissingEmpty)
	for i, d := range p.required(o, at, "descriptors", "descriptors") {
		p.descriptor(d, at.key("descriptors").item(i), e)
	}
	p.auth.Endpoints = append(p.auth.Endpoints, e)
}

// endpointNames are those that stand in a URL as they are.
var endpointNames = regexp.MustCompile(`^[A-Za-z0-9_.~-]{1,64}$`)

func (p *authParser) endpointName(o *object, at *path, e *AuthEndpoint) {
	const allowed = "1 to 64 letters, digits and -_.~, and not . or .."
	v := o.get("name")
	if v == nil {
		p.bad(o.at, at, "no name", "name: NAME, as in /auth/NAME")
		return
	}
	at = at.key("name")
	s, ok := p.text(v, at, allowed)
	first := p.auth.byName[s]
	switch {
	case !ok:
	case !endpointNames.MatchString(s) || s == "." || s == "..":
		p.bad(v, at, "the text "+quote(s), allowed)
	case first != nil:
		p.bad(v, at, fmt.Sprintf("the name %s again, the first is on line %d", quote(s), first.Line), "a name for each endpoint")
	default:
		e.Name = s
		p.auth.byName[s] = e
	}
}

// proxy reads which proxy asks, and the status that it is denied with.
func (p *authParser) proxy(o *object, at *path, e *AuthEndpoint) {
	var names []string
	for _, proxy := range proxies {
		names = append(names, proxy.name)
	}
	v := o.get("proxy")
	if v == nil {
		p.bad(o.at, at, "no proxy", "proxy: one of "+commas(names))
	} else if s, ok := p.text(v, at.key("proxy"), commas(names)); ok {
		i := slices.Index(names, s)
		if i < 0 {
			p.badName(v, at.key("proxy"), s, names)
		} else {
			proxy := proxies[i]
			e.Proxy, e.URIHeader, e.MethodHeader, e.DeniedStatus = proxy.name, proxy.uri, proxy.method, proxy.denied
		}
	}
	v, at = o.get("denied_status"), at.key("denied_status")
	if v == nil {
		return
	}
	n, ok := p.integer(v, at, 400, 499)
	if ok && e.Proxy == "nginx" && n != 401 && n != 403 {
		p.bad(v, at, fmt.Sprintf("%d with the proxy nginx, which takes it for an error", n), "401 or 403, of which error_page makes another status")
		return
	}
	if ok {
		e.DeniedStatus = int(n)
	}
}

// missing reads on_missing.
func (p *authParser) missing(o *object, at *path, byDefault OnMissing) OnMissing {
	const name = "on_missing"
	v := o.get(name)
	if v == nil {
		return byDefault
	}
	names := onMissingNames[:]
	s, ok := p.text(v, at.key(name), commas(names))
	if !ok {
		return byDefault
	}
	i := slices.Index(names, s)
	if i < 0 {
		p.badName(v, at.key(name), s, names)
		return byDefault
	}
	return OnMissing(i)
}

func (p *authParser) descriptor(item *yaml.Node, at *path, e *AuthEndpoint) {
	o, ok := p.object(item, at, authDescriptorLevel)
	if !ok {
		return
	}
	defer p.release(o)
	d := AuthDescriptor{Cost: 1}
	if v := o.get("cost"); v != nil {
		d.Cost, _ = p.integer(v, at.key("cost"), 0, bucket.MaxCost)
	}
	for i, item := range p.required(o, at, "entries", "entries") {
		p.entry(item, at.key("entries").item(i), &d)
	}
	e.Descriptors = append(e.Descriptors, d)
}

func (p *authParser) entry(item *yaml.Node, at *path, d *AuthDescriptor) {
	o, ok := p.object(item, at, authEntryLevel)
	if !ok {
		return
	}
	defer p.release(o)
	var e AuthEntry
	if v := o.get("key"); v == nil {
		p.bad(o.at, at, "no key", "key: NAME, in every entry")
	} else {
		e.Key, _ = p.name(v, at.key("key"), "a key", maxName)
	}
	if ok = p.source(o, at, &e); !ok {
		return
	}
	if e.From != FromConstant {
		e.OnMissing = p.missing(o, at, p.onMissing)
	}
	p.needless(o, at, e.From)
	switch e.From {
	case FromHeader:
		e.Name = p.header(o, at)
	case FromQuery:
		if v := p.beside(o, at, "name", e.From); v != nil {
			e.Name, _ = p.name(v, at.key("name"), "a name", maxName)
		}
	case FromPath:
		e.Prefixes = p.prefixes(o, at)
	case FromClientAddress:
		e.IPv4Prefix = p.bits(o, at, "ipv4_prefix", 32)
		e.IPv6Prefix = p.bits(o, at, "ipv6_prefix", 128)
	}
	d.Entries = append(d.Entries, e)
}

// source reads where the value comes from.
func (p *authParser) source(o *object, at *path, e *AuthEntry) bool {
	names := authSources[1:]
	value, from := o.get("value"), o.get("from")
	switch {
	case value != nil && from != nil:
		k := later(o.key("value"), o.key("from"))
		p.bad(k, at.key(k.Value), "value beside from", "one of them")
		return false
	case value != nil:
		var ok bool
		e.Value, ok = p.text(value, at.key("value"), "a text, a number or a boolean")
		return ok
	case from == nil:
		p.bad(o.at, at, "no value", "value: TEXT, or from: one of "+commas(names))
		return false
	}
	s, ok := p.text(from, at.key("from"), commas(names))
	if !ok {
		return false
	}
	i := slices.Index(names, s)
	if i < 0 {
		p.badName(from, at.key("from"), s, names)
		return false
	}
	e.From = AuthSource(i + 1)
	if e.From.isTold() && !p.trusts {
		p.bad(from, at.key("from"), s+" without trusted_proxies, which alone can tell it", "it with trusted_proxies in the file")
	}
	return true
}

// needless reports what means nothing for the source.
func (p *authParser) needless(o *object, at *path, from AuthSource) {
	for _, f := range []struct {
		name string
		of   []AuthSource
	}{
		{"name", []AuthSource{FromHeader, FromQuery}},
		{"prefixes", []AuthSource{FromPath}},
		{"ipv4_prefix", []AuthSource{FromClientAddress}},
		{"ipv6_prefix", []AuthSource{FromClientAddress}},
		{"on_missing", []AuthSource{FromClientAddress, FromHeader, FromMethod, FromPath, FromQuery}},
	} {
		if o.get(f.name) == nil || slices.Contains(f.of, from) {
			continue
		}
		var with []string
		for _, s := range f.of {
			with = append(with, s.String())
		}
		beside := "from: " + from.String()
		if from == FromConstant {
			beside = "a value"
		}
		p.bad(o.key(f.name), at.key(f.name), f.name+" beside "+beside, "it beside from: "+strings.Join(with, " or "))
	}
}

// beside returns what a source needs, or nil where it is not there.
func (p *authParser) beside(o *object, at *path, name string, from AuthSource) *yaml.Node {
	v := o.get(name)
	if v == nil {
		p.bad(o.at, at, "from: "+from.String()+" without "+name, name+" beside it")
	}
	return v
}

// header reads the name of a header.
func (p *authParser) header(o *object, at *path) string {
	v := p.beside(o, at, "name", FromHeader)
	if v == nil {
		return ""
	}
	kind, at := headerSetting(), at.key("name")
	s, ok := p.text(v, at, kind.allowed)
	if !ok {
		return ""
	}
	if _, complaint := kind.parse(s); complaint != nil {
		p.bad(v, at, "the text "+quote(s), kind.allowed)
	}
	if strings.EqualFold(s, "host") {
		p.bad(v, at, "the header Host, which is that of this daemon", "X-Forwarded-Host, or a name that the proxy's configuration gives it")
	}
	return s
}

func (p *authParser) prefixes(o *object, at *path) []string {
	const (
		most    = 1000
		allowed = "/ and segments, decoded and without a slash at the end, such as /api/v1"
	)
	v := p.beside(o, at, "prefixes", FromPath)
	if v == nil {
		return nil
	}
	at = at.key("prefixes")
	items, ok := p.list(v, at, "paths")
	if ok && (len(items) == 0 || len(items) > most) {
		p.bad(v, at, fmt.Sprintf("%d paths", len(items)), fmt.Sprintf("1 to %d", most))
		return nil
	}
	var prefixes []string
	for i, item := range items {
		s, ok := p.text(item, at.item(i), allowed)
		switch {
		case !ok:
		case !isPlainPath(s):
			p.bad(item, at.item(i), "the text "+quote(s), allowed)
		case slices.Contains(prefixes, s):
			p.bad(item, at.item(i), quote(s)+" again", "each path once")
		default:
			prefixes = append(prefixes, s)
		}
	}
	slices.SortFunc(prefixes, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	return prefixes
}

// isPlainPath reports whether a path is written as those of requests are
// compared. A ? or # would end it, and a ; ends a prefix.
func isPlainPath(s string) bool {
	if s == "/" {
		return true
	}
	if !strings.HasPrefix(s, "/") || strings.ContainsAny(s, "?#;") || hasControl(s) {
		return false
	}
	return !slices.ContainsFunc(strings.Split(s[1:], "/"), func(segment string) bool {
		return segment == "" || segment == "." || segment == ".."
	})
}

// bits reads how many bits of an address count.
func (p *authParser) bits(o *object, at *path, name string, most int64) int {
	v := o.get(name)
	if v == nil {
		return 0
	}
	n, _ := p.integer(v, at.key(name), 1, most)
	return int(n)
}
