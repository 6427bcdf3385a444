package guard

import (
	"net/netip"
	"strings"
)

// ClientAddress returns the address of who sent a request: remote, the other
// end of the connection, unless that is a trusted proxy. Then it is the last in
// the values of X-Forwarded-For that is no trusted proxy's, for what stands
// before it anybody can have written; if all are trusted, the first. It reports
// false if remote is no address, or a trusted proxy wrote what is none.
func ClientAddress(remote string, forwardedFor []string, trusted []netip.Prefix) (string, bool) {
	a, ok := clientAddress(remote, forwardedFor, trusted)
	if !ok {
		return "", false
	}
	return a.String(), true
}

// ClientNetwork is ClientAddress with only so many bits of an IPv4 address, 0
// to 32, or an IPv6 address, 0 to 128: one customer has a whole /64 of IPv6 as
// a rule. The value is a network, such as 2001:db8:1:2::/64, where not all bits
// count.
func ClientNetwork(remote string, forwardedFor []string, trusted []netip.Prefix, ipv4Bits, ipv6Bits int) (string, bool) {
	a, ok := clientAddress(remote, forwardedFor, trusted)
	if !ok {
		return "", false
	}
	wanted := ipv6Bits
	if a.Is4() {
		wanted = ipv4Bits
	}
	if wanted = max(0, wanted); wanted >= a.BitLen() {
		return a.String(), true
	}
	network, err := a.Prefix(wanted)
	return network.String(), err == nil
}

func clientAddress(remote string, forwardedFor []string, trusted []netip.Prefix) (netip.Addr, bool) {
	sender, ok := parseAddress(remote)
	if !ok {
		return netip.Addr{}, false
	}
	for i := len(forwardedFor) - 1; i >= 0; i-- {
		rest, isMore := forwardedFor[i], true
		for isMore {
			if !isTrusted(sender, trusted) {
				return sender, true
			}
			var last string
			if comma := strings.LastIndexByte(rest, ','); comma >= 0 {
				rest, last = rest[:comma], rest[comma+1:]
			} else {
				last, isMore = rest, false
			}
			before, ok := parseAddress(strings.TrimSpace(last))
			if !ok {
				return netip.Addr{}, false
			}
			sender = before
		}
	}
	return sender, true
}

// parseAddress reads an address with or without a port.
func parseAddress(s string) (netip.Addr, bool) {
	if ap, err := netip.ParseAddrPort(s); err == nil {
		return ap.Addr().Unmap().WithZone(""), true
	}
	a, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(s, "["), "]"))
	return a.Unmap().WithZone(""), err == nil
}

func isTrusted(a netip.Addr, trusted []netip.Prefix) bool {
	for _, p := range trusted {
		if p.Contains(a) {
			return true
		}
	}
	return false
}
