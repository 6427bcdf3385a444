// Package headers reads and writes the HTTP fields that guard and the daemon share:
// X-Forwarded-For, and RateLimit-Policy and RateLimit of
// draft-ietf-httpapi-ratelimit-headers-11. It imports nothing of the project, and changes
// when these need it to.
package headers

import (
	"net/netip"
	"strings"
)

// Sender returns the address of the client of the first trusted proxy in a chain whose
// last proxy sent the request here. values are those of X-Forwarded-For. If they hold no
// address, Sender returns the zero Addr; if all are trusted, the first one. It reports
// false if a trusted proxy wrote something that is not an address.
//
// Each proxy appends the address of its client to the list. So Sender reads the
// list from its end, as long as the proxy that appended is trusted, and never
// reaches what a client wrote itself. Empty elements are skipped (RFC 9110,
// section 5.6.1).
func Sender(values []string, trusts func(netip.Addr) bool) (sender netip.Addr, ok bool) {
	for i := len(values) - 1; i >= 0; i-- {
		for rest := values[i]; rest != ""; {
			comma := strings.LastIndexByte(rest, ',')
			text := strings.Trim(rest[comma+1:], " \t")
			rest = rest[:max(comma, 0)]
			if text == "" {
				continue
			}
			if sender, ok = ParseAddress(text); !ok || !trusts(sender) {
				return sender, ok
			}
		}
	}
	return sender, true
}

// ParseAddress parses an address with or without a port, IPv6 also in brackets, and
// reports whether it is one. It returns the canonical form: IPv4 not within IPv6,
// and without a zone.
func ParseAddress(text string) (netip.Addr, bool) {
	inner, inBrackets := strings.CutPrefix(text, "[")
	if inBrackets && strings.HasSuffix(inner, "]") {
		text = strings.TrimSuffix(inner, "]")
	} else if inBrackets || strings.Count(text, ":") == 1 {
		withPort, err := netip.ParseAddrPort(text)
		return withPort.Addr().Unmap().WithZone(""), err == nil
	}
	a, err := netip.ParseAddr(text)
	return a.Unmap().WithZone(""), err == nil
}
