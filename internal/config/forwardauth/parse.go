package forwardauth

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
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
)

// What the mappings of a file for forward auth may hold.
var (
	fileLevel     = &yamlfile.Level{Is: "a file for forward auth", Fields: []yamlfile.Field{{Name: "trusted_proxies"}, {Name: "endpoints"}}}
	endpointLevel = &yamlfile.Level{Is: "an endpoint", Fields: []yamlfile.Field{
		{Name: "name"}, {Name: "proxy"}, {Name: "domain"}, {Name: "denied_status"}, {Name: "on_missing"}, {Name: "descriptors"},
	}}
	descriptorLevel = &yamlfile.Level{Is: "a descriptor", Fields: []yamlfile.Field{{Name: "entries"}, {Name: "cost"}}}
	entryLevel      = &yamlfile.Level{Is: "an entry", Fields: []yamlfile.Field{
		{Name: "key"}, {Name: "value"}, {Name: "from"}, {Name: "name"}, {Name: "prefixes"},
		{Name: "ipv4_prefix"}, {Name: "ipv6_prefix"}, {Name: "on_missing"},
	}}
)

// Load reads a file for forward auth. Its error is of type Errors and holds
// all that is wrong in the file; or it wraps that of the operating system.
func Load(file string) (*File, error) {
	data, err := read(file)
	if err != nil {
		return nil, err
	}
	return parse(file, data)
}

func read(file string) ([]byte, error) {
	info, err := os.Stat(file)
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no file", file)
	}
	var data []byte
	if err == nil {
		data, err = yamlfile.ReadFile(file)
	}
	if err != nil {
		return nil, fmt.Errorf("forward auth: %w", err)
	}
	return data, nil
}

// parser turns the nodes of a file into a File.
type parser struct {
	*yamlfile.Reader
	f *File
	// trusts is whether the file says anything of trusted proxies.
	trusts bool
	// onMissing is that of the endpoint at hand, for entries that have none.
	onMissing OnMissing
}

func parse(file string, data []byte) (*File, error) {
	p := &parser{
		Reader: yamlfile.NewReader(file, len(data), fileLevel, endpointLevel, descriptorLevel, entryLevel),
		f:      &File{byName: make(map[string]*Endpoint)},
	}
	if err := p.file(data); err != nil {
		err.File = file
		p.Errs = append(p.Errs, *err)
	}
	if len(p.Errs) > 0 {
		p.Errs.Sort()
		return nil, p.Errs
	}
	return p.f, nil
}

func (p *parser) file(data []byte) *yamlfile.Error {
	text, err := p.Utf8(data)
	if err != nil {
		return err
	}
	doc, err := p.ParseYAML(text)
	switch {
	case doc != nil:
		p.top(doc)
	case err == nil:
		return &yamlfile.Error{Line: 1, Column: 1, Found: "an empty file", Allowed: fileLevel.Is + ", with " + yamlfile.Commas(fileLevel.Names())}
	}
	return err
}

func (p *parser) top(n *yaml.Node) {
	o, ok := p.Object(n, nil, fileLevel)
	if !ok {
		return
	}
	var top *yamlfile.Path
	if v := o.Get("trusted_proxies"); v != nil {
		p.trusts = true
		p.trustedProxies(v, top.Key("trusted_proxies"))
	}
	for i, item := range p.required(o, top, "endpoints", "endpoints") {
		p.endpoint(item, top.Key("endpoints").Item(i))
	}
}

// required returns the items of a list that must be there and have one.
func (p *parser) required(o *yamlfile.Object, at *yamlfile.Path, name, of string) []*yaml.Node {
	v := o.Get(name)
	if v == nil {
		p.Bad(o.At, at, "no "+name, name+": a list with at least one")
		return nil
	}
	items, ok := p.List(v, at.Key(name), of)
	if ok && len(items) == 0 {
		p.Bad(v, at.Key(name), "an empty list", "at least one")
	}
	return items
}

func (p *parser) trustedProxies(n *yaml.Node, at *yamlfile.Path) {
	const allowed = "an IP address, or a network such as 10.0.0.0/8 or fd00::/8"
	items, _ := p.List(n, at, "IP addresses and networks")
	for i, item := range items {
		s, ok := p.Text(item, at.Item(i), allowed)
		if !ok {
			continue
		}
		prefix, complaint := parseNetwork(s)
		if complaint != "" {
			p.Bad(item, at.Item(i), complaint, allowed)
			continue
		}
		p.f.TrustedProxies = append(p.f.TrustedProxies, prefix)
	}
}

