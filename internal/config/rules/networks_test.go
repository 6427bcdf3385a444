package rules_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/soaktest"
	"github.com/ratelimitd/ratelimitd/internal/config/limitsfile/limitstest"
)

const networksFile = `domain: d
descriptors:
- {key: a, value: 10.1.2.3, rate_limit: &l {requests: 1, period: 1s}}
- {key: a, cidr: [10.0.0.0/8, 2001:db8::/32], rate_limit: *l}
- {key: a, cidr: [10.1.0.0/16], network: {ipv4: 24}, rate_limit: *l}
- {key: a, cidr: [10.2.0.0/16], rate_limit: *l, share_threshold: true}
- {key: a, value: "*:80", rate_limit: *l}
- {key: a, network: {ipv6: 64}, rate_limit: *l}
- {key: b, cidr: [0.0.0.0/0], descriptors: [{key: a, cidr: ["::/0"], network: {ipv6: 56}, rate_limit: *l}]}
`

func TestAddressesMatchTheLongestPrefix(t *testing.T) {
	t.Parallel()
	d := limitstest.Domain(t, networksFile)
	for _, c := range []struct{ entries, path, counted string }{
		{"a=10.1.2.3", "a=10.1.2.3", "a=10.1.2.3"},
		{"a=10.1.2.3:5", "a=10.1.0.0/16", "a==10.1.2.0/24"},
		{"a=10.1.2.4", "a=10.1.0.0/16", "a==10.1.2.0/24"},
		{"a=10.3.2.4", `a="10.0.0.0/8 and 1 more"`, "a==10.3.2.4"},
		{"a=[::ffff:10.3.2.4]:443", `a="10.0.0.0/8 and 1 more"`, "a==10.3.2.4"},
		{"a=2001:DB8:0::1%eth0", `a="10.0.0.0/8 and 1 more"`, "a==2001:db8::1"},
		{"a=10.2.9.9", "a=10.2.0.0/16", "a==10.2.0.0/16"},
		{"a=10.2.0.0/16", "a=10.2.0.0/16", "a==10.2.0.0/16"},
		{"a=10.0.0.0/8", `a="10.0.0.0/8 and 1 more"`, "a==10.0.0.0/8"},
		{"a=8.0.0.0/5", "a", "a==8.0.0.0/5"},
		{"a=11.0.0.1:80", "a=*:80", "a=11.0.0.1:80"},
		{"a=11.0.0.1:81", "a", "a==11.0.0.1"},
		{"a=2001:db9:1:2:3::4", "a", "a==2001:db9:1:2::/64"},
		{"a=2001:db9:1:2::/64", "a", "a==2001:db9:1:2::/64"},
		{"a=2001:db9::/48", "a", "a==2001:db9::/48"},
		{"a=unknown", "a", "a=unknown"},
		{"a=", "a", "a="},
		{"b=1.2.3.4,a=2001:db8:1:2ff::", "b=0.0.0.0/0 / a=::/0", "b==1.2.3.4,a==2001:db8:1:200::/56"},
		{"b=1.2.3.4,a=1.2.3.4", "", "b==1.2.3.4,a=1.2.3.4"},
		{"b=::1,a=::1", "", "b=::1,a=::1"},
	} {
		t.Run(c.entries, func(t *testing.T) {
			entries := limitstest.Entries(c.entries)
			networks := make([]string, len(entries))
			path := ""
			rule := d.MatchNetworks(entries, networks)
			if rule != nil {
				path = rule.Path()
			}
			var parts []string
			for i, e := range entries {
				if networks[i] != "" {
					parts = append(parts, e.Key+"=="+networks[i])
				} else {
					parts = append(parts, e.Key+"="+e.Value)
				}
			}
			if counted := strings.Join(parts, ","); path != c.path || counted != c.counted {
				t.Errorf("%s, counted as %s; want %s, %s", path, counted, c.path, c.counted)
			}
			if d.Match(entries) != rule {
				t.Error("Match finds another rule")
			}
			// What is counted is a subject that leads to the same.
			if counted := d.Counted(entries); c.path != "a=10.1.2.3" && (d.Match(counted) != rule || !equalEntries(d.Counted(counted), counted)) {
				t.Errorf("%v is counted as %v", counted, d.Counted(counted))
			}
		})
	}
}

func equalEntries(a, b []bucket.Entry) bool { return fmt.Sprint(a) == fmt.Sprint(b) }

