package adminapi

import (
	"maps"
	"net/http"
	"slices"
	"strings"
)

// proxyHeaders are those that proxies, load balancers and content networks add, as their
// documentation has them, and proxyPrefixes begin the names of others. A caller on this
// machine has no reason to send one.
var (
	proxyHeaders = []string{
		"Forwarded", "Via", "Cdn-Loop", // RFC 7239, RFC 9110, RFC 8586
		"X-Real-Ip", "X-Client-Ip", "X-Cluster-Client-Ip", "X-Original-Forwarded-For", "X-Original-Host",
		"X-Originating-Ip", "X-Remote-Ip", "X-Remote-Addr", "X-Proxyuser-Ip", "Proxy-Client-Ip", "Wl-Proxy-Client-Ip",
		"True-Client-Ip", "Fastly-Client-Ip", "Fly-Client-Ip", "X-Azure-Clientip", "X-Azure-Socketip", "X-Appengine-User-Ip", "X-Nf-Client-Connection-Ip",
	}
	proxyPrefixes = []string{"X-Forwarded", "Cf-", "X-Envoy-", "Akamai-"}
)

// proxyHeader returns a header that says that a request came through a proxy, or "".
func proxyHeader(h http.Header) string {
	for _, name := range slices.Sorted(maps.Keys(h)) {
		isOf := func(prefix string) bool { return strings.HasPrefix(name, prefix) }
		if slices.Contains(proxyHeaders, name) || slices.ContainsFunc(proxyPrefixes, isOf) {
			return name
		}
	}
	return ""
}
