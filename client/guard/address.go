package guard

import (
	"net/netip"
	"strings"
)

// ClientAddress returns the address of who sent a request: remote, the other
// end of the connection, unless that is a trusted proxy. Then it is the last in
// the values of X-Forwarded-For that is no trusted proxy's, for what stands
// before it anybody can have written; if all are trusted, the first. What is no
// address there ends the search at who sent it. It reports false if remote is no
// address.
func ClientAddress(remote string, forwardedFor []string, trusted []netip.Prefix) (string, bool) {
	sender, ok := parseAddress(remote)
	if !ok {
		return "", false
	}
	for i := len(forwardedFor) - 1; i >= 0; i-- {
		rest, isMore := forwardedFor[i], true
		for isMore {
			if !isTrusted(sender, trusted) {
				return sender.String(), true
			}
			var last string
			if comma := strings.LastIndexByte(rest, ','); comma >= 0 {
				rest, last = rest[:comma], rest[comma+1:]
			} else {
				last, isMore = rest, false
			}
			before, ok := parseAddress(strings.TrimSpace(last))
			if !ok {
				return sender.String(), true
			}
			sender = before
		}
	}
	return sender.String(), true
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
