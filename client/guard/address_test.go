package guard_test

import (
	"net/netip"
	"testing"

	"github.com/ratelimitd/ratelimitd/client/guard"
)

func TestClientAddressIsTheLastUntrustedOne(t *testing.T) {
	t.Parallel()
	trusted := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8::/32")}
	for _, c := range []struct {
		name, remote string
		forwarded    []string
		want         string
	}{
		{"no proxy", "192.0.2.1:1234", nil, "192.0.2.1"},
		{"an untrusted sender claims another address", "192.0.2.1:1234", []string{"198.51.100.1"}, "192.0.2.1"},
		{"a trusted proxy", "10.0.0.1:1234", []string{"198.51.100.1"}, "198.51.100.1"},
		{"a client writes an address before its own", "10.0.0.1:1", []string{"203.0.113.9, 198.51.100.1"}, "198.51.100.1"},
		{"two trusted proxies", "10.0.0.1:1", []string{"203.0.113.9, 198.51.100.1,10.2.2.2"}, "198.51.100.1"},
		{"several headers", "10.0.0.1:1", []string{"203.0.113.9", "198.51.100.1", "10.2.2.2 , 10.3.3.3"}, "198.51.100.1"},
		{"all are trusted", "10.0.0.1:1", []string{"10.7.7.7, 10.2.2.2"}, "10.7.7.7"},
		{"a trusted proxy says nothing", "10.0.0.1:1", nil, "10.0.0.1"},
		{"nonsense", "10.0.0.1:1", []string{"198.51.100.1, unknown"}, ""},
		{"nonsense behind a proxy", "10.0.0.1:1", []string{"198.51.100.1, unknown, 10.2.2.2"}, ""},
		{"half a bracket", "10.0.0.1:1", []string{"[2001:db9::5"}, ""},
		{"empty elements", "10.0.0.1:1", []string{"198.51.100.1, , 10.2.2.2,", ""}, "198.51.100.1"},
		{"nothing but empty elements", "10.0.0.1:1", []string{" , ,", ""}, "10.0.0.1"},
		{"ports", "10.0.0.1:1", []string{"198.51.100.1:99"}, "198.51.100.1"},
		{"IPv6", "[2001:db8::1]:1", []string{"[2001:DB9::5]:77"}, "2001:db9::5"},
		{"IPv6 in brackets", "[2001:db8::1]:1", []string{"[2001:db9::5]"}, "2001:db9::5"},
		{"IPv4 in IPv6", "[::ffff:10.0.0.1]:1", []string{"::ffff:198.51.100.1"}, "198.51.100.1"},
		{"a zone", "[fe80::1%eth0]:1", nil, "fe80::1"},
		{"no port", "192.0.2.1", nil, "192.0.2.1"},
		{"a socket", "@", []string{"198.51.100.1"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, ok := guard.ClientAddress(c.remote, c.forwarded, trusted)
			if got != c.want || ok != (c.want != "") {
				t.Errorf("found %q, %v, want %q", got, ok, c.want)
			}
		})
	}
}

func TestClientNetworkHasOnlySoManyBits(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, remote string
		ipv4, ipv6   int
		want         string
	}{
		{"a network of IPv4", "192.0.2.129:1", 24, 64, "192.0.2.0/24"},
		{"all bits of IPv4", "192.0.2.129:1", 32, 64, "192.0.2.129"},
		{"IPv4 in IPv6", "[::ffff:192.0.2.129]:1", 25, 64, "192.0.2.128/25"},
		{"a network of IPv6", "[2001:db8:1:2:3:4:5:6]:1", 32, 64, "2001:db8:1:2::/64"},
		{"all bits of IPv6", "[2001:db8:1:2:3:4:5:6]:1", 32, 128, "2001:db8:1:2:3:4:5:6"},
		{"no bits", "[2001:db8::1]:1", 32, 0, "::/0"},
		{"a socket", "@", 32, 64, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, ok := guard.ClientNetwork(c.remote, nil, nil, c.ipv4, c.ipv6)
			if got != c.want || ok != (c.want != "") {
				t.Errorf("found %q, %v, want %q", got, ok, c.want)
			}
		})
	}
}
