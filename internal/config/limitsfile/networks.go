package limitsfile

import (
	"fmt"
	"net/netip"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/config/rules"
	"github.com/ratelimitd/ratelimitd/internal/config/yamlfile"
)

// maxPrefixes is how many prefixes a file may have, which take some 100 bytes each.
const maxPrefixes = 100_000

const allowedPrefix = "a network such as 10.0.0.0/8 or 2001:db8::/32"

// networks reads cidr and network of a descriptor, and gives its entry the name of its
// prefixes. It returns nil if it has neither.
func (p *parser) networks(o *yamlfile.Object, e *bucket.Entry) *rules.Networks {
	n := new(rules.Networks)
	if v, ok := o.Field("cidr"); ok {
		p.cidr(o, v, n)
		if len(n.CIDR) > 0 {
			e.Value = rules.CIDRText(n.CIDR)
		}
	} else if v, ok := o.Field("value"); ok {
		p.warnOfPrefix(v, e)
	}
	if v, ok := o.Field("network"); ok {
		p.lengths(o, v, n)
	} else if len(n.CIDR) == 0 {
		return nil
	}
	return n
}

// cidr reads a list of prefixes.
func (p *parser) cidr(o *yamlfile.Object, v yamlfile.Value, n *rules.Networks) {
	if o.Has("value") {
		p.Bad(yamlfile.Later(o.Key("value"), o.Key("cidr")), "cidr beside value", "one of them: value for a text, cidr for the addresses of networks")
		return
	}
	items, ok := p.List(v, "networks, such as [10.0.0.0/8, 2001:db8::/32]")
	if ok && items.Len() == 0 {
		p.Bad(v, "an empty list", "at least one network")
	}
	p.prefixes += items.Len()
	if p.prefixes > maxPrefixes {
		p.Bad(v, fmt.Sprintf("%d prefixes in one file so far", p.prefixes), fmt.Sprintf("at most %d", maxPrefixes))
		return
	}
	for item := range items.All() {
		text, ok := p.Text(item, allowedPrefix)
		if !ok {
			continue
		}
		prefix, allowed := parsePrefix(text)
		if allowed != "" {
			p.Bad(item, "the text "+yamlfile.Quote(text), allowed)
			continue
		}
		n.CIDR = append(n.CIDR, prefix)
	}
	if len(n.CIDR) < items.Len() {
		n.CIDR = nil // with errors
	}
}

// parsePrefix reads a prefix, or says what is allowed in its place.
func parsePrefix(text string) (_ netip.Prefix, allowed string) {
	prefix, err := netip.ParsePrefix(text)
	if err != nil {
		if address, err := netip.ParseAddr(text); err == nil && address.Zone() == "" {
			address = address.Unmap()
			return prefix, fmt.Sprintf("an address with its length: %s/%d", address, address.BitLen())
		}
		return prefix, allowedPrefix
	}
	right := prefix.Masked()
	if right.Addr().Is4In6() && right.Bits() >= 96 {
		right = netip.PrefixFrom(right.Addr().Unmap(), right.Bits()-96)
	}
	if right != prefix {
		return prefix, fmt.Sprintf("%s, without bits beyond the length and with IPv4 as such", right)
	}
	return prefix, ""
}

// lengths reads network.
func (p *parser) lengths(o *yamlfile.Object, v yamlfile.Value, n *rules.Networks) {
	lengths, ok := p.Object(v, networkLevel)
	if !ok {
		return
	}
	for _, family := range []struct {
		name string
		of   yamlfile.Range
		to   *uint8
	}{{"ipv4", ipv4Lengths, &n.Lengths.IPv4}, {"ipv6", ipv6Lengths, &n.Lengths.IPv6}} {
		if v, ok := lengths.Field(family.name); ok {
			bits, _ := p.Integer(v, family.of)
			*family.to = uint8(bits)
		}
	}
	value, hasValue := o.Field("value")
	switch {
	case lengths.First("ipv4", "ipv6") == "":
		p.Bad(v, "no length", "{ipv4: 32, ipv6: 64}, or one of them")
	case hasValue && !rules.HasStar(p.Follow(value).Value):
		p.Bad(o.Key("network"), "network beside a value that is one text", "network beside a cidr, a value with *, or no value")
	case o.Has("share_threshold"):
		p.Bad(o.Key("network"), "network beside share_threshold", "one of them: share_threshold counts all addresses of a prefix together")
	}
	for _, prefix := range n.CIDR {
		if counted := n.Lengths.Of(prefix); counted != prefix {
			p.Bad(v, fmt.Sprintf("a network of %d bits, which is larger than %s", counted.Bits(), prefix), fmt.Sprintf("at least %d bits", prefix.Bits()))
			return
		}
	}
}

// maskedAddress is the key with which Envoy sends networks, which a value may be.
const maskedAddress = "masked_remote_address"

// warnOfPrefix warns of a prefix written as a value, which addresses do not match.
func (p *parser) warnOfPrefix(v yamlfile.Value, e *bucket.Entry) {
	if _, err := netip.ParsePrefix(e.Value); err == nil && e.Key != maskedAddress {
		p.Warn(v, "is compared as a text, so no address matches it; for the addresses of this network write cidr: [%s]", e.Value)
	}
}

// addCIDR makes a descriptor with prefixes reachable, or reports a prefix that is there
// already.
func (p *parser) addCIDR(o *yamlfile.Object, list *descriptorList, n *rules.Node) {
	at, first := list.AddCIDR(n)
	if first == nil {
		return
	}
	where := fmt.Sprintf("is on line %d", first.Line())
	if p.Made {
		where = "is that of " + yamlfile.Quote(entryText(first.Entry()))
	}
	v, _ := o.Field("cidr")
	items, _ := p.List(v, "networks")
	i := 0
	for item := range items.All() {
		if i == at {
			p.Bad(item, fmt.Sprintf("the network %s again, the first %s", n.Networks().CIDR[at], where), "each network once for a key of a list")
		}
		i++
	}
}
