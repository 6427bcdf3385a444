package network_test

import (
	"net/netip"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/network"
)

func TestValuesAreNetworks(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ value, want, counted string }{
		{"1.2.3.4", "1.2.3.4/32", "1.2.3.0/24"},
		{"1.2.3.4:80", "1.2.3.4/32", "1.2.3.0/24"},
		{"::ffff:1.2.3.4", "1.2.3.4/32", "1.2.3.0/24"},
		{"::FFFF:102:304", "1.2.3.4/32", "1.2.3.0/24"},
		{"[::ffff:1.2.3.4]:80", "1.2.3.4/32", "1.2.3.0/24"},
		{"2001:db8:1234:5678::1.2.3.4", "2001:db8:1234:5678::102:304/128", "2001:db8:1234:5678::/64"},
		{"2001:DB8:0:0:0::1", "2001:db8::1/128", "2001:db8::/64"},
		{"[2001:db8::1]", "2001:db8::1/128", "2001:db8::/64"},
		{"[2001:db8::1]:443", "2001:db8::1/128", "2001:db8::/64"},
		{"fe80::1%eth0", "fe80::1/128", "fe80::/64"},
		{"64:ff9b::1.2.3.4", "64:ff9b::102:304/128", "64:ff9b::/64"},
		{"2002:102:304::1", "2002:102:304::1/128", "2002:102:304::/64"},
		{"10.1.0.0/16", "10.1.0.0/16", "10.1.0.0/16"}, // from Envoy's masked_remote_address
		{"10.1.2.3/16", "10.1.0.0/16", "10.1.0.0/16"},
		{"::ffff:10.1.0.0/112", "10.1.0.0/16", "10.1.0.0/16"},
		{"2001:db8::/48", "2001:db8::/48", "2001:db8::/48"},
		{"2001:db8::1/128", "2001:db8::1/128", "2001:db8::/64"},
	} {
		got, ok := network.Parse(c.value)
		if !ok || got.String() != c.want {
			t.Errorf("%s is %v, %t, want %s", c.value, got, ok, c.want)
		}
		if counted := lengths.Of(got).String(); counted != c.counted {
			t.Errorf("%s is counted by %s, want %s", c.value, counted, c.counted)
		}
	}
	for _, value := range []string{
		"", "alice", "1.2.3", "1.2.3.4.5", "01.2.3.4", "[::1", "::1]", "1.2.3.4/", "1.2.3.4/33", "1.2.3.4/08", "1.2.3.4/+8", "1.2.3.4/-1",
		"::ffff:1.2.3.4/95", "::1/129", "1.2.3.4/8/8", "1.2.3.4:99999", " 1.2.3.4", "1.2.3.4, 5.6.7.8",
	} {
		if got, ok := network.Parse(value); ok {
			t.Errorf("%q is %v", value, got)
		}
	}
}

var lengths = network.Lengths{IPv4: 24, IPv6: 64}

// FuzzParse holds that a network is read from the text by which it is counted, in any
// number of rounds.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{"1.2.3.4:80", "[::ffff:1.2.3.4%a]", "2001:db8::/48", "::ffff:0:0/90"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		p, ok := network.Parse(value)
		if !ok {
			return
		}
		if !p.IsValid() || p != p.Masked() || p.Addr().Is4In6() && p.Bits() >= 96 || p.Addr().Zone() != "" {
			t.Fatalf("%q is %v", value, p)
		}
		for _, want := range []netip.Prefix{p, lengths.Of(p)} {
			text := string(network.AppendText(nil, want))
			if again, ok := network.Parse(text); !ok || again != want || lengths.Of(again) != lengths.Of(p) {
				t.Fatalf("%q is %v, but %s is %v, %t", value, p, text, again, ok)
			}
		}
	})
}
