package guard

import (
	"net/netip"
	"slices"

	"github.com/ratelimitd/ratelimitd/internal/forwarded"
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
	trusts := func(a netip.Addr) bool {
		return slices.ContainsFunc(trusted, func(p netip.Prefix) bool { return p.Contains(a) })
	}
	peer, ok := forwarded.ParseAddress(remote)
	if !ok || !trusts(peer) {
		return peer, ok
	}
	sender, ok := forwarded.Sender(forwardedFor, trusts)
	if ok && !sender.IsValid() {
		return peer, true
	}
	return sender, ok
}
