package integration

import (
	"slices"
	"testing"
)

// Envoy sends addresses and networks that match by cidr, and are counted by network.
func TestEnvoysAddressesAreCountedByNetwork(t *testing.T) {
	t.Parallel()
	needEnvoy(t)
	dir := t.TempDir()
	write(t, dir, "envoy.yaml", `
domain: envoy
descriptors:
  - key: remote_address
    cidr: [10.0.0.0/8, 2001:db8:5::/48]
    rate_limit: {unlimited: true}
  - key: remote_address
    network: {ipv4: 32, ipv6: 64}
    rate_limit: {requests: 1, period: 1d}
  - key: masked_remote_address
    cidr: [198.51.0.0/16]
    rate_limit: {unlimited: true}
  - key: masked_remote_address
    network: {ipv4: 16, ipv6: 56}
    rate_limit: {requests: 1, period: 1d}
`)
	d := start(t, "--limits-path", dir)
	b := startBackend(t)
	routes := perRoute("/address", "- actions: [{remote_address: {}}]\n") +
		perRoute("/masked", "- actions: [{masked_remote_address: {v4_prefix_mask_len: 24, v6_prefix_mask_len: 64}}]\n")
	e := startEnvoy(t, configure(t, []front{{Name: "f", Filter: patiently, Routes: routes, Tracing: "xff_num_trusted_hops: 1"}},
		ratelimitdAt(d.grpc), b.cluster()))
	for _, c := range []struct {
		path, address string
		want          []int
	}{
		{"/address", "10.1.2.3", []int{200, 200}},
		{"/address", "2001:db8:5::1", []int{200, 200}},
		{"/address", "192.0.2.1", []int{200, 429}},
		{"/address", "192.0.2.2", []int{200, 429}},
		{"/address", "2001:db8:6:1::1", []int{200, 429}},
		{"/address", "2001:DB8:6:1:0::2", []int{429}},
		{"/address", "2001:db8:6:2::1", []int{200, 429}},
		{"/masked", "198.51.100.1", []int{200, 200}},
		{"/masked", "192.0.2.1", []int{200, 429}},
		{"/masked", "192.0.3.1", []int{429}},
		{"/masked", "192.1.3.1", []int{200, 429}},
		{"/masked", "2001:db8:6:1::1", []int{200, 429}},
		{"/masked", "2001:db8:6:ff::1", []int{429}},
		{"/masked", "2001:db8:6:100::1", []int{200, 429}},
	} {
		if got := e.statuses(len(c.want), "f", c.path, "x-forwarded-for: "+c.address); !slices.Equal(got, c.want) {
			t.Errorf("%s from %s: %v, want %v", c.path, c.address, got, c.want)
		}
	}
}