// randomAddress returns an address of few different bits, so that many share prefixes.
func randomAddress(r *rand.Rand) netip.Addr {
	bytes := make([]byte, 4+12*r.IntN(2))
	for i := range bytes {
		bytes[i] = [...]byte{0, 1, 0x80, 0xff}[r.IntN(4)]
	}
	a, _ := netip.AddrFromSlice(bytes)
	return a.Unmap()
}

func TestTheLongestPrefixIsThatOfBruteForce(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	pairs := soaktest.Long(1_000_000, 20_000_000)
	const prefixesEach, addressesEach = 200, 500
	for range pairs / (prefixesEach * addressesEach) {
		known := make(map[netip.Prefix]bool)
		text := "domain: d\ndescriptors:\n"
		for range prefixesEach {
			a := randomAddress(r)
			if p, _ := a.Prefix(r.IntN(a.BitLen() + 1)); !known[p] && !p.Addr().Is4In6() {
				known[p] = true
				text += fmt.Sprintf("- {key: a, cidr: [%q], rate_limit: {requests: 1, period: 1s}}\n", p.String())
			}
		}
		d := limitstest.Domain(t, text)
		for range addressesEach {
			a := randomAddress(r)
			var want netip.Prefix
			for p := range known {
				if p.Contains(a) && (!want.IsValid() || p.Bits() > want.Bits()) {
					want = p
				}
			}
			rule := d.Match([]bucket.Entry{{Key: "a", Value: a.String()}})
			if rule == nil && want.IsValid() || rule != nil && rule.Path() != "a="+want.String() {
				t.Fatalf("%s matches %v, want %s", a, rule, want)
			}
		}
	}
}

func TestOtherNetworksAreOtherRules(t *testing.T) {
	t.Parallel()
	seen := make(map[string]string)
	for _, text := range []string{
		"cidr: [10.0.0.0/8, 11.0.0.0/8, 12.0.0.0/8]", "cidr: [10.0.0.0/8, 11.0.0.0/8, 13.0.0.0/8]", "cidr: [10.0.0.0/8]", "value: 10.0.0.0/8", "network: {ipv4: 8}", "network: {ipv6: 8}",
		"cidr: [10.0.0.0/8], network: {ipv4: 8}", "cidr: [10.0.0.0/8], share_threshold: true", "shadow_mode: false",
	} {
		f := limitstest.Fingerprint(t, "domain: d\ndescriptors: [{key: a, "+text+", rate_limit: {requests: 1, period: 1s}}]")
		if seen[f] != "" {
			t.Errorf("%s has the fingerprint of %s", text, seen[f])
		}
		seen[f] = text
	}
	const swapped = "domain: d\ndescriptors: [{key: a, cidr: [10.0.0.0/8, 13.0.0.0/8, 11.0.0.0/8], rate_limit: {requests: 1, period: 1s}}]"
	if seen[limitstest.Fingerprint(t, swapped)] == "" {
		t.Error("the order of prefixes counts")
	}
}

// manyPrefixes returns a file of n prefixes in lists of 1,000.
func manyPrefixes(n int) string {
	var s strings.Builder
	s.WriteString("domain: d\ndescriptors:\n")
	for i := range n {
		if i%1000 == 0 {
			if i > 0 {
				s.WriteString("], rate_limit: {requests: 1, period: 1s}}\n")
			}
			s.WriteString("- {key: a, cidr: [")
		}
		fmt.Fprintf(&s, "%d.%d.%d.0/24, 2001:%x:%x::/48, ", 1+i>>16, i>>8&255, i&255, 1+i>>16, i&0xffff)
	}
	s.WriteString("], rate_limit: {requests: 1, period: 1s}}\n")
	return s.String()
}

func BenchmarkMatchNetworks(b *testing.B) {
	d := limitstest.Domain(b, manyPrefixes(50_000))
	for _, value := range []string{"1.100.50.7", "2001:1:6432:1:2:3:4:5", "none"} {
		b.Run(value, func(b *testing.B) {
			b.ReportAllocs()
			entries, networks := []bucket.Entry{{Key: "a", Value: value}}, make([]string, 1)
			for b.Loop() {
				if rule := d.MatchNetworks(entries, networks); (rule == nil) != (value == "none") {
					b.Fatal(rule)
				}
			}
		})
	}
}
