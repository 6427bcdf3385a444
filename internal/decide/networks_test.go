package decide_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/assign"
	"github.com/ratelimitd/ratelimitd/internal/decide/decidetest"
)

const networksLimits = `domain: d
hash_tag: a
descriptors:
- {key: a, cidr: [10.0.0.0/8], rate_limit: {unlimited: true}}
- {key: a, cidr: [11.0.0.0/8], rate_limit: &one {requests: 1, period: 1h}}
- {key: a, cidr: [12.0.0.0/8, 13.0.0.0/8], rate_limit: *one, share_threshold: true}
- {key: a, value: 2001:db8::/64, rate_limit: *one}
- {key: a, network: {ipv6: 64}, rate_limit: *one, descriptors: [{key: id, rate_limit: {algorithm: concurrency, requests: 1, hold: 1h}}]}
- {key: b, value: "b*", share_threshold: true, rate_limit: *one}
`

// Each row takes one of the same limit as the first of its group.
func TestAddressesOfANetworkShareItsLimit(t *testing.T) {
	t.Parallel()
	for _, group := range [][]string{
		{"a=11.0.0.1", "a=11.0.0.1:80", "a=::ffff:11.0.0.1", "a=[::ffff:b00:1]:443", "a=11.0.0.1/32"},
		{"a=12.0.0.1", "a=12.255.0.1", "a=12.0.0.0/8", "a=12.3.0.0/16"},
		{"a=2001:db8::1", "a=2001:db8::2", "a=2001:DB8:0:0:ffff::", "a=[2001:db8::1%eth0]:1"},
		{"a=14.0.0.1", "a=::ffff:14.0.0.1"},
	} {
		r := newRig(t, networksLimits)
		for i, entries := range group {
			if c := r.Take(decidetest.Asking(entries, 1)); c.Denied != (i > 0) {
				t.Errorf("%s after %v: denied is %t", entries, group[:i], c.Denied)
			}
		}
		for _, others := range []string{"a=10.0.0.1", "a=10.0.0.1", "a=11.0.0.2", "a=13.0.0.1", "a=2001:db8::/64", "a=2001:db8:0:1::1", "a=14.0.0.2", "a=12.0.0", "b=b"} {
			if c := r.Take(decidetest.Asking(others, 1)); c.Denied {
				t.Errorf("%s is denied after %v", others, group)
			}
		}
	}
}

// The text of a network is not that of a value, and its hash tag is that of the network.
func TestKeysOfNetworks(t *testing.T) {
	t.Parallel()
	for entries, want := range map[string]string{
		"a=2001:db8::/64":    "d|a=2001:db8::/64#token_bucket at 2001:db8::/64",
		"a=2001:DB8::1":      "d|a==2001:db8::/64#token_bucket at 2001:db8::/64",
		"a=12.3.4.5:6":       "d|a==12.0.0.0/8#token_bucket at 12.0.0.0/8",
		"a=unknown":          "d|a=unknown#token_bucket at unknown",
		"a=2001:db8::1,id=x": "d|a==2001:db8::/64|id=#concurrency at 2001:db8::/64",
		"b=bc":               "d|b==b*#token_bucket at d|b==b*",
	} {
		c := newRig(t, networksLimits).Take(decidetest.Asking(entries, 1))
		h := &c.Hits[0]
		if got := string(h.Key) + " at " + string(h.Place); got != want {
			t.Errorf("%s: got %s, want %s", entries, got, want)
		}
	}
}

func TestNetworksAreAssignedTo(t *testing.T) {
	t.Parallel()
	r := newRig(t, networksLimits)
	r.assign("a=2001:db8:1:2::/64", assign.Terms{Blocked: true})
	r.assign("a=2001:db8:1:3::/64", assign.Terms{Unlimited: true})
	for range 2 {
		if !r.Take(decidetest.Asking("a=2001:db8:1:2::1", 1)).Denied || !r.Take(decidetest.Asking("a=[2001:db8:1:2::9]:1,id=x", 1)).Denied {
			t.Error("an address of a blocked network passes")
		}
		if r.Take(decidetest.Asking("a=2001:db8:1:3::1", 1)).Denied {
			t.Error("an address of an unlimited network is denied")
		}
	}
}

func TestAnAddressResetsItsNetwork(t *testing.T) {
	t.Parallel()
	r := newRig(t, networksLimits)
	r.Take(decidetest.Asking("a=2001:db8::1", 1))
	for _, entries := range []string{"a=2001:db8::2", "a=2001:DB8::5/64"} {
		states, err := r.Resettable("d", decidetest.Entries(entries), nil)
		if err != nil || !slices.Equal(states.Keys, []string{"d|a==2001:db8::/64#token_bucket"}) {
			t.Errorf("%s: %s, %v", entries, strings.Join(states.Keys, " "), err)
		}
	}
}

// A call of addresses that are written as they are counted allocates nothing.
func TestAddressesAsCountedAllocateNothing(t *testing.T) {
	r := newRig(t, networksLimits)
	asked := decidetest.Asking("a=11.0.0.1", 1)
	if n := testing.AllocsPerRun(100, func() {
		c := r.Decider.Call(0)
		c.Domain = "d"
		c.Descriptors = append(c.Descriptors, asked)
		if c.Check(true) != nil || r.Match(c) != nil {
			t.Error("not matched")
		}
		c.Release()
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
