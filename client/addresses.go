package client

import (
	"fmt"
	"strings"

	"google.golang.org/grpc/resolver"
)

// addressList resolves a target that is a list of addresses.
type addressList struct{ state resolver.State }

// newAddressList reads host:port,host:port.
func newAddressList(target string) (*addressList, error) {
	var a addressList
	for i, address := range strings.Split(target, ",") {
		address = strings.TrimSpace(address)
		if address == "" {
			return nil, fmt.Errorf("client: target %q: address %d is empty; allowed: host:port,host:port", target, i+1)
		}
		a.state.Endpoints = append(a.state.Endpoints, resolver.Endpoint{Addresses: []resolver.Address{{Addr: address, ServerName: address}}})
	}
	return &a, nil
}

// Scheme implements resolver.Builder.
func (*addressList) Scheme() string { return "ratelimitd-list" }

// Build implements resolver.Builder.
func (a *addressList) Build(_ resolver.Target, cc resolver.ClientConn, _ resolver.BuildOptions) (resolver.Resolver, error) {
	return a, cc.UpdateState(a.state)
}

// ResolveNow implements resolver.Resolver: a list does not change.
func (*addressList) ResolveNow(resolver.ResolveNowOptions) {}

// Close implements resolver.Resolver.
func (*addressList) Close() {}
