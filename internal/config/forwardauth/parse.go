package forwardauth

import (
	"fmt"
	"net/netip"
	"regexp"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
)

// The levels of a file for forward auth.
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

// Load reads a file for forward auth. Its error is of type yamlfile.Errors and has all
// errors of the file; or it wraps the operating system's error.
func Load(file string) (*File, error) {
	data, err := read(file)
	if err != nil {
		return nil, err
	}
	f, _, err := parse(file, data)
	return f, err
}

func read(file string) ([]byte, error) {
	data, err := yamlfile.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("forward auth: %w", err)
	}
	return data, nil
}

// parser turns the nodes of a file into a File.
type parser struct {
	*yamlfile.Reader
	f *File
	// trusts is whether the file has trusted_proxies.
	trusts bool
	// onMissing is the one of the endpoint being read, for entries without their own.
	onMissing OnMissing
}

// parse also returns the size of the file, for the log.
func parse(file string, data []byte) (*File, []any, error) {
	p := &parser{
		Reader: yamlfile.NewReader(file, len(data), fileLevel, endpointLevel, descriptorLevel, entryLevel),
		f:      &File{byName: make(map[string]*Endpoint)},
	}
	if err := p.Parse(data, fileLevel.Is+", with "+yamlfile.Commas(fileLevel.Names()), p.top); err != nil {
		return nil, nil, err
	}
	return p.f, []any{"endpoints", len(p.f.Endpoints)}, nil
}

func (p *parser) top(v yamlfile.Value) {
	o, ok := p.Object(v, fileLevel)
	if !ok {
		return
	}
	if v, ok := o.Field("trusted_proxies"); ok {
		p.trusts = true
		p.trustedProxies(v)
	}
	for item := range p.required(o, "endpoints").All() {
		p.endpoint(item)
	}
}

// required returns the items of a list that must exist and not be empty.
func (p *parser) required(o *yamlfile.Object, name string) yamlfile.List {
	v, ok := p.Needed(o, name, name+": a list with at least one")
	if !ok {
		return yamlfile.List{}
	}
	items, ok := p.List(v, name)
	if ok && items.Len() == 0 {
		p.Bad(v, "an empty list", "at least one")
	}
	return items
}

func (p *parser) trustedProxies(v yamlfile.Value) {
	const allowed = "an IP address, or a network such as 10.0.0.0/8 or fd00::/8"
	items, _ := p.List(v, "IP addresses and networks")
	for item := range items.All() {
		s, ok := p.Text(item, allowed)
		if !ok {
			continue
		}
		prefix, complaint := parseNetwork(s)
		if complaint != "" {
			p.Bad(item, complaint, allowed)
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
		return prefix, found + ", which is every address: any client could claim to be another"
	case prefix != prefix.Masked():
		return prefix, fmt.Sprintf("%s, which has bits beyond its length (%s?)", found, prefix.Masked())
	}
	return prefix, ""
}

func (p *parser) endpoint(item yamlfile.Value) {
	o, ok := p.Object(item, endpointLevel)
	if !ok {
		return
	}
	e := &Endpoint{File: p.Reader.File, Line: item.Node.Line}
	p.endpointName(o, e)
	p.proxy(o, e)
	p.deniedStatus(o, e)
	if v, ok := p.Needed(o, "domain", "domain: NAME, that of the limits"); ok {
		e.Domain, _ = p.Name(v, "a name", yamlfile.MaxName)
		e.domainAt = v.Position()
	}
	p.onMissing = p.missing(o, MissingEmpty)
	for d := range p.required(o, "descriptors").All() {
		p.descriptor(d, e)
	}
	p.f.Endpoints = append(p.f.Endpoints, e)
}

// endpointNames matches names that need no escaping in a URL.
var endpointNames = regexp.MustCompile(`^[A-Za-z0-9_.~-]{1,64}$`)

func (p *parser) endpointName(o *yamlfile.Object, e *Endpoint) {
	const allowed = "1 to 64 letters, digits and -_.~, and not . or .."
	v, ok := p.Needed(o, "name", "name: NAME, as in /auth/NAME")
	if !ok {
		return
	}
	s, ok := p.Text(v, allowed)
	first := p.f.byName[s]
	switch {
	case !ok:
	case !endpointNames.MatchString(s) || s == "." || s == "..":
		p.Bad(v, "the text "+yamlfile.Quote(s), allowed)
	case first != nil:
		p.Bad(v, fmt.Sprintf("the name %s again, the first is on line %d", yamlfile.Quote(s), first.Line), "a name for each endpoint")
	default:
		e.Name = s
		p.f.byName[s] = e
	}
}

// proxy reads which proxy asks, with its headers and the status of its denials.
func (p *parser) proxy(o *yamlfile.Object, e *Endpoint) {
	v, ok := p.Needed(o, "proxy", "proxy: one of "+yamlfile.Commas(yamlfile.NamesOf(proxies)))
	if !ok {
		return
	}
	if proxy, ok := yamlfile.OneOf(p.Reader, v, proxies...); ok {
		e.Proxy, e.URIHeader, e.MethodHeader, e.DeniedStatus = proxy.name, proxy.uri, proxy.method, proxy.denied
	}
}

// deniedStatus reads denied_status, which overrides the proxy's.
func (p *parser) deniedStatus(o *yamlfile.Object, e *Endpoint) {
	v, ok := o.Field("denied_status")
	if !ok {
		return
	}
	n, ok := p.Integer(v, yamlfile.Range{Min: 400, Max: 499})
	if ok && e.Proxy == "nginx" && n != 401 && n != 403 {
		p.Bad(v, fmt.Sprintf("%d with the proxy nginx, which takes it for an error", n), "401 or 403, of which error_page makes another status")
		return
	}
	if ok {
		e.DeniedStatus = int(n)
	}
}

// missing reads on_missing.
func (p *parser) missing(o *yamlfile.Object, byDefault OnMissing) OnMissing {
	if v, ok := o.Field("on_missing"); ok {
		if m, ok := yamlfile.OneOf(p.Reader, v, MissingEmpty, MissingOmit, MissingDeny); ok {
			return m
		}
	}
	return byDefault
}

func (p *parser) descriptor(item yamlfile.Value, e *Endpoint) {
	o, ok := p.Object(item, descriptorLevel)
	if !ok {
		return
	}
	d := Descriptor{Cost: 1}
	if v, ok := o.Field("cost"); ok {
		d.Cost, _ = p.Integer(v, yamlfile.Range{Min: 0, Max: bucket.MaxRequests})
	}
	for item := range p.required(o, "entries").All() {
		p.entry(item, &d)
	}
	e.Descriptors = append(e.Descriptors, d)
}
