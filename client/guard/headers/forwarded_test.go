package headers_test

import (
	"net/netip"
	"testing"

	"github.com/ratelimitd/ratelimitd/client/guard/headers"
)

// trusts says of the proxies in 10.0.0.0/8 and fd00::/8 that they are trusted.
func trusts(a netip.Addr) bool {
	return netip.MustParsePrefix("10.0.0.0/8").Contains(a) || netip.MustParsePrefix("fd00::/8").Contains(a)
}

func TestSenderIsWhoTheFirstTrustedProxySaw(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		values []string
		want   string // "" for none
		ok     bool
	}{
		{"no header", nil, "", true},
		{"nothing in it", []string{"", " , ,\t"}, "", true},
		{"a client", []string{"1.2.3.4"}, "1.2.3.4", true},
		{"trusted proxies on the way", []string{"1.2.3.4, 10.0.0.1", "fd00::1,10.0.0.2"}, "1.2.3.4", true},
		{"what a client wrote itself", []string{"10.9.9.9, 6.6.6.6, 1.2.3.4, 10.0.0.1"}, "1.2.3.4", true},
		{"garbage that a client wrote itself", []string{"\xff, %, 1.2.3.4"}, "1.2.3.4", true},
		{"a header that a client wrote itself", []string{"6.6.6.6", "1.2.3.4, 10.0.0.1"}, "1.2.3.4", true},
		{"nobody but trusted ones", []string{"10.0.0.1, 10.0.0.2"}, "10.0.0.1", true},
		{"empty elements", []string{"1.2.3.4,, ,10.0.0.1,"}, "1.2.3.4", true},
		{"garbage of a trusted proxy", []string{"1.2.3.4, unknown, 10.0.0.1"}, "", false},
		{"a proxy's address within IPv6", []string{"1.2.3.4, ::ffff:10.0.0.1"}, "1.2.3.4", true},
		{"ports and brackets", []string{"[2001:db8::1]:443, [fd00::1], 10.0.0.1:80"}, "2001:db8::1", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, ok := headers.Sender(c.values, trusts)
			text := ""
			if got.IsValid() {
				text = got.String()
			}
			if text != c.want || ok != c.ok {
				t.Errorf("got %q, %t, want %q, %t", text, ok, c.want, c.ok)
			}
		})
	}
}

// FuzzSender has a client write what it likes before its own address, which a trusted
// proxy appended, in that header or in one before it.
func FuzzSender(f *testing.F) {
	f.Add("10.0.0.1", "10.0.0.2, ")
	f.Add("[", "\x00,")
	f.Fuzz(func(t *testing.T, header, before string) {
		got, ok := headers.Sender([]string{header, before + ",1.2.3.4, 10.0.0.1"}, trusts)
		if !ok || got != netip.MustParseAddr("1.2.3.4") {
			t.Errorf("%q, %q: %v, %t", header, before, got, ok)
		}
	})
}

func TestEachSpellingOfAnAddressIsOne(t *testing.T) {
	t.Parallel()
	for want, texts := range map[string][]string{
		"1.2.3.4":     {"1.2.3.4", "1.2.3.4:80", "::ffff:1.2.3.4", "[::ffff:1.2.3.4]", "[::ffff:1.2.3.4]:80"},
		"2001:db8::1": {"2001:db8::1", "2001:DB8:0:0::1", "[2001:db8::1]", "[2001:db8::1]:443"},
		"fe80::1":     {"fe80::1%eth0", "[fe80::1%eth0]", "[fe80::1%a]:5"},
	} {
		for _, text := range texts {
			if got, ok := headers.ParseAddress(text); !ok || got != netip.MustParseAddr(want) {
				t.Errorf("%s is %v, %t, want %s", text, got, ok, want)
			}
		}
	}
	for _, text := range []string{"", "unknown", "_hidden", "1.2.3", "1.2.3.4.5", "01.2.3.4", "[1.2.3.4", "[::1", "a.example:80", "1.2.3.4:99999"} {
		if got, ok := headers.ParseAddress(text); ok {
			t.Errorf("%q is %v", text, got)
		}
	}
}
