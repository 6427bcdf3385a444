// Package forwarded tells who sent a request that came through trusted proxies.
package forwarded

import (
	"net/netip"
	"strings"
)

// Sender returns the address of who asked the first of the trusted proxies that
// a request came through, of which the last is who sent it here; values are
// those of its X-Forwarded-For. It is the zero Addr where nothing stands there,
// and the first address where all are trusted. Sender reports false where a
// trusted proxy wrote what is no address.
//
// Each proxy appends to the list who asked it. So it is read from its end for as
// long as the one who appended is trusted, and what a client put there itself is
// never reached. Empty elements count for none (RFC 9110, section 5.6.1).
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

// ParseAddress reads an address with or without a port, IPv6 also in brackets,
// and returns it in the one form that it is compared and shown in: IPv4 not
// within IPv6, and without a zone.
func ParseAddress(text string) (netip.Addr, bool) {
	if withPort, err := netip.ParseAddrPort(text); err == nil {
		return withPort.Addr().Unmap().WithZone(""), true
	}
	if inner, ok := strings.CutPrefix(text, "["); ok && strings.HasSuffix(inner, "]") {
		text = strings.TrimSuffix(inner, "]")
	}
	a, err := netip.ParseAddr(text)
	return a.Unmap().WithZone(""), err == nil
}
