package guard

import (
	"net/netip"
	"slices"

	"github.com/ratelimitd/ratelimitd/client/guard/headers"
)

// ClientAddress returns the address that a request came from. That is remote,
// the other end of the connection, unless it is a trusted proxy. Behind trusted
// proxies it is the last address in the values of X-Forwarded-For that is not a
// trusted proxy's, because clients can write anything before it; if all are
// trusted, it is the first. ClientAddress reports false if remote is not an
// address, or if a trusted proxy wrote something that is not one.
func ClientAddress(remote string, forwardedFor []string, trusted []netip.Prefix) (string, bool) {
	a, ok := clientAddress(remote, forwardedFor, trusted)
	if !ok {
		return "", false
	}
	return a.String(), true
}

// ClientNetwork is ClientAddress with only the first bits of the address, 0 to 32
// of IPv4 and 0 to 128 of IPv6: one customer usually has a whole /64 of IPv6. If
// not all bits count, the value is a network, such as 2001:db8:1:2::/64.
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
	peer, ok := headers.ParseAddress(remote)
	if !ok || !trusts(peer) {
		return peer, ok
	}
	sender, ok := headers.Sender(forwardedFor, trusts)
	if ok && !sender.IsValid() {
		return peer, true
	}
	return sender, ok
}
