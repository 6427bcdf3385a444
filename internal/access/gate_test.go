package access_test

import (
	"crypto/x509"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/access"
)

func authorization(values ...string) access.Credentials {
	var c access.Credentials
	c.ReadAuthorization(values)
	return c
}

func bearer(token string) access.Credentials { return authorization("Bearer " + token) }

func certificate(names ...string) access.Credentials {
	return access.Credentials{HasCertificate: true, Names: names}
}

// identified returns who it is, or the error.
func identified(g *access.Gate, address string, shown access.Credentials) string {
	m, err := g.Identify(netip.MustParseAddr(address), &shown)
	if err != nil {
		return err.Error()
	}
	return m.Name + " " + m.Role.String()
}

func TestWithoutATokensFileThisMachineViews(t *testing.T) {
	t.Parallel()
	loopback, other := access.NewGate(nil, true, time.Now), access.NewGate(nil, false, time.Now)
	for _, c := range []struct {
		name, address string
		gate          *access.Gate
		shown         access.Credentials
		want          string
	}{
		{"on loopback", "127.0.0.1", loopback, access.Credentials{}, "local viewer"},
		{"on IPv6's", "::1", loopback, access.Credentials{}, "local viewer"},
		{"on loopback in the form of IPv6", "::ffff:127.0.0.2", loopback, access.Credentials{}, "local viewer"},
		{"from elsewhere", "192.0.2.1", loopback, access.Credentials{}, access.ErrNoCredentials.Error()},
		{"on another address", "127.0.0.1", other, access.Credentials{}, access.ErrNoCredentials.Error()},
		{"with a token", "127.0.0.1", loopback, bearer("t"), access.ErrNoTokens.Error()},
		{"with a token on another address", "127.0.0.1", other, bearer("t"), access.ErrNoTokens.Error()},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := identified(c.gate, c.address, c.shown); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

// limited is a gate on a clock that the test moves.
func limited(t *testing.T) (gate *access.Gate, now *time.Time) {
	t.Helper()
	live, _, err := members(t, "- {name: a, role: viewer, sha256: "+sum("good")+"}\n")
	if err != nil {
		t.Fatal(err)
	}
	now = new(time.Unix(1e9, 0))
	return access.NewGate(live, false, func() time.Time { return *now }), now
}

func TestGuessesFromAnAddressAreBounded(t *testing.T) {
	t.Parallel()
	gate, now := limited(t)
	for i := range 10 {
		if got := identified(gate, "2001:db8::1", bearer(fmt.Sprint(i))); got != access.ErrUnknown.Error() {
			t.Fatalf("guess %d: %s", i, got)
		}
	}
	for _, c := range []struct{ address, token, want string }{
		{"2001:db8::1", "x", access.ErrTooMany.Error()},
		{"2001:db8::1", "good", access.ErrTooMany.Error()}, // else guesses would go on
		{"2001:db8::2", "good", access.ErrTooMany.Error()}, // the same network
		{"2001:db8:0:1::1", "good", "a viewer"},
		{"192.0.2.1", "good", "a viewer"},
	} {
		if got := identified(gate, c.address, bearer(c.token)); got != c.want {
			t.Errorf("%s from %s: %s, want %s", c.token, c.address, got, c.want)
		}
	}
	*now = now.Add(6 * time.Second)
	if got := identified(gate, "2001:db8::1", bearer("good")); got != "a viewer" {
		t.Errorf("after 6 s: %s", got)
	}
}

// While many addresses guess, each of them has one guess, and others are let in.
func TestGuessesFromManyAddressesDoNotLockOthersOut(t *testing.T) {
	t.Parallel()
	gate, _ := limited(t)
	address := func(i int) string { return fmt.Sprintf("10.%d.%d.1", i/256, i%256) }
	for i := range 10_000 {
		if got := identified(gate, address(i), bearer("x")); got != access.ErrUnknown.Error() {
			t.Fatalf("guess %d: %s", i, got)
		}
	}
	if got := identified(gate, address(9_999), bearer("x")); got != access.ErrTooMany.Error() {
		t.Errorf("another guess: %s", got)
	}
	if got := identified(gate, "192.0.2.1", bearer("good")); got != "a viewer" {
		t.Errorf("a good token from elsewhere: %s", got)
	}
}

func TestNamesOfACertificate(t *testing.T) {
	t.Parallel()
	got := access.Names(&x509.Certificate{
		URIs: []*url.URL{{Scheme: "spiffe", Host: "corp", Path: "/Ops"}}, DNSNames: []string{"Ops.Corp"},
		EmailAddresses: []string{"ops@corp"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	})
	if want := []string{"uri:spiffe://corp/Ops", "dns:ops.corp", "email:ops@corp", "ip:127.0.0.1"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
