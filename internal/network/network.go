// Package network reads the values of entries as IP addresses and networks. It imports only
// the addresses of client/guard/headers.
package network

import (
	"net/netip"
	"strconv"
	"strings"

	"github.com/ratelimitd/ratelimitd/client/guard/headers"
)

// Parse reads a value as a network, and reports whether it is one: an address as in
// headers.ParseAddress, which is a network of one address, or an address with the length of
// its network, as Envoy's masked_remote_address sends it. Networks are IPv4 where their
// addresses are IPv4-mapped, and have no bits beyond their length. No address is looked for
// within one, as in those of NAT64 and 6to4.
func Parse(value string) (netip.Prefix, bool) {
	text, length, hasLength := strings.Cut(value, "/")
	address, ok := headers.ParseAddress(text)
	if !ok || !hasLength {
		return netip.PrefixFrom(address, address.BitLen()), ok
	}
	bits, err := strconv.Atoi(length)
	if err != nil || length != strconv.Itoa(bits) {
		return netip.Prefix{}, false
	}
	if isMapped := address.Is4() && strings.Count(text, ":") > 1; isMapped {
		bits -= 128 - 32
	}
	prefix, err := address.Prefix(bits)
	return prefix, err == nil
}

// Lengths are how many bits of an address count; 0 means all.
type Lengths struct{ IPv4, IPv6 uint8 }

// Of returns the network of that length which a network is in, or the network itself if it
// is not longer.
func (l Lengths) Of(p netip.Prefix) netip.Prefix {
	bits := int(l.IPv6)
	if p.Addr().Is4() {
		bits = int(l.IPv4)
	}
	if bits == 0 || bits >= p.Bits() {
		return p
	}
	return netip.PrefixFrom(p.Addr(), bits).Masked()
}

// AppendText appends the one spelling of a network, which Parse reads: an address, or with
// the length of a network of several.
func AppendText(dst []byte, p netip.Prefix) []byte {
	if p.IsSingleIP() {
		return p.Addr().AppendTo(dst)
	}
	return p.AppendTo(dst)
}
