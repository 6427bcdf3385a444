package authapi_test

import (
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/server/servertest"
)

// The address is found for each caller and each list.
func TestAuthFindsTheAddressOfTheClient(t *testing.T) {
	t.Parallel()
	store := newKeys()
	d := servertest.Start(t, servertest.AuthLimits, servertest.On(store), servertest.WithAuth(t, servertest.AuthFile("caddy", "key: client, from: client_address")))
	const proxy, stranger = "127.0.0.1", "127.0.0.2"
	for _, c := range []struct {
		from      string
		forwarded []string
		want      string
	}{
		{stranger, nil, "127.0.0.2"},
		{stranger, []string{"1.2.3.4"}, "127.0.0.2"},
		{stranger, []string{"1.2.3.4, 10.0.0.1"}, "127.0.0.2"},
		{stranger, []string{"rubbish"}, "127.0.0.2"},

		{proxy, []string{"1.2.3.4"}, "1.2.3.4"},
		{proxy, []string{"5.6.7.8, 1.2.3.4"}, "1.2.3.4"},
		{proxy, []string{"5.6.7.8,1.2.3.4"}, "1.2.3.4"},
		{proxy, []string{"5.6.7.8 \t , \t 1.2.3.4 "}, "1.2.3.4"},
		{proxy, []string{"5.6.7.8", "1.2.3.4"}, "1.2.3.4"},
		{proxy, []string{"10.0.0.9, 1.2.3.4"}, "1.2.3.4"},
		{proxy, []string{"1.2.3.4, 10.0.0.9"}, "1.2.3.4"},
		{proxy, []string{"1.2.3.4", "10.0.0.9"}, "1.2.3.4"},
		{proxy, []string{"5.6.7.8, 1.2.3.4, 10.0.0.8, 10.0.0.9"}, "1.2.3.4"},
		{proxy, []string{"5.6.7.8, 10.0.0.7, 1.2.3.4, 10.0.0.9"}, "1.2.3.4"},
		{proxy, []string{"rubbish, 1.2.3.4, 10.0.0.9"}, "1.2.3.4"},
		{proxy, []string{"1.2.3.4, , 10.0.0.9,"}, "1.2.3.4"},
		// All hops are trusted proxies: the first one counts.
		{proxy, []string{"10.0.0.8, 10.0.0.9"}, "10.0.0.8"},
		{proxy, []string{"127.0.0.1"}, "127.0.0.1"},
		// The entry of the trusted proxy is no address.
		{proxy, nil, ""},
		{proxy, []string{""}, ""},
		{proxy, []string{" , ,"}, ""},
		{proxy, []string{"unix:"}, ""},
		{proxy, []string{"1.2.3.4, unknown"}, ""},
		{proxy, []string{"1.2.3.4, rubbish, 10.0.0.9"}, ""},
		{proxy, []string{"1.2.3.4.5"}, ""},
		{proxy, []string{"01.2.3.4"}, ""},
		// One address has one form.
		{proxy, []string{"::ffff:1.2.3.4"}, "1.2.3.4"},
		{proxy, []string{"1.2.3.4:5678"}, "1.2.3.4"},
		{proxy, []string{"1.2.3.4, ::ffff:10.0.0.9"}, "1.2.3.4"},
		{proxy, []string{"2001:DB8:0:0:0::1"}, "2001:db8::1"},
		{proxy, []string{"[2001:db8::1]:443"}, "2001:db8::1"},
		{proxy, []string{"2001:db8::1%eth0"}, "2001:db8::1"},
		{proxy, []string{"2001:db8::1, fd00::7"}, "2001:db8::1"},
	} {
		t.Run(c.from+" with "+strings.Join(c.forwarded, " and "), func(t *testing.T) {
			var headers []string
			for _, f := range c.forwarded {
				headers = append(headers, "X-Forwarded-For: "+f)
			}
			// Headers of other makers do not count.
			headers = append(headers, "X-Real-Ip: 9.9.9.9", "Forwarded: for=9.9.9.9")
			p := d.Auth(c.from, "GET", "n", headers...)
			if got := store.last(); p.Code != 200 || got != "client="+c.want {
				t.Errorf("got %d, %s; want client=%s", p.Code, got, c.want)
			}
		})
	}
}

func TestAuthCountsAddressesByNetwork(t *testing.T) {
	t.Parallel()
	store := newKeys()
	d := servertest.Start(t, servertest.AuthLimits, servertest.On(store), servertest.WithAuth(t, servertest.AuthFile("caddy", "key: client, from: client_address, ipv4_prefix: 24, ipv6_prefix: 64")))
	for address, want := range map[string]string{
		"1.2.3.4": "1.2.3.0/24", "1.2.3.255": "1.2.3.0/24", "::ffff:1.2.3.4": "1.2.3.0/24",
		"2001:db8:1:2:3::4": "2001:db8:1:2::/64", "2001:db8:1:2::": "2001:db8:1:2::/64", "": "",
	} {
		t.Run("address "+address, func(t *testing.T) {
			d.Auth("127.0.0.1", "GET", "n", "X-Forwarded-For: "+address)
			if got := store.last(); got != "client="+want {
				t.Errorf("got %s, want %s", got, want)
			}
		})
	}
}
