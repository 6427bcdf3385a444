package adminapi_test

import (
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/server/servertest"
)

// An address in a subject stands for the network by which it is counted.
func TestAddressesAreAssignedToAsTheyAreCounted(t *testing.T) {
	t.Parallel()
	f := servertest.NewAssignments(t)
	members, _, _ := servertest.WithMembers(t, servertest.SomeMembers())
	d := servertest.Start(t, `domain: api
descriptors: [{key: a, network: {ipv6: 64}, rate_limit: {requests: 3, period: 1h}}]`, members, servertest.WithAssignments(f))
	for _, c := range []struct{ method, path, body, want string }{
		{"POST", "/assignments", `{"puts":[{"assignment":{"domain":"api","entries":[{"key":"a","value":"2001:DB8::1"}],"blocked":true}}]}`, `"value":"2001:db8::/64"`},
		{"GET", "/assignment?domain=api&entry=a%3D[2001:db8::2]:80", "", `"value":"2001:db8::/64"`},
		{"POST", "/inspect", `{"domain":"api","entries":[{"key":"a","value":"2001:db8::3"}]}`, `"counted":"2001:db8::/64"`},
		{"POST", "/reset", `{"domain":"api","entries":[{"key":"a","value":"2001:db8::4"}]}`, `{`},
		{"GET", "/audit?domain=api&entry=a%3D2001:db8::5", "", `"value":"2001:db8::/64"`},
		{"DELETE", "/assignment?domain=api&entry=a%3D2001:db8::6", "", `DELETED`},
	} {
		p := d.AskAdmin(c.method, c.path, "run", c.body)
		if text := strings.ReplaceAll(p.Body, `": "`, `":"`); !strings.Contains(text, c.want) {
			t.Errorf("%s %s: %d %s", c.method, c.path, p.Code, p.Body)
		}
	}
}