// parseNetwork reads an address or a network, or says what was found.
func parseNetwork(s string) (_ netip.Prefix, complaint string) {
	found := "the text " + yamlfile.Quote(s)
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

func (p *parser) endpoint(item *yaml.Node, at *yamlfile.Path) {
	o, ok := p.Object(item, at, endpointLevel)
	if !ok {
		return
	}
	defer p.Release(o)
	e := &Endpoint{File: p.Reader.File, Line: item.Line}
	p.endpointName(o, at, e)
	p.proxy(o, at, e)
	if v := o.Get("domain"); v == nil {
		p.Bad(o.At, at, "no domain", "domain: NAME, that of the limits")
	} else {
		e.Domain, _ = p.Name(v, at.Key("domain"), "a name", yamlfile.MaxName)
		e.domainAt = yamlfile.NodeAt(v, at.Key("domain"))
	}
	p.onMissing = p.missing(o, at, MissingEmpty)
	for i, d := range p.required(o, at, "descriptors", "descriptors") {
		p.descriptor(d, at.Key("descriptors").Item(i), e)
	}
	p.f.Endpoints = append(p.f.Endpoints, e)
}

// endpointNames are those that stand in a URL as they are.
var endpointNames = regexp.MustCompile(`^[A-Za-z0-9_.~-]{1,64}$`)

func (p *parser) endpointName(o *yamlfile.Object, at *yamlfile.Path, e *Endpoint) {
	const allowed = "1 to 64 letters, digits and -_.~, and not . or .."
	v := o.Get("name")
	if v == nil {
		p.Bad(o.At, at, "no name", "name: NAME, as in /auth/NAME")
		return
	}
	at = at.Key("name")
	s, ok := p.Text(v, at, allowed)
	first := p.f.byName[s]
	switch {
	case !ok:
	case !endpointNames.MatchString(s) || s == "." || s == "..":
		p.Bad(v, at, "the text "+yamlfile.Quote(s), allowed)
	case first != nil:
		p.Bad(v, at, fmt.Sprintf("the name %s again, the first is on line %d", yamlfile.Quote(s), first.Line), "a name for each endpoint")
	default:
		e.Name = s
		p.f.byName[s] = e
	}
}

// proxy reads which proxy asks, and the status that it is denied with.
func (p *parser) proxy(o *yamlfile.Object, at *yamlfile.Path, e *Endpoint) {
	var names []string
	for _, proxy := range proxies {
		names = append(names, proxy.name)
	}
	v := o.Get("proxy")
	if v == nil {
		p.Bad(o.At, at, "no proxy", "proxy: one of "+yamlfile.Commas(names))
	} else if s, ok := p.Text(v, at.Key("proxy"), yamlfile.Commas(names)); ok {
		i := slices.Index(names, s)
		if i < 0 {
			p.BadName(v, at.Key("proxy"), s, names)
		} else {
			proxy := proxies[i]
			e.Proxy, e.URIHeader, e.MethodHeader, e.DeniedStatus = proxy.name, proxy.uri, proxy.method, proxy.denied
		}
	}
	v, at = o.Get("denied_status"), at.Key("denied_status")
	if v == nil {
		return
	}
	n, ok := p.Integer(v, at, 400, 499)
	if ok && e.Proxy == "nginx" && n != 401 && n != 403 {
		p.Bad(v, at, fmt.Sprintf("%d with the proxy nginx, which takes it for an error", n), "401 or 403, of which error_page makes another status")
		return
	}
	if ok {
		e.DeniedStatus = int(n)
	}
}

// missing reads on_missing.
func (p *parser) missing(o *yamlfile.Object, at *yamlfile.Path, byDefault OnMissing) OnMissing {
	const name = "on_missing"
	v := o.Get(name)
	if v == nil {
		return byDefault
	}
	names := onMissingNames[:]
	s, ok := p.Text(v, at.Key(name), yamlfile.Commas(names))
	if !ok {
		return byDefault
	}
	i := slices.Index(names, s)
	if i < 0 {
		p.BadName(v, at.Key(name), s, names)
		return byDefault
	}
	return OnMissing(i)
}

func (p *parser) descriptor(item *yaml.Node, at *yamlfile.Path, e *Endpoint) {
	o, ok := p.Object(item, at, descriptorLevel)
	if !ok {
		return
	}
	defer p.Release(o)
	d := Descriptor{Cost: 1}
	if v := o.Get("cost"); v != nil {
		d.Cost, _ = p.Integer(v, at.Key("cost"), 0, bucket.MaxCost)
	}
	for i, item := range p.required(o, at, "entries", "entries") {
		p.entry(item, at.Key("entries").Item(i), &d)
	}
	e.Descriptors = append(e.Descriptors, d)
}

func (p *parser) entry(item *yaml.Node, at *yamlfile.Path, d *Descriptor) {
	o, ok := p.Object(item, at, entryLevel)
	if !ok {
		return
	}
	defer p.Release(o)
	var e Entry
	if v := o.Get("key"); v == nil {
		p.Bad(o.At, at, "no key", "key: NAME, in every entry")
	} else {
		e.Key, _ = p.Name(v, at.Key("key"), "a key", yamlfile.MaxName)
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
			e.Name, _ = p.Name(v, at.Key("name"), "a name", yamlfile.MaxName)
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
func (p *parser) source(o *yamlfile.Object, at *yamlfile.Path, e *Entry) bool {
	names := sources[1:]
	value, from := o.Get("value"), o.Get("from")
	switch {
	case value != nil && from != nil:
		k := yamlfile.Later(o.Key("value"), o.Key("from"))
		p.Bad(k, at.Key(k.Value), "value beside from", "one of them")
		return false
	case value != nil:
		var ok bool
		e.Value, ok = p.Text(value, at.Key("value"), "a text, a number or a boolean")
		return ok
	case from == nil:
		p.Bad(o.At, at, "no value", "value: TEXT, or from: one of "+yamlfile.Commas(names))
		return false
	}
	s, ok := p.Text(from, at.Key("from"), yamlfile.Commas(names))
	if !ok {
		return false
	}
	i := slices.Index(names, s)
	if i < 0 {
		p.BadName(from, at.Key("from"), s, names)
		return false
	}
	e.From = Source(i + 1)
	if e.From.isTold() && !p.trusts {
		p.Bad(from, at.Key("from"), s+" without trusted_proxies, which alone can tell it", "it with trusted_proxies in the file")
	}
	return true
}

// needless reports what means nothing for the source.
func (p *parser) needless(o *yamlfile.Object, at *yamlfile.Path, from Source) {
	for _, f := range []struct {
		name string
		of   []Source
	}{
		{"name", []Source{FromHeader, FromQuery}},
		{"prefixes", []Source{FromPath}},
		{"ipv4_prefix", []Source{FromClientAddress}},
		{"ipv6_prefix", []Source{FromClientAddress}},
		{"on_missing", []Source{FromClientAddress, FromHeader, FromMethod, FromPath, FromQuery}},
	} {
		if o.Get(f.name) == nil || slices.Contains(f.of, from) {
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
		p.Bad(o.Key(f.name), at.Key(f.name), f.name+" beside "+beside, "it beside from: "+strings.Join(with, " or "))
	}
}

// beside returns what a source needs, or nil where it is not there.
func (p *parser) beside(o *yamlfile.Object, at *yamlfile.Path, name string, from Source) *yaml.Node {
	v := o.Get(name)
	if v == nil {
		p.Bad(o.At, at, "from: "+from.String()+" without "+name, name+" beside it")
	}
	return v
}

// header reads the name of a header.
func (p *parser) header(o *yamlfile.Object, at *yamlfile.Path) string {
	v := p.beside(o, at, "name", FromHeader)
	if v == nil {
		return ""
	}
	at = at.Key("name")
	s, ok := p.Text(v, at, yamlfile.AllowedHeaderName)
	if !ok {
		return ""
	}
	if !yamlfile.IsHeaderName(s) {
		p.Bad(v, at, "the text "+yamlfile.Quote(s), yamlfile.AllowedHeaderName)
	}
	if strings.EqualFold(s, "host") {
		p.Bad(v, at, "the header Host, which is that of this daemon", "X-Forwarded-Host, or a name that the proxy's configuration gives it")
	}
	return s
}

func (p *parser) prefixes(o *yamlfile.Object, at *yamlfile.Path) []string {
	const (
		most    = 1000
		allowed = "/ and segments, decoded and without a slash at the end, such as /api/v1"
	)
	v := p.beside(o, at, "prefixes", FromPath)
	if v == nil {
		return nil
	}
	at = at.Key("prefixes")
	items, ok := p.List(v, at, "paths")
	if ok && (len(items) == 0 || len(items) > most) {
		p.Bad(v, at, fmt.Sprintf("%d paths", len(items)), fmt.Sprintf("1 to %d", most))
		return nil
	}
	var prefixes []string
	for i, item := range items {
		s, ok := p.Text(item, at.Item(i), allowed)
		switch {
		case !ok:
		case !isPlainPath(s):
			p.Bad(item, at.Item(i), "the text "+yamlfile.Quote(s), allowed)
		case slices.Contains(prefixes, s):
			p.Bad(item, at.Item(i), yamlfile.Quote(s)+" again", "each path once")
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
	if !strings.HasPrefix(s, "/") || strings.ContainsAny(s, "?#;") || yamlfile.HasControl(s) {
		return false
	}
	return !slices.ContainsFunc(strings.Split(s[1:], "/"), func(segment string) bool {
		return segment == "" || segment == "." || segment == ".."
	})
}

// bits reads how many bits of an address count.
func (p *parser) bits(o *yamlfile.Object, at *yamlfile.Path, name string, most int64) int {
	v := o.Get(name)
	if v == nil {
		return 0
	}
	n, _ := p.Integer(v, at.Key(name), 1, most)
	return int(n)
}
