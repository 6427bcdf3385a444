package forwardauth

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
	"github.com/ratelimitd/ratelimitd/internal/network"
)

func (p *parser) entry(item yamlfile.Value, d *Descriptor) {
	o, ok := p.Object(item, entryLevel)
	if !ok {
		return
	}
	var e Entry
	if v, ok := p.Needed(o, "key", "key: NAME, in every entry"); ok {
		e.Key, _ = p.Name(v, "a key", yamlfile.MaxName)
	}
	if ok = p.source(o, &e); !ok {
		return
	}
	if e.From != FromConstant {
		e.OnMissing = p.missing(o, p.onMissing)
	}
	p.needless(o, e.From)
	switch e.From {
	case FromHeader:
		e.Name = p.header(o)
	case FromQuery:
		if v, ok := p.beside(o, "name", e.From); ok {
			e.Name, _ = p.Name(v, "a name", yamlfile.MaxName)
		}
	case FromPath:
		e.Prefixes = p.prefixes(o)
	case FromClientAddress:
		e.Network = network.Lengths{IPv4: p.bits(o, "ipv4_prefix", 32), IPv6: p.bits(o, "ipv6_prefix", 128)}
	}
	d.Entries = append(d.Entries, e)
}

// source reads where the value comes from.
func (p *parser) source(o *yamlfile.Object, e *Entry) bool {
	value, hasValue := o.Field("value")
	from, hasFrom := o.Field("from")
	switch {
	case hasValue && hasFrom:
		p.Bad(yamlfile.Later(o.Key("value"), o.Key("from")), "value beside from", "one of them")
		return false
	case hasValue:
		var ok bool
		e.Value, ok = p.Text(value, "a text, a number or a boolean")
		return ok
	case !hasFrom:
		p.Bad(o.Value, "no value", "value: TEXT, or from: one of "+yamlfile.Commas(yamlfile.NamesOf(sources)))
		return false
	}
	var ok bool
	if e.From, ok = yamlfile.OneOf(p.Reader, from, sources...); !ok {
		return false
	}
	if e.From.isOfProxy() && !p.trusts {
		p.Bad(from, e.From.String()+" without trusted_proxies, without which it is unknown", "it with trusted_proxies in the file")
	}
	return true
}

// needless reports keys that mean nothing with this source.
func (p *parser) needless(o *yamlfile.Object, from Source) {
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
		if !o.Has(f.name) || slices.Contains(f.of, from) {
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
		p.Bad(o.Key(f.name), f.name+" beside "+beside, "it beside from: "+strings.Join(with, " or "))
	}
}

// beside returns a field that the source needs, and reports it if missing.
func (p *parser) beside(o *yamlfile.Object, name string, from Source) (yamlfile.Value, bool) {
	v, ok := o.Field(name)
	if !ok {
		p.Bad(o.Value, "from: "+from.String()+" without "+name, name+" beside it")
	}
	return v, ok
}

// header reads the name of a header.
func (p *parser) header(o *yamlfile.Object) string {
	v, ok := p.beside(o, "name", FromHeader)
	if !ok {
		return ""
	}
	s, ok := p.Text(v, yamlfile.AllowedHeaderName)
	if !ok {
		return ""
	}
	if !yamlfile.IsHeaderName(s) {
		p.Bad(v, "the text "+yamlfile.Quote(s), yamlfile.AllowedHeaderName)
	}
	if strings.EqualFold(s, "host") {
		p.Bad(v, "the header Host, which is that of this daemon", "X-Forwarded-Host, or a name that the proxy's configuration gives it")
	}
	return s
}

func (p *parser) prefixes(o *yamlfile.Object) []string {
	const (
		maxPrefixes = 1000
		allowed     = "/ and segments, decoded and without a slash at the end, such as /api/v1"
	)
	v, ok := p.beside(o, "prefixes", FromPath)
	if !ok {
		return nil
	}
	items, ok := p.List(v, "paths")
	if ok && (items.Len() == 0 || items.Len() > maxPrefixes) {
		p.Bad(v, fmt.Sprintf("%d paths", items.Len()), fmt.Sprintf("1 to %d", maxPrefixes))
		return nil
	}
	var prefixes []string
	for item := range items.All() {
		s, ok := p.Text(item, allowed)
		switch {
		case !ok:
		case !isPlainPath(s):
			p.Bad(item, "the text "+yamlfile.Quote(s), allowed)
		case slices.Contains(prefixes, s):
			p.Bad(item, yamlfile.Quote(s)+" again", "each path once")
		default:
			prefixes = append(prefixes, s)
		}
	}
	slices.SortFunc(prefixes, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	return prefixes
}

// isPlainPath reports whether a path is written the way request paths are compared. A ?
// or # would end it, and a ; ends a prefix.
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

// bits reads how many bits of an address count; 0 means all.
func (p *parser) bits(o *yamlfile.Object, name string, maxBits int64) uint8 {
	v, ok := o.Field(name)
	if !ok {
		return 0
	}
	n, _ := p.Integer(v, yamlfile.Range{Min: 1, Max: maxBits})
	return uint8(n)
}
